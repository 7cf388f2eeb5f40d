#include "doctor/kept_checkpoints.h"

#include <algorithm>
#include <string>
#include <system_error>

namespace fullshard::doctor {

namespace fs = std::filesystem;

std::int64_t kept_checkpoints(const fs::path& folder) {
    std::error_code missing;
    std::int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder, missing)) {
        const fs::path name = entry.path().filename();
        if (name.string().starts_with("step-") && !name.has_extension()) ++count;
    }
    return count;
}

std::int64_t checkpoints_to_come(const config::Checkpoint& keys, std::int64_t steps,
                                 std::int64_t kept) {
    if (keys.every == 0) return 1;
    const std::int64_t written = (steps + keys.every - 1) / keys.every;
    if (keys.keep_last == 0) return std::max<std::int64_t>(1, written - kept);
    const std::int64_t marked = keys.keep_every == 0 ? 0 : steps / keys.keep_every;
    const std::int64_t together = std::min(written, keys.keep_last + 1 + marked);
    return std::max<std::int64_t>(1, together - kept);
}

}  // namespace fullshard::doctor
