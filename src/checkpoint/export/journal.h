// What of an unfinished output is already there.
#pragma once

#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <unordered_map>

namespace fullshard::checkpoint {

/// A text file beside an output that is being written: a line for the job and one for each piece
/// that has been written. Lines may reach the disk before the piece does, and the last one may be
/// cut, so a piece counts only when its bytes have the digest that the line says.
class Journal {
  public:
    struct Piece {
        std::uint64_t digest = 0;
        std::int64_t overflowed = 0;  ///< finite values that became infinite
    };

    /// Opens the journal at `path` for a job, known by its digest; one of another job is begun
    /// anew. Throws RunError when another process works on it.
    Journal(const std::filesystem::path& path, std::uint64_t job);

    /// By number: the pieces that an earlier attempt wrote.
    const std::unordered_map<std::int64_t, Piece>& earlier() const { return earlier_; }
    /// Several threads may add.
    void add(std::int64_t number, const Piece& piece);

  private:
    PosixFile file_;
    std::unordered_map<std::int64_t, Piece> earlier_;
    std::mutex mutex_;
    std::int64_t end_ = 0;
};

}  // namespace fullshard::checkpoint
