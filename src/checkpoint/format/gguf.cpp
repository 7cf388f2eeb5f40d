#include "checkpoint/format/gguf.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace fullshard::checkpoint {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMostAlignment = std::int64_t{1} << 20;
constexpr std::int64_t kMostNameBytes = 65535;  // as the format's description has it
constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostTensors = std::uint64_t{1} << 18;
constexpr std::uint32_t kMostDimensions = 4;

enum ValueType : std::uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

/// Of the types whose values are all equally long.
std::optional<std::int64_t> width_of(std::uint32_t type) {
    switch (type) {
        case kU8:
        case kI8:
        case kBool:
            return 1;
        case kU16:
        case kI16:
            return 2;
        case kU32:
        case kI32:
        case kF32:
            return 4;
        case kU64:
        case kI64:
        case kF64:
            return 8;
        default:
            return std::nullopt;
    }
}

/// Reads the header from front to back, never past the file's end.
class Cursor {
  public:
    explicit Cursor(const PosixFile& file) : file_(file), size_(file.size()) {}

    std::int64_t position() const { return at_; }
    std::int64_t left() const { return size_ - at_; }
    [[noreturn]] void fail(std::string_view problem) const {
        throw DataError(fmt::format("{}: {}", file_.path().string(), problem));
    }

    template <typename T>
    T number() {
        std::array<std::byte, sizeof(T)> bytes;
        take(bytes);
        return std::bit_cast<T>(bytes);
    }
    std::string text(std::int64_t most, std::string_view what) {
        const auto length = number<std::uint64_t>();
        const std::int64_t room = std::min(most, left());
        if (std::cmp_greater(length, room)) {
            fail(fmt::format("{} at byte {} claims {} bytes, at most {} are possible", what,
                             at_ - 8, length, room));
        }
        std::string text(static_cast<std::size_t>(length), '\0');
        take(std::as_writable_bytes(std::span(text)));
        return text;
    }
    void skip(std::int64_t bytes) {
        if (bytes > left()) fail_short();
        at_ += bytes;
    }

  private:
    static constexpr std::int64_t kBufferBytes = std::int64_t{1} << 16;

    [[noreturn]] void fail_short() const {
        fail(fmt::format("ends at byte {}, inside of its header", size_));
    }
    void take(std::span<std::byte> out) {
        if (std::ssize(out) > left()) fail_short();
        if (std::ssize(out) > kBufferBytes) {
            file_.read(at_, out);
        } else if (!out.empty()) {
            const std::int64_t end = at_ + std::ssize(out);
            if (at_ < buffer_begin_ || end > buffer_begin_ + std::ssize(buffer_)) {
                buffer_.resize(static_cast<std::size_t>(std::min(kBufferBytes, left())));
                file_.read(at_, buffer_);
                buffer_begin_ = at_;
            }
            std::memcpy(out.data(), buffer_.data() + (at_ - buffer_begin_), out.size());
        }
        at_ += std::ssize(out);
    }

    const PosixFile& file_;
    std::int64_t size_;
    std::int64_t at_ = 0;
    std::int64_t buffer_begin_ = 0;
    std::vector<std::byte> buffer_;
};

GgufList skip_list(Cursor& cursor, const std::string& key) {
    const auto type = cursor.number<std::uint32_t>();
    const auto count = cursor.number<std::uint64_t>();
    const auto width = width_of(type);
    if (!width && type != kString) {
        cursor.fail(fmt::format("{} is a list of type {}, which is not read", key, type));
    }
    // A text has at least the eight bytes of its length.
    if (std::cmp_greater(count, cursor.left() / width.value_or(8))) {
        cursor.fail(fmt::format("{} claims {} items, more than the file can hold", key, count));
    }
    if (width) {
        cursor.skip(static_cast<std::int64_t>(count) * *width);
    } else {
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto length = cursor.number<std::uint64_t>();
            if (std::cmp_greater(length, cursor.left())) {
                cursor.fail(fmt::format("{}: item {} claims {} bytes", key, i, length));
            }
            cursor.skip(static_cast<std::int64_t>(length));
        }
    }
    return {static_cast<std::int64_t>(count)};
}

GgufValue read_value(Cursor& cursor, const std::string& key) {
    const auto unsigned_value = [](auto number) { return GgufValue(std::uint64_t{number}); };
    const auto signed_value = [](auto number) { return GgufValue(std::int64_t{number}); };
    const auto type = cursor.number<std::uint32_t>();
    switch (type) {
        case kU8:
            return unsigned_value(cursor.number<std::uint8_t>());
        case kU16:
            return unsigned_value(cursor.number<std::uint16_t>());
        case kU32:
            return unsigned_value(cursor.number<std::uint32_t>());
        case kU64:
            return unsigned_value(cursor.number<std::uint64_t>());
        case kI8:
            return signed_value(cursor.number<std::int8_t>());
        case kI16:
            return signed_value(cursor.number<std::int16_t>());
        case kI32:
            return signed_value(cursor.number<std::int32_t>());
        case kI64:
            return signed_value(cursor.number<std::int64_t>());
        case kF32:
            return double{cursor.number<float>()};
        case kF64:
            return cursor.number<double>();
        case kBool:
            return cursor.number<std::uint8_t>() != 0;
        case kString:
            return cursor.text(cursor.left(), key);
        case kArray:
            return skip_list(cursor, key);
        default:
            cursor.fail(fmt::format("{} is of type {}, which the format does not have", key, type));
    }
}

void check_start(Cursor& cursor) {
    if (cursor.left() < 24) cursor.fail("is too short for a GGUF file");
    if (std::bit_cast<std::array<char, 4>>(cursor.number<std::uint32_t>()) !=
        std::array<char, 4>{'G', 'G', 'U', 'F'}) {
        cursor.fail(fmt::format("does not begin with {}", kMagic));
    }
    const auto version = cursor.number<std::uint32_t>();
    if (version == 2 || version == 3) return;
    const bool big_endian = (version & 0xffff) == 0;
    cursor.fail(
        fmt::format("is {}, little-endian files of version 2 and 3 are read",
                    big_endian ? "big-endian" : fmt::format("of GGUF version {}", version)));
}

std::int64_t alignment_of(const GgufHeader& header, const Cursor& cursor) {
    const GgufValue* value = header.find("general.alignment");
    if (value == nullptr) return kDefaultAlignment;
    const auto* number = std::get_if<std::uint64_t>(value);
    if (number == nullptr || *number < 8 || std::cmp_greater(*number, kMostAlignment) ||
        !std::has_single_bit(*number)) {
        cursor.fail(
            fmt::format("general.alignment must be a power of two from 8 to {}", kMostAlignment));
    }
    return static_cast<std::int64_t>(*number);
}

/// The offset is still that within the tensors' bytes.
GgufTensor read_tensor(Cursor& cursor) {
    GgufTensor tensor;
    tensor.name = cursor.text(kMostNameBytes, "a tensor's name");
    const auto problem = [&](std::string_view what) {
        cursor.fail(fmt::format("tensor '{}': {}", tensor.name, what));
    };
    const auto dimensions = cursor.number<std::uint32_t>();
    if (dimensions < 1 || dimensions > kMostDimensions) {
        problem(
            fmt::format("has {} dimensions, 1 to {} are possible", dimensions, kMostDimensions));
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        const auto extent = cursor.number<std::uint64_t>();
        if (!std::in_range<std::int64_t>(extent)) problem("has an impossible shape");
        tensor.shape.push_back(static_cast<std::int64_t>(extent));
    }
    std::ranges::reverse(tensor.shape);
    if (!checked_numel(tensor.shape)) {
        problem(fmt::format("shape [{}] is not possible", fmt::join(tensor.shape, ", ")));
    }
    const auto code = cursor.number<std::uint32_t>();
    const GgufBlock* block = find_gguf_block(code);
    if (block == nullptr) {
        problem(
            fmt::format("is of ggml's type {}, only F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K and "
                        "Q6_K are read",
                        code));
    }
    tensor.type = block->type;
    if (tensor.shape.back() % block->elements != 0) {
        problem(fmt::format("rows of {} are no whole number of {} blocks", tensor.shape.back(),
                            block->name));
    }
    const auto offset = cursor.number<std::uint64_t>();
    if (!std::in_range<std::int64_t>(offset)) problem("lies outside the file");
    tensor.file_offset = static_cast<std::int64_t>(offset);
    return tensor;
}

/// Makes offsets those in the file.
void place(GgufHeader& header, const Cursor& cursor) {
    const std::int64_t alignment = alignment_of(header, cursor);
    const std::int64_t data = (cursor.position() + alignment - 1) / alignment * alignment;
    const std::int64_t room = cursor.position() + cursor.left() - data;
    std::vector<GgufTensor*> ordered;
    for (GgufTensor& tensor : header.tensors) {
        if (tensor.file_offset % alignment != 0) {
            cursor.fail(fmt::format("tensor '{}': begins at byte {}, no multiple of {}",
                                    tensor.name, tensor.file_offset, alignment));
        }
        if (tensor.bytes() > room || tensor.file_offset > room - tensor.bytes()) {
            cursor.fail(fmt::format("tensor '{}': {} bytes at {} lie outside of the file's {}",
                                    tensor.name, tensor.bytes(), tensor.file_offset,
                                    std::max<std::int64_t>(room, 0)));
        }
        tensor.file_offset += data;
        ordered.push_back(&tensor);
    }
    std::ranges::sort(ordered, {}, &GgufTensor::file_offset);
    for (std::size_t i = 1; i < ordered.size(); ++i) {
        if (ordered[i]->file_offset < ordered[i - 1]->file_offset + ordered[i - 1]->bytes()) {
            cursor.fail(fmt::format("tensors '{}' and '{}' overlap", ordered[i - 1]->name,
                                    ordered[i]->name));
        }
    }
}

}  // namespace

std::int64_t GgufTensor::bytes() const {
    const GgufBlock& block = block_of(type);
    return numel(shape) / block.elements * block.bytes;
}

const GgufValue* GgufHeader::find(std::string_view key) const {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : &found->second;
}

GgufHeader read_gguf_header(const PosixFile& file) {
    Cursor cursor(file);
    check_start(cursor);
    const auto tensors = cursor.number<std::uint64_t>();
    const auto pairs = cursor.number<std::uint64_t>();
    if (tensors > kMostTensors || pairs > kMostPairs) {
        cursor.fail(fmt::format("claims {} tensors and {} keys, at most {} and {} are read",
                                tensors, pairs, kMostTensors, kMostPairs));
    }
    GgufHeader header;
    for (std::uint64_t i = 0; i < pairs; ++i) {
        std::string key = cursor.text(kMostNameBytes, "a key");
        GgufValue value = read_value(cursor, key);
        const auto [at, added] = header.metadata.try_emplace(std::move(key), std::move(value));
        if (!added) cursor.fail(fmt::format("names key '{}' twice", at->first));
    }
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < tensors; ++i) {
        header.tensors.push_back(read_tensor(cursor));
        const std::string& name = header.tensors.back().name;
        if (!names.insert(name).second) cursor.fail(fmt::format("names tensor '{}' twice", name));
    }
    place(header, cursor);
    return header;
}

}  // namespace fullshard::checkpoint
