#include "checkpoint/format/layout.h"

#include "base/error.h"
#include "checkpoint/format/hdf5.h"
#include "checkpoint/format/posix_file.h"

#include <fmt/format.h>

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
        make_groups(dataset.path);
        const std::vector<hsize_t> extents(dataset.shape.begin(), dataset.shape.end());
        const Handle space =
            own(extents.empty()
                    ? H5Screate(H5S_SCALAR)
                    : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                H5Sclose, dataset.path);
        const Handle created = own(H5Dcreate2(file_.id(), dataset.path.c_str(), H5T_IEEE_F32LE,
                                              space.id(), link_.id(), dataset_.id(), H5P_DEFAULT),
                                   H5Dclose, dataset.path);
        const haddr_t offset = H5Dget_offset(created.id());
        if (offset == HADDR_UNDEF) {
            throw RunError(fmt::format("{}: {}: no space is allocated", path_, dataset.path));
        }
        return static_cast<std::int64_t>(offset);
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

std::vector<std::int64_t> lay_out(const std::filesystem::path& file,
                                  std::span<const DatasetShape> datasets) {
    std::vector<std::int64_t> offsets;
    offsets.reserve(datasets.size());
    Layout layout(file);
    for (const DatasetShape& dataset : datasets) offsets.push_back(layout.add(dataset));
    layout.close();
    const PosixFile closed = PosixFile::open_to_sync(file);
    closed.reserve(closed.size());
    closed.sync();
    return offsets;
}

}  // namespace fullshard::checkpoint
