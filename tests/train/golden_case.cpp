#include "train/golden_case.h"

#include "base/error.h"
#include "base/files.h"
#include "data/windows.h"
#include "model/hf_golden.h"
#include "model/simple_transformer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace fullshard::testing {
namespace {

using nlohmann::json;

// Full width: PyTorch's own float32 and float64 runs differ by less than 5e-7 in losses and 3e-6 in
// norms; wrong constants (a clipping limit or a weight decay that is not applied as said) change
// losses by 4e-5 and more.
constexpr double kLossTolerance = 1e-5;
constexpr double kGradNormTolerance = 1e-4;
constexpr double kFirstGradientTolerance = 1e-5;
constexpr double kAfterTolerance = 1e-3;  // Adam turns rounding noise into full steps

// How far PyTorch's half-width run is from its full-width run is what rounding to half width does,
// and how far its float32 runs are from float64 what rounding to float32 does. Two correct runs
// round independently at worst, so they are at most about twice as far apart.
constexpr double kRoundings = 2.0;
// A single tensor's first gradient is one draw of that rounding, not a mean over steps: a bias of
// 64 elements was seen at 2.01.
constexpr double kTensorRoundings = 3.0;

DType dtype_of(const json& name) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        if (name == name_of(dtype)) return dtype;
    }
    throw DataError("golden file: unknown precision " + name.dump());
}

std::optional<double> optional_number(const json& value) {
    if (value.is_null()) return std::nullopt;
    return value.get<double>();
}

spec::SimpleTransformer model_of(const json& model) {
    return {.vocab_size = model.at("vocab_size"),
            .d_model = model.at("d_model"),
            .num_heads = model.at("num_heads"),
            .num_layers = model.at("num_layers"),
            .d_ff = model.at("d_ff"),
            .max_positions = model.at("max_positions"),
            .dropout = model.at("dropout"),
            .activation = model.at("activation") == "relu" ? spec::Activation::kRelu
                                                           : spec::Activation::kGelu,
            .norm_first = model.at("norm_first"),
            .causal = model.at("causal"),
            .tie_embeddings = model.at("tie_embeddings")};
}

config::Optimizer optimizer_of(const json& settings) {
    config::Optimizer optimizer;
    optimizer.lr = settings.at("lr");
    optimizer.beta1 = settings.at("beta1");
    optimizer.beta2 = settings.at("beta2");
    optimizer.eps = settings.at("eps");
    optimizer.weight_decay = settings.at("weight_decay");
    optimizer.clip_norm = settings.at("clip_norm");
    optimizer.clip_value = settings.at("clip_value");
    for (const json& group : settings.at("groups")) {
        optimizer.groups.push_back({.name = group.at("name"),
                                    .patterns = group.at("parameters"),
                                    .lr = optional_number(group.at("lr")),
                                    .weight_decay = optional_number(group.at("weight_decay")),
                                    .frozen = group.at("frozen")});
    }
    return optimizer;
}

config::Precision precision_of(const json& golden) {
    config::Precision precision;
    precision.param = dtype_of(golden.at("precision"));
    if (const json& scaler = golden.at("loss_scaler"); !scaler.is_null()) {
        precision.initial_scale = scaler.at("initial");
        precision.scale_window = scaler.at("window");
        precision.scale_hysteresis = scaler.at("hysteresis");
        precision.min_scale = scaler.at("minimum");
    }
    return precision;
}

data::TokenBatch batch_of(const json& stored) {
    data::TokenBatch batch;
    for (const json& row : stored.at("tokens")) {
        batch.tokens.insert(batch.tokens.end(), row.begin(), row.end());
    }
    for (const json& row : stored.at("targets")) {
        batch.targets.insert(batch.targets.end(), row.begin(), row.end());
    }
    batch.batch = std::ssize(stored.at("tokens"));
    batch.sequence = std::ssize(stored.at("tokens").at(0));
    batch.valid_targets = stored.at("valid_targets");
    return batch;
}

std::vector<GoldenStep> steps_of(const json& run) {
    std::vector<GoldenStep> steps;
    for (std::size_t s = 0; s < run.at("losses").size(); ++s) {
        steps.push_back({.loss = run["losses"][s],
                         .grad_norm = optional_number(run["grad_norms"][s])
                                          .value_or(std::numeric_limits<double>::quiet_NaN()),
                         .loss_scale = run["loss_scales"][s],
                         .skipped = run["skipped"][s]});
    }
    return steps;
}

/// Entry `name` of a run's `kind`, whose tolerance is relative except where rounding is stored.
GoldenNorm norm_of(const json& run, const char* kind, const std::string& name, double relative) {
    const json& stored = run.at(kind).at(name);
    const double norm = stored.at("norm");
    if (!stored.contains("rounding")) return {norm, relative * norm};
    return {norm, kTensorRoundings * stored["rounding"].get<double>()};
}

/// The largest relative difference, over the steps that have both values.
double largest_difference(const json& values, const json& references) {
    double largest = 0.0;
    for (std::size_t s = 0; s < values.size(); ++s) {
        if (values[s].is_null() || references[s].is_null()) continue;
        const double value = values[s], reference = references[s];
        largest = std::max(largest, std::abs(value - reference) / reference);
    }
    return largest;
}

}  // namespace

namespace {

/// Rows of the stream one after another; each token's target is the next one.
data::TokenBatch stream_batch(const json& train, std::int64_t step) {
    data::TokenBatch batch;
    batch.batch = train.at("batch");
    batch.sequence = train.at("sequence");
    batch.valid_targets = batch.batch * batch.sequence;
    const auto begin = train.at("stream").begin() + step * batch.valid_targets;
    batch.tokens.assign(begin, begin + batch.valid_targets);
    batch.targets.assign(begin + 1, begin + batch.valid_targets + 1);
    return batch;
}

GoldenCase read_hf_case(const std::string& name) {
    const HfGolden model = read_hf_golden(name);
    const json golden = json::parse(read_hf_text(name));
    const json& train = golden.at("train");
    GoldenCase result;
    result.seed = model.seed;
    result.model = make_closed_form_model(model.architecture);
    const json& settings = train.at("optimizer");
    result.optimizer.lr = settings.at("lr");
    result.optimizer.beta1 = settings.at("beta1");
    result.optimizer.beta2 = settings.at("beta2");
    result.optimizer.eps = settings.at("eps");
    result.optimizer.weight_decay = settings.at("weight_decay");
    result.micro_batch = train.at("batch");
    for (std::int64_t step = 0; step < train.at("steps").get<std::int64_t>(); ++step) {
        result.batches.push_back(stream_batch(train, step));
        const auto s = static_cast<std::size_t>(step);
        result.steps.push_back(
            {.loss = train.at("losses")[s], .grad_norm = train.at("grad_norms")[s]});
    }
    train.at("losses").get_to(result.full_width_losses);
    result.loss_tolerance = kLossTolerance;
    result.grad_norm_tolerance =
        std::max(kGradNormTolerance, kRoundings * train.at("grad_norm_rounding").get<double>());
    for (const json& stored : golden.at("parameters")) {
        const std::string parameter = stored.at("name");
        result.parameters.push_back({.name = parameter,
                                     .first_gradient = norm_of(train, "first_gradients", parameter,
                                                               kFirstGradientTolerance),
                                     .after = norm_of(train, "after", parameter, kAfterTolerance),
                                     .comparable_after = stored.at("comparable_after")});
    }
    return result;
}

}  // namespace

GoldenCase read_golden(const std::string& name) {
    constexpr std::string_view kHf = "hf/";
    if (name.starts_with(kHf)) return read_hf_case(name.substr(kHf.size()));
    const json golden = json::parse(
        read_file(std::string(FULLSHARD_GOLDEN_DIR) + "/simple_transformer_" + name + ".json"));
    GoldenCase result;
    result.seed = golden.at("seed");
    result.model = model::make_simple_transformer(model_of(golden.at("model")));
    result.optimizer = optimizer_of(golden.at("optimizer"));
    result.precision = precision_of(golden);
    result.micro_batch = golden.at("data").at("micro_batch");
    for (const json& batch : golden.at("batches")) result.batches.push_back(batch_of(batch));

    const json& full = golden.at("float32");
    const json& run = result.half_width() ? golden.at("half") : full;
    result.steps = steps_of(run);
    full.at("losses").get_to(result.full_width_losses);
    result.loss_tolerance = kLossTolerance;
    result.grad_norm_tolerance = kGradNormTolerance;
    if (result.half_width()) {
        result.loss_tolerance = kRoundings * largest_difference(run["losses"], full["losses"]);
        result.grad_norm_tolerance =
            kRoundings * largest_difference(run["grad_norms"], full.at("grad_norms"));
    }
    for (const json& stored : golden.at("parameters")) {
        GoldenParameter parameter{.name = stored.at("name"),
                                  .trainable = stored.at("trainable"),
                                  .comparable_after = stored.at("comparable_after")};
        if (parameter.trainable) {
            parameter.first_gradient =
                norm_of(run, "first_gradients", parameter.name, kFirstGradientTolerance);
        }
        parameter.after = norm_of(run, "after", parameter.name, kAfterTolerance);
        result.parameters.push_back(std::move(parameter));
    }
    return result;
}

data::TokenBatch sequences_of(const data::TokenBatch& batch, std::int64_t first,
                              std::int64_t count) {
    const auto rows = [&](const std::vector<std::int64_t>& values) {
        const auto begin = values.begin() + first * batch.sequence;
        return std::vector<std::int64_t>(begin, begin + count * batch.sequence);
    };
    data::TokenBatch part;
    part.tokens = rows(batch.tokens);
    part.targets = rows(batch.targets);
    part.batch = count;
    part.sequence = batch.sequence;
    part.valid_targets =
        std::ssize(part.targets) - std::ranges::count(part.targets, data::kIgnoredTarget);
    return part;
}

}  // namespace fullshard::testing
