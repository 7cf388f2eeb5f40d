// fullshard-micro-products: the matrix products of a transformer block, by each library that is
// installed, beside the arithmetic that a core can do at most.
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/rng.h"
#include "kernels/gemm.h"
#include "micro/fused.h"
#include "micro/program.h"
#include "micro/report.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::micro {
namespace {

/// A linear layer y = x transpose(weight).
class Layer {
  public:
    Layer(std::int64_t rows, std::int64_t in, std::int64_t out)
        : rows_(rows),
          in_(in),
          out_(out),
          x_(rows * in),
          weight_(out * in),
          y_(rows * out),
          of_x_(rows * in),
          of_weight_(out * in) {
        fill(x_.span(), 1);
        fill(weight_.span(), 2);
    }

    /// Of forward pass and both gradients.
    double multiply_adds() const {
        return 3.0 * static_cast<double>(rows_) * static_cast<double>(in_) *
               static_cast<double>(out_);
    }

    /// The gradient of y is y itself: what is multiplied does not change the time.
    void run(const kernels::Gemm& gemm) {
        const kernels::Matrix x{x_.span().data(), rows_, in_, in_};
        const kernels::Matrix weight{weight_.span().data(), out_, in_, in_};
        const kernels::Matrix y{y_.span().data(), rows_, out_, out_};
        gemm.multiply({y_.span().data(), rows_, out_, out_}, x, weight.transpose(), false);
        gemm.multiply({of_x_.span().data(), rows_, in_, in_}, y, weight, false);
        gemm.multiply({of_weight_.span().data(), out_, in_, in_}, y.transpose(), x, false);
    }

    /// Some elements of each product against sums in double.
    void check(const kernels::Gemm& gemm) {
        run(gemm);
        const auto x = x_.span(), weight = weight_.span(), y = y_.span();
        for (std::int64_t sample = 0; sample < 50; ++sample) {
            const std::int64_t r = sample * 37 % rows_, i = sample * 41 % in_,
                               o = sample * 43 % out_;
            double of_y = 0, of_x = 0, of_weight = 0;
            for (std::int64_t k = 0; k < in_; ++k)
                of_y += double{at(x, r * in_ + k)} * at(weight, o * in_ + k);
            for (std::int64_t k = 0; k < out_; ++k)
                of_x += double{at(y, r * out_ + k)} * at(weight, k * in_ + i);
            for (std::int64_t k = 0; k < rows_; ++k)
                of_weight += double{at(y, k * out_ + o)} * at(x, k * in_ + i);
            require_close(at(y, r * out_ + o), of_y);
            require_close(at(of_x_.span(), r * in_ + i), of_x);
            require_close(at(of_weight_.span(), o * in_ + i), of_weight);
        }
    }

  private:
    static float at(std::span<const float> values, std::int64_t i) {
        return values[static_cast<std::size_t>(i)];
    }
    static void fill(std::span<float> values, std::uint64_t salt) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(mix(salt, i) >> 40) * 0x1p-24F;  // in [0, 1)
    }
    static void require_close(double value, double expected) {
        if (std::abs(value - expected) <= 1e-4 * std::abs(expected)) return;
        throw RunError(fmt::format("a product has {} where {} is right", value, expected));
    }

    std::int64_t rows_, in_, out_;
    AlignedBuffer x_, weight_, y_, of_x_, of_weight_;
};

struct Model {
    const char* name;
    std::int64_t d_model, d_ff;
};
// Those of tools/bench. Rows of the second are powers of two apart, where caches work badly.
constexpr Model kModels[] = {{"GPT-2", 384, 1536}, {"SimpleTransformer", 256, 2048}};

std::vector<Layer> layers_of(const Model& model, std::int64_t rows) {
    std::vector<Layer> layers;
    layers.emplace_back(rows, model.d_model, 3 * model.d_model);
    layers.emplace_back(rows, model.d_model, model.d_model);
    layers.emplace_back(rows, model.d_model, model.d_ff);
    layers.emplace_back(rows, model.d_ff, model.d_model);
    return layers;
}

struct Library {
    std::string name;
    std::unique_ptr<const kernels::Gemm> gemm;
};

/// Those that are installed, for one thread.
std::vector<Library> libraries() {
    std::vector<Library> found;
    const auto add = [&](const char* name, kernels::GemmOffer offer) {
        if (offer.gemm) found.push_back({name, std::move(offer.gemm)});
    };
    add("oneDNN", kernels::load_onednn(1));
    add("OpenBLAS", kernels::load_openblas(1));
    return found;
}

void run_model(const comm::Group& world, const Options& options, const Model& model) {
    const std::int64_t rows = (options.mib << 20) / (4 * model.d_ff);
    std::vector<Layer> layers = layers_of(model, rows);
    double multiply_adds = 0;
    for (const Layer& layer : layers) multiply_adds += layer.multiply_adds();
    volatile float sink = 0;
    std::vector<Contender> contenders;
    constexpr auto kLimit = "multiply-adds in registers";
    contenders.push_back(
        {kLimit, 0, [&] { sink = fuse(static_cast<std::int64_t>(multiply_adds)); }});
    const std::vector<Library> found = libraries();
    for (const Library& library : found) {
        const auto each = [&layers, &library](void (Layer::*what)(const kernels::Gemm&)) {
            return [&layers, &library, what] {
                for (Layer& layer : layers) (layer.*what)(*library.gemm);
            };
        };
        contenders.push_back(
            {.name = library.name, .run = each(&Layer::run), .check = each(&Layer::check)});
    }
    const Turns turns(world, contenders, options.rounds);
    const Report report(fmt::format("products of {}", model.name), world, options);
    report.title(fmt::format("{} rows through a block of {}: {:.1f} GFLOP", rows, model.name,
                             2e-9 * multiply_adds));
    report.line(turns, kLimit);
    for (const Library& library : found)
        report.line(turns, library.name, {Limit::Of::kSpeed, {kLimit}});
}

void run(const comm::Group& world, const Options& options) {
    for (const Model& model : kModels) run_model(world, options, model);
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-products",
         .about = "Forward pass and both gradients of the linear layers of a transformer block, by "
                  "oneDNN and\n"
                  "OpenBLAS where they are installed, beside as many multiply-adds in registers "
                  "alone. Alone or\n"
                  "under mpirun.",
         .mib = "MiB of the activations inside a feed-forward layer, of each rank",
         .defaults = {.mib = 4},
         .run = run});
}
