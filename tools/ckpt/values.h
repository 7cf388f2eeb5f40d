// Values of the tool's options. Each function throws UsageError naming option and value.
#pragma once

#include "base/span.h"
#include "checkpoint/export/container.h"

#include <cstdint>
#include <string>

namespace fullshard::ckpt {

/// Zero or more.
double parse_tolerance(const std::string& option, const std::string& text);
/// 1 to 256.
int parse_threads(const std::string& option, const std::string& text);
/// A whole number of at least 1 with a unit: KB, MB, GB, TB are powers of 1000; K, M, G, T and KiB,
/// MiB, GiB, TiB are powers of 1024.
std::int64_t parse_bytes(const std::string& option, const std::string& text);
/// fp32, bf16 or fp16.
DType parse_dtype(const std::string& option, const std::string& text);
/// hdf5, safetensors, pt, hf or llmc.
checkpoint::FileFormat parse_format(const std::string& option, const std::string& text);

}  // namespace fullshard::ckpt
