#include "base/files.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace fullshard {
namespace {

/// A POSIX descriptor that is closed on every path.
class Descriptor {
  public:
    Descriptor(const std::filesystem::path& path, int flags)
        : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
        if (fd_ < 0) fail("open");
    }
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    void write(std::string_view content) {
        while (!content.empty()) {
            const ssize_t written = ::write(fd_, content.data(), content.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail("write");
            content.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    void sync() {
        if (::fsync(fd_) != 0) fail("fsync");
    }

  private:
    [[noreturn]] void fail(const char* call) const {
        throw RunError(std::string(call) + " " + path_.string() + ": " + std::strerror(errno));
    }
    std::filesystem::path path_;
    int fd_;
};

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    const std::filesystem::path temporary = path.string() + ".tmp";
    {
        Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
        file.write(content);
        file.sync();
    }
    std::error_code error;
    std::filesystem::rename(temporary, path, error);
    if (error) throw RunError("rename " + temporary.string() + ": " + error.message());
    const auto folder = path.parent_path();
    Descriptor(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY).sync();
}

std::string read_file(const std::filesystem::path& path) {
    const auto fail = [&] {
        throw DataError("cannot read " + path.string() + ": " + std::strerror(errno));
    };
    std::ifstream file(path, std::ios::binary);
    if (!file) fail();
    if (std::filesystem::is_directory(path)) {
        throw DataError("cannot read " + path.string() + ": it is a folder");
    }
    std::string content;
    constexpr std::size_t kChunk = std::size_t{1} << 20;
    for (std::size_t size = 0; file; content.resize(size)) {
        content.resize(size + kChunk);
        file.read(content.data() + size, kChunk);
        size += static_cast<std::size_t>(file.gcount());
    }
    if (file.bad()) fail();
    return content;
}

}  // namespace fullshard
