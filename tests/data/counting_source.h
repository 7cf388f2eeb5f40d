// A token source for tests whose token at position i is i: windows show where they came from.
#pragma once

#include "data/token_source.h"

#include <fmt/format.h>

namespace fullshard::data {

class CountingSource final : public TokenSource {
  public:
    explicit CountingSource(std::int64_t size) : size_(size) {}

    std::int64_t size() const override { return size_; }
    std::int64_t vocab_size() const override { return size_; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override {
        for (std::int64_t& token : out) token = first++;
    }
    std::string name() const override { return "counting source"; }
    std::string locate(std::int64_t position) const override {
        return fmt::format("position {}", position);
    }

  private:
    std::int64_t size_;
};

inline std::shared_ptr<const TokenSource> counting(std::int64_t size) {
    return std::make_shared<CountingSource>(size);
}

}  // namespace fullshard::data
