// Errors of three kinds, and the exit codes that scripts and schedulers react to.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fullshard {

/// Process exit codes. Every rank of a job leaves with the same one where the error was agreed on.
enum class ExitCode : int {
    kDone = 0,
    kRunError = 1,
    kUsage = 2,
    kData = 3,
    kDiverged = 4,
    kCommunication = 5,
    kStoppedEarly = 85,  ///< stopped on request after a durable checkpoint: start it again
};

/// Base of all errors; `exit_code()` is what main leaves with.
class Error : public std::runtime_error {
  public:
    Error(const std::string& message, ExitCode code) : std::runtime_error(message), code_(code) {}
    ExitCode exit_code() const noexcept { return code_; }

  private:
    ExitCode code_;
};

/// The user's input is wrong: the message names the key or file, the value and the remedy.
class UsageError : public Error {
  public:
    explicit UsageError(const std::string& message) : Error(message, ExitCode::kUsage) {}
};

/// A data file or folder is missing, too small or damaged.
class DataError : public Error {
  public:
    explicit DataError(const std::string& message) : Error(message, ExitCode::kData) {}
};

/// A library or the environment failed: rank, host and call are in the message.
class RunError : public Error {
  public:
    explicit RunError(const std::string& message, ExitCode code = ExitCode::kRunError)
        : Error(message, code) {}
};

/// A rank did not answer, or MPI reported an error.
class CommunicationError : public RunError {
  public:
    explicit CommunicationError(const std::string& message)
        : RunError(message, ExitCode::kCommunication) {}
};

/// A rank did not answer within the deadline.
class TimeoutError : public CommunicationError {
  public:
    using CommunicationError::CommunicationError;
};

/// An invariant of ours is broken: a bug in FullShard.
class LogicError : public Error {
  public:
    explicit LogicError(const std::string& message) : Error(message, ExitCode::kRunError) {}
};

/// Throws LogicError naming the place when `condition` is false. Checked in every build type: use
/// it where a broken invariant would corrupt numbers silently, not inside element loops.
inline void ensure(bool condition, std::string_view invariant,
                   std::source_location where = std::source_location::current()) {
    if (condition) return;
    throw LogicError("broken invariant: " + std::string(invariant) + " (" + where.file_name() +
                     ":" + std::to_string(where.line()) + ")");
}

}  // namespace fullshard
