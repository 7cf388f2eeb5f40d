#include "base/error.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/manifest_check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace fullshard::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "fullshard-checkpoint";

/// A value of the document together with where it stands, for messages.
class Field {
  public:
    Field(const Json& value, std::string origin, std::string path)
        : value_(value), origin_(std::move(origin)), path_(std::move(path)) {}

    Field at(std::string_view key) const {
        const std::string path =
            path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
        if (!value_.is_object()) fail("must be an object");
        const auto found = value_.find(key);
        if (found == value_.end()) throw DataError(fmt::format("{}: {} is missing", origin_, path));
        return {*found, origin_, path};
    }
    /// As at(), for a field that earlier releases did not write.
    std::optional<Field> find(std::string_view key) const {
        if (!value_.is_object() || !value_.contains(key)) return std::nullopt;
        return at(key);
    }
    std::vector<Field> items() const {
        if (!value_.is_array()) fail("must be a list");
        std::vector<Field> items;
        for (const Json& item : value_) {
            items.emplace_back(item, origin_, fmt::format("{}[{}]", path_, items.size()));
        }
        return items;
    }
    std::string text() const {
        if (!value_.is_string()) fail("must be a text");
        return value_.get<std::string>();
    }
    /// A number from 0 to 2^63 - 1.
    std::int64_t count() const {
        const std::uint64_t number = natural();
        if (!std::in_range<std::int64_t>(number)) fail("is too large");
        return static_cast<std::int64_t>(number);
    }
    bool flag() const {
        if (!value_.is_boolean()) fail("must be true or false");
        return value_.get<bool>();
    }
    double power_of_two() const {
        if (!value_.is_number()) fail("must be a number");
        const double number = value_.get<double>();
        int exponent = 0;
        if (std::frexp(number, &exponent) != 0.5) fail("must be a power of two");
        return number;
    }
    std::uint64_t natural() const {
        if (!value_.is_number_unsigned()) fail("must be a whole number, zero or more");
        return value_.get<std::uint64_t>();
    }
    std::uint64_t digest() const {
        const std::string digits = text();
        std::uint64_t digest = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), digest, 16);
        if (error != std::errc() || digest_text(digest) != digits) {
            fail("must be 16 lower-case hexadecimal digits");
        }
        return digest;
    }
    State state() const {
        const std::string folder = text();
        const auto* found = std::ranges::find(kStates, folder, state_folder);
        if (found == std::end(kStates)) fail(fmt::format("'{}' is no known state", folder));
        return *found;
    }
    [[noreturn]] void fail(std::string_view problem) const {
        throw DataError(fmt::format("{}: {} {}", origin_, path_.empty() ? "it" : path_, problem));
    }

  private:
    const Json& value_;
    std::string origin_;
    std::string path_;
};

void check_version(const Field& root) {
    if (root.at("format").text() != kFormatName)
        root.at("format").fail("is no FullShard checkpoint");
    const std::int64_t version = root.at("format_version").count();
    if (version != kFormatVersion) {
        root.at("format_version")
            .fail(
                fmt::format("is {}; this program reads version {} (use the release that wrote it)",
                            version, kFormatVersion));
    }
}

Block parse_block(const Field& field) {
    const auto items = field.items();
    if (items.size() != 3) field.fail("must be [begin, count, digest]");
    return {items[0].count(), items[1].count(), items[2].digest()};
}

Part parse_part(const Field& field) {
    const auto items = field.items();
    if (items.size() != 4) field.fail("must be [file, begin, count, file_offset]");
    return {items[0].count(), items[1].count(), items[2].count(), items[3].count()};
}

FileEntry parse_file(const Field& field) {
    return {.name = field.at("name").text(),
            .bytes = field.at("bytes").count(),
            .structure_digest = field.at("structure_digest").digest()};
}

LossScalerState parse_loss_scaler(const Field& field) {
    const Field hysteresis_left = field.at("hysteresis_left");
    if (hysteresis_left.count() == 0) hysteresis_left.fail("must be at least 1");
    return {.scale = field.at("scale").power_of_two(),
            .good_steps = field.at("good_steps").count(),
            .hysteresis_left = hysteresis_left.count()};
}

Progress parse_progress(const Field& field) {
    Progress progress{.step = field.at("step").count(),
                      .optimizer_step = field.at("optimizer_step").count(),
                      .tokens = field.at("tokens").count(),
                      .samples = field.at("samples").count()};
    if (const auto skipped = field.find("skipped_steps")) progress.skipped_steps = skipped->count();
    if (const auto pending = field.find("evaluation_pending")) {
        progress.evaluation_pending = pending->flag();
    }
    if (const auto scaler = field.find("loss_scaler")) {
        progress.loss_scaler = parse_loss_scaler(*scaler);
    }
    return progress;
}

TensorEntry parse_tensor(const Field& field) {
    TensorEntry tensor;
    tensor.parameter = field.at("parameter").text();
    tensor.state = field.at("state").state();
    for (const Field& extent : field.at("shape").items()) tensor.shape.push_back(extent.count());
    for (const Field& part : field.at("parts").items()) tensor.parts.push_back(parse_part(part));
    for (const Field& block : field.at("blocks").items())
        tensor.blocks.push_back(parse_block(block));
    return tensor;
}

Json progress_json(const Progress& progress) {
    Json json = {{"step", progress.step},
                 {"optimizer_step", progress.optimizer_step},
                 {"skipped_steps", progress.skipped_steps},
                 {"tokens", progress.tokens},
                 {"samples", progress.samples}};
    if (progress.evaluation_pending) json["evaluation_pending"] = true;
    if (const auto& scaler = progress.loss_scaler) {
        json["loss_scaler"] = {{"scale", scaler->scale},
                               {"good_steps", scaler->good_steps},
                               {"hysteresis_left", scaler->hysteresis_left}};
    }
    return json;
}

Json tensor_json(const TensorEntry& tensor) {
    Json parts = Json::array();
    for (const Part& part : tensor.parts) {
        parts.push_back({part.file, part.begin, part.count, part.file_offset});
    }
    Json blocks = Json::array();
    for (const Block& block : tensor.blocks) {
        blocks.push_back({block.begin, block.count, digest_text(block.digest)});
    }
    return {{"parameter", tensor.parameter},
            {"state", state_folder(tensor.state)},
            {"shape", tensor.shape},
            {"parts", std::move(parts)},
            {"blocks", std::move(blocks)}};
}

Json file_json(const FileEntry& file) {
    return {{"name", file.name},
            {"bytes", file.bytes},
            {"structure_digest", digest_text(file.structure_digest)}};
}

/// A list of the document with one item a line: people look into manifests, and fully indented ones
/// are mostly white space.
template <typename Item>
std::string list_text(std::string_view key, const std::vector<Item>& items,
                      Json (*json_of)(const Item&)) {
    std::string text = fmt::format(",\n  \"{}\": [", key);
    std::string_view separator = "\n    ";
    for (const Item& item : items) {
        text += separator;
        text += json_of(item).dump();
        separator = ",\n    ";
    }
    return text + "\n  ]";
}

std::string to_text(const Manifest& manifest) {
    const Numerics& numerics = manifest.numerics;
    const Writer& writer = manifest.writer;
    Json head = {
        {"format", kFormatName},
        {"format_version", manifest.format_version},
        {"progress", progress_json(manifest.progress)},
        {"seed", manifest.seed},
        {"global_batch", manifest.global_batch},
        {"numerics",
         {{"reduce_order", numerics.reduce_order},
          {"threads", numerics.threads},
          {"cpu_capability", numerics.cpu_capability}}},
        {"writer",
         {{"version", writer.version},
          {"git_hash", writer.git_hash},
          {"ranks", writer.ranks},
          {"strategy", writer.strategy}}},
        {"effective_deck", manifest.effective_deck},
    };
    if (!manifest.architecture.empty()) head["architecture"] = manifest.architecture;
    if (manifest.data_fingerprint != 0)
        head["data_fingerprint"] = digest_text(manifest.data_fingerprint);
    std::string text = head.dump(2);
    text.resize(text.size() - std::string_view("\n}").size());
    return text + list_text("files", manifest.files, file_json) +
           list_text("tensors", manifest.tensors, tensor_json) + "\n}\n";
}

}  // namespace

std::string to_json(const Manifest& manifest) {
    try {
        return to_text(manifest);
    } catch (const Json::type_error&) {
        throw UsageError(
            "a checkpoint cannot hold text that is not UTF-8: look at paths and names in the deck");
    }
}

Manifest parse_manifest(std::string_view json, std::string_view origin) {
    const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) throw DataError(fmt::format("{}: is no JSON", origin));
    const Field root(document, std::string(origin), "");
    check_version(root);

    Manifest manifest;
    manifest.progress = parse_progress(root.at("progress"));
    manifest.seed = root.at("seed").natural();
    manifest.global_batch = root.at("global_batch").count();
    const Field numerics = root.at("numerics");
    manifest.numerics = {.reduce_order = numerics.at("reduce_order").text(),
                         .threads = numerics.at("threads").count(),
                         .cpu_capability = numerics.at("cpu_capability").text()};
    const Field writer = root.at("writer");
    manifest.writer = {.version = writer.at("version").text(),
                       .git_hash = writer.at("git_hash").text(),
                       .ranks = writer.at("ranks").count(),
                       .strategy = writer.at("strategy").text()};
    manifest.effective_deck = root.at("effective_deck").text();
    if (const auto found = root.find("architecture")) manifest.architecture = found->text();
    if (const auto found = root.find("data_fingerprint"))
        manifest.data_fingerprint = found->digest();
    for (const Field& file : root.at("files").items()) manifest.files.push_back(parse_file(file));
    for (const Field& tensor : root.at("tensors").items()) {
        manifest.tensors.push_back(parse_tensor(tensor));
    }
    check_manifest(manifest, origin);
    return manifest;
}

}  // namespace fullshard::checkpoint
