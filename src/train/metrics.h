// metrics.jsonl: the machine's view of a run.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <fstream>
#include <string_view>

namespace fullshard::train {

/// One JSON object a line, with "kind": run, step (each logged step: rates are means since the last
/// one, `tokens` counts all so far), eval, checkpoint, event or summary; and "time", when it was
/// written, in seconds since 1970. Rank 0 writes, other ranks' calls do nothing. Each line is
/// flushed as a whole. Throws RunError when the file cannot be written.
class Metrics {
  public:
    Metrics(const std::filesystem::path& path, bool writes);

    void write(std::string_view kind, const nlohmann::ordered_json& fields);

  private:
    std::filesystem::path path_;
    std::ofstream file_;
};

}  // namespace fullshard::train
