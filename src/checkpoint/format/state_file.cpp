#include "checkpoint/format/state_file.h"

#include "base/error.h"
#include "checkpoint/format/hdf5.h"
#include "checkpoint/format/row_major.h"
#include "kernels/cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace fullshard::checkpoint {

// Files hold little-endian values and digests are of the bytes in memory.
static_assert(std::endian::native == std::endian::little);

using hdf5::Handle;

struct StateFile::Impl {
    Handle file;
    std::string name;

    std::string label(const std::string& dataset) const { return name + ": " + dataset; }
};

namespace {

/// An open dataset whose values lie in this file.
struct OpenDataset {
    Handle id;
    std::vector<std::int64_t> shape;
    DType dtype = DType::kFloat32;
};

DType dtype_of(hid_t dataset, const std::string& label) {
    const Handle type = hdf5::own<DataError>(H5Dget_type(dataset), H5Tclose, label);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        if (hdf5::check<DataError>(H5Tequal(type.id(), hdf5::float_type(dtype).id()), label) > 0)
            return dtype;
    }
    throw DataError(fmt::format("{}: is no little-endian float32, bfloat16 or float16", label));
}

OpenDataset open_dataset(hid_t file, const std::string& dataset, const std::string& label) {
    Handle id = hdf5::own<DataError>(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), H5Dclose, label);
    const DType dtype = dtype_of(id.id(), label);
    // Virtual and external values come from other files, and as zeros when those are missing.
    const Handle created = hdf5::own<DataError>(H5Dget_create_plist(id.id()), H5Pclose, label);
    if (H5Pget_layout(created.id()) == H5D_VIRTUAL || H5Pget_external_count(created.id()) > 0) {
        throw DataError(fmt::format("{}: keeps its values in other files", label));
    }
    const Handle space = hdf5::own<DataError>(H5Dget_space(id.id()), H5Sclose, label);
    const int rank = hdf5::check<DataError>(H5Sget_simple_extent_ndims(space.id()), label);
    std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
    hdf5::check<DataError>(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), label);
    std::vector<std::int64_t> shape(extents.begin(), extents.end());
    if (H5Sget_simple_extent_type(space.id()) == H5S_NULL || !checked_numel(shape)) {
        throw DataError(
            fmt::format("{}: shape [{}] is not possible", label, fmt::join(shape, ", ")));
    }
    return {std::move(id), std::move(shape), dtype};
}

/// Calls transfer(memory space, file space, first element) for each piece of a range; a piece is
/// adjacent in memory and in the file.
template <typename ErrorType, typename Transfer>
void for_each_piece(const OpenDataset& dataset, std::int64_t begin, std::int64_t count,
                    std::int64_t max_call_bytes, const std::string& label, Transfer transfer) {
    if (begin < 0 || count > numel(dataset.shape) - begin) {
        throw ErrorType(fmt::format("{}: elements [{}, {}) are outside of its {}", label, begin,
                                    begin + count, numel(dataset.shape)));
    }
    ensure(max_call_bytes >= kElementBytes, "a call moves one element at least");
    const Handle file_space = hdf5::own<ErrorType>(H5Dget_space(dataset.id.id()), H5Sclose, label);
    const std::int64_t end = begin + count;
    std::int64_t done = 0;
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t call = std::min(end - at, max_call_bytes / kElementBytes);
        for (const Box& box : boxes_of_range(dataset.shape, at, call)) {
            const std::vector<hsize_t> start(box.start.begin(), box.start.end());
            const std::vector<hsize_t> extent(box.extent.begin(), box.extent.end());
            if (!start.empty()) {  // a scalar has nothing to select
                hdf5::check<ErrorType>(
                    H5Sselect_hyperslab(file_space.id(), H5S_SELECT_SET, start.data(), nullptr,
                                        extent.data(), nullptr),
                    label);
            }
            const auto length = static_cast<hsize_t>(box.count);
            const Handle memory_space =
                hdf5::own<ErrorType>(H5Screate_simple(1, &length, nullptr), H5Sclose, label);
            transfer(memory_space.id(), file_space.id(), done);
            done += box.count;
        }
        at += call;
    }
}

/// Adds the paths of datasets below `group`. Only hard links count: others lead anywhere.
void list_datasets(hid_t group, const std::string& prefix, const std::string& file, int depth,
                   std::vector<std::string>& paths) {
    constexpr int kMostGroups = 16;  // hard links may form a ring
    if (depth > kMostGroups) throw DataError(fmt::format("{}: groups nest too deep", file));
    H5G_info_t info;
    hdf5::check<DataError>(H5Gget_info(group, &info), file);
    for (hsize_t i = 0; i < info.nlinks; ++i) {
        const auto name_of = [&](char* out, std::size_t bytes) {
            return hdf5::check<DataError>(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC,
                                                             i, out, bytes, H5P_DEFAULT),
                                          file);
        };
        std::string name(static_cast<std::size_t>(name_of(nullptr, 0)), '\0');
        name_of(name.data(), name.size() + 1);
        H5L_info_t link;
        hdf5::check<DataError>(H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT), file);
        if (link.type != H5L_TYPE_HARD) continue;
        const std::string path = prefix + "/" + name;
        const Handle object = hdf5::own<DataError>(H5Oopen(group, name.c_str(), H5P_DEFAULT),
                                                   H5Oclose, file + ": " + path);
        const H5I_type_t type = H5Iget_type(object.id());
        if (type == H5I_DATASET) paths.push_back(path);
        if (type == H5I_GROUP) list_datasets(object.id(), path, file, depth + 1, paths);
    }
}

}  // namespace

StateFile StateFile::open(const std::filesystem::path& path) {
    const hdf5::SilentErrors silent;
    const std::string name = path.string();
    const Handle access = hdf5::file_access<DataError>(name);
    return StateFile(
        hdf5::check<DataError>(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.id()), name));
}

StateFile StateFile::open_to_write(const std::filesystem::path& path) {
    const hdf5::SilentErrors silent;
    const std::string name = path.string();
    const Handle access = hdf5::file_access<RunError>(name);
    return StateFile(hdf5::check<RunError>(H5Fopen(name.c_str(), H5F_ACC_RDWR, access.id()), name));
}

StateFile::StateFile(std::int64_t hdf5_file)
    : impl_(std::make_unique<Impl>(Impl{Handle(hdf5_file, H5Fclose), {}})) {
    const hdf5::SilentErrors silent;
    const auto length = hdf5::check<RunError>(H5Fget_name(hdf5_file, nullptr, 0), "HDF5 file");
    impl_->name.resize(static_cast<std::size_t>(length));
    H5Fget_name(hdf5_file, impl_->name.data(), impl_->name.size() + 1);
}

StateFile::~StateFile() {
    const hdf5::SilentErrors silent;
    impl_.reset();
}
StateFile::StateFile(StateFile&&) noexcept = default;
StateFile& StateFile::operator=(StateFile&&) noexcept = default;

std::vector<std::int64_t> StateFile::shape(const std::string& dataset) const {
    const hdf5::SilentErrors silent;
    return open_dataset(impl_->file.id(), dataset, impl_->label(dataset)).shape;
}

DType StateFile::dtype(const std::string& dataset) const {
    const hdf5::SilentErrors silent;
    return open_dataset(impl_->file.id(), dataset, impl_->label(dataset)).dtype;
}

std::optional<std::int64_t> StateFile::file_offset(const std::string& dataset) const {
    const hdf5::SilentErrors silent;
    const OpenDataset open = open_dataset(impl_->file.id(), dataset, impl_->label(dataset));
    const haddr_t offset = H5Dget_offset(open.id.id());
    if (offset == HADDR_UNDEF) return std::nullopt;
    return static_cast<std::int64_t>(offset);
}

void StateFile::read(const std::string& dataset, std::int64_t begin, std::span<float> out) const {
    const hdf5::SilentErrors silent;
    const std::string label = impl_->label(dataset);
    const OpenDataset open = open_dataset(impl_->file.id(), dataset, label);
    const Handle type = hdf5::float_type(open.dtype);
    const auto count = static_cast<std::int64_t>(out.size());
    // Half-width values are widened here: HDF5's own conversion takes them bit by bit.
    std::vector<std::byte> half;
    if (open.dtype != DType::kFloat32) half.resize(out.size() * 2);
    TypedSpan raw = out;
    if (!half.empty()) {
        raw.data = half.data();
        raw.dtype = open.dtype;
    }
    for_each_piece<DataError>(open, begin, count, kMaxCallBytes, label,
                              [&](hid_t memory, hid_t file, std::int64_t first) {
                                  hdf5::check<DataError>(
                                      H5Dread(open.id.id(), type.id(), memory, file, H5P_DEFAULT,
                                              raw.part(first, count - first).data),
                                      label);
                              });
    if (!half.empty()) kernels::widen(raw, out);
}

void StateFile::write(const std::string& dataset, std::int64_t begin, std::span<const float> values,
                      std::int64_t max_call_bytes) const {
    const hdf5::SilentErrors silent;
    const std::string label = impl_->label(dataset);
    const OpenDataset open = open_dataset(impl_->file.id(), dataset, label);
    ensure(open.dtype == DType::kFloat32, "only float32 datasets are written through HDF5");
    for_each_piece<RunError>(open, begin, static_cast<std::int64_t>(values.size()), max_call_bytes,
                             label, [&](hid_t memory, hid_t file, std::int64_t first) {
                                 hdf5::check<RunError>(
                                     H5Dwrite(open.id.id(), H5T_IEEE_F32LE, memory, file,
                                              H5P_DEFAULT, values.data() + first),
                                     label);
                             });
}

std::vector<std::string> StateFile::datasets() const {
    const hdf5::SilentErrors silent;
    std::vector<std::string> paths;
    list_datasets(impl_->file.id(), "", impl_->name, 0, paths);
    std::ranges::sort(paths);
    return paths;
}

void StateFile::close() {
    const hdf5::SilentErrors silent;
    hdf5::check<RunError>(impl_->file.reset() ? 0 : -1, impl_->name);
}

}  // namespace fullshard::checkpoint
