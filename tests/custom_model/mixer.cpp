#include "custom_model/mixer.h"

#include "model/module_model.h"

#include <torch/nn/functional/padding.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <string>
#include <utility>
#include <vector>

namespace mixer {

namespace {

using fullshard::model::built;
using fullshard::model::ModuleStage;

/// x + gain * mix(x), then x + channels(x); maps [batch, sequence, width] to the same shape.
struct Block : torch::nn::Module {
    explicit Block(const Options& options)
        : kernel(options.kernel),
          norm(torch::nn::LayerNormOptions({options.width})),
          mix(torch::nn::Conv1dOptions(options.width, options.width, options.kernel)
                  .groups(options.width)),
          channels(torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})),
                   torch::nn::Linear(options.width, 4 * options.width), torch::nn::GELU(),
                   torch::nn::Linear(4 * options.width, options.width),
                   torch::nn::Dropout(options.dropout)) {
        register_module("norm", norm);
        register_module("mix", mix);
        register_module("channels", channels);
        gain = register_parameter("gain", torch::ones({}));
    }

    torch::Tensor forward(const torch::Tensor& x) {
        namespace functional = torch::nn::functional;
        // Zeros before the first token, none after the last: no token sees a later one.
        const torch::Tensor padded =
            functional::pad(norm(x).transpose(1, 2), functional::PadFuncOptions({kernel - 1, 0}));
        const torch::Tensor y = x + gain * mix(padded).transpose(1, 2);
        return y + channels->forward(y);
    }

    std::int64_t kernel;
    torch::nn::LayerNorm norm;
    torch::nn::Conv1d mix;  ///< of each channel by itself
    torch::nn::Sequential channels;
    torch::Tensor gain;  ///< 0-dimensional
};

}  // namespace

std::shared_ptr<const fullshard::model::Model> make_mixer(const Options& options) {
    std::vector<ModuleStage> stages;
    stages.push_back({"embedding", [options] {
                          return built(torch::nn::Embedding(options.vocab_size, options.width));
                      }});
    for (std::int64_t i = 0; i < options.blocks; ++i) {
        stages.push_back({"blocks." + std::to_string(i),
                          [options] { return built(std::make_shared<Block>(options)); },
                          /*block=*/true});
    }
    stages.push_back({"head", [options] {
                          return built(torch::nn::Linear(options.width, options.vocab_size));
                      }});
    return fullshard::model::make_module_model(std::move(stages),
                                               {{"head.weight", "embedding.weight"}});
}

}  // namespace mixer
