#include "train/gemm_choice.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/agree.h"
#include "model/libtorch_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace fullshard::train {

namespace {

struct Library {
    config::Gemm key;
    std::string_view name;     ///< in the deck
    std::string_view package;  ///< of Debian
    kernels::GemmOffer (*load)(int threads);
};

// In order of preference.
constexpr std::array kLibraries{
    Library{config::Gemm::kOneDnn, "onednn", "libdnnl2",
            [](int threads) { return kernels::load_onednn(threads); }},
    Library{config::Gemm::kOpenBlas, "openblas", "libopenblas0-pthread",
            [](int threads) { return kernels::load_openblas(threads); }},
    Library{config::Gemm::kLibTorch, "libtorch", "",
            [](int threads) {
                return kernels::GemmOffer{model::make_libtorch_gemm(threads), {}};
            }},
};

bool is_open(config::Gemm key) {
    return key == config::Gemm::kPreferred || key == config::Gemm::kAuto;
}

const Library& library_of(config::Gemm key) {
    return *std::ranges::find(kLibraries, key, &Library::key);
}

/// A library that all ranks loaded, or the reason why one of them did not.
struct Candidate {
    const Library* library;
    std::shared_ptr<const kernels::Gemm> gemm = {};
    std::string reason = {};
    std::vector<std::string> notes = {};
};

/// Collective.
Candidate load_everywhere(const Library& library, int threads, const comm::Group& job) {
    kernels::GemmOffer offer;
    comm::agree(job, [&] { offer = library.load(threads); });
    constexpr char kHave = '+', kLack = '-';
    const std::vector<std::string> answers = job.all_gather(
        offer.gemm ? kHave + offer.gemm->description() : kLack + std::move(offer.reason));
    Candidate candidate{&library};
    std::set<std::string> versions;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
        const std::string text = answers[rank].substr(1);
        if (answers[rank].front() == kLack) {
            candidate.reason = fmt::format("rank {}: {}", rank, text);
            return candidate;
        }
        versions.insert(text);
    }
    if (versions.size() > 1) {
        candidate.notes.push_back(
            fmt::format("ranks multiply matrices by different versions, {} and {}: results are "
                        "reproducible on the same nodes only",
                        *versions.begin(), *versions.rbegin()));
    }
    candidate.gemm = std::move(offer.gemm);
    return candidate;
}

/// Forward pass, gradient of the input and gradient of the weight of a layer.
class LayerProducts {
  public:
    LayerProducts(std::int64_t out, std::int64_t in)
        : out_(out), in_(in), x_(values(kRows * in)), weight_(values(out * in)), y_(kRows * out) {}

    void run(const kernels::Gemm& gemm) {
        const kernels::Matrix x{x_.data(), kRows, in_, in_}, weight{weight_.data(), out_, in_, in_};
        const kernels::OutputMatrix y{y_.data(), kRows, out_, out_};
        const kernels::Matrix grad{y_.data(), kRows, out_, out_};
        gemm.multiply(y, x, weight.transpose(), /*accumulate=*/false);
        gemm.multiply({x_.data(), kRows, in_, in_}, grad, weight, /*accumulate=*/false);
        y_.assign(y_.size(), 1.0F / static_cast<float>(out_));
        x_.assign(x_.size(), 1.0F / static_cast<float>(in_));
        gemm.multiply({weight_.data(), out_, in_, in_}, grad.transpose(), x, /*accumulate=*/true);
    }

  private:
    static constexpr std::int64_t kRows = 128;

    static std::vector<float> values(std::int64_t count) {
        return std::vector<float>(static_cast<std::size_t>(count), 1.0F);
    }

    std::int64_t out_;
    std::int64_t in_;
    std::vector<float> x_;
    std::vector<float> weight_;
    std::vector<float> y_;
};

/// The largest matrix of the model's blocks, cut to a size that leaves time for several rounds.
LayerProducts typical_products(const spec::ModelSpec& spec) {
    constexpr std::int64_t kMost = 1024;
    std::array<std::int64_t, 2> shape{kMost, kMost};
    std::int64_t largest = 0;
    for (const spec::StageSpec& stage : spec.stages) {
        if (!stage.block) continue;
        for (const spec::ParameterSpec& parameter : stage.parameters) {
            if (parameter.shape.size() != 2 || parameter.numel() <= largest) continue;
            largest = parameter.numel();
            shape = {std::min(parameter.shape[0], kMost), std::min(parameter.shape[1], kMost)};
        }
    }
    return {shape[0], shape[1]};
}

/// The index of the fastest: they take turns, and the best time of each counts.
std::int64_t measure_fastest(const std::vector<Candidate>& candidates,
                             const spec::ModelSpec& spec) {
    constexpr double kSeconds = 0.25;
    LayerProducts products = typical_products(spec);
    std::vector<double> best(candidates.size(), std::numeric_limits<double>::infinity());
    for (const Candidate& candidate : candidates) products.run(*candidate.gemm);  // warms up
    const double end = now_seconds() + kSeconds;
    do {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const double begin = now_seconds();
            products.run(*candidates[i].gemm);
            best[i] = std::min(best[i], now_seconds() - begin);
        }
    } while (now_seconds() < end);
    return std::ranges::min_element(best) - best.begin();
}

GemmChoice choice_of(Candidate candidate, std::string_view how) {
    return {candidate.library->key, candidate.gemm,
            fmt::format("{} ({})", candidate.gemm->description(), how), std::move(candidate.notes)};
}

GemmChoice choose_named(config::Gemm key, int threads, const comm::Group& job) {
    Candidate candidate = load_everywhere(library_of(key), threads, job);
    comm::agree(job, [&] {
        if (candidate.gemm) return;
        throw UsageError(fmt::format(
            "kernels.gemm = {}: {}; install it on every node (Debian: {}), or set kernels.gemm = "
            "preferred to use what is there",
            candidate.library->name, candidate.reason, candidate.library->package));
    });
    return choice_of(std::move(candidate), "kernels.gemm");
}

GemmChoice choose_preferred(int threads, const comm::Group& job) {
    std::vector<std::string> notes;
    for (const Library& library : kLibraries) {
        Candidate candidate = load_everywhere(library, threads, job);
        if (candidate.gemm) {
            GemmChoice choice = choice_of(std::move(candidate), "preferred");
            // Without the first one a run is slower than it need be.
            choice.notes.insert(choice.notes.begin(), notes.begin(), notes.end());
            return choice;
        }
        if (notes.empty()) {
            notes.push_back(fmt::format(
                "matrix products could be faster: {} is not there on all ranks ({}); install it "
                "(Debian: {}), or name another library in kernels.gemm",
                library.name, candidate.reason, library.package));
        }
    }
    throw LogicError("LibTorch's product is always there");
}

GemmChoice choose_fastest(int threads, const spec::ModelSpec& spec, const comm::Group& job) {
    std::vector<Candidate> candidates;
    for (const Library& library : kLibraries) {
        Candidate candidate = load_everywhere(library, threads, job);
        if (candidate.gemm) candidates.push_back(std::move(candidate));
    }
    std::array<std::int64_t, 1> fastest{0};
    comm::agree(job, [&] {
        if (job.rank() == 0) fastest[0] = measure_fastest(candidates, spec);
    });
    job.all_reduce(fastest, comm::Reduction::kMax);
    return choice_of(std::move(candidates[static_cast<std::size_t>(fastest[0])]),
                     fmt::format("the fastest of {}", candidates.size()));
}

}  // namespace

GemmChoice choose_gemm(const config::Kernels& kernels, std::optional<config::Gemm> kept,
                       const model::Model& model, const comm::Group& job) {
    const int threads = static_cast<int>(kernels.threads);
    if (!model.uses_gemm()) {
        GemmChoice choice =
            choice_of(load_everywhere(library_of(config::Gemm::kLibTorch), threads, job),
                      "the model's modules know no other");
        if (!is_open(kernels.gemm) && kernels.gemm != config::Gemm::kLibTorch) {
            choice.notes.push_back(fmt::format(
                "kernels.gemm = {} has no effect: the model's modules compute by LibTorch alone",
                library_of(kernels.gemm).name));
        }
        return choice;
    }
    if (!is_open(kernels.gemm)) return choose_named(kernels.gemm, threads, job);
    if (kept && !is_open(*kept)) {
        Candidate candidate = load_everywhere(library_of(*kept), threads, job);
        if (candidate.gemm) return choice_of(std::move(candidate), "as in the run that goes on");
    }
    if (kernels.gemm == config::Gemm::kAuto) return choose_fastest(threads, model.spec(), job);
    return choose_preferred(threads, job);
}

config::Deck with_kept_gemm(config::Deck deck, const config::Deck& before) {
    if (is_open(deck.kernels.gemm)) deck.kernels.gemm = before.kernels.gemm;
    return deck;
}

}  // namespace fullshard::train
