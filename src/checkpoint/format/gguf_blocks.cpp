#include "checkpoint/format/gguf_blocks.h"

#include "base/error.h"
#include "kernels/half_float.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fullshard::checkpoint {
namespace {

constexpr std::array kBlocks{
    GgufBlock{GgufType::kF32, "F32", 1, 4, DType::kFloat32},
    GgufBlock{GgufType::kF16, "F16", 1, 2, DType::kFloat16},
    GgufBlock{GgufType::kBF16, "BF16", 1, 2, DType::kBFloat16},
    GgufBlock{GgufType::kQ4_0, "Q4_0", 32, 18, {}},
    GgufBlock{GgufType::kQ4_1, "Q4_1", 32, 20, {}},
    GgufBlock{GgufType::kQ8_0, "Q8_0", 32, 34, {}},
    GgufBlock{GgufType::kQ4_K, "Q4_K", 256, 144, {}},
    GgufBlock{GgufType::kQ6_K, "Q6_K", 256, 210, {}},
};

float half_at(const std::byte* at) {
    Float16 half;
    std::memcpy(&half.bits, at, 2);
    return kernels::to_float(half);
}

int low_bits(std::byte byte) {
    return std::to_integer<int>(byte & std::byte{15});
}
int high_bits(std::byte byte) {
    return std::to_integer<int>(byte >> 4);
}
int signed_byte(std::byte byte) {
    return static_cast<signed char>(byte);
}

// In blocks of 4 bits a byte holds an element of the first half and, in its high bits, the one at
// the same place in the second half.

/// Scale; 16 bytes. Element = scale * (quant - 8).
void dequantise_q4_0(const std::byte* block, std::span<float> out) {
    const float scale = half_at(block);
    const std::byte* quants = block + 2;
    for (std::size_t i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_bits(quants[i]) - 8) * scale;
        out[i + 16] = static_cast<float>(high_bits(quants[i]) - 8) * scale;
    }
}

/// Scale; minimum; 16 bytes. Element = scale * quant + minimum.
void dequantise_q4_1(const std::byte* block, std::span<float> out) {
    const float scale = half_at(block);
    const float minimum = half_at(block + 2);
    const std::byte* quants = block + 4;
    for (std::size_t i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_bits(quants[i])) * scale + minimum;
        out[i + 16] = static_cast<float>(high_bits(quants[i])) * scale + minimum;
    }
}

/// Scale; 32 signed bytes.
void dequantise_q8_0(const std::byte* block, std::span<float> out) {
    const float scale = half_at(block);
    for (std::size_t i = 0; i < 32; ++i) {
        out[i] = static_cast<float>(signed_byte(block[2 + i])) * scale;
    }
}

struct SubBlock {
    int scale = 0;
    int minimum = 0;
};

/// Eight pairs of 6-bit numbers in 12 bytes: those of the first four sub-blocks are the low bits of
/// bytes 0-3 (scales) and 4-7 (minima); the others have four bits in bytes 8-11 and their upper two
/// on top of bytes 0-7.
SubBlock unpack_sub_block(const std::byte* packed, std::size_t index) {
    const auto six = [](std::byte byte) { return std::to_integer<int>(byte & std::byte{63}); };
    const auto top = [](std::byte byte) { return std::to_integer<int>(byte >> 6) << 4; };
    if (index < 4) return {six(packed[index]), six(packed[index + 4])};
    return {low_bits(packed[index + 4]) | top(packed[index - 4]),
            high_bits(packed[index + 4]) | top(packed[index])};
}

/// Scale of scales; scale of minima; 12 bytes of both; 128 bytes. Two sub-blocks of 32 share 32
/// bytes. Element = scale * quant - minimum.
void dequantise_q4_k(const std::byte* block, std::span<float> out) {
    const float scale_of_scales = half_at(block);
    const float scale_of_minima = half_at(block + 2);
    for (std::size_t sub = 0; sub < 8; ++sub) {
        const SubBlock packed = unpack_sub_block(block + 4, sub);
        const float scale = scale_of_scales * static_cast<float>(packed.scale);
        const float minimum = scale_of_minima * static_cast<float>(packed.minimum);
        const std::byte* quants = block + 16 + sub / 2 * 32;
        for (std::size_t i = 0; i < 32; ++i) {
            const int quant = sub % 2 == 0 ? low_bits(quants[i]) : high_bits(quants[i]);
            out[sub * 32 + i] = scale * static_cast<float>(quant) - minimum;
        }
    }
}

/// 128 bytes of lower four bits; 64 bytes of upper two bits; 16 signed scales; scale of scales.
/// Element = scale * (quant - 32). Each half of the block is four groups of 32 elements: groups 0
/// and 1 have the low bits of the half's 64 bytes, groups 2 and 3 the high bits; group g has bits
/// 2 g and 2 g + 1 of the half's 32 bytes of upper bits.
void dequantise_q6_k(const std::byte* block, std::span<float> out) {
    const float scale_of_scales = half_at(block + 208);
    for (std::size_t half = 0; half < 2; ++half) {
        const std::byte* lower = block + half * 64;
        const std::byte* upper = block + 128 + half * 32;
        const std::byte* scales = block + 192 + half * 8;
        for (std::size_t group = 0; group < 4; ++group) {
            for (std::size_t i = 0; i < 32; ++i) {
                const std::byte four = lower[group % 2 * 32 + i];
                const int two = std::to_integer<int>(upper[i] >> (2 * group)) & 3;
                const int quant = (group < 2 ? low_bits(four) : high_bits(four)) | two << 4;
                const float scale =
                    scale_of_scales * static_cast<float>(signed_byte(scales[group * 2 + i / 16]));
                out[half * 128 + group * 32 + i] = scale * static_cast<float>(quant - 32);
            }
        }
    }
}

}  // namespace

const GgufBlock* find_gguf_block(std::uint32_t code) {
    const auto* found = std::ranges::find(kBlocks, static_cast<GgufType>(code), &GgufBlock::type);
    return found == kBlocks.end() ? nullptr : found;
}

const GgufBlock& block_of(GgufType type) {
    const GgufBlock* block = find_gguf_block(static_cast<std::uint32_t>(type));
    ensure(block != nullptr, "types of GGUF are those of the table");
    return *block;
}

void dequantise(GgufType type, const std::byte* block, std::span<float> out) {
    ensure(std::ssize(out) == block_of(type).elements, "a block is dequantised as a whole");
    switch (type) {
        case GgufType::kQ4_0:
            return dequantise_q4_0(block, out);
        case GgufType::kQ4_1:
            return dequantise_q4_1(block, out);
        case GgufType::kQ8_0:
            return dequantise_q8_0(block, out);
        case GgufType::kQ4_K:
            return dequantise_q4_k(block, out);
        case GgufType::kQ6_K:
            return dequantise_q6_k(block, out);
        case GgufType::kF32:
        case GgufType::kF16:
        case GgufType::kBF16:
            break;
    }
    throw LogicError("numbers of this type are not quantised");
}

}  // namespace fullshard::checkpoint
