#include "config/render.h"

#include "config/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace fullshard::config {
namespace {

constexpr std::string_view kMarkdownIntroduction = R"(# Input decks

An input deck tells FullShard what to train. It is a text file of sections and keys; every key has a
default, so a deck only names what differs.

    mpirun -n 4 fullshard train inputs/text.ini --train.steps 20 --optimizer.lr=3e-4

| Deck | Purpose |
|---|---|
| [smoke.ini](smoke.ini) | seconds: does this installation train at all |
| [simple_transformer.ini](simple_transformer.ini) | the standard sizes on synthetic tokens |
| [text.ini](text.ini) | a small causal language model of real text |
| [smollm2-finetune.ini](smollm2-finetune.ini) | full fine-tuning of SmolLM2-135M; [FINE_TUNING.md](FINE_TUNING.md) walks through it |
| [gpt2-124m.ini](gpt2-124m.ini), [gpt2-1558m.ini](gpt2-1558m.ini) | GPT-2, smallest and largest |
| [llama-1b.ini](llama-1b.ini), [llama-7b.ini](llama-7b.ini), [llama-13b.ini](llama-13b.ini) | Llama 3.2 1B, Llama 2 7B and 13B |

How a deck is read:

- `[section]` starts a section and `key = value` sets a key in it; `section.key = value` above the
  first section is the same.
- `#` starts a comment, at the start of a line or behind a value, also between quotes.
- A value may stand in single or double quotes, which are dropped; only spaces at its ends need
  them.
- `[data.source.NAME]` and `[optimizer.group.NAME]` are lists: as many such sections as wanted, each
  with a name of the user's choice for NAME, of letters, digits, `_` and `-`. Their order counts.
- Numbers are plain decimal (`1000`, `0.001`, `1e-3`), without unit. Integers have digits only.
- A key is set once in a deck. The command line overrides the deck, as `--section.key value` or
  `--section.key=value`, and the last of equal keys there wins. Keys are never abbreviated.
- All mistakes are reported at once, and nothing is written before the input is right.

A run writes its effective deck, with every key and where its value came from, to its folder.
Running that deck on as many ranks, into another folder by `--run.dir`, repeats the run.

The tables below are what `fullshard --list-keys` prints. This file is generated from the program's
table of keys: after changing a key, run `ninja -C build/release inputs_readme`.
)";

/// Quotes where reading would otherwise lose spaces or take the value's own quotes for a pair.
std::string deck_value(const std::string& value) {
    constexpr std::string_view kNeedsQuotes = " \t'\"";
    const bool quoted =
        !value.empty() && (kNeedsQuotes.find(value.front()) != std::string_view::npos ||
                           kNeedsQuotes.find(value.back()) != std::string_view::npos);
    return quoted ? fmt::format("\"{}\"", value) : value;
}

std::string_view or_dash(const std::string& text) {
    return text.empty() ? std::string_view("-") : std::string_view(text);
}

/// Breaks `text` between words so that lines, indent included, stay within `width` columns.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
    std::string result;
    std::size_t column = width;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (column + 1 + word.size() > width) {
            if (!result.empty()) result += '\n';
            result.append(indent, ' ');
            column = indent;
        } else {
            result += ' ';
            ++column;
        }
        result += word;
        column += word.size();
    }
    return result + "\n";
}

}  // namespace

std::string effective_deck(const Deck& deck) {
    std::string result = "# Effective deck: every key, its value, and where the value came from.\n";
    for (const Section& section : sections_of(deck)) {
        result += fmt::format("\n[{}]\n", section.name);
        for (const Key& key : section.keys) {
            const std::string assignment =
                fmt::format("{} = {}", std::string_view(key.name).substr(section.name.size() + 1),
                            deck_value(key.text(deck)));
            result += fmt::format("{:<36}  # {}\n", assignment, origin_of(deck, key.name));
        }
    }
    return result;
}

std::string list_keys() {
    constexpr std::size_t kIndent = 6;
    constexpr std::size_t kWidth = 100;       // of sentences
    constexpr std::size_t kFactsWidth = 140;  // of a key's line of facts
    std::string result;
    for (const Section& section : key_table()) {
        if (!result.empty()) result += '\n';
        result += wrapped(fmt::format("[{}] {}", section.name, section.meaning), 0, kWidth);
        for (const Key& key : section.keys) {
            std::string type = key.type;
            if (!key.unit.empty()) type += ", " + key.unit;
            const std::string facts = fmt::format("  {:<33}  {:<18}  default {:<18}  ", key.name,
                                                  type, or_dash(default_text(key)));
            result += facts.size() + key.allowed.size() <= kFactsWidth
                          ? facts + key.allowed + "\n"
                          : facts + "one of\n" + wrapped(key.allowed, kIndent, kWidth);
            result += wrapped(key.meaning, kIndent, kWidth);
        }
    }
    return result;
}

std::string keys_markdown() {
    std::string result(kMarkdownIntroduction);
    for (const Section& section : key_table()) {
        result += fmt::format(
            "\n## [{}]\n\n{}\n\n| Key | Type | Unit | Default | Allowed | Meaning |\n"
            "|---|---|---|---|---|---|\n",
            section.name, section.meaning);
        for (const Key& key : section.keys) {
            result += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, key.type,
                                  or_dash(key.unit), or_dash(default_text(key)), key.allowed,
                                  key.meaning);
        }
    }
    return result;
}

}  // namespace fullshard::config
