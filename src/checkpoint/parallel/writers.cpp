#include "checkpoint/parallel/writers.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/state_file.h"
#include "comm/agree.h"
#include "comm/mpi_detail.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <chrono>
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

/// A piece whose values have been copied, and where its bytes belong.
struct Job {
    PlacedPiece piece;
    std::int64_t file_offset = 0;
};

std::vector<WrittenBlock> write_jobs(const PosixFile& file, std::span<const Job> jobs,
                                     const StageHook& at_stage) {
    constexpr std::int64_t kBlock = kMaxBlockBytes / kElementBytes;
    std::vector<WrittenBlock> written;
    for (const Job& job : jobs) {
        const PlacedPiece& piece = job.piece;
        for (std::int64_t done = 0; done < std::ssize(piece.values); done += kBlock) {
            const auto values = piece.values.subspan(
                static_cast<std::size_t>(done),
                static_cast<std::size_t>(std::min(kBlock, std::ssize(piece.values) - done)));
            // Block by block, so that the digest and the kernel's copy find it in the cache.
            for (const Block& block : digest_blocks(piece.begin + done, values)) {
                written.push_back({piece.tensor, block});
            }
            file.write_at(job.file_offset + done * kElementBytes, std::as_bytes(values));
            if (written.size() == 1) pass(at_stage, SaveStage::kDuringData);
        }
    }
    file.sync_data();
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
    comm::agree(ranks.world, [&] {
        if (handle < 0) {
            throw RunError(fmt::format("cannot open {} with MPI-IO", path.string()));
        }
        file.emplace(handle);
    });
    std::vector<WrittenBlock> written;
    std::exception_ptr failure;
    // Closing is collective: every rank gets there, whatever its writes did.
    try {
        for (const PlacedPiece& piece : pieces) {
            const TensorEntry& tensor = layout.tensors()[static_cast<std::size_t>(piece.tensor)];
            file->write(dataset_path(tensor.state, tensor.parameter),
                        index_in_dataset(tensor, piece.begin), piece.values);
            for (const Block& block : digest_blocks(piece.begin, piece.values)) {
                written.push_back({piece.tensor, block});
            }
            if (&piece == &pieces.front()) pass(at_stage, SaveStage::kDuringData);
        }
    } catch (...) {
        failure = std::current_exception();
    }
    comm::agree(ranks.world, [&] {
        {
            const auto blocking = ranks.sharing.impl().block_in({.kind = "H5Fclose"});
            file->close();
        }
        if (failure) std::rethrow_exception(failure);
        sync_file(path);
    });
    return written;
}

BackgroundWriter::~BackgroundWriter() {
    forget();
}

void BackgroundWriter::start(const SaveLayout& layout, const fs::path& folder,
                             std::span<const PlacedPiece> pieces, const StageHook& at_stage) {
    ensure(!thread_.joinable(), "one job at a time");
    std::size_t elements = 0;
    for (const PlacedPiece& piece : pieces) elements += piece.values.size();
    if (!staging_) staging_ = std::make_shared<std::vector<float>>();
    staging_->resize(elements);
    std::vector<Job> jobs;
    std::span<float> free = *staging_;
    for (const PlacedPiece& piece : pieces) {
        const auto copy = free.first(piece.values.size());
        std::ranges::copy(piece.values, copy.begin());
        jobs.push_back(
            {{piece.tensor, piece.begin, copy}, layout.offset_of(piece.tensor, piece.begin)});
        free = free.subspan(copy.size());
    }
    // One pass over the file.
    std::ranges::sort(jobs, {}, &Job::file_offset);
    std::packaged_task<std::vector<WrittenBlock>()> task(
        [path = layout.own_file(folder), staging = staging_, jobs = std::move(jobs), at_stage] {
            pass(at_stage, SaveStage::kBeforeData);
            return write_jobs(PosixFile::open_to_write(path), jobs, at_stage);
        });
    result_ = task.get_future();
    thread_ = std::thread(std::move(task));
}

bool BackgroundWriter::ended() const {
    return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::vector<WrittenBlock> BackgroundWriter::take() {
    if (thread_.joinable()) thread_.join();
    return result_.get();
}

void BackgroundWriter::forget() {
    if (thread_.joinable()) thread_.join();
    result_ = {};
}

void BackgroundWriter::abandon() {
    thread_.detach();
    result_ = {};
    staging_.reset();
}

std::int64_t BackgroundWriter::staging_bytes() const {
    return staging_ ? std::ssize(*staging_) * kElementBytes : 0;
}

}  // namespace fullshard::checkpoint
