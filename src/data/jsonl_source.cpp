#include "data/jsonl_source.h"

#include "base/error.h"
#include "base/files.h"
#include "data/file_list.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace fullshard::data {
namespace {

using nlohmann::json;

/// What makes a line unusable; the caller knows where it is.
class LineError : public std::exception {
  public:
    explicit LineError(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

/// The members of one form of line; `prompt` is null where all of it counts.
struct Form {
    const char* prompt;
    const char* answer;
};
constexpr Form kForms[] = {{"prompt", "answer"},
                           {"prompt_tokens", "answer_tokens"},
                           {nullptr, "text"},
                           {nullptr, "tokens"}};

const Form& form_of(const json& line) {
    const Form* found = nullptr;
    for (const Form& form : kForms) {
        if (!line.contains(form.answer) && !(form.prompt && line.contains(form.prompt))) continue;
        if (found)
            throw LineError(fmt::format("both \"{}\" and \"{}\"", found->answer, form.answer));
        found = &form;
    }
    if (!found)
        throw LineError("none of \"answer\", \"answer_tokens\", \"text\" and \"tokens\" is there");
    if (!line.contains(found->answer))
        throw LineError(fmt::format("\"{}\" without \"{}\"", found->prompt, found->answer));
    if (found->prompt && !line.contains(found->prompt))
        throw LineError(fmt::format("\"{}\" without \"{}\"", found->answer, found->prompt));
    return *found;
}

void append_token(std::int64_t token, const char* member, std::int64_t vocab_size,
                  std::vector<std::int32_t>& tokens) {
    if (token < 0 || token >= vocab_size)
        throw LineError(fmt::format("token {} of \"{}\" is outside model.vocab_size = {}", token,
                                    member, vocab_size));
    tokens.push_back(static_cast<std::int32_t>(token));
}

void append_member(const json& line, const char* member, std::int64_t vocab_size,
                   std::vector<std::int32_t>& tokens) {
    const json& value = line.at(member);
    if (std::string_view(member).ends_with("tokens")) {
        if (!value.is_array()) throw LineError(fmt::format("\"{}\" should be an array", member));
        for (const json& token : value) {
            if (!token.is_number_integer())
                throw LineError(fmt::format("\"{}\" should hold integers only", member));
            // Unsigned numbers beyond int64 become negative, which is outside as well.
            append_token(token.get<std::int64_t>(), member, vocab_size, tokens);
        }
        return;
    }
    if (!value.is_string()) throw LineError(fmt::format("\"{}\" should be a string", member));
    for (const char c : value.get_ref<const std::string&>())
        append_token(static_cast<unsigned char>(c), member, vocab_size, tokens);
}

}  // namespace

JsonlSource::JsonlSource(std::filesystem::path path, Options options)
    : path_(std::move(path)), options_(options) {
    ensure(
        options.vocab_size >= 1 && options.vocab_size <= std::numeric_limits<std::int32_t>::max(),
        "tokens fit into 32 bits");
    if (options.document_end >= options.vocab_size)
        throw UsageError(
            fmt::format("data.document_end = {}: must be less than model.vocab_size "
                        "= {}",
                        options.document_end, options.vocab_size));
}

void JsonlSource::append(const std::filesystem::path& file, std::string_view text) {
    files_.push_back(file);
    Line line{.file = std::ssize(files_) - 1};
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        line.byte = static_cast<std::int64_t>(begin);
        ++line.number;
        try {
            append_line(line, text.substr(begin, end - begin));
        } catch (const json::parse_error& error) {
            const auto byte = begin + std::max<std::size_t>(error.byte, 1) - 1;
            throw DataError(fmt::format("{}: line {}, byte {}: no JSON: {}", file.string(),
                                        line.number, byte, error.what()));
        } catch (const LineError& error) {
            throw DataError(fmt::format("{}: line {}, byte {}: {}", file.string(), line.number,
                                        begin, error.what()));
        }
        begin = end + 1;
    }
}

void JsonlSource::append_line(const Line& line, std::string_view text) {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const json example = json::parse(text);
    if (!example.is_object()) throw LineError("the line should be an object {...}");
    const Form& form = form_of(example);
    const auto first = tokens_.size();
    if (form.prompt) append_member(example, form.prompt, options_.vocab_size, tokens_);
    const auto answer = tokens_.size();
    append_member(example, form.answer, options_.vocab_size, tokens_);
    if (tokens_.size() == answer) {
        tokens_.resize(first);
        ++empty_lines_;
        return;
    }
    has_text_ = has_text_ || !std::string_view(form.answer).ends_with("tokens");
    if (options_.document_end >= 0)
        tokens_.push_back(static_cast<std::int32_t>(options_.document_end));
    loss_mask_.resize(answer, 0);
    loss_mask_.resize(tokens_.size(), 1);
    documents_.push_back(static_cast<std::int64_t>(first));
    lines_.push_back(line);
}

void JsonlSource::read(std::int64_t first, std::span<std::int64_t> out) const {
    ensure(first >= 0 && first <= size() && std::ssize(out) <= size() - first,
           "read lies inside the source");
    std::ranges::copy(std::span(tokens_).subspan(static_cast<std::size_t>(first), out.size()),
                      out.begin());
}

void JsonlSource::read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const {
    ensure(first >= 0 && first <= size() && std::ssize(out) <= size() - first,
           "read lies inside the source");
    std::ranges::copy(std::span(loss_mask_).subspan(static_cast<std::size_t>(first), out.size()),
                      out.begin());
}

std::string JsonlSource::locate(std::int64_t position) const {
    ensure(position >= 0 && position < size(), "position lies inside the source");
    const auto next = std::ranges::upper_bound(documents_, position);
    const Line& line = lines_[static_cast<std::size_t>(next - documents_.begin()) - 1];
    return fmt::format("{}, line {}, byte {}, token {}",
                       files_[static_cast<std::size_t>(line.file)].string(), line.number, line.byte,
                       position - *std::prev(next));
}

std::vector<std::int64_t> JsonlSource::file_starts() const {
    std::vector<std::int64_t> starts;
    for (std::size_t d = 0; d < lines_.size(); ++d)
        if (d == 0 || lines_[d].file != lines_[d - 1].file) starts.push_back(documents_[d]);
    return starts;
}

std::shared_ptr<const JsonlSource> load_jsonl(const std::filesystem::path& path,
                                              const JsonlSource::Options& options) {
    auto source = std::make_shared<JsonlSource>(path, options);
    for (const auto& file : list_files(path, {".jsonl"})) source->append(file, read_file(file));
    if (source->size() == 0)
        throw DataError(fmt::format("{} holds no examples to learn from ({} lines without answer)",
                                    path.string(), source->empty_lines()));
    return source;
}

}  // namespace fullshard::data
