#include "data/synthetic_source.h"

#include "base/error.h"

#include <fmt/format.h>

namespace fullshard::data {

SyntheticSource::SyntheticSource(std::uint64_t seed, std::int64_t sequences,
                                 std::int64_t sequence_length, std::int64_t vocab_size)
    : stream_(mix(seed, stable_hash("data.synthetic"))),
      sequences_(sequences),
      sequence_length_(sequence_length),
      vocab_size_(vocab_size) {
    if (sequences < 1 || sequence_length < 1 || vocab_size < 1)
        throw UsageError(
            fmt::format("synthetic data needs positive sizes: data.synthetic_sequences = "
                        "{}, data.sequence = {}, model.vocab_size = {}",
                        sequences, sequence_length, vocab_size));
}

void SyntheticSource::read(std::int64_t first, std::span<std::int64_t> out) const {
    const auto count = static_cast<std::int64_t>(out.size());
    ensure(first >= 0 && first <= size() && count <= size() - first,
           "read lies inside the synthetic tokens");
    auto index = static_cast<std::uint64_t>(first);
    for (std::int64_t& token : out)
        token = static_cast<std::int64_t>(
            stream_.below(index++, static_cast<std::uint64_t>(vocab_size_)));
}

std::string SyntheticSource::name() const {
    return fmt::format("synthetic data ({} sequences of {} tokens)", sequences_, sequence_length_);
}

std::string SyntheticSource::locate(std::int64_t position) const {
    return fmt::format("synthetic sequence {}, token {}", position / sequence_length_,
                       position % sequence_length_);
}

}  // namespace fullshard::data
