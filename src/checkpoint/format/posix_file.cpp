#include "checkpoint/format/posix_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fullshard::checkpoint {
namespace {

template <typename ErrorType>
int open_descriptor(const std::filesystem::path& path, int flags) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (descriptor < 0) {
        throw ErrorType(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
    }
    return descriptor;
}

/// The pages that lie whole within a range of a file. Others are left alone: whoever writes the
/// rest of a page would wait until the disk has it.
struct WholePages {
    WholePages(std::int64_t offset, std::int64_t bytes) {
        constexpr std::int64_t kPage = 4096;
        begin = (offset + kPage - 1) / kPage * kPage;
        count = (offset + bytes) / kPage * kPage - begin;
    }
    std::int64_t begin = 0;
    std::int64_t count = 0;  ///< in bytes; negative where there are none
};

}  // namespace

PosixFile::PosixFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

PosixFile PosixFile::open(const std::filesystem::path& path) {
    return {path, open_descriptor<DataError>(path, O_RDONLY)};
}

PosixFile PosixFile::create(const std::filesystem::path& path) {
    return {path, open_descriptor<RunError>(path, O_WRONLY | O_CREAT | O_TRUNC)};
}

PosixFile PosixFile::open_to_update(const std::filesystem::path& path) {
    return {path, open_descriptor<RunError>(path, O_RDWR | O_CREAT)};
}

PosixFile PosixFile::open_to_write(const std::filesystem::path& path) {
    const int flags = std::filesystem::is_directory(path) ? O_RDONLY | O_DIRECTORY : O_WRONLY;
    return {path, open_descriptor<RunError>(path, flags)};
}

PosixFile::~PosixFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

template <typename ErrorType>
void PosixFile::fail(const char* call) const {
    throw ErrorType(fmt::format("{} {}: {}", call, path_.string(), std::strerror(errno)));
}

std::int64_t PosixFile::size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail<DataError>("fstat");
    return status.st_size;
}

void PosixFile::read(std::int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail<DataError>("read");
        if (got == 0) {
            throw DataError(fmt::format("{} ends at byte {}, {} more were expected", path_.string(),
                                        offset, out.size()));
        }
        offset += got;
        out = out.subspan(static_cast<std::size_t>(got));
    }
}

void PosixFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail<RunError>("write");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

FileMapping PosixFile::map(std::int64_t offset, std::int64_t bytes) const {
    if (offset + bytes > size()) {
        throw DataError(fmt::format("{} ends before byte {}", path_.string(), offset + bytes));
    }
    const std::int64_t skip = offset % ::sysconf(_SC_PAGESIZE);
    const auto length = static_cast<std::size_t>(bytes + skip);
    void* const base =
        ::mmap(nullptr, length, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor_, offset - skip);
    if (base == MAP_FAILED) fail<DataError>("mmap");
    return {static_cast<std::byte*>(base), length, static_cast<std::size_t>(skip)};
}

FileMapping::FileMapping(FileMapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), length_(other.length_), skip_(other.skip_) {}

FileMapping::~FileMapping() {
    if (base_ != nullptr) ::munmap(base_, length_);
}

void PosixFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail<RunError>("write");
        offset += written;
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void PosixFile::truncate(std::int64_t bytes) const {
    if (::ftruncate(descriptor_, bytes) != 0) fail<RunError>("truncate");
}

void PosixFile::start_writeback(std::int64_t offset, std::int64_t bytes) const {
    const WholePages pages(offset, bytes);
    if (pages.count <= 0) return;
    // Only a hint: errors of the disk come out of sync().
    static_cast<void>(
        ::sync_file_range(descriptor_, pages.begin, pages.count, SYNC_FILE_RANGE_WRITE));
}

void PosixFile::finish_writeback(std::int64_t offset, std::int64_t bytes) const {
    const WholePages pages(offset, bytes);
    if (pages.count <= 0) return;
    constexpr unsigned kWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    // An error of the disk is told once only: sync() would not hear of it any more.
    if (::sync_file_range(descriptor_, pages.begin, pages.count, kWait) != 0 && errno != ENOSYS)
        fail<RunError>("write");
    static_cast<void>(::posix_fadvise(descriptor_, pages.begin, pages.count, POSIX_FADV_DONTNEED));
}

void PosixFile::reserve(std::int64_t bytes) const {
    int status = 0;
    do {
        status = ::fallocate(descriptor_, 0, 0, bytes);
    } while (status != 0 && errno == EINTR);
    if (status != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        throw RunError(
            fmt::format("{} bytes for {}: {}", bytes, path_.string(), std::strerror(errno)));
    }
}

bool PosixFile::lock() const {
    return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void PosixFile::sync() const {
    if (::fsync(descriptor_) != 0) fail<RunError>("fsync");
}

void PosixFile::sync_data() const {
    if (::fdatasync(descriptor_) != 0) fail<RunError>("fdatasync");
}

void PosixFile::close() {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail<RunError>("close");
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code error;
    std::filesystem::rename(from, to, error);
    if (error) {
        throw RunError(
            fmt::format("rename {} to {}: {}", from.string(), to.string(), error.message()));
    }
}

void sync_folder(const std::filesystem::path& folder) {
    PosixFile::open_to_write(folder.empty() ? "." : folder).sync();
}

}  // namespace fullshard::checkpoint
