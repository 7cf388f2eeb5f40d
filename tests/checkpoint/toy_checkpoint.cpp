#include "checkpoint/toy_checkpoint.h"

#include "base/error.h"
#include "base/files.h"
#include "base/rng.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/folder_check.h"
#include "checkpoint/format/state_file.h"

#include <stdlib.h>

#include <fstream>
#include <span>

namespace fullshard::checkpoint::toy {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "fullshard-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::vector<TensorEntry> tensors(const std::set<std::string>& frozen) {
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters = {
        {"token_embedding.weight", {7, 5}},
        {"layers.0.linear1.weight", {6, 11}},
        {"layers.0.linear1.bias", {13}},
        {"layers.0.convolution", {3, 4, 5}},
        {"scale", {}},
    };
    std::vector<TensorEntry> tensors;
    for (const State state : kStates) {
        for (const auto& [name, shape] : parameters) {
            if (state != State::kModel && frozen.contains(name)) continue;
            TensorEntry tensor;
            tensor.parameter = name;
            tensor.state = state;
            tensor.shape = shape;
            tensors.push_back(std::move(tensor));
        }
    }
    return tensors;
}

float value(const TensorEntry& tensor, std::int64_t step, std::int64_t i) {
    const std::string name = dataset_path(tensor.state, tensor.parameter);
    const RandomStream stream(mix(stable_hash(name), static_cast<std::uint64_t>(step)));
    return static_cast<float>(stream.normal(static_cast<std::uint64_t>(i)));
}

std::vector<float> values(const TensorEntry& tensor, std::int64_t step) {
    std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = value(tensor, step, static_cast<std::int64_t>(i));
    }
    return values;
}

Manifest write_state(const fs::path& folder, const Save& save) {
    Manifest manifest{
        .progress = {.step = save.step,
                     .optimizer_step = save.step - 1,
                     .tokens = 640,
                     .samples = 80},
        .seed = 0xfedcba9876543210,
        .global_batch = 8,
        .numerics = {.reduce_order = "tree", .threads = 2, .cpu_capability = "AVX2"},
        .writer = {.version = "0.1.0",
                   .git_hash = "0123abc",
                   .ranks = save.ranks,
                   .strategy = "full"},
        .effective_deck = "[train]\nsteps = 20\n",
        .files = {},
        .tensors = tensors(save.frozen),
    };
    std::vector<TensorEntry>& tensors = manifest.tensors;
    std::vector<Holding> holdings;  // rank by rank
    for (std::int64_t rank = 0; rank < save.ranks; ++rank) {
        for (std::int64_t i = 0; i < std::ssize(tensors); ++i) {
            const std::int64_t numel = tensors[static_cast<std::size_t>(i)].numel();
            const std::int64_t begin = numel * rank / save.ranks;
            const std::int64_t end = numel * (rank + 1) / save.ranks;
            if (end > begin) {
                holdings.push_back({i, rank * save.nodes / save.ranks, begin, end - begin});
            }
        }
    }
    place_by_holder(tensors, holdings);
    std::vector<StateFile> files;
    for (std::int64_t node = 0; node < save.nodes; ++node) {
        create_state_file(folder, tensors, node, save.nodes);
        files.push_back(StateFile::open_to_write(folder / state_file_name(node, save.nodes)));
    }
    for (const Holding& held : holdings) {
        TensorEntry& tensor = tensors[static_cast<std::size_t>(held.tensor)];
        const std::vector<float> all = values(tensor, save.step);
        const auto part = std::span(all).subspan(static_cast<std::size_t>(held.begin),
                                                 static_cast<std::size_t>(held.count));
        files[static_cast<std::size_t>(held.file)].write(
            dataset_path(tensor.state, tensor.parameter), index_in_dataset(tensor, held.begin),
            part);
        const auto blocks = digest_blocks(held.begin, part, save.max_block_bytes);
        tensor.blocks.insert(tensor.blocks.end(), blocks.begin(), blocks.end());
    }
    for (StateFile& file : files) file.close();
    if (save.nodes > 1) create_index_file(folder, tensors, save.nodes);
    for (std::int64_t node = 0; node < save.nodes; ++node) {
        const fs::path file = folder / state_file_name(node, save.nodes);
        sync_file(file);
        manifest.files.push_back(read_structure(file, tensors, node));
    }
    if (save.nodes > 1) {
        manifest.files.push_back(read_structure(folder / kIndexFile, tensors, save.nodes));
    }
    return manifest;
}

fs::path save(const fs::path& parent, const Save& save) {
    const fs::path temporary = begin_save(parent, save.step);
    return commit_save(temporary, write_state(temporary, save));
}

void rewrite_manifest(const fs::path& folder, const std::function<void(Manifest&)>& change) {
    Manifest manifest = parse_manifest(read_file(folder / kManifestFile), "manifest");
    change(manifest);
    write_manifest_text(folder, to_json(manifest));
}

void write_manifest_text(const fs::path& folder, const std::string& text) {
    write_text(folder / kManifestFile, text);
    write_text(folder / kCompleteFile, complete_text(text));
}

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

testing::AssertionResult contains(const std::string& text, const std::string& part) {
    if (text.find(part) != text.npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

void flip_bit(const fs::path& file, std::int64_t byte, int bit) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(byte);
    const char old = static_cast<char>(stream.get());
    stream.seekp(byte);
    stream.put(static_cast<char>(old ^ (1 << bit)));
}

void write_text(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
}

}  // namespace fullshard::checkpoint::toy
