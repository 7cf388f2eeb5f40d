// Small checkpoints written by several virtual ranks.
#pragma once

#include "checkpoint/format/manifest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace fullshard::checkpoint::toy {

/// A folder of its own that goes with the object.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// Weights of five parameters with 0 to 3 dimensions, and moments of those that are not frozen,
/// without offsets and blocks.
std::vector<TensorEntry> tensors(const std::set<std::string>& frozen = {});

/// What element `i` of a tensor is; differs for all tensors, elements and steps.
float value(const TensorEntry& tensor, std::int64_t step, std::int64_t i);
std::vector<float> values(const TensorEntry& tensor, std::int64_t step);

struct Save {
    std::int64_t step = 10;
    std::int64_t ranks = 1;                ///< each writes an equal part of every tensor
    std::int64_t nodes = 1;                ///< that the ranks are on; each has a file of its own
    std::int64_t max_block_bytes = 7 * 4;  ///< blocks end inside of rows
    std::set<std::string> frozen = {};     ///< parameters without moments
};

/// Writes all of a save but what commit_save() writes, into the folder begin_save() made.
Manifest write_state(const std::filesystem::path& folder, const Save& save);

/// A committed checkpoint; returns its folder.
std::filesystem::path save(const std::filesystem::path& parent, const Save& save = {});

/// Writes manifest and COMPLETE anew after `change`, as a writer with that mind would have.
void rewrite_manifest(const std::filesystem::path& folder,
                      const std::function<void(Manifest&)>& change);
/// Writes the manifest's text and a COMPLETE that fits it.
void write_manifest_text(const std::filesystem::path& folder, const std::string& text);

/// The message of the project's error that `action` throws, or "no error".
std::string error_of(const std::function<void()>& action);

void flip_bit(const std::filesystem::path& file, std::int64_t byte, int bit = 0);
void write_text(const std::filesystem::path& file, const std::string& text);

/// For EXPECT_TRUE: a failure shows both texts.
testing::AssertionResult contains(const std::string& text, const std::string& part);

}  // namespace fullshard::checkpoint::toy
