#include "data/jsonl_source.h"

#include "data/file_case.h"
#include "data/toy_source.h"

#include <string>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;
using Mask = std::vector<std::uint8_t>;
class JsonlFile : public FileCase {};

Mask mask_of(const TokenSource& source) {
    Mask mask(static_cast<std::size_t>(source.size()));
    source.read_loss_mask(0, mask);
    return mask;
}

TEST_F(JsonlFile, OnlyAnswersCount) {
    const auto path = write("a.jsonl",
                            "{\"prompt\": \"ab\", \"answer\": \"c\", \"id\": 7}\n"
                            "{\"prompt_tokens\": [1, 2], \"answer_tokens\": [3, 4]}\r\n"
                            "\n"
                            "{\"answer\": \"x\", \"prompt\": \"\"}");
    const auto source = load_jsonl(path, {.vocab_size = 256});
    EXPECT_EQ(all_tokens(*source), (Tokens{'a', 'b', 'c', 1, 2, 3, 4, 'x'}));
    EXPECT_EQ(mask_of(*source), (Mask{0, 0, 1, 0, 0, 1, 1, 1}));
    EXPECT_EQ(Tokens(source->documents().begin(), source->documents().end()), (Tokens{0, 3, 7}));
    EXPECT_TRUE(source->has_loss_mask());
    EXPECT_EQ(source->locate(4), path.string() + ", line 2, byte 41, token 1");
}

TEST_F(JsonlFile, TextsCountAsAWholeAndTheEndTokenCountsToo) {
    const auto path = write("a.jsonl",
                            "{\"text\": \"h\\u00e4\"}\n{\"tokens\": [5]}\n"
                            "{\"prompt_tokens\": [6], \"answer_tokens\": [7]}\n");
    const auto source = load_jsonl(path, {.vocab_size = 300, .document_end = 299});
    EXPECT_EQ(all_tokens(*source), (Tokens{'h', 0xc3, 0xa4, 299, 5, 299, 6, 7, 299}));
    EXPECT_EQ(mask_of(*source), (Mask{1, 1, 1, 1, 1, 1, 0, 1, 1}));
}

TEST_F(JsonlFile, LinesWithoutAnswerAreLeftOutAndCounted) {
    const auto path = write("a.jsonl",
                            "{\"prompt\": \"p\", \"answer\": \"\"}\n{\"text\": \"\"}\n"
                            "{\"tokens\": [1]}\n{\"prompt_tokens\": [1], \"answer_tokens\": []}\n");
    const auto source = load_jsonl(path, {});
    EXPECT_EQ(all_tokens(*source), (Tokens{1}));
    EXPECT_EQ(source->empty_lines(), 3);
    expect_data_error([&] { load_jsonl(write("b.jsonl", "{\"text\": \"\"}"), {}); },
                      {"b.jsonl", "no examples", "1 lines"});
}

TEST_F(JsonlFile, FilesOfAFolder) {
    write("b.jsonl", "{\"text\": \"B\"}\n{\"text\": \"b\"}\n");
    write("a.jsonl", "{\"text\": \"A\"}\n");
    write("c.json", "no lines");
    const auto source = load_jsonl(folder_, {});
    EXPECT_EQ(all_tokens(*source), (Tokens{'A', 'B', 'b'}));
    EXPECT_EQ(source->file_starts(), (Tokens{0, 1}));
    EXPECT_EQ(source->locate(2), (folder_ / "b.jsonl").string() + ", line 2, byte 14, token 0");
}

TEST_F(JsonlFile, MistakesAreNamedWithFileLineAndByte) {
    const auto refused = [&](const std::string& line, const std::vector<std::string>& parts) {
        const auto path = write("a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
        expect_data_error([&] { load_jsonl(path, {.vocab_size = 200}); }, parts);
    };
    refused("{\"text\": \"x\"", {"a.jsonl", "line 2", "byte 29", "no JSON"});
    refused("{\"text\": \"\xff\"}", {"line 2", "no JSON"});
    refused("[1]", {"line 2, byte 17", "object"});
    refused("{\"id\": 1}", {"none of"});
    refused("{\"prompt\": \"x\"}", {"\"prompt\" without \"answer\""});
    refused("{\"answer\": \"x\"}", {"\"answer\" without \"prompt\""});
    refused("{\"prompt\": \"x\", \"answer_tokens\": [1]}", {"both"});
    refused("{\"text\": \"x\", \"tokens\": [1]}", {"both \"text\" and \"tokens\""});
    refused("{\"text\": 1}", {"\"text\" should be a string"});
    refused("{\"tokens\": \"x\"}", {"\"tokens\" should be an array"});
    refused("{\"tokens\": [1.0]}", {"integers only"});
    refused("{\"tokens\": [1, 200]}", {"token 200", "model.vocab_size = 200"});
    refused("{\"tokens\": [-1]}", {"token -1"});
    refused("{\"tokens\": [18446744073709551615]}", {"token -1"});
    refused("{\"tokens\": [99999999999999999999]}", {"integers only"});
    refused("{\"text\": \"\\u4e2d\"}", {"token 228 of \"text\""});  // e4 b8 ad in UTF-8
}

TEST_F(JsonlFile, AnEndTokenOutsideTheVocabulary) {
    EXPECT_THROW(load_jsonl(write("a.jsonl", "{\"text\": \"a\"}"), {.document_end = 256}),
                 UsageError);
}

}  // namespace
}  // namespace fullshard::data
