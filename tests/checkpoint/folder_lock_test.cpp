#include "checkpoint/format/folder_lock.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Another process that holds the lock until it is killed.
class OtherHolder {
  public:
    explicit OtherHolder(const fs::path& folder) {
        std::array<int, 2> ready{};
        EXPECT_EQ(::pipe(ready.data()), 0);
        process_ = ::fork();
        if (process_ == 0) {
            const FolderLock lock(folder);
            const char held = 1;
            if (::write(ready[1], &held, 1) == 1) ::pause();
            ::_exit(1);
        }
        char held = 0;
        EXPECT_EQ(::read(ready[0], &held, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~OtherHolder() { kill(); }
    OtherHolder(const OtherHolder&) = delete;
    OtherHolder& operator=(const OtherHolder&) = delete;

    pid_t process() const { return process_; }
    void kill() {
        if (process_ == 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = 0;
    }

  private:
    pid_t process_ = 0;
};

class FolderLockTest : public testing::Test {
  protected:
    std::string error() const {
        return toy::error_of([&] { const FolderLock lock(folder_.path()); });
    }

    toy::TemporaryFolder folder_;
    fs::path file_ = folder_.path() / FolderLock::kFile;
};

TEST_F(FolderLockTest, GoesWithItsHolder) {
    {
        const FolderLock lock(folder_.path());
        EXPECT_FALSE(lock.stale());
        EXPECT_TRUE(toy::contains(read_file(file_), "process " + std::to_string(::getpid())));
    }
    EXPECT_FALSE(fs::exists(file_));
    EXPECT_EQ(error(), "no error");
}

TEST_F(FolderLockTest, SecondSaverIsRefusedAndToldWhoTheFirstIs) {
    const OtherHolder other(folder_.path());
    EXPECT_TRUE(
        toy::contains(error(), "is held by process " + std::to_string(other.process()) + " on "));
    EXPECT_TRUE(fs::exists(file_));
}

TEST_F(FolderLockTest, KilledHolderLeavesAStaleLock) {
    OtherHolder other(folder_.path());
    const std::string process = "process " + std::to_string(other.process());
    other.kill();
    ASSERT_TRUE(fs::exists(file_));
    const FolderLock lock(folder_.path());
    ASSERT_TRUE(lock.stale());
    EXPECT_TRUE(toy::contains(*lock.stale(), process));
}

TEST_F(FolderLockTest, LivingHolderIsBelievedWhereTheFileSystemKnowsNoLocks) {
    std::string content;
    {
        const OtherHolder other(folder_.path());
        content = read_file(file_);
        fs::remove(file_);  // as if the system's lock had no effect
        toy::write_text(file_, content);
        EXPECT_TRUE(toy::contains(error(), "is held by process"));
    }
    EXPECT_EQ(error(), "no error");
}

TEST_F(FolderLockTest, LockOfAnotherHostIsFreeWhenNobodyHoldsIt) {
    toy::write_text(file_, "host elsewhere\nprocess 1\nstart_ticks 5\n");
    const FolderLock lock(folder_.path());
    EXPECT_EQ(lock.stale(), "process 1 on elsewhere");
}

TEST_F(FolderLockTest, NumberOfAnotherProcessIsNoReason) {
    // Process 1 lives, but did not start then.
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    toy::write_text(file_, "host " + std::string(host) + "\nprocess 1\nstart_ticks 99999999999\n");
    EXPECT_EQ(error(), "no error");
    toy::write_text(file_, "rubbish");
    EXPECT_EQ(error(), "no error");
}

TEST_F(FolderLockTest, FolderThatIsMissingIsAnError) {
    EXPECT_TRUE(toy::contains(
        toy::error_of([&] { const FolderLock lock(folder_.path() / "absent"); }), "No such file"));
}

}  // namespace
}  // namespace fullshard::checkpoint
