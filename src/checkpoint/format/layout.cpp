#include "checkpoint/format/layout.h"

#include "base/error.h"
#include "checkpoint/format/hdf5.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace fullshard::checkpoint {
namespace {

// Tensors above the threshold start on a page, so that writers of neighbouring tensors share none.
constexpr hsize_t kAlignmentThreshold = 64 << 10;
constexpr hsize_t kAlignment = 4096;
// Object headers lie together instead of between the tensors.
constexpr hsize_t kMetadataBlock = 64 << 10;

using hdf5::Handle;

class Layout {
  public:
    explicit Layout(const std::filesystem::path& path) : path_(path.string()) {
        const Handle access = hdf5::file_access<RunError>(path_);
        // 1.10 is the oldest release that reads what is written here, whichever release writes it.
        check(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110));
        check(H5Pset_alignment(access.id(), kAlignmentThreshold, kAlignment));
        check(H5Pset_meta_block_size(access.id(), kMetadataBlock));
        check(H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG));
        const Handle root = own(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
        keep_creation_order(root);
        file_ = own(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, root.id(), access.id()), H5Fclose);

        // Early allocation fixes the offsets; without a fill the space is not written twice.
        dataset_ = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        check(H5Pset_layout(dataset_.id(), H5D_CONTIGUOUS));
        check(H5Pset_alloc_time(dataset_.id(), H5D_ALLOC_TIME_EARLY));
        check(H5Pset_fill_time(dataset_.id(), H5D_FILL_TIME_NEVER));
        check(H5Pset_obj_track_times(dataset_.id(), false));
        group_ = own(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
        keep_creation_order(group_);
        link_ = own(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
        check(H5Pset_char_encoding(link_.id(), H5T_CSET_UTF8));
    }

    /// Returns where the raw data begins.
    std::int64_t add(const DatasetShape& dataset) {
        const Handle created = create(dataset, dataset_.id());
        const haddr_t offset = H5Dget_offset(created.id());
        if (offset == HADDR_UNDEF) {
            throw RunError(fmt::format("{}: {}: no space is allocated", path_, dataset.path));
        }
        return static_cast<std::int64_t>(offset);
    }

    void add_view(const ViewShape& view) {
        const Handle properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        const float missing = std::numeric_limits<float>::quiet_NaN();
        check(H5Pset_fill_value(properties.id(), H5T_NATIVE_FLOAT, &missing));
        check(H5Pset_obj_track_times(properties.id(), false));
        for (const ViewShape::Piece& piece : view.pieces) map(view.dataset, piece, properties);
        create(view.dataset, properties.id());
    }

    void close() { check(file_.reset() ? 0 : -1); }

  private:
    void keep_creation_order(const Handle& group_properties) const {
        check(H5Pset_link_creation_order(group_properties.id(),
                                         H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
        check(H5Pset_obj_track_times(group_properties.id(), false));
    }

    /// Groups are made here and not by HDF5 on the way, because those would keep no order.
    void make_groups(const std::string& dataset) {
        for (auto end = dataset.find('/', 1); end != dataset.npos;
             end = dataset.find('/', end + 1)) {
            const std::string group = dataset.substr(0, end);
            if (check(H5Lexists(file_.id(), group.c_str(), H5P_DEFAULT)) > 0) continue;
            own(H5Gcreate2(file_.id(), group.c_str(), H5P_DEFAULT, group_.id(), H5P_DEFAULT),
                H5Gclose, group);
        }
    }

    Handle space_of(const DatasetShape& dataset) const {
        const std::vector<hsize_t> extents(dataset.shape.begin(), dataset.shape.end());
        return own(extents.empty() ? H5Screate(H5S_SCALAR)
                                   : H5Screate_simple(static_cast<int>(extents.size()),
                                                      extents.data(), nullptr),
                   H5Sclose, dataset.path);
    }

    Handle create(const DatasetShape& dataset, hid_t properties) {
        make_groups(dataset.path);
        const Handle space = space_of(dataset);
        const Handle type = hdf5::float_type(dataset.dtype);
        return own(H5Dcreate2(file_.id(), dataset.path.c_str(), type.id(), space.id(), link_.id(),
                              properties, H5P_DEFAULT),
                   H5Dclose, dataset.path);
    }

    /// Regular selections only: one a box, because readers of other makes know little else.
    void map(const DatasetShape& view, const ViewShape::Piece& piece,
             const Handle& properties) const {
        const auto length = static_cast<hsize_t>(piece.source_length);
        const Handle source = own(H5Screate_simple(1, &length, nullptr), H5Sclose, view.path);
        const Handle target = space_of(view);
        auto begin = static_cast<hsize_t>(piece.source_begin);
        for (const Box& box : boxes_of_range(view.shape, piece.begin, piece.count)) {
            const auto count = static_cast<hsize_t>(box.count);
            check(
                H5Sselect_hyperslab(source.id(), H5S_SELECT_SET, &begin, nullptr, &count, nullptr));
            const std::vector<hsize_t> start(box.start.begin(), box.start.end());
            const std::vector<hsize_t> extent(box.extent.begin(), box.extent.end());
            if (!start.empty()) {  // a scalar has nothing to select
                check(H5Sselect_hyperslab(target.id(), H5S_SELECT_SET, start.data(), nullptr,
                                          extent.data(), nullptr));
            }
            check(H5Pset_virtual(properties.id(), target.id(), piece.file.c_str(),
                                 view.path.c_str(), source.id()));
            begin += count;
        }
    }

    template <typename Status>
    Status check(Status status) const {
        return hdf5::check<RunError>(status, path_);
    }
    Handle own(hid_t id, Handle::Close free, const std::string& object = {}) const {
        return hdf5::own<RunError>(id, free, object.empty() ? path_ : path_ + ": " + object);
    }

    hdf5::SilentErrors silent_;
    std::string path_;
    Handle file_, dataset_, group_, link_;
};

}  // namespace

void lay_out_views(const std::filesystem::path& file, std::span<const ViewShape> views) {
    Layout layout(file);
    for (const ViewShape& view : views) layout.add_view(view);
    layout.close();
    PosixFile::open_to_write(file).sync();
}

std::vector<std::int64_t> lay_out(const std::filesystem::path& file,
                                  std::span<const DatasetShape> datasets) {
    std::vector<std::int64_t> offsets;
    offsets.reserve(datasets.size());
    Layout layout(file);
    for (const DatasetShape& dataset : datasets) offsets.push_back(layout.add(dataset));
    layout.close();
    const PosixFile closed = PosixFile::open_to_write(file);
    closed.reserve(closed.size());
    return offsets;
}

}  // namespace fullshard::checkpoint
