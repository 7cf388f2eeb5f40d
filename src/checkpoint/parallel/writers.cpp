#include "checkpoint/parallel/writers.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/state_file.h"
#include "checkpoint/format/write_behind.h"
#include "comm/agree.h"
#include "comm/mpi_detail.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace fullshard::checkpoint {

namespace {

namespace fs = std::filesystem;

/// Opens the laid-out file with the MPI-IO driver. Collective over the ranks that share it.
hid_t open_together(const comm::Group& sharing, const fs::path& path) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, sharing.impl().comm, MPI_INFO_NULL);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    const auto blocking = sharing.impl().block_in({.kind = "H5Fopen"});
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
    H5Pclose(access);
    return file;
}

void pass(const StageHook& at_stage, SaveStage stage) {
    if (at_stage) at_stage(stage);
}

/// A piece, and where its bytes belong.
struct Job {
    PlacedPiece piece;
    std::int64_t file_offset = 0;
};

/// In the order of the file: one pass over it.
std::vector<Job> jobs_of(const SaveLayout& layout, std::span<const PlacedPiece> pieces) {
    std::vector<Job> jobs;
    for (const PlacedPiece& piece : pieces) {
        jobs.push_back({piece, layout.offset_of(piece.tensor, piece.begin)});
    }
    std::ranges::sort(jobs, {}, &Job::file_offset);
    return jobs;
}

/// Calls write(piece, element within it, values, byte of the file) for each block. Block by block,
/// so that the kernel's copy finds in the cache what the digest has read, and the disk is busy from
/// the first block on instead of when everything is synced.
template <typename Write>
std::vector<WrittenBlock> write_blocks(const PosixFile& file, std::span<const Job> jobs,
                                       const StageHook& at_stage, Write write) {
    constexpr std::int64_t kBlock = kMaxBlockBytes / kElementBytes;
    WriteBehind behind(file);
    std::vector<WrittenBlock> written;
    for (const auto& [piece, file_offset] : jobs) {
        for (std::int64_t done = 0; done < std::ssize(piece.values); done += kBlock) {
            const auto values = piece.values.subspan(
                static_cast<std::size_t>(done),
                static_cast<std::size_t>(std::min(kBlock, std::ssize(piece.values) - done)));
            const std::int64_t offset = file_offset + done * kElementBytes;
            for (const Block& block : digest_blocks(piece.begin + done, values)) {
                written.push_back({piece.tensor, block});
            }
            write(piece, piece.begin + done, values, offset);
            behind.wrote(offset, static_cast<std::int64_t>(values.size_bytes()));
            if (written.size() == 1) pass(at_stage, SaveStage::kDuringData);
        }
    }
    return written;
}

}  // namespace

std::vector<WrittenBlock> write_together(const SaveLayout& layout, const fs::path& folder,
                                         std::span<const PlacedPiece> pieces,
                                         const StageHook& at_stage) {
    const SavingRanks& ranks = layout.ranks();
    const fs::path path = layout.own_file(folder);
    pass(at_stage, SaveStage::kBeforeData);
    const hid_t handle = open_together(ranks.sharing, path);
    std::optional<StateFile> file;
    std::optional<PosixFile> same_file;  // what HDF5 does not do: write-back and sync
    comm::agree(ranks.world, [&] {
        if (handle < 0) {
            throw RunError(fmt::format("cannot open {} with MPI-IO", path.string()));
        }
        file.emplace(handle);
        same_file = PosixFile::open_to_write(path);
    });
    std::vector<WrittenBlock> written;
    std::exception_ptr failure;
    // Closing is collective: every rank gets there, whatever its writes did.
    try {
        const auto write = [&](const PlacedPiece& piece, std::int64_t begin,
                               std::span<const float> values, std::int64_t /*offset*/) {
            const TensorEntry& tensor = layout.tensors()[static_cast<std::size_t>(piece.tensor)];
            file->write(dataset_path(tensor.state, tensor.parameter),
                        index_in_dataset(tensor, begin), values);
        };
        written = write_blocks(*same_file, jobs_of(layout, pieces), at_stage, write);
    } catch (...) {
        failure = std::current_exception();
    }
    comm::agree(ranks.world, [&] {
        {
            const auto blocking = ranks.sharing.impl().block_in({.kind = "H5Fclose"});
            file->close();
        }
        if (failure) std::rethrow_exception(failure);
        same_file->sync();
    });
    return written;
}

void BackgroundWriter::start(const SaveLayout& layout, const fs::path& folder,
                             std::span<const PlacedPiece> pieces, const StageHook& at_stage) {
    std::int64_t elements = 0;
    for (const PlacedPiece& piece : pieces) elements += std::ssize(piece.values);
    if (!staging_ || staging_->size != elements) staging_ = std::make_shared<Staging>(elements);
    staging_->copied = 0;
    std::vector<PlacedPiece> copies;
    std::span<float> free(staging_->values.get(), static_cast<std::size_t>(elements));
    for (const PlacedPiece& piece : pieces) {
        copies.push_back({piece.tensor, piece.begin, free.first(piece.values.size())});
        free = free.subspan(piece.values.size());
    }
    job_.start([path = layout.own_file(folder), staging = staging_,
                sources = std::vector(pieces.begin(), pieces.end()), jobs = jobs_of(layout, copies),
                at_stage] {
        float* to = staging->values.get();
        for (const PlacedPiece& source : sources) {
            to = std::ranges::copy(source.values, to).out;
            staging->copied += std::ssize(source.values);
            staging->copied.notify_all();
        }
        pass(at_stage, SaveStage::kBeforeData);
        const PosixFile file = PosixFile::open_to_write(path);
        auto written = write_blocks(
            file, jobs, at_stage,
            [&](const PlacedPiece& /*piece*/, std::int64_t /*begin*/, std::span<const float> values,
                std::int64_t offset) { file.write_at(offset, std::as_bytes(values)); });
        file.sync_data();
        return written;
    });
}

void BackgroundWriter::wait_for_copy(std::int64_t elements) const {
    if (!staging_) return;
    const std::int64_t wanted = std::min(elements, staging_->size);
    for (std::int64_t copied = staging_->copied; copied < wanted; copied = staging_->copied)
        staging_->copied.wait(copied);
}

void BackgroundWriter::abandon() {
    wait_for_copy(staging_->size);  // memory ends in time; only files may not
    job_.abandon();
    staging_.reset();
}

}  // namespace fullshard::checkpoint
