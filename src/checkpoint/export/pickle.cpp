#include "checkpoint/export/pickle.h"

#include <fmt/format.h>

#include <utility>

namespace fullshard::checkpoint {
namespace {

std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

}  // namespace

Pickle::Pickle() : program_("\x80\x02") {}

Pickle& Pickle::global(std::string_view module, std::string_view attribute) {
    program_ += fmt::format("c{}\n{}\n", module, attribute);
    return *this;
}

Pickle& Pickle::text(std::string_view utf8) {
    program_ += 'X' + little_endian(utf8.size(), 4);
    program_ += utf8;
    return *this;
}

Pickle& Pickle::integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    const bool short_one = value >= INT32_MIN && value <= INT32_MAX;
    program_ += short_one ? 'J' + little_endian(bits, 4) : "\x8a\x08" + little_endian(bits, 8);
    return *this;
}

Pickle& Pickle::no() {
    program_ += '\x89';
    return *this;
}

Pickle& Pickle::mark() {
    program_ += '(';
    return *this;
}

Pickle& Pickle::tuple() {
    program_ += 't';
    return *this;
}

Pickle& Pickle::dict() {
    program_ += '}';
    return *this;
}

Pickle& Pickle::set_items() {
    program_ += 'u';
    return *this;
}

Pickle& Pickle::call() {
    program_ += 'R';
    return *this;
}

Pickle& Pickle::persistent() {
    program_ += 'Q';
    return *this;
}

std::string Pickle::finish() {
    program_ += '.';
    return std::move(program_);
}

}  // namespace fullshard::checkpoint
