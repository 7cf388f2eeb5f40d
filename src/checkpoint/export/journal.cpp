#include "checkpoint/export/journal.h"

#include "base/error.h"
#include "checkpoint/format/digest.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fullshard::checkpoint {
namespace {

/// Takes a number and the character behind it from the front of `text`.
template <typename Number>
std::optional<Number> take_number(std::string_view& text, int base, char behind) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end == text.data() + text.size() || *end != behind) return {};
    text.remove_prefix(static_cast<std::size_t>(end + 1 - text.data()));
    return value;
}

std::string line_of(std::int64_t number, const Journal::Piece& piece) {
    return fmt::format("{} {:016x} {}\n", number, piece.digest, piece.overflowed);
}

std::optional<std::pair<std::int64_t, Journal::Piece>> take_line(std::string_view& text) {
    const auto number = take_number<std::int64_t>(text, 10, ' ');
    if (!number) return {};
    const auto digest = take_number<std::uint64_t>(text, 16, ' ');
    if (!digest) return {};
    const auto overflowed = take_number<std::int64_t>(text, 10, '\n');
    if (!overflowed) return {};
    return {{*number, {*digest, *overflowed}}};
}

}  // namespace

Journal::Journal(const std::filesystem::path& path, std::uint64_t job)
    : file_(PosixFile::open_to_update(path)) {
    if (!file_.lock()) {
        throw RunError(fmt::format("another process is writing the output of {}", path.string()));
    }
    const std::string head = fmt::format("fullshard-ckpt journal 1 {}\n", digest_text(job));
    std::string content(static_cast<std::size_t>(file_.size()), '\0');
    file_.read(0, std::as_writable_bytes(std::span(content)));
    std::string_view rest = content;
    if (rest.starts_with(head)) {
        rest.remove_prefix(head.size());
        end_ = static_cast<std::int64_t>(head.size());
        while (const auto line = take_line(rest)) {
            earlier_.insert_or_assign(line->first, line->second);
            end_ = static_cast<std::int64_t>(content.size() - rest.size());
        }
        return;
    }
    file_.truncate(0);
    file_.write_at(0, std::as_bytes(std::span(head)));
    end_ = static_cast<std::int64_t>(head.size());
}

void Journal::add(std::int64_t number, const Piece& piece) {
    const std::string line = line_of(number, piece);
    const std::lock_guard lock(mutex_);
    file_.write_at(end_, std::as_bytes(std::span(line)));
    end_ += static_cast<std::int64_t>(line.size());
}

}  // namespace fullshard::checkpoint
