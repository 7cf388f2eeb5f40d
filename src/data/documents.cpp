// Documents that a token or the end of a file ends.
#include "base/error.h"
#include "data/token_source.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fullshard::data {
namespace {

class DelimitedSource final : public TokenSource {
  public:
    DelimitedSource(std::shared_ptr<const TokenSource> tokens, std::vector<std::int64_t> documents)
        : tokens_(std::move(tokens)), documents_(std::move(documents)) {}

    std::int64_t size() const override { return tokens_->size(); }
    std::int64_t vocab_size() const override { return tokens_->vocab_size(); }
    void read(std::int64_t first, std::span<std::int64_t> out) const override {
        tokens_->read(first, out);
    }
    std::string name() const override { return tokens_->name(); }
    std::string locate(std::int64_t position) const override { return tokens_->locate(position); }
    std::span<const std::int64_t> documents() const override { return documents_; }
    std::vector<std::int64_t> file_starts() const override { return tokens_->file_starts(); }
    bool has_loss_mask() const override { return tokens_->has_loss_mask(); }
    void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override {
        tokens_->read_loss_mask(first, out);
    }

  private:
    std::shared_ptr<const TokenSource> tokens_;
    std::vector<std::int64_t> documents_;
};

/// Appends the positions behind every `document_end`, but not the end of the source.
void append_delimited(const TokenSource& source, std::int64_t document_end,
                      std::vector<std::int64_t>& starts) {
    std::array<std::int64_t, 4096> buffer;
    for (std::int64_t first = 0; first < source.size();) {
        const auto count = std::min(std::ssize(buffer), source.size() - first);
        const auto tokens = std::span(buffer).first(static_cast<std::size_t>(count));
        source.read(first, tokens);
        for (const std::int64_t token : tokens) {
            ++first;
            if (token == document_end && first < source.size()) starts.push_back(first);
        }
    }
}

}  // namespace

std::shared_ptr<const TokenSource> with_documents(std::shared_ptr<const TokenSource> source,
                                                  std::int64_t document_end) {
    if (!source->documents().empty()) return source;
    std::vector<std::int64_t> starts = source->file_starts();
    if (document_end >= 0) {
        append_delimited(*source, document_end, starts);
        std::ranges::sort(starts);
        starts.erase(std::ranges::unique(starts).begin(), starts.end());
    }
    return std::make_shared<DelimitedSource>(std::move(source), std::move(starts));
}

}  // namespace fullshard::data
