#include "checkpoint/format/safetensors.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace fullshard::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the reference reader's limit
constexpr const char* kMetadata = "__metadata__";

struct TypeName {
    DType dtype;
    std::string_view name;
};
constexpr std::array kTypeNames{TypeName{DType::kFloat32, "F32"},
                                TypeName{DType::kBFloat16, "BF16"},
                                TypeName{DType::kFloat16, "F16"}};

/// Types of whole numbers and truth values, and of floating-point numbers that no model here has:
/// files carry masks and counters along.
struct UnreadType {
    std::string_view name;
    std::int64_t bytes;
};
constexpr std::array kUnreadTypes{
    UnreadType{"BOOL", 1},    UnreadType{"U8", 1},  UnreadType{"I8", 1},  UnreadType{"F8_E4M3", 1},
    UnreadType{"F8_E5M2", 1}, UnreadType{"I16", 2}, UnreadType{"U16", 2}, UnreadType{"I32", 4},
    UnreadType{"U32", 4},     UnreadType{"F64", 8}, UnreadType{"I64", 8}, UnreadType{"U64", 8}};

[[noreturn]] void fail(const PosixFile& file, std::string_view problem) {
    throw DataError(fmt::format("{}: {}", file.path().string(), problem));
}

std::string read_header_text(const PosixFile& file) {
    std::array<std::byte, kLengthBytes> prefix;
    if (file.size() < kLengthBytes) fail(file, "too short for a safetensors file");
    file.read(0, prefix);
    const auto length = std::bit_cast<std::uint64_t>(prefix);
    const std::int64_t room = std::min(file.size() - kLengthBytes, kMostHeaderBytes);
    if (length > static_cast<std::uint64_t>(room)) {
        fail(file,
             fmt::format("its header claims {} bytes, at most {} are possible", length, room));
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    if (!text.starts_with('{')) fail(file, "its header does not begin with '{'");
    return text;
}

/// An object of JSON that names no key twice: readers would disagree about which one counts.
Json parse_header(const PosixFile& file, const std::string& text) {
    std::vector<std::set<std::string>> open_objects;
    std::string twice;
    const auto watch = [&](int, Json::parse_event_t event, Json& value) {
        using Event = Json::parse_event_t;
        if (event == Event::object_start) open_objects.emplace_back();
        if (event == Event::object_end) open_objects.pop_back();
        if (event == Event::key) {
            auto name = value.get<std::string>();
            if (!open_objects.back().insert(name).second) twice = std::move(name);
        }
        return true;
    };
    Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
    if (header.is_discarded()) fail(file, "its header is no JSON");
    if (!twice.empty()) fail(file, fmt::format("its header names '{}' twice", twice));
    return header;
}

/// A list of whole numbers below 2^63 under `key`.
std::vector<std::int64_t> numbers(const PosixFile& file, const std::string& name,
                                  const Json& tensor, const char* key) {
    const auto found = tensor.find(key);
    if (found == tensor.end() || !found->is_array()) {
        fail(file, fmt::format("tensor '{}': {} must be a list", name, key));
    }
    std::vector<std::int64_t> values;
    for (const Json& item : *found) {
        if (!item.is_number_unsigned() || !std::in_range<std::int64_t>(item.get<std::uint64_t>())) {
            fail(file, fmt::format("tensor '{}': {} must hold whole numbers", name, key));
        }
        values.push_back(item.get<std::int64_t>());
    }
    return values;
}

struct Extent {
    SafetensorsEntry entry;
    std::int64_t end = 0;  ///< one past its last byte, from the start of the tensors' bytes
};

Extent parse_entry(const PosixFile& file, const std::string& name, const Json& tensor) {
    const auto problem = [&](std::string_view what) {
        fail(file, fmt::format("tensor '{}': {}", name, what));
    };
    if (!tensor.is_object()) problem("must be an object");
    const auto dtype = tensor.find("dtype");
    if (dtype == tensor.end() || !dtype->is_string()) problem("dtype must be a text");
    Extent extent{.entry = {name, numbers(file, name, tensor, "shape")}};
    const auto type_name = dtype->get<std::string>();
    const auto* type = std::ranges::find(kTypeNames, type_name, &TypeName::name);
    if (type != kTypeNames.end()) {
        extent.entry.dtype = type->dtype;
    } else if (std::ranges::find(kUnreadTypes, type_name, &UnreadType::name) !=
               kUnreadTypes.end()) {
        extent.entry.unread_type = type_name;
    } else {
        problem(fmt::format("is of type {}, which is not known", dtype->dump()));
    }
    constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 8;
    if (checked_numel(extent.entry.shape).value_or(kMostElements + 1) > kMostElements) {
        problem(fmt::format("shape [{}] is not possible", fmt::join(extent.entry.shape, ", ")));
    }
    const std::int64_t bytes = extent.entry.bytes();
    const auto offsets = numbers(file, name, tensor, "data_offsets");
    if (offsets.size() != 2 || offsets[1] - offsets[0] != bytes) {
        problem(fmt::format("data_offsets [{}] do not span the {} bytes of its shape",
                            fmt::join(offsets, ", "), bytes));
    }
    extent.entry.file_offset = offsets[0];
    extent.end = offsets[1];
    return extent;
}

}  // namespace

std::int64_t SafetensorsEntry::bytes() const {
    const auto* unread = std::ranges::find(kUnreadTypes, unread_type, &UnreadType::name);
    return numel(shape) * (unread == kUnreadTypes.end() ? size_of(dtype) : unread->bytes);
}

std::string make_safetensors_header(std::span<SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata) {
    nlohmann::ordered_json header = {{kMetadata, {{"format", "pt"}}}};
    for (const auto& [name, text] : metadata) header[kMetadata][name] = text;
    std::int64_t offset = 0;
    for (const SafetensorsEntry& entry : entries) {
        if (entry.name == kMetadata) {
            throw UsageError(fmt::format("safetensors cannot hold a tensor named {}", kMetadata));
        }
        const std::int64_t end = offset + entry.bytes();
        const auto* type = std::ranges::find(kTypeNames, entry.dtype, &TypeName::dtype);
        header.push_back(
            {entry.name,
             {{"dtype", type->name}, {"shape", entry.shape}, {"data_offsets", {offset, end}}}});
        offset = end;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
    const auto length = std::bit_cast<std::array<char, kLengthBytes>>(std::uint64_t{text.size()});
    text.insert(text.begin(), length.begin(), length.end());
    std::int64_t at = static_cast<std::int64_t>(text.size());
    for (SafetensorsEntry& entry : entries) {
        entry.file_offset = at;
        at += entry.bytes();
    }
    return text;
}

std::vector<SafetensorsEntry> read_safetensors_header(const PosixFile& file) {
    const std::string text = read_header_text(file);
    const Json header = parse_header(file, text);
    std::vector<Extent> extents;
    for (const auto& [name, value] : header.items()) {
        if (name != kMetadata) extents.push_back(parse_entry(file, name, value));
    }
    std::ranges::sort(extents, {}, [](const Extent& extent) { return extent.entry.file_offset; });

    const std::int64_t data = kLengthBytes + static_cast<std::int64_t>(text.size());
    std::vector<SafetensorsEntry> entries;
    std::int64_t next = 0;
    for (Extent& extent : extents) {
        SafetensorsEntry& entry = extent.entry;
        if (entry.file_offset != next) {
            fail(file, fmt::format("tensor '{}' begins at byte {}, {} was expected", entry.name,
                                   entry.file_offset, next));
        }
        next = extent.end;
        entry.file_offset += data;
        entries.push_back(std::move(entry));
    }
    if (next != file.size() - data) {
        fail(file, fmt::format("its tensors end at byte {}, the file holds {}", next,
                               file.size() - data));
    }
    return entries;
}

}  // namespace fullshard::checkpoint
