#include "micro/token_file.h"

#include "base/error.h"

#include <fmt/format.h>
#include <hdf5.h>

namespace fullshard::micro {

void write_token_file(const std::filesystem::path& path, std::span<const std::uint16_t> tokens) {
    const hsize_t count = tokens.size();
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) throw RunError(fmt::format("cannot create {}", path.string()));
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t set =
        H5Dcreate2(file, "tokens", H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const herr_t written =
        H5Dwrite(set, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, tokens.data());
    H5Dclose(set);
    H5Sclose(space);
    if (H5Fclose(file) < 0 || written < 0)
        throw RunError(fmt::format("cannot write the tokens of {}", path.string()));
}

}  // namespace fullshard::micro
