#include "comm/agree.h"

#include "comm/waiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace fullshard::comm {

void agree(const Group& group, const std::function<void()>& work) {
    std::optional<std::string> failure;
    int code = static_cast<int>(ExitCode::kRunError);
    try {
        work();
    } catch (const UsageError& error) {
        failure = error.what();  // the user's mistake, the same on every rank: no rank in the text
        code = static_cast<int>(error.exit_code());
    } catch (const Error& error) {
        failure = fmt::format("{}: {}", process_name(), error.what());
        code = static_cast<int>(error.exit_code());
    } catch (const std::exception& error) {
        failure = fmt::format("{}: {}", process_name(), error.what());
    }
    std::array<std::int64_t, 1> first_failing{failure ? group.rank() : group.size()};
    group.all_reduce(first_failing, Reduction::kMin);
    if (first_failing[0] == group.size()) return;
    const int source = static_cast<int>(first_failing[0]);
    const std::string text = group.broadcast(failure.value_or(""), source);
    const int agreed_code = std::stoi(group.broadcast(std::to_string(code), source));
    throw AgreedError(text, static_cast<ExitCode>(agreed_code));
}

void agree_equal(const Group& group, std::string_view what, std::uint64_t fingerprint) {
    const auto mine = static_cast<std::int64_t>(fingerprint);
    std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
    group.all_gather(std::span(&mine, 1), all);
    const auto other =
        std::ranges::find_if(all, [&](std::int64_t value) { return value != all[0]; });
    if (other == all.end()) return;
    throw AgreedError(fmt::format("rank {} has another {} than rank 0; all hosts must see the same "
                                  "files and run the same program",
                                  other - all.begin(), what),
                      ExitCode::kRunError);
}

}  // namespace fullshard::comm
