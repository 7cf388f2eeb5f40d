// Models of torch::nn modules and of TorchScript files.
#include "base/error.h"
#include "model/module_model.h"
#include "model/stage_rig.h"
#include "model/torchscript_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

namespace fullshard::model {
namespace {

constexpr std::int64_t kVocabulary = 9, kWidth = 6, kBatch = 2, kSequence = 5;

/// Parameters of 0, 1 and 2 dimensions, a module used twice, a frozen one, an unused one, a buffer.
struct OddModule : torch::nn::Module {
    torch::nn::Linear linear{kWidth, kWidth};
    at::Tensor gain = register_parameter("gain", at::full({}, 0.5));
    at::Tensor frozen = register_parameter("frozen", at::ones({kWidth}), false);
    at::Tensor unused = register_parameter("unused", at::ones({3}));
    at::Tensor shift = register_buffer("shift", at::full({kWidth}, 1.0 / 3));

    OddModule() {
        register_module("linear", linear);
        register_module("again", linear);
    }
    at::Tensor forward(const at::Tensor& x) {
        return x + gain * linear(linear(x).tanh() * frozen) + shift;
    }
};

std::vector<ModuleStage> odd_stages() {
    return {{"embed", [] { return built(torch::nn::Embedding(kVocabulary, kWidth)); }},
            {"odd", [] { return built(std::make_shared<OddModule>()); }, true},
            {"odder", [] { return built(std::make_shared<OddModule>()); }, true},
            {"head", [] {
                 return built(
                     torch::nn::Linear(torch::nn::LinearOptions(kWidth, kVocabulary).bias(false)));
             }}};
}

MicroBatch small_batch() {
    MicroBatch batch;
    batch.tokens = random_classes({kBatch, kSequence}, kVocabulary, 1);
    batch.targets = random_classes({kBatch, kSequence}, kVocabulary, 2);
    batch.targets.select(1, 0).fill_(MicroBatch::kIgnoredTarget);
    batch.loss_factor = 0.25;
    return batch;
}

at::Tensor small_input(DType type = DType::kFloat32) {
    return random_tensor({kBatch, kSequence, kWidth}, 3).to(scalar_type(type)).requires_grad_(true);
}

void expect_refused(const std::function<void()>& action, const std::string& part_of_message) {
    try {
        action();
        ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find(part_of_message), std::string::npos)
            << error.what();
    }
}

TEST(ModuleModel, IsDescribedByItsModules) {
    const auto model = make_module_model(odd_stages(), {{"head.weight", "embed.weight"}});
    const auto& stages = model->spec().stages;
    EXPECT_EQ(model->spec().family, "custom");
    ASSERT_EQ(stages.size(), 4U);
    EXPECT_EQ(stages[1].name, "odd");
    EXPECT_TRUE(stages[1].block);
    EXPECT_FALSE(stages[0].block);
    std::vector<std::string> names;
    for (const auto& parameter : stages[1].parameters) names.push_back(parameter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"odd.gain", "odd.frozen", "odd.unused",
                                               "odd.linear.weight", "odd.linear.bias"}));
    EXPECT_EQ(stages[1].parameters[0].shape, std::vector<std::int64_t>{});
    EXPECT_EQ(stages[1].parameters[0].decay, spec::DecayClass::kNoDecay);
    EXPECT_FALSE(stages[1].parameters[1].trainable);
    EXPECT_EQ(stages[1].parameters[3].decay, spec::DecayClass::kDecay);
    EXPECT_EQ(stages[1].parameters[3].init.kind, spec::InitRule::Kind::kModule);
    EXPECT_EQ(stages[3].parameters[0].tied_to, "embed.weight");
}

TEST(ModuleModel, TiesAWholeStage) {
    const auto model = make_module_model(odd_stages(), {{"odder", "odd"}});
    for (const auto& parameter : model->spec().stages[2].parameters) {
        EXPECT_EQ("odder" + parameter.tied_to.substr(3), parameter.name);
    }
    EXPECT_FALSE(model->spec().stages[2].parameters[1].trainable);
}

TEST(ModuleModel, InitialValuesDependOnSeedAndStageOnly) {
    const auto model = make_module_model(odd_stages(), {{"head.weight", "embed.weight"}});
    const auto values = model->initial_values(1, 7);
    seed_generator(1234);
    EXPECT_EQ(model->initial_values(1, 7), values);
    ASSERT_EQ(values.size(), 5U);
    EXPECT_EQ(values[0], std::vector<float>{0.5F});
    EXPECT_EQ(values[3].size(), static_cast<std::size_t>(kWidth * kWidth));
    EXPECT_NE(model->initial_values(2, 7)[3], values[3]);
    EXPECT_NE(model->initial_values(1, 8)[3], values[3]);
    EXPECT_TRUE(model->initial_values(3, 7)[0].empty());  // tied
    EXPECT_EQ(model->initial_values(0, 7)[0].size(),
              static_cast<std::size_t>(kVocabulary * kWidth));
}

/// The module with the rig's parameters as ordinary leaves, in the order of the stage's.
std::pair<std::shared_ptr<OddModule>, std::vector<at::Tensor>> plain_module(const StageRig& rig) {
    auto module = std::make_shared<OddModule>();
    const auto values = rig.copies();
    std::vector<at::Tensor> leaves{module->gain, module->frozen, module->unused,
                                   module->linear->weight, module->linear->bias};
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i].copy_(values[i]);
    return {module, leaves};
}

TEST(ModuleModel, GradientsAreThoseOfThePlainModule) {
    StageRig rig(make_module_model(odd_stages()), 1, {.frozen = {1}});
    const auto [module, leaves] = plain_module(rig);
    for (int pass = 1; pass <= 2; ++pass) {
        const at::Tensor x = small_input(), plain_x = small_input();
        const at::Tensor grad_out = random_tensor(x.sizes(), 8);
        const at::Tensor out = rig.stage().forward(x, small_batch());
        const at::Tensor plain_out = module->forward(plain_x);
        EXPECT_TRUE(out.equal(plain_out));
        const auto expected = torch::autograd::grad(
            {plain_out}, {leaves[0], leaves[3], leaves[4], plain_x}, {grad_out});
        EXPECT_TRUE(rig.backward(out, x, grad_out).equal(expected[3]));
        expect_close(rig.gradient(0), pass * expected[0], 1e-6, "gain");
        expect_close(rig.gradient(3), pass * expected[1], 1e-6, "weight, used twice");
        expect_close(rig.gradient(4), pass * expected[2], 1e-6, "bias, used twice");
    }
    EXPECT_FALSE(rig.sink().written(1));  // frozen
    EXPECT_FALSE(rig.sink().written(2));  // unused: the store counts it as zero
}

TEST(ModuleModel, SeesNewValuesInItsMemory) {
    StageRig rig(make_module_model(odd_stages()), 1);
    const at::Tensor before = rig.stage().forward(small_input(), small_batch());
    rig.memory(0).fill_(0.0);
    const at::Tensor x = small_input();
    const at::Tensor after = rig.stage().forward(x, small_batch());
    EXPECT_FALSE(after.equal(before));
    EXPECT_TRUE(after.equal(x + at::full({kWidth}, 1.0 / 3)));
}

TEST(ModuleModel, RunsInHalfWidthWithBuffersOfTheirOwnType) {
    for (const DType compute : {DType::kBFloat16, DType::kFloat16}) {
        StageRig rig(make_module_model(odd_stages()), 1, {.compute = compute});
        const at::Tensor x = small_input(compute);
        const auto [module, leaves] = plain_module(rig);
        const at::Tensor expected = module->forward(x.detach().to(at::kFloat));
        for (const DType buffer : {DType::kFloat32, compute}) {
            rig.stage().set_buffer_type(scalar_type(buffer));
            const at::Tensor out = rig.stage().forward(x, small_batch());
            EXPECT_EQ(out.scalar_type(), scalar_type(buffer));  // the buffer is added last
            expect_close(out.to(at::kFloat), expected, 2e-2, std::string(name_of(compute)));
        }
    }
}

TEST(ModuleModel, TakesTheComputeTypeAfterAStageThatWidens) {
    StageRig rig(make_module_model(odd_stages()), 3, {.compute = DType::kBFloat16});
    const at::Tensor x = small_input();
    const at::Tensor loss = rig.head().loss(x, small_batch());
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_EQ(rig.backward(loss, x, at::scalar_tensor(1.0)).scalar_type(), at::kFloat);
}

TEST(ModuleModel, LossIsTheCrossEntropyOfItsLogits) {
    StageRig rig(make_module_model(odd_stages()), 3);
    const at::Tensor x = small_input();
    const MicroBatch batch = small_batch();
    const at::Tensor logits = rig.head().forward(x, batch);
    const at::Tensor expected =
        batch.loss_factor * at::cross_entropy_loss(logits.flatten(0, 1), batch.targets.flatten(),
                                                   {}, at::Reduction::Sum,
                                                   MicroBatch::kIgnoredTarget);
    const at::Tensor loss = rig.head().loss(x, batch);
    expect_close(loss, expected, 1e-6, "loss");
    const auto gradients = torch::autograd::grad({expected}, {x});
    expect_close(rig.backward(loss, x, at::scalar_tensor(1.0)), gradients[0], 1e-6, "input");
}

/// Counts its calls, as BatchNorm does.
struct CountingModule : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::ones({kWidth}));
    at::Tensor calls = register_buffer("calls", at::full({}, 0));
    at::Tensor forward(const at::Tensor& x) {
        calls += 1;
        return x * weight;
    }
};

struct InPlace : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::ones({kWidth}));
    at::Tensor forward(at::Tensor x) { return x.relu_() * weight; }
};

TEST(ModuleModel, RefusesWhatCannotBeTrainedHere) {
    const ModuleStage counting{"count", [] { return built(std::make_shared<CountingModule>()); }};
    StageRig rig(make_module_model({counting, odd_stages()[3]}), 0);
    expect_refused([&] { rig.stage().forward(small_input(), small_batch()); }, "'calls'");

    StageRig in_place(
        make_module_model(
            {{"relu", [] { return built(std::make_shared<InPlace>()); }}, odd_stages()[3]}),
        0);
    const at::Tensor x = small_input().detach();
    expect_refused([&] { in_place.stage().forward(x, small_batch()); }, "in place");

    const auto stages = odd_stages();
    expect_refused([] { make_module_model({}); }, "at least one stage");
    expect_refused([&] { make_module_model({stages[0], stages[0]}); }, "'embed.weight'");
    expect_refused(
        [&] {
            make_module_model(stages, {{"tail.weight", "embed.weight"}});
        },
        "'tail.weight'");
    expect_refused(
        [&] {
            make_module_model(stages, {{"head.weight", "stem.weight"}});
        },
        "no earlier stage");
    expect_refused(
        [&] {
            make_module_model(stages, {{"embed.weight", "head.weight"}});
        },
        "no earlier stage");
    expect_refused(
        [&] {
            make_module_model(stages, {{"head.weight", "odd.linear.weight"}});
        },
        "its shape");

    StageRig last(make_module_model({stages[0], stages[1]}), 1);
    const at::Tensor one_row = small_input().select(0, 0);
    expect_refused([&] { last.head().loss(one_row, small_batch()); }, "give logits");
}

class TorchScript : public testing::Test {
  protected:
    TorchScript()
        : folder_(std::filesystem::temp_directory_path() /
                  ("fullshard_torchscript_" + std::to_string(getpid()))) {
        std::filesystem::create_directories(folder_);
    }
    ~TorchScript() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& name) const { return (folder_ / name).string(); }

    static torch::jit::Module embedding() {
        torch::jit::Module module("Embedding");
        module.register_parameter("table", random_tensor({kVocabulary, kWidth}, 1), false);
        module.define(
            "def forward(self, tokens):\n    return torch.embedding(self.table, tokens)\n");
        return module;
    }
    static torch::jit::Module head() {
        torch::jit::Module module("Head");
        module.register_parameter("weight", random_tensor({kVocabulary, kWidth}, 2), false);
        module.register_parameter("gain", at::full({}, 0.75), false);
        module.define(
            "def forward(self, x):\n    return torch.linear(x * self.gain, self.weight)\n");
        return module;
    }
    /// Embedding and head in one.
    static torch::jit::Module whole() {
        torch::jit::Module module("Whole");
        module.register_module("embedding", embedding());
        module.register_module("head", head());
        module.define(
            "def forward(self, x):\n    return self.head.forward(self.embedding.forward(x))\n");
        return module;
    }
    std::string saved(const std::string& name, const torch::jit::Module& module) const {
        module.save(path(name));
        return path(name);
    }

    std::filesystem::path folder_;
};

TEST_F(TorchScript, AFileIsAWholeModel) {
    const auto model = load_torchscript_model({saved("whole.pt", whole())});
    ASSERT_EQ(model->spec().stages.size(), 1U);
    const auto& parameters = model->spec().stages[0].parameters;
    ASSERT_EQ(parameters.size(), 3U);
    EXPECT_EQ(model->spec().family, "torchscript");
    EXPECT_EQ(parameters[0].name, "embedding.table");
    EXPECT_EQ(parameters[2].name, "head.gain");
    const auto values = model->initial_values(0, 5);
    const at::Tensor table = random_tensor({kVocabulary, kWidth}, 1);
    EXPECT_EQ(values[0], std::vector<float>(table.const_data_ptr<float>(),
                                            table.const_data_ptr<float>() + table.numel()));
    EXPECT_EQ(values[2], std::vector<float>{0.75F});
}

TEST_F(TorchScript, TrainsAStepDownhillWithTheGradientsOfAutograd) {
    StageRig rig(load_torchscript_model({saved("whole.pt", whole())}), 0);
    const MicroBatch batch = small_batch();
    const auto leaves = rig.copies();
    const at::Tensor rows = leaves[0].index_select(0, batch.tokens.flatten());
    const at::Tensor expected_loss =
        batch.loss_factor * at::cross_entropy_loss((rows * leaves[2]).matmul(leaves[1].t()),
                                                   batch.targets.flatten(), {}, at::Reduction::Sum,
                                                   MicroBatch::kIgnoredTarget);
    const auto expected = torch::autograd::grad({expected_loss}, leaves);

    double previous = 1e9;
    for (int step = 0; step < 4; ++step) {
        rig.sink().poison();
        const at::Tensor loss = rig.head().loss({}, batch);
        EXPECT_LT(loss.item<double>(), previous);
        previous = loss.item<double>();
        rig.backward(loss, {}, at::scalar_tensor(1.0));
        for (std::size_t i = 0; i < rig.size(); ++i) {
            if (step == 0) expect_close(rig.gradient(i), expected[i], 1e-5, std::to_string(i));
            rig.memory(i).sub_(rig.gradient(i), 0.1);
        }
    }
}

TEST_F(TorchScript, FilesAreStages) {
    const auto model =
        load_torchscript_model({saved("first.pt", embedding()), saved("last.pt", head())});
    const auto& stages = model->spec().stages;
    ASSERT_EQ(stages.size(), 2U);
    EXPECT_EQ(stages[0].parameters[0].name, "first.table");
    EXPECT_EQ(stages[1].parameters[0].name, "last.weight");
    StageRig first(model, 0), last(model, 1);
    const at::Tensor hidden = first.stage().forward({}, small_batch());
    EXPECT_EQ(hidden.size(2), kWidth);
    EXPECT_EQ(last.head().forward(hidden, small_batch()).size(2), kVocabulary);
}

TEST_F(TorchScript, RefusesFilesThatCannotBeTrained) {
    torch::jit::Module frozen = whole();
    frozen.eval();
    const auto refuse = [](const std::string& file, const std::string& message) {
        expect_refused([&] { load_torchscript_model({file}); }, message);
        expect_refused([&] { load_torchscript_model({file}); }, file);
    };
    refuse(saved("frozen.pt", torch::jit::freeze(frozen)), "without torch.jit.freeze");

    torch::jit::Module empty("Empty");
    empty.define("def forward(self, x):\n    return x\n");
    refuse(saved("empty.pt", empty), "no parameters");

    torch::jit::Module two("Two");
    two.register_parameter("weight", at::ones({3}), false);
    two.define("def forward(self, x, y):\n    return x * self.weight + y\n");
    refuse(saved("two.pt", two), "one tensor");
    refuse(path("missing.pt"), "not readable");
}

}  // namespace
}  // namespace fullshard::model
