// How much of the hardware a run used: model FLOP/s and their share of a rank's peak (MFU).
#pragma once

#include "comm/group.h"
#include "config/deck.h"
#include "kernels/gemm.h"
#include "spec/model_spec.h"

#include <optional>
#include <string>

namespace fullshard::train {

/// FLOP/s of a rank at best. Zeros: unknown.
struct Peak {
    double mean = 0.0;       ///< over the ranks, in the compute type
    double slowest = 0.0;    ///< of the ranks
    double fp32_mean = 0.0;  ///< measured peaks only
    std::string origin;      ///< for example "measured at the start, mean of 4 ranks, bf16"

    bool known() const { return mean > 0.0; }
};

/// What run.measure_peak and run.peak_gflops say; measures when asked to, by `gemm` and with the
/// compute threads the process has by now. Collective.
Peak find_peak(const config::Deck& deck, const kernels::Gemm& gemm, const comm::Group& world);

/// FLOP of forward and backward pass for one token. None where nobody counts them: the model is
/// not the built-in one, or parts of it are frozen.
std::optional<double> model_flops_per_token(const config::Deck& deck, const spec::ModelSpec& model);

/// The formula of model_flops_per_token in words.
extern const char* const kFlopsFormula;

struct Throughput {
    double tokens_per_s = 0.0;              ///< all ranks together
    double tokens_per_s_of_rank = 0.0;      ///< mean
    std::optional<double> flops_per_token;  ///< none: unknown, like the next two
    std::optional<double> flops_per_s_of_rank;
    std::optional<double> mfu;  ///< 0 to 1; none where it is unknown or cannot be true
    std::string mfu_text;       ///< how the MFU comes about, or why there is none
    bool peak_too_low = false;  ///< the MFU would be above 1
};

/// `tokens` of all ranks in `seconds`, which may be 0.
Throughput throughput_of(double tokens, double seconds, int ranks,
                         std::optional<double> flops_per_token, const Peak& peak);

}  // namespace fullshard::train
