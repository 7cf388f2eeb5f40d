#include "data/mapped_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace fullshard::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* call) {
    const std::error_code reason(errno, std::generic_category());
    throw DataError(fmt::format("{}: {}: {}", path.string(), call, reason.message()));
}

/// Open for as long as it takes to map.
class Descriptor {
  public:
    explicit Descriptor(const std::filesystem::path& path)
        : value_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (value_ < 0) fail(path, "open");
    }
    ~Descriptor() { close(value_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int value() const { return value_; }

  private:
    int value_;
};

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
    const Descriptor file(path_);
    struct stat status = {};
    if (fstat(file.value(), &status) != 0) fail(path_, "fstat");
    if (!S_ISREG(status.st_mode))
        throw DataError(fmt::format("{} is not a regular file", path_.string()));
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return;  // mmap refuses empty ranges
    void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value(), 0);
    if (memory == MAP_FAILED) fail(path_, "mmap");
    bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

std::span<const std::byte> MappedFile::bytes(std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 0 || first > size() || count > size() - first)
        throw DataError(fmt::format("{}: byte {}: {} bytes should follow, the file ends at {}",
                                    path_.string(), first, count, size()));
    return bytes_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace fullshard::data
