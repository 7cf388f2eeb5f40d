// .pt files by their format; tests/checkpoint/read_by_others.py has PyTorch itself read them.
#include "base/files.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/export/pickle.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <map>

namespace fullshard::checkpoint {
namespace {

using namespace std::string_literals;

// What CPython's pickle.dumps(value, protocol=2) gives but for memo operations ("q\x00").
TEST(PickleTest, IsProtocolTwo) {
    EXPECT_EQ(Pickle().integer(-2).finish(), "\x80\x02J\xfe\xff\xff\xff."s);
    EXPECT_EQ(Pickle().integer(std::int64_t{1} << 40).finish(),
              "\x80\x02\x8a\x08\0\0\0\0\0\x01\0\0."s);
    EXPECT_EQ(Pickle().text("w\xc3\xa9").finish(), "\x80\x02X\x03\0\0\0w\xc3\xa9."s);
    EXPECT_EQ(Pickle().dict().mark().text("a").no().set_items().finish(),
              "\x80\x02}(X\x01\0\0\0a\x89u."s);
    EXPECT_EQ(Pickle().global("collections", "OrderedDict").mark().tuple().call().finish(),
              "\x80\x02"
              "ccollections\nOrderedDict\n(tR."s);
    EXPECT_EQ(Pickle().mark().tuple().persistent().finish(), "\x80\x02(tQ."s);
}

/// Members of an archive, found by walking over its local headers.
std::map<std::string, std::string> members(const std::string& file) {
    std::map<std::string, std::string> found;
    const auto field = [&](std::size_t at, std::size_t width) {
        std::uint64_t value = 0;
        std::memcpy(&value, file.data() + at, width);
        return value;
    };
    std::size_t at = 0;
    while (field(at, 4) == 0x04034b50) {
        const std::uint64_t size = field(at + 22, 4);
        const std::string name = file.substr(at + 30, field(at + 26, 2));
        const std::size_t data = at + 30 + name.size() + field(at + 28, 2);
        EXPECT_EQ(data % 64, 0u) << name;
        found[name] = file.substr(data, size);
        const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(file.data() + data), size);
        EXPECT_EQ(field(at + 14, 4), crc) << name;
        at = data + size;
    }
    EXPECT_EQ(field(at, 4), 0x02014b50u);
    return found;
}

TEST(TorchFileTest, HoldsEveryTensorAsOneStorage) {
    const toy::TemporaryFolder folder;
    const auto saved = toy::save(folder.path(), {.ranks = 3});
    const auto out = folder.path() / "model.pt";
    consolidate(saved, out);
    const auto found = members(read_file(out));
    EXPECT_EQ(found.size(), 3u + 5u);
    EXPECT_EQ(found.at("archive/version"), "3\n");
    EXPECT_EQ(found.at("archive/byteorder"), "little");
    const std::string& pickle = found.at("archive/data.pkl");
    std::size_t number = 0;
    for (const TensorEntry& tensor : toy::tensors()) {
        if (tensor.state != State::kModel) continue;
        EXPECT_NE(pickle.find(tensor.parameter), pickle.npos);
        const auto expected = toy::values(tensor, 10);
        const std::string& bytes = found.at("archive/data/" + std::to_string(number++));
        ASSERT_EQ(bytes.size(), expected.size() * 4);
        EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0) << tensor.parameter;
    }
}

TEST(TorchFileTest, MomentsLieBesideTheWeights) {
    const toy::TemporaryFolder folder;
    const auto saved = toy::save(folder.path(), {.frozen = {"scale"}});
    const auto out = folder.path() / "all.pt";
    consolidate(saved, out, {.dtype = DType::kBFloat16, .selection = {.with_optimizer = true}});
    const auto found = members(read_file(out));
    EXPECT_EQ(found.size(), 3u + 5u + 4u + 4u);
    const std::string& pickle = found.at("archive/data.pkl");
    for (const char* part :
         {"model", "exp_avg", "exp_avg_sq", "optimizer_step", "BFloat16Storage", "FloatStorage"}) {
        EXPECT_NE(pickle.find(part), pickle.npos) << part;
    }
    EXPECT_EQ(found.at("archive/data/0").size(), 7u * 5u * 2u);  // weights are cast
    EXPECT_EQ(found.at("archive/data/5").size(), 7u * 5u * 4u);  // moments are not
}

}  // namespace
}  // namespace fullshard::checkpoint
