#include "checkpoint/format/digest.h"

#include "base/error.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fullshard::checkpoint {

std::uint64_t digest(const void* data, std::size_t bytes) {
    return XXH3_64bits(data, bytes);
}

struct RunningDigest::State {
    XXH3_state_t xxh3;
};

RunningDigest::RunningDigest() : state_(std::make_unique<State>()) {
    ensure(XXH3_64bits_reset(&state_->xxh3) == XXH_OK, "XXH3 state is reset");
}
RunningDigest::~RunningDigest() = default;
RunningDigest::RunningDigest(RunningDigest&&) noexcept = default;
RunningDigest& RunningDigest::operator=(RunningDigest&&) noexcept = default;

void RunningDigest::update(const void* data, std::size_t bytes) {
    ensure(XXH3_64bits_update(&state_->xxh3, data, bytes) == XXH_OK, "XXH3 takes the bytes");
}

std::uint64_t RunningDigest::value() const {
    return XXH3_64bits_digest(&state_->xxh3);
}

std::string digest_text(std::uint64_t digest) {
    return fmt::format("{:016x}", digest);
}

}  // namespace fullshard::checkpoint
