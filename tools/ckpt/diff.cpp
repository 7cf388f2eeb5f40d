#include "base/error.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/format/workers.h"
#include "ckpt/commands.h"
#include "ckpt/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fullshard::ckpt {
namespace {

using checkpoint::State;

/// All tensors of one of the two things that are compared, by the path they have in a checkpoint.
struct Side {
    struct Tensor {
        State state = State::kModel;
        std::string parameter;
        std::vector<std::int64_t> shape;
        std::function<void(std::int64_t begin, std::span<float> out)> read;
    };
    std::filesystem::path path;
    std::map<std::string, Tensor> tensors;

    std::set<State> states() const {
        std::set<State> found;
        for (const auto& [name, tensor] : tensors) found.insert(tensor.state);
        return found;
    }
};

Side open_folder_side(const std::filesystem::path& path) {
    Side side{.path = find_checkpoint(path), .tensors = {}};
    const auto reader = std::make_shared<checkpoint::CheckpointReader>(side.path);
    for (const auto& entry : reader->manifest().tensors) {
        const auto read = [reader, &entry](std::int64_t begin, std::span<float> out) {
            reader->read(entry.state, entry.parameter, begin, out);
        };
        side.tensors[dataset_path(entry.state, entry.parameter)] = {entry.state, entry.parameter,
                                                                    entry.shape, read};
    }
    return side;
}

Side open_file_side(const std::filesystem::path& path) {
    Side side{.path = path, .tensors = {}};
    const std::shared_ptr<checkpoint::WeightsSource> weights = checkpoint::open_weights(path);
    for (const auto& tensor : weights->tensors()) {
        const auto read = [weights, name = tensor.name](std::int64_t begin, std::span<float> out) {
            weights->read(name, begin, out);
        };
        side.tensors[dataset_path(State::kModel, tensor.name)] = {State::kModel, tensor.name,
                                                                  tensor.shape, read};
    }
    return side;
}

Side open_side(const std::filesystem::path& path) {
    if (!std::filesystem::exists(path))
        throw DataError(fmt::format("{} does not exist", path.string()));
    return std::filesystem::is_directory(path) ? open_folder_side(path) : open_file_side(path);
}

/// How two tensors of one shape differ.
struct Difference {
    std::int64_t unequal = 0;  ///< elements of other bits
    std::int64_t too_far = 0;  ///< of these, not equal within the tolerance
    double max_abs = 0;        ///< infinite where only one value is finite
    double max_rel = 0;        ///< of |a - b| / max(|a|, |b|)

    void add(float a, float b, double rtol) {
        if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return;
        ++unequal;
        if (a == b || (std::isnan(a) && std::isnan(b))) return;  // zeros of both signs; any two NaN
        double distance = std::fabs(double{a} - double{b});
        double relative = distance / std::max(std::fabs(double{a}), std::fabs(double{b}));
        if (!std::isfinite(a) || !std::isfinite(b)) {
            distance = relative = std::numeric_limits<double>::infinity();
        }
        max_abs = std::max(max_abs, distance);
        max_rel = std::max(max_rel, relative);
        if (relative > rtol) ++too_far;
    }
    void merge(const Difference& other) {
        unequal += other.unequal;
        too_far += other.too_far;
        max_abs = std::max(max_abs, other.max_abs);
        max_rel = std::max(max_rel, other.max_rel);
    }
};

Difference compare(const Side::Tensor& a, const Side::Tensor& b, double rtol, int threads,
                   checkpoint::SharedProgress& progress) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    const std::int64_t count = checkpoint::numel(a.shape);
    std::mutex mutex;
    Difference total;
    checkpoint::share_work((count + kPiece - 1) / kPiece, threads, [&]() -> checkpoint::Worker {
        return [&, left = std::vector<float>(),
                right = std::vector<float>()](std::int64_t piece) mutable {
            const std::int64_t begin = piece * kPiece;
            const auto length = static_cast<std::size_t>(std::min(kPiece, count - begin));
            left.resize(length);
            right.resize(length);
            a.read(begin, left);
            b.read(begin, right);
            Difference found;
            for (std::size_t i = 0; i < length; ++i) found.add(left[i], right[i], rtol);
            {
                const std::lock_guard lock(mutex);
                total.merge(found);
            }
            progress.add(static_cast<std::int64_t>(length) * checkpoint::kElementBytes);
        };
    });
    return total;
}

/// The table of tensors that differ, printed with columns as wide as they need.
class Table {
  public:
    void add(std::string tensor, std::string finding) {
        width_ = std::max(width_, tensor.size());
        rows_.emplace_back(std::move(tensor), std::move(finding));
    }
    std::size_t size() const { return rows_.size(); }
    void print() const {
        for (const auto& [tensor, finding] : rows_)
            fmt::print("{:<{}}  {}\n", tensor, width_, finding);
    }

  private:
    std::vector<std::pair<std::string, std::string>> rows_;
    std::size_t width_ = 0;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// The states both sides have; says which are left out.
std::set<State> common_states(const Side& a, const Side& b) {
    std::set<State> common;
    for (const State state : checkpoint::kStates) {
        const bool in_a = a.states().contains(state);
        const bool in_b = b.states().contains(state);
        if (in_a && in_b) common.insert(state);
        if (in_a != in_b) {
            fmt::print("not compared: {}, which only {} has\n", state_folder(state),
                       in_a ? "A" : "B");
        }
    }
    return common;
}

/// A parameter whose weights the other side has is frozen there: moments belong to trainable ones.
std::string only_in(std::string_view side, const Side::Tensor& tensor, std::string_view other_side,
                    const Side& other) {
    const bool frozen = tensor.state != State::kModel &&
                        other.tensors.contains(dataset_path(State::kModel, tensor.parameter));
    return frozen ? fmt::format("only in {}: frozen in {}", side, other_side)
                  : fmt::format("only in {}", side);
}

}  // namespace

int diff(const Command& command) {
    const Side a = open_side(command.paths[0]);
    const Side b = open_side(command.paths[1]);
    fmt::print("A: {}\nB: {}\n", a.path.string(), b.path.string());
    const std::set<State> states = common_states(a, b);
    if (states.empty()) throw DataError("A and B have no tensors to compare");

    Table table;
    std::int64_t shared = 0, unequal_bits = 0, total = 0;
    for (const auto& [name, tensor] : a.tensors) {
        if (states.contains(tensor.state)) total += checkpoint::numel(tensor.shape);
    }
    ProgressLine line("diff");
    checkpoint::SharedProgress progress(
        total * checkpoint::kElementBytes,
        [&](std::int64_t done, std::int64_t all) { line.update(done, all); });
    const int threads = command.threads.value_or(checkpoint::default_threads());
    for (const auto& [name, left] : a.tensors) {
        if (!states.contains(left.state)) continue;
        const auto other = b.tensors.find(name);
        if (other == b.tensors.end()) {
            table.add(name, only_in("A", left, "B", b));
            continue;
        }
        const Side::Tensor& right = other->second;
        if (left.shape != right.shape) {
            table.add(name, fmt::format("shape {} in A, {} in B", shape_text(left.shape),
                                        shape_text(right.shape)));
            continue;
        }
        ++shared;
        const Difference found = compare(left, right, command.rtol.value_or(0), threads, progress);
        if (found.unequal > 0) ++unequal_bits;
        if ((command.rtol ? found.too_far : found.unequal) > 0) {
            table.add(name,
                      fmt::format("{} of {} elements, max abs {:.3e}, max rel {:.3e}",
                                  command.rtol ? found.too_far : found.unequal,
                                  checkpoint::numel(left.shape), found.max_abs, found.max_rel));
        }
    }
    for (const auto& [name, right] : b.tensors) {
        if (states.contains(right.state) && !a.tensors.contains(name)) {
            table.add(name, only_in("B", right, "A", a));
        }
    }
    table.print();
    if (table.size() > 0) {
        fmt::print("{} tensors differ, {} have equal names and shapes\n", table.size(), shared);
        return 1;
    }
    if (unequal_bits > 0) {
        fmt::print("{} tensors equal within rtol {}, {} of them bit-equal\n", shared, *command.rtol,
                   shared - unequal_bits);
    } else {
        fmt::print("{} tensors bit-equal\n", shared);
    }
    return 0;
}

}  // namespace fullshard::ckpt
