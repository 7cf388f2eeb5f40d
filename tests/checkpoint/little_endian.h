// Bytes of files that tests write without the code under test.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::checkpoint::toy {

/// Little-endian numbers one after the other.
class LittleEndian {
  public:
    LittleEndian& u8(std::uint64_t value) { return number(value, 1); }
    LittleEndian& u16(std::uint64_t value) { return number(value, 2); }
    LittleEndian& u32(std::uint64_t value) { return number(value, 4); }
    LittleEndian& u64(std::uint64_t value) { return number(value, 8); }
    LittleEndian& f32(float value) { return u32(std::bit_cast<std::uint32_t>(value)); }
    LittleEndian& f64(double value) { return u64(std::bit_cast<std::uint64_t>(value)); }
    LittleEndian& raw(std::string_view bytes) {
        text_ += bytes;
        return *this;
    }
    /// A text of GGUF: its length and its bytes.
    LittleEndian& text(std::string_view value) { return u64(value.size()).raw(value); }
    LittleEndian& pad_to(std::size_t multiple) {
        while (text_.size() % multiple != 0) text_ += '\0';
        return *this;
    }
    std::size_t size() const { return text_.size(); }
    const std::string& bytes() const { return text_; }

  private:
    LittleEndian& number(std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
        return *this;
    }
    std::string text_;
};

}  // namespace fullshard::checkpoint::toy
