#include "checkpoint/export/zip.h"

#include <utility>

namespace fullshard::checkpoint {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kMost32 = 0xffffffff;  // itself says that ZIP64 has the value
constexpr std::int64_t kMost16 = 0xffff;
constexpr std::uint16_t kZip64Field = 0x0001;
constexpr std::uint16_t kPaddingField = 0x4246;  // "FB", as PyTorch pads
constexpr std::int64_t kFieldHead = 4;
constexpr std::uint16_t kPlainVersion = 20;
constexpr std::uint16_t kZip64Version = 45;
constexpr std::uint16_t kFirstOf1980 =
    0x0021;  // ZIP knows no earlier date; equal input, equal bytes

/// Little-endian numbers one after the other.
class Bytes {
  public:
    Bytes& u16(std::int64_t value) { return number(value, 2); }
    Bytes& u32(std::int64_t value) { return number(value, 4); }
    Bytes& u64(std::int64_t value) { return number(value, 8); }
    Bytes& text(const std::string& value) {
        text_ += value;
        return *this;
    }
    std::int64_t size() const { return static_cast<std::int64_t>(text_.size()); }
    std::string take() { return std::move(text_); }

  private:
    Bytes& number(std::int64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
        return *this;
    }
    std::string text_;
};

std::int64_t capped(std::int64_t value, std::int64_t most) {
    return value < most ? value : most;
}

/// The fields that local header and central directory share, from the version needed on.
void add_common(Bytes& bytes, bool zip64, std::uint32_t crc, std::int64_t size) {
    bytes.u16(zip64 ? kZip64Version : kPlainVersion).u16(0).u16(0);  // no flags, stored
    bytes.u16(0).u16(kFirstOf1980).u32(crc);
    bytes.u32(capped(size, kMost32)).u32(capped(size, kMost32));
}

/// Both sizes, for the local header, which must have both.
std::string zip64_sizes(std::int64_t size) {
    if (size < kMost32) return {};
    return Bytes().u16(kZip64Field).u16(16).u64(size).u64(size).take();
}

}  // namespace

std::int64_t ZipLayout::add(std::string name, std::int64_t bytes) {
    const std::int64_t head = end_ + kLocalHeaderBytes + static_cast<std::int64_t>(name.size()) +
                              static_cast<std::int64_t>(zip64_sizes(bytes).size()) + kFieldHead;
    const std::int64_t offset = (head + kAlignment - 1) / kAlignment * kAlignment;
    members_.push_back({std::move(name), end_, offset, bytes});
    end_ = offset + bytes;
    return offset;
}

std::int64_t ZipLayout::bytes() const {
    const Header last = directory(std::vector<std::uint32_t>(members_.size()));
    return last.offset + static_cast<std::int64_t>(last.bytes.size());
}

ZipLayout::Header ZipLayout::header(std::size_t member, std::uint32_t crc) const {
    const auto& [name, header_offset, offset, size] = members_[member];
    const std::string sizes = zip64_sizes(size);
    const std::int64_t extra =
        offset - header_offset - kLocalHeaderBytes - static_cast<std::int64_t>(name.size());
    const std::int64_t padding = extra - static_cast<std::int64_t>(sizes.size()) - kFieldHead;
    Bytes bytes;
    bytes.u32(0x04034b50);
    add_common(bytes, !sizes.empty(), crc, size);
    bytes.u16(static_cast<std::int64_t>(name.size())).u16(extra).text(name).text(sizes);
    bytes.u16(kPaddingField).u16(padding);
    bytes.text(std::string(static_cast<std::size_t>(padding), 'Z'));
    return {header_offset, bytes.take()};
}

ZipLayout::Header ZipLayout::directory(const std::vector<std::uint32_t>& crcs) const {
    Bytes bytes;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const auto& [name, header_offset, offset, size] = members_[i];
        Bytes values;
        if (size >= kMost32) values.u64(size).u64(size);
        if (header_offset >= kMost32) values.u64(header_offset);
        Bytes field;
        if (values.size() > 0) field.u16(kZip64Field).u16(values.size()).text(values.take());
        bytes.u32(0x02014b50).u16(kZip64Version);
        add_common(bytes, field.size() > 0, crcs[i], size);
        bytes.u16(static_cast<std::int64_t>(name.size())).u16(field.size());
        bytes.u16(0).u16(0).u16(0).u32(0);  // no comment, first disk, no attributes
        bytes.u32(capped(header_offset, kMost32)).text(name).text(field.take());
    }
    const std::int64_t size = bytes.size();
    const auto count = static_cast<std::int64_t>(members_.size());
    if (count >= kMost16 || size >= kMost32 || end_ >= kMost32) {
        bytes.u32(0x06064b50).u64(44).u16(kZip64Version).u16(kZip64Version).u32(0).u32(0);
        bytes.u64(count).u64(count).u64(size).u64(end_);
        bytes.u32(0x07064b50).u32(0).u64(end_ + size).u32(1);
    }
    bytes.u32(0x06054b50).u16(0).u16(0).u16(capped(count, kMost16)).u16(capped(count, kMost16));
    bytes.u32(capped(size, kMost32)).u32(capped(end_, kMost32)).u16(0);
    return {end_, bytes.take()};
}

}  // namespace fullshard::checkpoint
