#include "ckpt/command_line.h"

#include "base/build_info.h"
#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace fullshard::ckpt {
namespace {

constexpr const char* kHelp =
    R"(fullshard-ckpt looks at FullShard's checkpoints and converts them, without MPI or a GPU.

usage: fullshard-ckpt inspect DIR                    what the checkpoint holds
       fullshard-ckpt verify DIR                     reads every byte, names every damage
       fullshard-ckpt diff A B [--rtol X]            compares tensors
       fullshard-ckpt consolidate DIR --out FILE [--force]
                                                     model weights as one file, .h5 or .safetensors
       fullshard-ckpt --help | --version

DIR is a checkpoint (runs/mine/checkpoints/step-00000010), or a run's checkpoints folder or run folder,
of which the newest whole checkpoint is taken and named. A and B may also be files that consolidate
wrote.
  --rtol X    also equal: |a - b| <= X * max(|a|, |b|), and NaN with NaN
  --out FILE  the output appears whole or not at all
  --force     replace an existing FILE

exit codes: 0 whole, equal or done; 1 tensors differ, or a run-time error; 2 wrong use; 3 damaged or
            missing data
)";

struct Syntax {
    std::string_view name;
    Action action;
    std::size_t paths;
    std::string_view usage;
};
constexpr std::array<Syntax, 4> kSyntax = {{
    {"inspect", Action::kInspect, 1, "inspect DIR"},
    {"verify", Action::kVerify, 1, "verify DIR"},
    {"diff", Action::kDiff, 2, "diff A B [--rtol X]"},
    {"consolidate", Action::kConsolidate, 1, "consolidate DIR --out FILE [--force]"},
}};

[[noreturn]] void refuse(const Syntax& syntax, std::string_view problem) {
    throw UsageError(fmt::format("{}; use: fullshard-ckpt {}", problem, syntax.usage));
}

double parse_rtol(const Syntax& syntax, const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (!whole || !std::isfinite(value) || value < 0) {
        refuse(syntax, fmt::format("--rtol {}: must be a number, zero or more", text));
    }
    return value;
}

/// Hands out words from first to last; an option's value follows it or stands behind '='.
class Words {
  public:
    Words(const Syntax& syntax, std::span<const std::string> words)
        : syntax_(syntax), words_(words) {}

    bool more() const { return !words_.empty(); }
    /// An option without its value, or a path.
    std::string next() {
        std::string word = words_.front();
        words_ = words_.subspan(1);
        value_.reset();
        if (const auto equals = word.find('='); word.starts_with("--") && equals != word.npos) {
            value_ = word.substr(equals + 1);
            word.resize(equals);
        }
        return word;
    }
    std::string value_of(const std::string& option) {
        if (value_) return *std::exchange(value_, std::nullopt);
        if (words_.empty()) refuse(syntax_, fmt::format("{} needs a value", option));
        const std::string value = words_.front();
        words_ = words_.subspan(1);
        return value;
    }
    void no_value_for(const std::string& option) const {
        if (value_) refuse(syntax_, fmt::format("{} takes no value", option));
    }

  private:
    const Syntax& syntax_;
    std::span<const std::string> words_;
    std::optional<std::string> value_;
};

}  // namespace

std::optional<std::string> immediate_answer(std::span<const std::string> words) {
    const auto asks = [&](std::string_view option) {
        return std::ranges::find(words, option) != words.end();
    };
    if (words.empty() || asks("--help") || asks("-h")) return kHelp;
    if (!asks("--version")) return std::nullopt;
    const BuildInfo& build = build_info();
    return fmt::format("fullshard-ckpt {}\ncommit    {}\nbuild     {}\ncompiler  {}\n",
                       build.version, build.git_hash, build.build_type, build.compiler);
}

Command parse_command(std::span<const std::string> words) {
    const std::string name = words.empty() ? "" : words[0];
    const auto* syntax = std::ranges::find(kSyntax, name, &Syntax::name);
    if (syntax == kSyntax.end()) {
        throw UsageError(fmt::format(
            "unknown command '{}'; use inspect, verify, diff or consolidate (--help explains)",
            name));
    }
    Command command;
    command.action = syntax->action;
    const bool is_diff = command.action == Action::kDiff;
    const bool is_consolidate = command.action == Action::kConsolidate;
    Words rest(*syntax, words.subspan(1));
    while (rest.more()) {
        const std::string word = rest.next();
        if (is_diff && word == "--rtol") {
            command.rtol = parse_rtol(*syntax, rest.value_of(word));
        } else if (is_consolidate && word == "--out") {
            command.out = rest.value_of(word);
        } else if (is_consolidate && word == "--force") {
            rest.no_value_for(word);
            command.force = true;
        } else if (word.starts_with("-")) {
            refuse(*syntax, fmt::format("unknown option {}", word));
        } else {
            command.paths.emplace_back(word);
        }
    }
    if (command.paths.size() != syntax->paths) {
        refuse(*syntax, fmt::format("{} takes {} path{}, not {}", name, syntax->paths,
                                    syntax->paths == 1 ? "" : "s", command.paths.size()));
    }
    if (is_consolidate && command.out.empty()) refuse(*syntax, "--out is missing");
    return command;
}

}  // namespace fullshard::ckpt
