#include "train/metrics.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

namespace fullshard::train {

Metrics::Metrics(const std::filesystem::path& path, bool writes) : path_(path) {
    if (!writes) return;
    file_.open(path, std::ios::app);
    if (!file_) throw RunError("cannot open " + path.string() + ": " + std::strerror(errno));
}

void Metrics::write(std::string_view kind, const nlohmann::ordered_json& fields) {
    if (!file_.is_open()) return;
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    nlohmann::ordered_json record{{"kind", kind}, {"time", std::round(now.count() * 1e6) / 1e6}};
    record.update(fields);
    file_ << record.dump() << std::endl;
    if (!file_) throw RunError("cannot write " + path_.string() + ": " + std::strerror(errno));
}

}  // namespace fullshard::train
