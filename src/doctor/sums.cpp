#include "doctor/sums.h"

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/agree.h"
#include "comm/mpi_communicator.h"
#include "doctor/checks.h"
#include "doctor/groups.h"
#include "kernels/half_float.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <vector>

namespace fullshard::doctor {

namespace {

float rounded(float value, DType dtype) {
    return dtype == DType::kBFloat16 ? kernels::to_float(kernels::to_bfloat16(value)) : value;
}

float get(const TypedSpan& values, std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    return values.dtype == DType::kBFloat16 ? kernels::to_float(values.as<BFloat16>()[i])
                                            : values.as<float>()[i];
}

void set(const TypedSpan& values, std::int64_t index, float value) {
    const auto i = static_cast<std::size_t>(index);
    if (values.dtype == DType::kBFloat16) {
        values.as<BFloat16>()[i] = kernels::to_bfloat16(value);
    } else {
        values.as<float>()[i] = value;
    }
}

void contribute(const TypedSpan& values, int rank, std::int64_t first) {
    for (std::int64_t i = 0; i < values.count; ++i)
        set(values, i, contribution(rank, first + i, values.dtype));
}

/// The sum over all ranks of element `index`, of contributions of one type added in another.
float expected_sum(int ranks, std::int64_t index, DType from, DType to) {
    std::vector<float> values;
    for (int rank = 0; rank < ranks; ++rank) values.push_back(contribution(rank, index, from));
    return tree_sum_of(values, to);
}

/// Collectives on one set of buffers; each method compares what one of them gave.
class Trial {
  public:
    Trial(comm::Communicator& communicator, std::int64_t count, DType dtype)
        : communicator_(communicator),
          ranks_(communicator.size()),
          rank_(communicator.rank()),
          count_(count),
          dtype_(dtype),
          all_(count * ranks_, dtype),
          scratch_(count * ranks_, dtype) {}

    std::optional<std::string> all_gather() {
        contribute(all_.typed().part(rank_ * count_, count_), rank_, 0);
        communicator_.all_gather(blocks(), 0).wait();
        return compare("all_gather", all_.typed(), [&](std::int64_t i) {
            return contribution(static_cast<int>(i / count_), i % count_, dtype_);
        });
    }

    std::optional<std::string> reduce_scatter(DType to) {
        contribute(all_.typed(), rank_, 0);
        const AlignedBuffer out(count_, to);
        communicator_.reduce_scatter(blocks(), out.typed(), scratch_.typed(), 0).wait();
        return compare("reduce_scatter", out.typed(), [&](std::int64_t i) {
            return expected_sum(ranks_, rank_ * count_ + i, dtype_, to);
        });
    }

    std::optional<std::string> all_reduce() {
        const TypedSpan values = all_.typed().part(0, count_);
        contribute(values, rank_, 0);
        communicator_.all_reduce(values, scratch_.typed(), 0).wait();
        return compare("all_reduce", values,
                       [&](std::int64_t i) { return expected_sum(ranks_, i, dtype_, dtype_); });
    }

    std::optional<std::string> broadcast(int root) {
        const TypedSpan values = all_.typed().part(0, count_);
        contribute(values, rank_, 0);
        communicator_.broadcast(values, root, 0).wait();
        return compare("broadcast", values,
                       [&](std::int64_t i) { return contribution(root, i, dtype_); });
    }

  private:
    RankBlocks blocks() const { return adjacent_blocks(all_.typed(), ranks_); }

    template <typename Expected>
    std::optional<std::string> compare(std::string_view collective, const TypedSpan& found,
                                       Expected expected) const {
        for (std::int64_t i = 0; i < found.count; ++i) {
            const float right = expected(i);
            if (std::bit_cast<std::uint32_t>(get(found, i)) == std::bit_cast<std::uint32_t>(right))
                continue;
            return fmt::format("{} of {} {} elements among {} ranks gives {} at {}, right is {}",
                               collective, count_, name_of(dtype_), ranks_, get(found, i), i,
                               right);
        }
        return std::nullopt;
    }

    comm::Communicator& communicator_;
    int ranks_;
    int rank_;
    std::int64_t count_;
    DType dtype_;
    AlignedBuffer all_;
    AlignedBuffer scratch_;
};

}  // namespace

float contribution(int rank, std::int64_t index, DType dtype) {
    const std::uint64_t bits =
        mix(static_cast<std::uint64_t>(rank) + 1, static_cast<std::uint64_t>(index));
    const float fraction = static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f;
    return rounded(std::ldexp(fraction, static_cast<int>(bits % 12)), dtype);
}

float tree_sum_of(std::span<const float> values, DType dtype) {
    if (values.size() == 1) return rounded(values[0], dtype);
    const std::size_t first = std::bit_floor(values.size() - 1);
    return rounded(
        tree_sum_of(values.first(first), dtype) + tree_sum_of(values.subspan(first), dtype), dtype);
}

std::optional<std::string> wrong_result(comm::Communicator& communicator, std::int64_t count,
                                        DType dtype) {
    Trial trial(communicator, count, dtype);
    // All ranks run all of them, whatever one has found.
    const std::optional<std::string> results[] = {
        trial.all_gather(), trial.reduce_scatter(dtype), trial.reduce_scatter(DType::kFloat32),
        trial.all_reduce(), trial.broadcast(0),          trial.broadcast(communicator.size() - 1),
    };
    for (const auto& result : results) {
        if (result) return result;
    }
    return std::nullopt;
}

Findings check_sums(const Subject& subject) {
    // Lengths that nothing divides; the largest ones travel in pieces within MPI.
    constexpr std::int64_t kCounts[] = {1, 17, 1021, 16411};
    constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // of a buffer, with many ranks
    std::vector<std::string> names;
    for (const NamedGroup& named : groups_of(subject)) {
        comm::Progress progress;
        comm::MpiCommunicator communicator(named.group, progress);
        std::optional<std::string> wrong;
        for (const std::int64_t count : kCounts) {
            if (count > 1 && count * named.group.size() > kMostElements) continue;
            for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
                const auto found = wrong_result(communicator, count, dtype);
                if (!wrong) wrong = found;
            }
        }
        comm::agree(subject.world(), [&] {
            if (wrong) throw RunError(*wrong);
        });
        names.push_back(named.name);
    }
    return {
        fine("sums",
             fmt::format("gathers, sums and broadcasts in fp32 and bf16 have every bit right: {}",
                         fmt::join(names, ", ")),
             "the order of the balanced tree over ranks")};
}

}  // namespace fullshard::doctor
