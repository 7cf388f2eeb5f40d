#include "train/metrics.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>

namespace fullshard::train {

Metrics::Metrics(const std::filesystem::path& path, bool writes) : path_(path) {
    if (!writes) return;
    file_.open(path, std::ios::app);
    if (!file_) throw RunError("cannot open " + path.string() + ": " + std::strerror(errno));
}

void Metrics::write(std::string_view kind, const nlohmann::ordered_json& fields) {
    if (!file_.is_open()) return;
    nlohmann::ordered_json record{{"kind", kind}};
    record.update(fields);
    file_ << record.dump() << std::endl;
    if (!file_) throw RunError("cannot write " + path_.string() + ": " + std::strerror(errno));
}

}  // namespace fullshard::train
