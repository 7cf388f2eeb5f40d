// Fine-tuning examples: one JSON object a line.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

/// Examples in memory; each is a document. Lines have one of the forms
///     {"prompt": "text", "answer": "text"}                       bytes are tokens
///     {"prompt_tokens": [1, 2], "answer_tokens": [3]}
///     {"text": "text"}   {"tokens": [1, 2, 3]}                   all of it counts
/// of which the answer counts as targets and the prompt does not; other members are ignored.
class JsonlSource final : public TokenSource {
  public:
    /// Where an example came from.
    struct Line {
        std::int64_t file = 0;
        std::int64_t number = 0;  ///< from 1
        std::int64_t byte = 0;    ///< offset of its first byte
    };
    struct Options {
        std::int64_t vocab_size = 256;
        std::int64_t document_end = -1;  ///< ends each example and counts; -1: nothing does
    };

    JsonlSource(std::filesystem::path path, Options options);

    /// Appends the examples of a file's text; lines without an answer are counted and left
    /// out, blank ones are not looked at. Throws DataError naming path, line and byte.
    void append(const std::filesystem::path& file, std::string_view text);

    std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
    std::int64_t vocab_size() const override { return options_.vocab_size; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override;
    std::string name() const override { return path_.string(); }
    std::string locate(std::int64_t position) const override;
    std::span<const std::int64_t> documents() const override { return documents_; }
    std::vector<std::int64_t> file_starts() const override;
    bool has_loss_mask() const override { return true; }
    void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override;

    /// Some example was given as text, so that its tokens are bytes.
    bool has_text() const { return has_text_; }
    /// Lines that were left out for want of an answer.
    std::int64_t empty_lines() const { return empty_lines_; }

  private:
    void append_line(const Line& line, std::string_view text);

    std::filesystem::path path_;
    Options options_;
    std::vector<std::filesystem::path> files_;
    std::vector<std::int32_t> tokens_;
    std::vector<std::uint8_t> loss_mask_;
    std::vector<std::int64_t> documents_;
    std::vector<Line> lines_;  ///< of each document
    std::int64_t empty_lines_ = 0;
    bool has_text_ = false;
};

/// `path` is a file, a folder (its *.jsonl) or a pattern with `*` in the file name. Throws
/// DataError as append() does, and without an example.
std::shared_ptr<const JsonlSource> load_jsonl(const std::filesystem::path& path,
                                              const JsonlSource::Options& options);

}  // namespace fullshard::data
