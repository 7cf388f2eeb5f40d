// HDF5 files for tests, written with HDF5 itself.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace fullshard::data {

/// What a file holds; the types are those that its datasets are stored with.
struct Hdf5Content {
    std::vector<std::int64_t> tokens;
    hid_t token_type = H5T_STD_U16LE;
    std::optional<std::vector<std::int64_t>> documents = {};
    std::optional<std::vector<std::int64_t>> loss_mask = {};
    hid_t loss_mask_type = H5T_STD_U8LE;
    std::optional<std::int64_t> vocab_size = {};
    bool vocab_size_of_file = false;  ///< attached to the file, not to the tokens
    hsize_t chunk = 0;                ///< of the tokens; 0: in one piece
};

inline void expect_done(herr_t status) {
    EXPECT_GE(status, 0);
}

inline hid_t write_dataset(hid_t file, const char* name, const std::vector<std::int64_t>& values,
                           hid_t type, hsize_t chunk = 0) {
    const hsize_t count = values.size();
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk > 0) expect_done(H5Pset_chunk(creation, 1, &chunk));
    const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    expect_done(H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    expect_done(H5Pclose(creation));
    expect_done(H5Sclose(space));
    return set;
}

inline void write_hdf5(const std::filesystem::path& path, const Hdf5Content& content) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t tokens =
        write_dataset(file, "tokens", content.tokens, content.token_type, content.chunk);
    if (content.vocab_size) {
        const hid_t scalar = H5Screate(H5S_SCALAR);
        const hid_t attribute = H5Acreate2(content.vocab_size_of_file ? file : tokens, "vocab_size",
                                           H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT);
        expect_done(H5Awrite(attribute, H5T_NATIVE_INT64, &*content.vocab_size));
        expect_done(H5Aclose(attribute));
        expect_done(H5Sclose(scalar));
    }
    expect_done(H5Dclose(tokens));
    if (content.documents)
        expect_done(H5Dclose(write_dataset(file, "documents", *content.documents, H5T_STD_I64LE)));
    if (content.loss_mask)
        expect_done(
            H5Dclose(write_dataset(file, "loss_mask", *content.loss_mask, content.loss_mask_type)));
    expect_done(H5Fclose(file));
}

}  // namespace fullshard::data
