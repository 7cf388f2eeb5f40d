#include "ckpt/commands.h"

#include "base/error.h"
#include "checkpoint/format/consolidate.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/verify.h"
#include "ckpt/progress.h"

#include <fmt/format.h>

#include <cstdio>

namespace fullshard::ckpt {

std::filesystem::path find_checkpoint(const std::filesystem::path& path) {
    const checkpoint::Latest latest = checkpoint::locate_checkpoint(path);
    for (const std::string& reason : latest.skipped)
        fmt::print(stderr, "passed over: {}\n", reason);
    if (*latest.folder != path)
        fmt::print(stderr, "newest whole one: {}\n", latest.folder->string());
    return *latest.folder;
}

int verify(const std::filesystem::path& path) {
    const std::filesystem::path folder = find_checkpoint(path);
    std::int64_t damages = 0;
    std::int64_t bytes = 0;
    {
        ProgressLine line("verify");
        checkpoint::verify_folder(
            folder,
            [&](const std::string& problem) {
                ++damages;
                fmt::print("damage: {}\n", problem);
            },
            [&](std::int64_t done, std::int64_t total) {
                bytes = total;
                line.update(done, total);
            });
    }
    if (damages > 0) {
        throw DataError(fmt::format("{} is not whole: {} damage{} found", folder.string(), damages,
                                    damages == 1 ? "" : "s"));
    }
    fmt::print("{} is whole: {} bytes of tensors verified\n", folder.string(), bytes);
    return static_cast<int>(ExitCode::kDone);
}

int consolidate(const Command& command) {
    const std::filesystem::path folder = find_checkpoint(command.paths[0]);
    {
        ProgressLine line("consolidate");
        const auto report = [&](std::int64_t done, std::int64_t total) {
            line.update(done, total);
        };
        checkpoint::consolidate(folder, command.out,
                                {.overwrite = command.force, .progress = report});
    }
    fmt::print("{}: model weights of {}\n", command.out.string(), folder.string());
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace fullshard::ckpt
