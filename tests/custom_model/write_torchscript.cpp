// Writes the TorchScript files that tests of the program train:
//     write_torchscript FOLDER VOCABULARY WIDTH      embedding.pt, head.pt
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <torch/script.h>

#include <cstdint>
#include <string>

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const std::string folder = argv[1];
    const std::int64_t vocabulary = std::stoll(argv[2]), width = std::stoll(argv[3]);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(1);

    torch::jit::Module embedding("Embedding");
    embedding.register_parameter("table", at::randn({vocabulary, width}), false);
    embedding.define("def forward(self, x):\n    return torch.embedding(self.table, x)\n");
    embedding.save(folder + "/embedding.pt");

    torch::jit::Module head("Head");
    head.register_parameter("weight", at::randn({vocabulary, width}) * 0.1, false);
    head.register_parameter("bias", at::zeros({vocabulary}), false);
    head.define(
        "def forward(self, x):\n    return torch.linear(torch.tanh(x), self.weight, self.bias)\n");
    head.save(folder + "/head.pt");
}
