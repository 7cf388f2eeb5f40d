// The two ways in which a rank's data gets into its file.
#pragma once

#include "checkpoint/format/save_stage.h"
#include "checkpoint/parallel/save_layout.h"

#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace fullshard::checkpoint {

/// Writes the pieces through parallel HDF5, independently, and syncs the file. An error of any rank
/// is thrown as the same AgreedError on all. Collective.
std::vector<WrittenBlock> write_together(const SaveLayout& layout,
                                         const std::filesystem::path& folder,
                                         std::span<const PlacedPiece> pieces,
                                         const StageHook& at_stage);

/// Writes a copy of the pieces while its owner does something else: a thread that calls neither MPI
/// nor HDF5, only pwrite and fdatasync. One job at a time.
class BackgroundWriter {
  public:
    ~BackgroundWriter();  ///< waits for the job
    BackgroundWriter() = default;
    BackgroundWriter(const BackgroundWriter&) = delete;
    BackgroundWriter& operator=(const BackgroundWriter&) = delete;

    /// Copies the pieces, which takes as long as it blocks, and starts. `layout` outlives the job.
    void start(const SaveLayout& layout, const std::filesystem::path& folder,
               std::span<const PlacedPiece> pieces, const StageHook& at_stage);
    /// The job has ended, well or not. Never blocks.
    bool ended() const;
    /// What was written. Throws what the job threw. Waits for its end.
    std::vector<WrittenBlock> take();
    /// Waits for the job, if there is one, and drops what it wrote or threw.
    void forget();
    /// Leaves a job that does not end to itself, together with the copy.
    void abandon();

    /// Of the copy, which is kept for the next job.
    std::int64_t staging_bytes() const;

  private:
    std::shared_ptr<std::vector<float>> staging_;  ///< shared with the thread, which may outlive us
    std::future<std::vector<WrittenBlock>> result_;
    std::thread thread_;
};

}  // namespace fullshard::checkpoint
