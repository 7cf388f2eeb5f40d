// fullshard-ckpt: parse the words, do the command, leave with its exit code.
#include "base/error.h"
#include "ckpt/command_line.h"
#include "ckpt/commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

namespace fullshard::ckpt {
namespace {

int perform(const Command& command) {
    switch (command.action) {
        case Action::kInspect:
            return inspect(command);
        case Action::kVerify:
            return verify(command);
        case Action::kDiff:
            return diff(command);
        case Action::kConsolidate:
            return consolidate(command);
        case Action::kImport:
            return import(command);
    }
    throw LogicError("unknown action");
}

int fail(const char* message, ExitCode code) {
    std::fflush(stdout);
    fmt::print(stderr, "fullshard-ckpt: {}\n", message);
    return static_cast<int>(code);
}

int run(const std::vector<std::string>& words) {
    try {
        if (const auto answer = immediate_answer(words)) {
            fmt::print("{}", *answer);
            return static_cast<int>(ExitCode::kDone);
        }
        return perform(parse_command(words));
    } catch (const Error& error) {
        return fail(error.what(), error.exit_code());
    } catch (const std::exception& error) {
        return fail(error.what(), ExitCode::kRunError);
    }
}

}  // namespace
}  // namespace fullshard::ckpt

int main(int argc, char** argv) {
    return fullshard::ckpt::run({argv + 1, argv + argc});
}
