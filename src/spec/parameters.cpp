#include "spec/parameters.h"

#include "base/error.h"

#include <fmt/format.h>

#include <utility>

namespace fullshard::spec {

InitRule constant(double value) {
    return {InitRule::Kind::kConstant, value};
}

InitRule uniform(double bound) {
    return {InitRule::Kind::kUniform, bound};
}

InitRule normal(double deviation) {
    return {InitRule::Kind::kNormal, deviation};
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, InitRule init) {
    return {.name = std::move(name),
            .shape = {rows, columns},
            .decay = DecayClass::kDecay,
            .init = init};
}

ParameterSpec vector(std::string name, std::int64_t length, InitRule init) {
    return {
        .name = std::move(name), .shape = {length}, .decay = DecayClass::kNoDecay, .init = init};
}

ParameterSpec token_matrix(std::string name, std::int64_t vocab_size,
                           std::int64_t padded_vocab_size, std::int64_t width, InitRule init) {
    ParameterSpec table = matrix(std::move(name), padded_vocab_size, width, init);
    table.padding_rows = padded_vocab_size - vocab_size;
    return table;
}

ParameterSpec tied(ParameterSpec own, const ParameterSpec& other) {
    own.tied_to = other.name;
    own.init = other.init;
    return own;
}

void Mistakes::require(bool valid, std::string_view mistake) {
    if (valid) return;
    if (!lines_.empty()) lines_ += '\n';
    lines_ += mistake;
}

void Mistakes::require_positive(std::string_view key, std::int64_t value) {
    require(value > 0, fmt::format("{} = {}: must be at least 1", key, value));
}

void Mistakes::raise() const {
    if (!lines_.empty()) throw UsageError(lines_);
}

void require_padding(Mistakes& mistakes, std::int64_t vocab_size, std::int64_t padded_vocab_size) {
    mistakes.require(padded_vocab_size >= vocab_size,
                     fmt::format("a padded vocabulary of {} rows does not hold model.vocab_size = "
                                 "{}: pad to at least as many",
                                 padded_vocab_size, vocab_size));
}

void require_probability(Mistakes& mistakes, std::string_view key, double value) {
    mistakes.require(value >= 0.0 && value < 1.0,
                     fmt::format("{} = {}: must be at least 0 and less than 1", key, value));
}

void require_deviations(Mistakes& mistakes, double norm_eps, double init_deviation) {
    mistakes.require(norm_eps > 0.0,
                     fmt::format("model.norm_eps = {}: must be greater than 0", norm_eps));
    mistakes.require(init_deviation >= 0.0,
                     fmt::format("model.init_deviation = {}: must be 0 or more", init_deviation));
}

void require_divisor(Mistakes& mistakes, std::string_view key, std::int64_t value,
                     std::string_view whole_key, std::int64_t whole) {
    mistakes.require(value <= 0 || whole <= 0 || whole % value == 0,
                     fmt::format("{} = {} does not divide {} = {}: choose a divisor", key, value,
                                 whole_key, whole));
}

double training_flops(double product_weights, double attention_width, std::int64_t sequence) {
    return 6.0 * product_weights + 12.0 * attention_width * static_cast<double>(sequence);
}

}  // namespace fullshard::spec
