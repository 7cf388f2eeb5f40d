#include "ckpt/command_line.h"

#include "base/build_info.h"
#include "base/error.h"
#include "ckpt/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fullshard::ckpt {
namespace {

constexpr const char* kHelp =
    R"(fullshard-ckpt looks at FullShard's checkpoints and converts them, without MPI or a GPU.

usage: fullshard-ckpt inspect DIR [--json]           what the checkpoint holds
       fullshard-ckpt verify DIR [--threads N]       reads every byte, names every damage
       fullshard-ckpt diff A B [--rtol X] [--threads N]
                                                     compares tensors
       fullshard-ckpt consolidate DIR --out FILE [options]
                                                     tensors as a file for other programs, or weights as
                                                     a folder for transformers (--format hf)
       fullshard-ckpt import SOURCE --out DIR [--show-mapping] [--config FILE] [--force]
                                                     weights of other programs as DIR/step-00000000
       fullshard-ckpt --help | --version

DIR is a checkpoint (runs/mine/checkpoints/step-00000010), or a run's checkpoints folder or run folder,
of which the newest whole checkpoint is taken and named. A and B may also be files that consolidate
wrote. SOURCE is a folder that transformers saved, a .safetensors file or .safetensors.index.json, a GGUF
file, a GPT-2 file of llm.c, or an .h5 file that consolidate wrote. Of a GPT-2 or Llama, which a config.json
beside it or the file itself describes, import maps names and layouts to the model's; else names stay as
they are.
  --rtol X           also equal: |a - b| <= X * max(|a|, |b|), and NaN with NaN
  --threads N        default: two for each core
  --show-mapping     print first which tensor of SOURCE is which parameter, and how it is rearranged
  --config FILE      config.json of SOURCE's model, where none is beside it
  --out FILE         .h5, .safetensors or .pt; the output appears whole or not at all, and what a
                     killed run leaves the same command takes up again
  --format F         hdf5, safetensors or pt, whatever the name's extension; of a GPT-2 or Llama also hf
                     (--out is a folder: config.json, model.safetensors, tokenizer files) and llmc (GPT-2)
  --tokenizer DIR    hf: take the tokenizer's files from DIR, not from the run's folder tokenizer
  --dtype T          fp32 (default), bf16 or fp16: weights rounded to nearest, ties to even
  --model-only       weights alone (default)
  --with-optimizer   moments too, always fp32; .h5 and .pt
  --include GLOB     only parameters of such names; may be repeated, as --exclude may
  --exclude GLOB     no parameters of such names
  --max-shard SIZE   safetensors beyond it become several files and an index (default 5GB). Under srun
                     each task writes its share of the files
  --memory SIZE      most memory of the process (default 256M)
  --force            replace existing outputs

exit codes: 0 whole, equal or done; 1 tensors differ, or a run-time error; 2 wrong use; 3 damaged or
            missing data
)";

struct Syntax {
    std::string_view name;
    Action action;
    std::size_t paths;
    std::string_view usage;
};
constexpr std::array kSyntax = {
    Syntax{"inspect", Action::kInspect, 1, "inspect DIR [--json]"},
    Syntax{"verify", Action::kVerify, 1, "verify DIR [--threads N]"},
    Syntax{"diff", Action::kDiff, 2, "diff A B [--rtol X] [--threads N]"},
    Syntax{"consolidate", Action::kConsolidate, 1, "consolidate DIR --out FILE [options]"},
    Syntax{"import", Action::kImport, 1,
           "import SOURCE --out DIR [--show-mapping] [--config FILE] [--force]"},
};

[[noreturn]] void refuse(const Syntax& syntax, std::string_view problem) {
    throw UsageError(fmt::format("{}; use: fullshard-ckpt {}", problem, syntax.usage));
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

/// An option of a command; `set` gets its value, and flags have none.
struct Option {
    Action action;
    std::string_view name;
    bool has_value;
    void (*set)(Command& command, const std::string& option, const std::string& value);
};

constexpr auto set_out = [](Command& command, const std::string&, const std::string& value) {
    command.out = value;
};
constexpr auto set_force = [](Command& command, const std::string&, const std::string&) {
    command.force = true;
};
constexpr auto set_threads = [](Command& command, const std::string& option,
                                const std::string& value) {
    command.threads = parse_threads(option, value);
};

constexpr std::array kOptions = {
    Option{Action::kInspect, "--json", false,
           [](Command& command, const std::string&, const std::string&) { command.json = true; }},
    Option{Action::kVerify, "--threads", true, set_threads},
    Option{Action::kDiff, "--threads", true, set_threads},
    Option{Action::kDiff, "--rtol", true,
           [](Command& command, const std::string& option, const std::string& value) {
               command.rtol = parse_tolerance(option, value);
           }},
    Option{Action::kImport, "--out", true, set_out},
    Option{Action::kImport, "--force", false, set_force},
    Option{Action::kImport, "--show-mapping", false,
           [](Command& command, const std::string&, const std::string&) {
               command.show_mapping = true;
           }},
    Option{Action::kImport, "--config", true,
           [](Command& command, const std::string&, const std::string& value) {
               command.config = value;
           }},
    Option{Action::kConsolidate, "--out", true, set_out},
    Option{Action::kConsolidate, "--force", false, set_force},
    Option{Action::kConsolidate, "--format", true,
           [](Command& command, const std::string& option, const std::string& value) {
               command.consolidate.format = parse_format(option, value);
           }},
    Option{Action::kConsolidate, "--tokenizer", true,
           [](Command& command, const std::string&, const std::string& value) {
               command.consolidate.tokenizer = value;
           }},
    Option{Action::kConsolidate, "--dtype", true,
           [](Command& command, const std::string& option, const std::string& value) {
               command.consolidate.dtype = parse_dtype(option, value);
           }},
    Option{Action::kConsolidate, "--model-only", false,
           [](Command& command, const std::string&, const std::string&) {
               command.consolidate.selection.with_optimizer = false;
           }},
    Option{Action::kConsolidate, "--with-optimizer", false,
           [](Command& command, const std::string&, const std::string&) {
               command.consolidate.selection.with_optimizer = true;
           }},
    Option{Action::kConsolidate, "--include", true,
           [](Command& command, const std::string&, const std::string& value) {
               command.consolidate.selection.include.push_back(value);
           }},
    Option{Action::kConsolidate, "--exclude", true,
           [](Command& command, const std::string&, const std::string& value) {
               command.consolidate.selection.exclude.push_back(value);
           }},
    Option{Action::kConsolidate, "--max-shard", true,
           [](Command& command, const std::string& option, const std::string& value) {
               command.consolidate.max_shard_bytes = parse_bytes(option, value);
           }},
    Option{Action::kConsolidate, "--memory", true,
           [](Command& command, const std::string& option, const std::string& value) {
               command.consolidate.memory_bytes = parse_bytes(option, value);
           }},
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
            "unknown command '{}'; use inspect, verify, diff, consolidate or import (--help "
            "explains)",
            name));
    }
    Command command;
    command.action = syntax->action;
    Words rest(*syntax, words.subspan(1));
    while (rest.more()) {
        const std::string word = rest.next();
        if (!word.starts_with("-")) {
            command.paths.emplace_back(word);
            continue;
        }
        const auto* option = std::ranges::find_if(kOptions, [&](const Option& one) {
            return one.action == syntax->action && one.name == word;
        });
        if (option == kOptions.end()) refuse(*syntax, fmt::format("unknown option {}", word));
        if (!option->has_value) rest.no_value_for(word);
        option->set(command, word, option->has_value ? rest.value_of(word) : "");
    }
    if (command.paths.size() != syntax->paths) {
        refuse(*syntax, fmt::format("{} takes {} path{}, not {}", name, syntax->paths,
                                    syntax->paths == 1 ? "" : "s", command.paths.size()));
    }
    const bool writes = command.action == Action::kConsolidate || command.action == Action::kImport;
    if (writes && command.out.empty()) refuse(*syntax, "--out is missing");
    return command;
}

}  // namespace fullshard::ckpt
