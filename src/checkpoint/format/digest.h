// XXH3-64, the digest of everything a checkpoint holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fullshard::checkpoint {

/// XXH3-64 with seed 0. It finds damage, not forgery.
std::uint64_t digest(const void* data, std::size_t bytes);
inline std::uint64_t digest(std::string_view text) {
    return digest(text.data(), text.size());
}

/// The same digest of bytes that arrive in pieces.
class RunningDigest {
  public:
    RunningDigest();
    ~RunningDigest();
    RunningDigest(RunningDigest&&) noexcept;
    RunningDigest& operator=(RunningDigest&&) noexcept;

    void update(const void* data, std::size_t bytes);
    /// Of all bytes so far.
    std::uint64_t value() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Sixteen lower-case hexadecimal digits, most significant first, as xxhsum prints them.
std::string digest_text(std::uint64_t digest);

}  // namespace fullshard::checkpoint
