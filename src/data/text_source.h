// Text files as bytes: the vocabulary of 256 that needs no tokenizer.
#pragma once

#include "data/token_source.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::data {

/// The bytes of one or more files, joined in order without a separator. Held in memory, one byte a
/// token.
class TextSource final : public TokenSource {
  public:
    static constexpr std::int64_t kVocabSize = 256;

    /// A file and where its first byte stands in the stream.
    struct File {
        std::filesystem::path path;
        std::int64_t first_token = 0;
    };

    TextSource(std::filesystem::path path, std::string bytes, std::vector<File> files,
               std::vector<std::string> notes);

    std::int64_t size() const override { return static_cast<std::int64_t>(bytes_.size()); }
    std::int64_t vocab_size() const override { return kVocabSize; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override;
    std::string name() const override { return path_.string(); }
    std::string locate(std::int64_t position) const override;
    std::vector<std::int64_t> file_starts() const override;

    const std::vector<File>& files() const { return files_; }
    /// What was left out and why, one line each, for the run's log.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    std::filesystem::path path_;
    std::string bytes_;
    std::vector<File> files_;
    std::vector<std::string> notes_;
};

/// Reads a file, or every regular file below a folder in the order of their relative paths
/// (compared byte by byte: the same on every machine and in every locale). Below a folder, links to
/// files are followed; other links and compressed files (gzip, xz, bzip2, zstd, zip, told by their
/// first bytes) are left out with a note. A compressed file asked for by name is an error. Throws
/// DataError naming the path when something is missing, unreadable or when no byte is left.
std::shared_ptr<const TextSource> load_text(const std::filesystem::path& path);

}  // namespace fullshard::data
