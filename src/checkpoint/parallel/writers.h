// The two ways in which a rank's data gets into its file.
#pragma once

#include "checkpoint/format/row_major.h"
#include "checkpoint/format/save_stage.h"
#include "checkpoint/parallel/background_job.h"
#include "checkpoint/parallel/save_layout.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// Writes the pieces through parallel HDF5, independently, and syncs the file. An error of any rank
/// is thrown as the same AgreedError on all. Collective.
std::vector<WrittenBlock> write_together(const SaveLayout& layout,
                                         const std::filesystem::path& folder,
                                         std::span<const PlacedPiece> pieces,
                                         const StageHook& at_stage);

/// Writes a copy of the pieces while their owner does something else. The copying too is left to a
/// thread: the owner goes on at once, and waits only before it changes what has not been copied
/// yet. The thread calls neither MPI nor HDF5. One job at a time.
class BackgroundWriter {
  public:
    ~BackgroundWriter() { forget(); }
    BackgroundWriter() = default;
    BackgroundWriter(const BackgroundWriter&) = delete;
    BackgroundWriter& operator=(const BackgroundWriter&) = delete;

    /// Begins to copy the pieces, in their order, and then to write the copy. `layout` outlives the
    /// job; the pieces' memory stays as it is until wait_for_copy() has returned.
    void start(const SaveLayout& layout, const std::filesystem::path& folder,
               std::span<const PlacedPiece> pieces, const StageHook& at_stage);
    /// Returns when the job's first `elements` elements have been copied; all, if it has fewer.
    void wait_for_copy(std::int64_t elements) const;
    /// The job has ended, well or not. Never blocks.
    bool ended() const { return job_.ended(); }
    /// What was written. Throws what the job threw. Waits for its end.
    std::vector<WrittenBlock> take() { return job_.take(); }
    /// Waits for the job, if there is one, and drops what it wrote or threw.
    void forget() { job_.forget(); }
    /// Leaves a job that does not end to itself, together with the copy.
    void abandon();

    /// Of the copy, which is kept for the next job.
    std::int64_t staging_bytes() const { return staging_ ? staging_->size * kElementBytes : 0; }

  private:
    /// Shared with the thread, which may outlive us.
    struct Staging {
        explicit Staging(std::int64_t elements)
            : size(elements),
              values(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(elements))) {}
        std::int64_t size;
        std::unique_ptr<float[]> values;  ///< untouched: its pages appear while the thread copies
        std::atomic<std::int64_t> copied = 0;  ///< elements of the job
    };

    std::shared_ptr<Staging> staging_;
    BackgroundJob<std::vector<WrittenBlock>> job_;
};

}  // namespace fullshard::checkpoint
