#include "checkpoint/format/folder_lock.h"

#include "base/error.h"
#include "base/host_name.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace fullshard::checkpoint {
namespace {

/// Clock ticks from boot to the start of a process: with the id it names a process for good. 0 when
/// there is no such process.
std::uint64_t start_ticks(std::int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');  // names may hold anything
    if (name_end == text.npos) return 0;
    std::istringstream rest(text.substr(name_end + 1));
    std::string state, word;
    rest >> state;
    if (state == "Z" || state == "X") return 0;             // dead, and not yet collected
    for (int field = 4; field < 22; ++field) rest >> word;  // proc(5): field 22 is the start
    std::uint64_t ticks = 0;
    rest >> ticks;
    return ticks;
}

struct Holder {
    std::string host;
    std::int64_t pid = 0;
    std::uint64_t ticks = 0;

    std::string describe() const { return fmt::format("process {} on {}", pid, host); }
    bool lives_here() const { return host == host_name() && start_ticks(pid) == ticks; }
};

std::optional<Holder> read_holder(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string host_label, process_label, ticks_label;
    Holder holder;
    file >> host_label >> holder.host >> process_label >> holder.pid >> ticks_label >> holder.ticks;
    if (!file || holder.ticks == 0) return std::nullopt;
    return holder;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::optional<Holder>& holder) {
    throw UsageError(
        fmt::format("{} is held by {}: two runs must not write to one folder; wait for it or name "
                    "another run.dir",
                    path.string(), holder ? holder->describe() : "another process"));
}

}  // namespace

FolderLock::FolderLock(std::filesystem::path folder) : path_(std::move(folder) / kFile) {
    const auto fail = [this](const char* call) {
        const int reason = errno;
        if (descriptor_ >= 0) ::close(descriptor_);
        throw RunError(fmt::format("{} {}: {}", call, path_.string(), std::strerror(reason)));
    };
    struct stat ours {};
    struct stat current {};
    do {  // another process may have removed the file between our opening and locking it
        if (descriptor_ >= 0) ::close(descriptor_);
        descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (descriptor_ < 0) fail("open");
        if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            ::close(descriptor_);
            refuse(path_, read_holder(path_));
        }  // other failures: the file system has no such locks
        if (::fstat(descriptor_, &ours) != 0) fail("fstat");
    } while (::stat(path_.c_str(), &current) != 0 || current.st_ino != ours.st_ino);

    if (const auto holder = read_holder(path_)) {
        if (holder->lives_here() && holder->pid != ::getpid()) {
            ::close(descriptor_);
            refuse(path_, holder);
        }
        stale_ = holder->describe();
    }
    const std::string text = fmt::format("host {}\nprocess {}\nstart_ticks {}\n", host_name(),
                                         ::getpid(), start_ticks(::getpid()));
    if (::ftruncate(descriptor_, 0) != 0) fail("truncate");
    if (::pwrite(descriptor_, text.data(), text.size(), 0) != std::ssize(text)) fail("write");
}

FolderLock::~FolderLock() {
    ::unlink(path_.c_str());  // while it is locked, so that nobody's new file is removed
    ::close(descriptor_);
}

}  // namespace fullshard::checkpoint
