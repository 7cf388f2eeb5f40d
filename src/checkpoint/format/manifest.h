// What a checkpoint says about itself: manifest.json.
#pragma once

#include "checkpoint/format/digest.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

inline constexpr int kFormatVersion = 1;

/// Files of a checkpoint folder.
inline constexpr std::string_view kStateFile = "state.h5";  ///< when one file holds all tensors
inline constexpr std::string_view kIndexFile = "index.h5";  ///< beside several files
inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kDeckFile = "effective.ini";
inline constexpr std::string_view kCompleteFile = "COMPLETE";

/// Which of a parameter's tensors: fp32 master weights, or one of AdamW's moments.
enum class State : std::uint8_t { kModel, kFirstMoment, kSecondMoment };
inline constexpr State kStates[] = {State::kModel, State::kFirstMoment, State::kSecondMoment};

/// Name of file number `file` of the `count` that hold tensors: "state.h5" when it is the only one,
/// else "state-0000.h5" and so on.
std::string state_file_name(std::int64_t file, std::int64_t count);

/// Group of a state's datasets within a file: "model", "optimizer/exp_avg", "optimizer/exp_avg_sq".
std::string_view state_folder(State state);

/// Path of the dataset within a file: "/model/NAME", "/optimizer/exp_avg/NAME",
/// "/optimizer/exp_avg_sq/NAME".
std::string dataset_path(State state, std::string_view parameter);

/// Elements [begin, begin + count) of a tensor in row-major order, and the XXH3-64 digest of their
/// bytes in the file. At most kMaxBlockBytes.
struct Block {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::uint64_t digest = 0;

    friend bool operator==(const Block&, const Block&) = default;
};
inline constexpr std::int64_t kMaxBlockBytes = std::int64_t{4} << 20;

/// Elements [begin, begin + count) of a tensor in row-major order, adjacent in one file.
struct Part {
    std::int64_t file = 0;  ///< index in Manifest::files
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t file_offset = 0;  ///< of the first byte of raw data

    /// One past the last byte of raw data.
    std::int64_t end_offset() const;
    friend bool operator==(const Part&, const Part&) = default;
};

/// A float32 tensor.
struct TensorEntry {
    std::string parameter;
    State state = State::kModel;
    std::vector<std::int64_t> shape;
    std::vector<Part> parts;    ///< ordered by `begin`; cover every element once
    std::vector<Block> blocks;  ///< likewise; none crosses the border of a part

    std::int64_t numel() const;
    /// The part that holds an element of the tensor.
    const Part& part_with(std::int64_t element) const;
    friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

/// A part together with its tensor.
struct PlacedPart {
    const TensorEntry* tensor = nullptr;
    const Part* part = nullptr;
};
/// All parts by file and by where their raw data lies in it.
std::vector<PlacedPart> in_file_order(std::span<const TensorEntry> tensors);

/// A file of the checkpoint: one that holds raw data, or index.h5, which holds none.
struct FileEntry {
    std::string name;
    std::int64_t bytes = 0;
    std::uint64_t structure_digest = 0;  ///< of the bytes that are no tensor's data, in order

    friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// Where dynamic loss scaling stood.
struct LossScalerState {
    double scale = 1.0;                ///< a power of two
    std::int64_t good_steps = 0;       ///< since the last overflow, or since the start
    std::int64_t hysteresis_left = 1;  ///< overflows until one halves the scale, that one included

    friend bool operator==(const LossScalerState&, const LossScalerState&) = default;
};

/// Where the run stood.
struct Progress {
    std::int64_t step = 0;            ///< steps done, skipped ones included
    std::int64_t optimizer_step = 0;  ///< AdamW's count, which skipped steps do not advance
    std::int64_t skipped_steps = 0;   ///< of `step`, those without an update
    std::int64_t tokens = 0;          ///< valid targets seen
    std::int64_t samples = 0;         ///< global index of the next training sample
    /// The evaluation that is due after `step` was left out, because the run was asked to stop.
    bool evaluation_pending = false;
    std::optional<LossScalerState> loss_scaler = {};  ///< none where losses are not scaled

    friend bool operator==(const Progress&, const Progress&) = default;
};

/// What must be equal for a resumed run to give the same bits.
struct Numerics {
    std::string reduce_order;
    std::int64_t threads = 1;
    std::string cpu_capability;  ///< vector instructions that the compute library chose

    friend bool operator==(const Numerics&, const Numerics&) = default;
};

/// Who wrote it; informative.
struct Writer {
    std::string version;
    std::string git_hash;
    std::int64_t ranks = 1;
    std::string strategy;

    friend bool operator==(const Writer&, const Writer&) = default;
};

struct Manifest {
    int format_version = kFormatVersion;
    Progress progress;
    std::uint64_t seed = 0;
    std::int64_t global_batch = 0;  ///< sequences a step
    Numerics numerics;
    Writer writer;
    std::string effective_deck;  ///< text; also in effective.ini beside the manifest
    /// config.json of the model, of families that other programs know; earlier releases wrote none.
    std::string architecture = {};
    /// Of the tokens that are trained on; 0: unknown.
    std::uint64_t data_fingerprint = 0;
    std::vector<FileEntry> files;
    std::vector<TensorEntry> tensors;

    /// Throws DataError naming the tensor when there is none.
    const TensorEntry& tensor(State state, std::string_view parameter) const;
    friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Throws UsageError when a text is not UTF-8, which JSON cannot hold.
std::string to_json(const Manifest& manifest);
/// Throws DataError naming `origin` and the field for text that is no manifest, of another format
/// version, or inconsistent: names twice, negative sizes, blocks that leave elements uncovered or
/// cover them twice, overlapping raw data, or data outside the file.
Manifest parse_manifest(std::string_view json, std::string_view origin);

}  // namespace fullshard::checkpoint
