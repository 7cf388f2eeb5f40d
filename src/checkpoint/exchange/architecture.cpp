#include "checkpoint/exchange/architecture.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/exchange/gguf_architecture.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/llmc_model.h"
#include "checkpoint/format/weights.h"

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";

std::optional<spec::Architecture> config_at(const fs::path& path) {
    if (!fs::is_regular_file(path)) return std::nullopt;
    const std::string text = read_file(path);
    if (!spec::has_known_model_type(text)) return std::nullopt;
    return spec::parse_hf_config(text, path.string());
}

spec::Architecture architecture_of_llmc(const fs::path& path) {
    const LlmcModel header = read_llmc_header(PosixFile::open(path));
    return spec::Gpt2{.vocab_size = header.vocab_size,
                      .padded_vocab_size = header.padded_vocab_size,
                      .max_positions = header.max_positions,
                      .d_model = header.d_model,
                      .num_heads = header.num_heads,
                      .num_layers = header.num_layers,
                      .d_ff = 4 * header.d_model,
                      .dropout = 0.0};
}

std::optional<spec::Architecture> architecture_of_checkpoint(const fs::path& folder) {
    const std::string text = open_folder(folder).architecture;
    if (text.empty()) return std::nullopt;
    return spec::parse_hf_config(text, (folder / kManifestFile).string() + ": architecture");
}

}  // namespace

std::optional<spec::Architecture> architecture_of(const fs::path& path) {
    if (path.extension() == ".json" && !path.string().ends_with(".index.json")) {
        return config_at(path);
    }
    const WeightsPlace place = locate_weights(path);
    switch (place.kind) {
        case WeightsKind::kCheckpoint:
            return architecture_of_checkpoint(place.path);
        case WeightsKind::kHdf5:
            return std::nullopt;
        case WeightsKind::kSafetensors:
            return config_at(place.path.parent_path() / kConfigFile);
        case WeightsKind::kGguf:
            return architecture_of_gguf(place.path);
        case WeightsKind::kLlmc:
            return architecture_of_llmc(place.path);
    }
    throw LogicError("unknown kind of weights");
}

spec::Architecture read_hf_config(const fs::path& path) {
    return spec::parse_hf_config(read_file(path), path.string());
}

}  // namespace fullshard::checkpoint
