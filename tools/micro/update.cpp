// fullshard-micro-update: the kernels between the reduction and the next forward pass, which only
// memory bounds, beside plain streams through memory.
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/rng.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/ordered_sum.h"
#include "kernels/square_sum.h"
#include "micro/program.h"
#include "micro/report.h"
#include "micro/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace fullshard::micro {
namespace {

constexpr std::size_t kSamples = 1000;

void require_close(double value, double expected, const char* what) {
    if (std::abs(value - expected) <= 1e-5 * std::abs(expected) + 1e-12) return;
    throw RunError(fmt::format("{} computed {} where {} is right", what, value, expected));
}

/// Shards of one rank: a third and a fourth source for sums are moments and the half type.
class Shard {
  public:
    explicit Shard(std::int64_t numel)
        : param_(numel),
          gradient_(numel),
          first_(numel),
          second_(numel),
          half_(numel, DType::kBFloat16) {
        const auto fill = [](std::span<float> values, std::uint64_t salt, float scale,
                             bool positive) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                // In [-1, 1), or [0, 1).
                const auto bits = static_cast<std::int32_t>(mix(salt, i) >> 32);
                const float value = static_cast<float>(bits) * 0x1p-31F;
                values[i] = scale * (positive ? std::abs(value) : value);
            }
        };
        fill(param_.span(), 1, 0.1F, false);
        fill(gradient_.span(), 2, 1e-2F, false);
        fill(first_.span(), 3, 1e-3F, false);
        fill(second_.span(), 4, 1e-5F, true);
    }

    std::vector<Contender> contenders(int ranks) {
        const double stream = static_cast<double>(param_.bytes()) * ranks;
        const auto p = param_.span();
        const auto g = gradient_.span();
        const auto m = first_.span();
        const auto v = second_.span();
        const auto half = half_.typed();
        return {
            {"triad",
             3 * stream,
             [=] { triad(p, m, g, 0.5F); },
             {},
             [=] { check_triad(p, m, g, triad); }},
            {"triad, streaming stores",
             3 * stream,
             [=] { streaming_triad(p, m, g, 0.5F); },
             {},
             [=] { check_triad(p, m, g, streaming_triad); }},
            {"copy, streaming stores", 2 * stream, [=] { streaming_copy(p, m); }},
            {"read", stream, [=, this] { sink_ = read_all(g); }},
            {"adamw_update",
             7 * stream,
             [=, this] { kernels::adamw_update(p, g, m, v, kScalars); },
             {},
             [this] { check_adamw(); }},
            {"SquareSum::add",
             stream,
             [=, this] { sink_ = static_cast<float>(square_sum(g)); },
             {},
             [=] { check_square_sum(g); }},
            {"tree_sum of 2",
             3 * stream,
             [=] {
                 sum(p, {m.data(), g.data()});
             },
             {},
             [=] {
                 check_sum(p, {m.data(), g.data()});
             }},
            {"tree_sum of 4",
             5 * stream,
             [=] {
                 sum(p, {m.data(), g.data(), v.data(), m.data()});
             },
             {},
             [=] {
                 check_sum(p, {m.data(), g.data(), v.data(), m.data()});
             }},
            {"add_into", 3 * stream, [=] { kernels::add_into(p, TypedSpan(g)); }},
            {"narrow fp32 to bf16",
             1.5 * stream,
             [=] { kernels::narrow(g, half); },
             {},
             [=] { check_half(g, half, p); }},
            {"widen bf16 to fp32", 1.5 * stream, [=] { kernels::widen(half, p); }},
        };
    }

  private:
    static constexpr kernels::AdamWSettings kSettings{.lr = 1e-3, .weight_decay = 0.1, .step = 10};
    static inline const kernels::AdamWScalars kScalars = kernels::adamw_scalars(kSettings);

    static double square_sum(std::span<const float> values) {
        kernels::SquareSum sum;
        sum.add(values);
        return sum.value();
    }

    static void sum(std::span<float> out, const std::vector<const float*>& sources) {
        kernels::tree_sum(out, sources);
    }

    static void check_triad(std::span<float> out, std::span<const float> a,
                            std::span<const float> b, decltype(triad)* loop) {
        loop(out, a, b, 2.0F);
        for_samples(out.size(), [&](std::size_t i) {
            require_close(out[i], double{a[i]} + 2.0 * double{b[i]}, "a triad");
        });
    }

    static void check_square_sum(std::span<const float> values) {
        double expected = 0;
        for (const float value : values) expected += double{value} * double{value};
        require_close(square_sum(values), expected, "SquareSum");
    }

    static void check_sum(std::span<float> out, const std::vector<const float*>& sources) {
        sum(out, sources);
        for_samples(out.size(), [&](std::size_t i) {
            std::vector<float> terms;
            for (const float* source : sources) terms.push_back(source[i]);
            const float pairs = terms.size() == 2 ? 0.0F : terms[2] + terms[3];
            if (out[i] != (terms[0] + terms[1]) + pairs) throw RunError("tree_sum is wrong");
        });
    }

    static void check_half(std::span<const float> values, TypedSpan half, std::span<float> back) {
        kernels::narrow(values, half);
        kernels::widen(half, back);
        for_samples(values.size(), [&](std::size_t i) {
            if (std::abs(back[i] - values[i]) > std::abs(values[i]) / 256.0F)
                throw RunError("a cast to bf16 and back is wrong");
        });
    }

    /// One update against the formula in double.
    void check_adamw() {
        const auto p = param_.span();
        const auto g = gradient_.span();
        const auto m = first_.span();
        const auto v = second_.span();
        std::vector<std::array<double, 3>> before;
        for_samples(p.size(), [&](std::size_t i) { before.push_back({p[i], m[i], v[i]}); });
        kernels::adamw_update(p, g, m, v, kScalars);
        auto old = before.begin();
        for_samples(p.size(), [&](std::size_t i) {
            const auto& s = kSettings;
            const auto [param, first, second] = *old++;
            const double new_first = s.beta1 * first + (1 - s.beta1) * g[i];
            const double new_second = s.beta2 * second + (1 - s.beta2) * g[i] * g[i];
            const auto step = static_cast<double>(s.step);
            const double root = std::sqrt(new_second / (1 - std::pow(s.beta2, step)));
            const double update = s.lr / (1 - std::pow(s.beta1, step)) * new_first / (root + s.eps);
            const double expected = param * (1 - s.lr * s.weight_decay) - update;
            // Where the two terms cancel, what counts is how large they were.
            if (std::abs(p[i] - expected) > 1e-6 * (std::abs(param) + std::abs(update)))
                throw RunError(fmt::format("AdamW computed {}, not {}", p[i], expected));
            require_close(v[i], new_second, "AdamW's second moment");
        });
    }

    template <typename Visit>
    static void for_samples(std::size_t count, Visit visit) {
        const std::size_t step = std::max<std::size_t>(1, count / kSamples);
        for (std::size_t i = 0; i < count; i += step) visit(i);
        visit(count - 1);
    }

    AlignedBuffer param_, gradient_, first_, second_, half_;
    volatile float sink_ = 0;  ///< so that no result is unused
};

void run(const comm::Group& world, const Options& options) {
    Shard shard((options.mib << 20) / 4);
    const auto contenders = shard.contenders(world.size());
    const Turns turns(world, contenders, options.rounds);
    const Report report("update", world, options);
    report.title(fmt::format("Kernels on shards of {} MiB a rank", options.mib));
    const auto held_against_triad = [](std::optional<double> goal) {
        return Limit{Limit::Of::kBandwidth, {"triad", "triad, streaming stores"}, goal};
    };
    report.line(turns, "triad");
    report.line(turns, "triad, streaming stores");
    report.line(turns, "copy, streaming stores");
    report.line(turns, "read");
    report.line(turns, "adamw_update", held_against_triad(0.8));
    report.line(turns, "tree_sum of 2", held_against_triad(0.7));
    report.line(turns, "tree_sum of 4", held_against_triad(0.7));
    report.line(turns, "add_into", held_against_triad({}));
    report.line(turns, "SquareSum::add", {Limit::Of::kBandwidth, {"read"}});
    const Limit copy{Limit::Of::kBandwidth, {"copy, streaming stores"}};
    report.line(turns, "narrow fp32 to bf16", copy);
    report.line(turns, "widen bf16 to fp32", copy);
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-update",
         .about = "AdamW, sums, norms and casts on the shards of each rank, beside the bandwidth "
                  "of memory that\n"
                  "STREAM's triad and copies find on the same arrays in the same run. Alone or "
                  "under mpirun.",
         .mib = "MiB of a shard: parameters, gradient and both moments have as many each",
         .defaults = {.mib = 28},
         .run = run});
}
