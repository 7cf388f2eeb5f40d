#include "checkpoint/parallel/save.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/state_file.h"
#include "comm/agree.h"
#include "comm/mpi_detail.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace fullshard::checkpoint {

namespace {

namespace fs = std::filesystem;

/// A block with the place of its tensor in the manifest: what ranks tell rank 0 about their writes.
struct WrittenBlock {
    std::int64_t tensor = 0;
    Block block;
};

/// The tensors of a checkpoint, without offsets and blocks, and where to find each.
class Entries {
  public:
    explicit Entries(std::span<const NamedShape> parameters) {
        for (const NamedShape& parameter : parameters) {
            first_.push_back(list_.size());
            for (const State state : kStates) {
                if (state != State::kModel && !parameter.trainable) continue;
                list_.push_back({parameter.parameter, state, parameter.shape, 0, {}});
            }
        }
    }
    std::vector<TensorEntry>& list() { return list_; }
    /// Index in list() of the tensor that the piece belongs to.
    std::size_t index(const Piece& piece) const {
        const std::size_t index =
            first_.at(piece.parameter) + static_cast<std::size_t>(piece.state);
        ensure(index < list_.size() && list_[index].state == piece.state,
               "a frozen parameter has no moments");
        return index;
    }

  private:
    std::vector<TensorEntry> list_;
    std::vector<std::size_t> first_;  ///< of each parameter; its weights come first
};

/// Opens the laid-out file on all ranks with the MPI-IO driver. Collective.
hid_t open_together(const comm::Group& world, const fs::path& path) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, world.impl().comm, MPI_INFO_NULL);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
    H5Pclose(access);
    return file;
}

std::vector<WrittenBlock> write_pieces(const StateFile& file, const Entries& entries,
                                       std::span<const NamedShape> parameters,
                                       std::span<const Piece> pieces) {
    constexpr std::int64_t kBlock = kMaxBlockBytes / static_cast<std::int64_t>(sizeof(float));
    std::vector<WrittenBlock> written;
    for (const Piece& piece : pieces) {
        file.write(dataset_path(piece.state, parameters[piece.parameter].parameter), piece.begin,
                   piece.values);
        const auto count = static_cast<std::int64_t>(piece.values.size());
        for (std::int64_t done = 0; done < count; done += kBlock) {
            const std::int64_t length = std::min(kBlock, count - done);
            written.push_back({static_cast<std::int64_t>(entries.index(piece)),
                               {piece.begin + done, length,
                                digest(piece.values.data() + done,
                                       static_cast<std::size_t>(length) * sizeof(float))}});
        }
    }
    return written;
}

/// Everybody's blocks, sorted into the tensors. Collective.
void gather_blocks(const comm::Group& world, const std::vector<WrittenBlock>& mine,
                   std::vector<TensorEntry>& entries) {
    const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                            mine.size() * sizeof(WrittenBlock));
    for (const std::string& theirs : world.all_gather(bytes)) {
        std::vector<WrittenBlock> blocks(theirs.size() / sizeof(WrittenBlock));
        std::memcpy(blocks.data(), theirs.data(), theirs.size());
        for (const WrittenBlock& written : blocks) {
            entries[static_cast<std::size_t>(written.tensor)].blocks.push_back(written.block);
        }
    }
    for (TensorEntry& entry : entries) std::ranges::sort(entry.blocks, {}, &Block::begin);
}

}  // namespace

fs::path save(const comm::Group& world, const fs::path& parent, const Manifest& header,
              std::span<const NamedShape> parameters, std::span<const Piece> pieces) {
    const bool leads = world.rank() == 0;
    Entries entries(parameters);
    fs::path folder;
    comm::agree(world, [&] {
        if (!leads) return;
        folder = begin_save(parent, header.progress.step);
        create_state_file(folder / kStateFile, entries.list());
    });
    folder = world.broadcast(folder.string(), 0);

    const hid_t handle = open_together(world, folder / kStateFile);
    std::optional<StateFile> file;
    std::vector<WrittenBlock> written;
    std::exception_ptr failure;
    comm::agree(world, [&] {
        if (handle < 0)
            throw RunError(
                fmt::format("cannot open {} with MPI-IO", (folder / kStateFile).string()));
        file.emplace(handle);
    });
    // Closing is collective: every rank gets there, whatever its writes did.
    try {
        written = write_pieces(*file, entries, parameters, pieces);
    } catch (...) {
        failure = std::current_exception();
    }
    comm::agree(world, [&] {
        file->close();
        if (failure) std::rethrow_exception(failure);
        sync_file(folder / kStateFile);
    });

    gather_blocks(world, written, entries.list());
    fs::path committed;
    comm::agree(world, [&] {
        if (!leads) return;
        Manifest manifest = header;
        const Structure structure = read_structure(folder / kStateFile, entries.list());
        manifest.file_bytes = structure.file_bytes;
        manifest.structure_digest = structure.digest;
        manifest.tensors = std::move(entries.list());
        // What readers will check is checked before anything is committed: uncovered elements above
        // all.
        parse_manifest(to_json(manifest), "the new checkpoint");
        committed = commit_save(folder, manifest);
    });
    return world.broadcast(committed.string(), 0);
}

}  // namespace fullshard::checkpoint
