// Keys of the data that a model is trained on, and of the text that it writes.
#include "config/key_binding.h"

#include <fmt/format.h>

namespace fullshard::config {
namespace {

Choice<Source> sources() {
    return {{{"synthetic", Source::kSynthetic},
             {"text", Source::kText},
             {"llmc", Source::kLlmc},
             {"megatron", Source::kMegatron},
             {"hdf5", Source::kHdf5},
             {"jsonl", Source::kJsonl}}};
}

Choice<Source> sources_of_files() {
    Choice<Source> result = sources();
    result.choices.erase(result.choices.begin());
    return result;
}

constexpr const char* kSourceMeaning =
    "text: bytes of files. llmc: token files of llm.c. megatron: .bin and .idx of Megatron. hdf5: "
    "what tools/tokenize.py writes. jsonl: a prompt and an answer a line, of which the answer "
    "counts.";

}  // namespace

Section data_section() {
    const auto s = &Deck::data;
    const Choice<Targets> targets{{{"next", Targets::kNext}, {"rolled", Targets::kRolled}}};
    const Choice<Packing> packings{{{"stream", Packing::kStream},
                                    {"documents", Packing::kDocuments},
                                    {"none", Packing::kNone}}};
    return {"data",
            "What the model is trained on.",
            {key("data.source", s, &Data::source, sources(), "",
                 fmt::format("Where tokens come from, unless sections [data.source.NAME] say so. "
                             "synthetic: seeded random ones. {}",
                             kSourceMeaning)),
             key("data.path", s, &Data::path, Path{.may_be_empty = true}, "",
                 "File or folder of the source; llmc takes a pattern with * as well, and megatron "
                 "the path without .bin. A synthetic source ignores it."),
             key("data.validation_path", s, &Data::validation_path, Path{.may_be_empty = true}, "",
                 "File or folder of the same kind that is held out for evaluation as a whole. "
                 "Empty: data.validation_fraction of data.path."),
             key("data.sequence", s, &Data::sequence, Integer{1, kMaxSequence}, "tokens",
                 "Length of a training sequence."),
             key("data.targets", s, &Data::targets, targets, "",
                 "What is predicted: the next token of the stream (next), or the inputs rolled by "
                 "one, so that the last position predicts the sequence's first token (rolled)."),
             key("data.packing", s, &Data::packing, packings, "",
                 "How documents become sequences: one after the other, cut where a sequence is "
                 "full (stream); as many whole ones as fit (documents); each in a sequence of its "
                 "own (none). The last two fill up with padding that counts as nothing."),
             key("data.document_mask", s, &Data::document_mask, Boolean{}, "",
                 "Tokens see their own document only, positions start anew in each, and no token "
                 "of another document is predicted. Off: documents of a sequence are one text."),
             key("data.document_end", s, &Data::document_end, Integer{-1, kMaxVocabulary}, "token",
                 "Token that ends a document in sources that do not store where documents end "
                 "(llmc, text, hdf5 without documents); -1: each file is one document. Of jsonl it "
                 "is put behind each example and predicted; -1: nothing is."),
             key("data.validation_fraction", s, &Data::validation_fraction,
                 Real{.max = 1.0, .max_open = true}, "",
                 "Share of each source that is held out for evaluation: its tail. 0: no "
                 "evaluation, unless data.validation_path names some."),
             key("data.synthetic_sequences", s, &Data::synthetic_sequences, Integer{1, kMaxCount},
                 "sequences", "Size of a synthetic data set, held-out part included."),
             key("data.shuffle", s, &Data::shuffle, Boolean{}, "",
                 "Visit the sequences in a new random order in every epoch, a function of run.seed "
                 "only, instead of in the order of the source."),
             key("data.prefetch", s, &Data::prefetch, Integer{0, 1024}, "micro-batches",
                 "What a thread of each rank reads ahead. 0: no thread."),
             key("data.tokenizer", s, &Data::tokenizer, Path{.may_be_empty = true}, "",
                 "Folder with the bytes of each token, which tools/tokenize.py writes and generate "
                 "prints text with; its files go along with an export to Hugging Face. Empty: "
                 "tokens are bytes.")}};
}

Section data_source_sections() {
    const auto keys = [](std::string_view prefix, std::string_view source) {
        const auto bind = [&](std::string_view name, auto member, auto format,
                              std::string meaning) {
            return entry_key(fmt::format("{}{}.{}", prefix, source, name), &Deck::data,
                             &Data::sources, std::string(source), member, format, "",
                             std::move(meaning));
        };
        return std::vector<Key>{
            bind("kind", &DataSource::kind, sources_of_files(), kSourceMeaning),
            bind("path", &DataSource::path, Path{.may_be_empty = true},
                 "File, folder or pattern, as for data.path."),
            bind("validation_path", &DataSource::validation_path, Path{.may_be_empty = true},
                 "As data.validation_path."),
            bind("weight", &DataSource::weight, Real{.min_open = true},
                 "Share of the training sequences that come from here, relative to the weights of "
                 "the others; a small source is run through more often.")};
    };
    return list_section(
        "data.source",
        "Several sources that are mixed, each in a section with a name of your choice; they take "
        "the place of data.source and data.path. Evaluations tell them apart.",
        [](const Deck& deck) { return names_of(deck.data.sources); }, keys);
}

Section generate_section() {
    const auto s = &Deck::generate;
    return {
        "generate",
        "What `fullshard generate` writes. Training does not read it.",
        {key("generate.prompt", s, &Generate::prompt, Text{}, "",
             "Text to continue. Only where tokens are bytes; otherwise tools/tokenize.py "
             "encode gives generate.prompt_tokens."),
         key("generate.prompt_tokens", s, &Generate::prompt_tokens, Integers{{0, kMaxVocabulary}},
             "tokens", "Tokens to continue."),
         key("generate.samples", s, &Generate::samples, Integer{1, kMaxBatch}, "",
             "Continuations of the same prompt."),
         key("generate.max_tokens", s, &Generate::max_tokens, Integer{1, kMaxSequence}, "tokens",
             "Longest continuation."),
         key("generate.temperature", s, &Generate::temperature, Real{}, "",
             "Logits are divided by it before a token is drawn. 0: the most likely token."),
         key("generate.top_k", s, &Generate::top_k, Integer{0, kMaxVocabulary}, "tokens",
             "Draw from the most likely ones only. 0: from all."),
         key("generate.top_p", s, &Generate::top_p, Real{.max = 1.0, .min_open = true}, "",
             "Draw from the fewest most likely tokens that have this probability together."),
         key("generate.stop_token", s, &Generate::stop_token, Integer{-1, kMaxVocabulary}, "token",
             "Ends a continuation. -1: what ends a text in data.tokenizer, if there is one."),
         key("generate.seed", s, &Generate::seed, Seed{}, "",
             "Seed of the draws, apart from run.seed; sample n draws from stream n.")}};
}

}  // namespace fullshard::config
