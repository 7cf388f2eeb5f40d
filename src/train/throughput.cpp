#include "train/throughput.h"

#include "spec/simple_transformer.h"
#include "train/architecture.h"
#include "train/assemble.h"
#include "train/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fullshard::train {

const char* const kFlopsFormula =
    "FLOP of a token: 6 for each weight in a matrix product, and 12 x layers x d_model x sequence "
    "for attention (forward and backward, recomputation not counted)";

Peak find_peak(const config::Deck& deck, const kernels::Gemm& gemm, const comm::Group& world) {
    Peak peak;
    if (deck.run.peak_gflops > 0.0) {
        peak.mean = peak.slowest = deck.run.peak_gflops * 1e9;
        peak.origin = "run.peak_gflops";
    }
    if (!deck.run.measure_peak) return peak;
    const DType compute = deck.precision.param;
    world.barrier();  // so that the ranks of a node compete as they do in training
    const double fp32 = measure_flops_per_s(DType::kFloat32, gemm);
    const double mine = compute == DType::kFloat32 ? fp32 : measure_flops_per_s(compute, gemm);
    std::array<double, 2> sum{mine, fp32};
    std::array<double, 1> slowest{mine};
    world.all_reduce(sum, comm::Reduction::kSum);
    world.all_reduce(slowest, comm::Reduction::kMin);
    peak.mean = sum[0] / world.size();
    peak.fp32_mean = sum[1] / world.size();
    peak.slowest = slowest[0];
    peak.origin = fmt::format("measured at the start, {}, mean of {} rank{}", name_of(compute),
                              world.size(), world.size() == 1 ? "" : "s");
    return peak;
}

std::optional<double> model_flops_per_token(const config::Deck& deck,
                                            const spec::ModelSpec& model) {
    const auto is_trained = [](const spec::StageSpec& stage) {
        return std::ranges::all_of(stage.parameters, &spec::ParameterSpec::trainable);
    };
    if (!std::ranges::all_of(model.stages, is_trained)) return std::nullopt;
    if (const auto architecture = architecture_of(deck)) {
        return std::visit(
            [&](const auto& known) {
                return spec::training_flops_per_token(known, deck.data.sequence);
            },
            *architecture);
    }
    if (deck.model.family != config::Family::kSimpleTransformer) return std::nullopt;
    return spec::training_flops_per_token(model_of(deck.model, deck.data), deck.data.sequence);
}

Throughput throughput_of(double tokens, double seconds, int ranks,
                         std::optional<double> flops_per_token, const Peak& peak) {
    Throughput result;
    result.flops_per_token = flops_per_token;
    if (seconds > 0.0) result.tokens_per_s = tokens / seconds;
    result.tokens_per_s_of_rank = result.tokens_per_s / ranks;
    if (!flops_per_token) {
        result.mfu_text =
            "no MFU: the FLOP of a token are known for built-in models without frozen parts only";
        return result;
    }
    const double flops = result.tokens_per_s_of_rank * *flops_per_token;
    result.flops_per_s_of_rank = flops;
    if (!peak.known()) {
        result.mfu_text =
            "no MFU: the peak is unknown; set run.peak_gflops, or run.measure_peak = on";
        return result;
    }
    const double mfu = flops / peak.mean;
    const std::string quotient = fmt::format(
        "{:.4g} GFLOP/s a rank (tokens/s a rank x {:.4g} MFLOP) over a peak of {:.4g} GFLOP/s ({})",
        flops * 1e-9, *flops_per_token * 1e-6, peak.mean * 1e-9, peak.origin);
    if (mfu > 1.0) {
        result.peak_too_low = true;
        result.mfu_text =
            fmt::format("no MFU: {} would be {:.1f} %; the peak is too low", quotient, 100.0 * mfu);
        return result;
    }
    result.mfu = mfu;
    result.mfu_text = fmt::format("MFU {:.1f} %: {}", 100.0 * mfu, quotient);
    return result;
}

}  // namespace fullshard::train
