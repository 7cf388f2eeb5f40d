#include "data/hdf5_source.h"

#include "data/file_case.h"
#include "data/hdf5_file.h"
#include "data/toy_source.h"

#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

class Hdf5Source : public FileCase {
  protected:
    std::filesystem::path write(const char* name, const Hdf5Content& content) const {
        write_hdf5(folder_ / name, content);
        return folder_ / name;
    }
    void expect_refused(const Hdf5Content& content, const std::vector<std::string>& parts) const {
        const auto path = write("bad.h5", content);
        expect_data_error([&] { open_hdf5(path, 100); }, parts);
    }
};

TEST_F(Hdf5Source, TokensDocumentsAndLossMask) {
    const auto path = write("a.h5", {.tokens = {1, 2, 3, 4, 5},
                                     .documents = Tokens{0, 2, 2, 4},
                                     .loss_mask = Tokens{0, 1, 0, 0, 1},
                                     .vocab_size = 100});
    const auto source = open_hdf5(path, 100);
    EXPECT_EQ(all_tokens(*source), (Tokens{1, 2, 3, 4, 5}));
    EXPECT_EQ(Tokens(source->documents().begin(), source->documents().end()), (Tokens{0, 2, 4}))
        << "an empty document has no part in it";
    ASSERT_TRUE(source->has_loss_mask());
    std::vector<std::uint8_t> mask(3);
    source->read_loss_mask(1, mask);
    EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 0, 0}));
    EXPECT_EQ(source->locate(0).find(path.string() + ", byte "), 0U);
}

TEST_F(Hdf5Source, EveryIntegerType) {
    for (const hid_t type : {H5T_STD_U8LE, H5T_STD_I8LE, H5T_STD_U16LE, H5T_STD_I16LE,
                             H5T_STD_U32LE, H5T_STD_I32LE, H5T_STD_U64LE, H5T_STD_I64LE}) {
        const auto path = write("a.h5", {.tokens = {100, 7, 127}, .token_type = type});
        EXPECT_EQ(all_tokens(*open_hdf5(path, 128)), (Tokens{100, 7, 127}));
    }
}

TEST_F(Hdf5Source, BooleansOfH5pyAreALossMask) {
    const hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
    const std::int8_t no = 0, yes = 1;
    expect_done(H5Tenum_insert(boolean, "FALSE", &no));
    expect_done(H5Tenum_insert(boolean, "TRUE", &yes));
    const auto path = write("a.h5", {.tokens = {1, 2, 3}});
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hsize_t count = 3;
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t set =
        H5Dcreate2(file, "loss_mask", boolean, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const std::int8_t values[] = {1, 0, 1};
    expect_done(H5Dwrite(set, boolean, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    expect_done(H5Dclose(set));
    expect_done(H5Sclose(space));
    expect_done(H5Fclose(file));
    expect_done(H5Tclose(boolean));
    std::vector<std::uint8_t> mask(3);
    open_hdf5(path, 10)->read_loss_mask(0, mask);
    EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 0, 1}));
}

TEST_F(Hdf5Source, FilesOfAFolderAreJoinedWithTheirDocuments) {
    write("b.hdf5", {.tokens = {4, 5, 6}, .token_type = H5T_STD_I32LE, .documents = Tokens{0, 1}});
    write("a.h5", {.tokens = {1, 2, 3}, .documents = Tokens{0, 2}, .loss_mask = Tokens{0, 1, 1}});
    const auto source = open_hdf5(folder_, 100);
    EXPECT_EQ(all_tokens(*source), (Tokens{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(Tokens(source->documents().begin(), source->documents().end()), (Tokens{0, 2, 3, 4}));
    std::vector<std::uint8_t> mask(6);
    source->read_loss_mask(0, mask);
    EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1, 1, 1, 1, 1}));
    write("c.h5", {.tokens = {1}});
    expect_data_error([&] { open_hdf5(folder_, 100); }, {"c.h5", "do not mix"});
}

TEST_F(Hdf5Source, MistakesAreNamedWithFileAndDataset) {
    expect_refused({.tokens = {1, 2}, .chunk = 2}, {"bad.h5", "tokens", "in one piece"});
    expect_refused({.tokens = {1, 2}, .token_type = H5T_IEEE_F32LE}, {"tokens", "integers"});
    expect_refused({.tokens = {1, 2}, .token_type = H5T_STD_U16BE}, {"tokens", "little-endian"});
    expect_refused({.tokens = {}}, {"tokens", "empty"});
    expect_refused({.tokens = {1, 2}, .documents = Tokens{1}}, {"documents[0] = 1"});
    expect_refused({.tokens = {1, 2, 3}, .documents = Tokens{0, 2, 1}}, {"documents[2] = 1"});
    expect_refused({.tokens = {1, 2, 3}, .documents = Tokens{0, 3}}, {"documents[1] = 3"});
    expect_refused({.tokens = {1, 2}, .documents = Tokens{0, 1, 1}}, {"3 documents in 2 tokens"});
    expect_refused({.tokens = {1, 2}, .loss_mask = Tokens{1}},
                   {"loss_mask has 1 elements, tokens 2"});
    expect_refused({.tokens = {1, 2}, .loss_mask = Tokens{1, 1}, .loss_mask_type = H5T_STD_U16LE},
                   {"loss_mask", "8-bit"});
    for (const bool of_file : {false, true})
        expect_refused({.tokens = {1}, .vocab_size = 101, .vocab_size_of_file = of_file},
                       {"vocabulary of 101", "model.vocab_size = 100"});
    const auto path = write("a.h5", {.tokens = {1, 100}});
    expect_data_error([&] { all_tokens(*open_hdf5(path, 100)); }, {"token 100", "a.h5, byte "});
}

TEST_F(Hdf5Source, OtherFiles) {
    expect_data_error([&] { open_hdf5(FileCase::write("a.h5", llmc_tokens16({1})), 10); },
                      {"a.h5", "no HDF5 file"});
    expect_data_error([&] { open_hdf5(FileCase::write("a.h5", ""), 10); }, {"a.h5"});
    const auto whole = write("b.h5", {.tokens = Tokens(5000, 7)});
    std::filesystem::resize_file(whole, 4000);
    expect_data_error([&] { open_hdf5(whole, 10); }, {"b.h5"});
    const auto other = folder_ / "c.h5";
    expect_done(H5Fclose(H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)));
    expect_data_error([&] { open_hdf5(other, 10); }, {"c.h5", "no dataset tokens"});
}

}  // namespace
}  // namespace fullshard::data
