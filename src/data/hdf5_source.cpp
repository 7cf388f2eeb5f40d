#include "data/hdf5_source.h"

#include "base/error.h"
#include "data/file_list.h"
#include "data/mapped_tokens.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::data {
namespace {

namespace fs = std::filesystem;

/// Stops HDF5 from printing its errors for as long as it lives.
class SilentErrors {
  public:
    SilentErrors() {
        H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
        H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    }
    ~SilentErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
    SilentErrors(const SilentErrors&) = delete;
    SilentErrors& operator=(const SilentErrors&) = delete;

  private:
    H5E_auto2_t function_ = nullptr;
    void* data_ = nullptr;
};

/// An HDF5 identifier, closed on every path.
class Handle {
  public:
    using Close = herr_t (*)(hid_t);
    Handle(hid_t id, Close close) : id_(id), close_(close) {}
    ~Handle() {
        if (id_ >= 0) close_(id_);
    }
    Handle(Handle&& other) noexcept
        : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
    Handle& operator=(Handle&&) = delete;
    hid_t id() const { return id_; }

  private:
    hid_t id_;
    Close close_;
};

/// What HDF5 says of its last failure: the innermost message of its error stack.
std::string hdf5_reason() {
    std::string reason = "HDF5 gives no reason";
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned depth, const H5E_error2_t* error, void* text) -> herr_t {
            if (depth == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
            return 0;
        },
        &reason);
    return reason;
}

/// Reads the datasets of one file; messages name it.
class File {
  public:
    explicit File(const fs::path& path)
        : path_(path),
          file_(own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access().id()), H5Fclose,
                    "it is no HDF5 file, or damaged")) {}

    [[noreturn]] void fail(std::string_view what) const {
        throw DataError(fmt::format("{}: {}", path_.string(), what));
    }

    bool has(const char* dataset) const {
        return check(H5Lexists(file_.id(), dataset, H5P_DEFAULT), dataset) > 0;
    }

    Handle dataset(const char* name) const {
        return own(H5Dopen2(file_.id(), name, H5P_DEFAULT), H5Dclose, name);
    }

    /// Elements of a 1-D dataset.
    std::int64_t length(const Handle& dataset, const char* name) const {
        const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, name);
        hsize_t count = 0;
        if (H5Sget_simple_extent_ndims(space.id()) != 1 ||
            H5Sget_simple_extent_dims(space.id(), &count, nullptr) != 1)
            fail(fmt::format("dataset {} should have one dimension", name));
        if (count > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max()))
            fail(fmt::format("dataset {} has {} elements", name, count));
        return static_cast<std::int64_t>(count);
    }

    /// Where in the file a dataset that is stored in one piece begins.
    std::int64_t place(const Handle& dataset, const char* name) const {
        const Handle creation = own(H5Dget_create_plist(dataset.id()), H5Pclose, name);
        if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS ||
            H5Pget_external_count(creation.id()) != 0)
            fail(
                fmt::format("dataset {} is stored in chunks, compressed or elsewhere: store it in "
                            "one piece, as h5py does unless asked for more",
                            name));
        const haddr_t offset = H5Dget_offset(dataset.id());
        if (offset == HADDR_UNDEF ||
            offset > static_cast<haddr_t>(std::numeric_limits<std::int64_t>::max()))
            fail(fmt::format("dataset {} was never written", name));
        return static_cast<std::int64_t>(offset);
    }

    TokenType token_type(const Handle& dataset, const char* name) const {
        const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, name);
        constexpr std::array kTypes{TokenType::kU8,  TokenType::kI8,  TokenType::kU16,
                                    TokenType::kI16, TokenType::kU32, TokenType::kI32,
                                    TokenType::kU64, TokenType::kI64};
        const std::array<hid_t, 8> standard{H5T_STD_U8LE,  H5T_STD_I8LE,  H5T_STD_U16LE,
                                            H5T_STD_I16LE, H5T_STD_U32LE, H5T_STD_I32LE,
                                            H5T_STD_U64LE, H5T_STD_I64LE};
        for (std::size_t i = 0; i < kTypes.size(); ++i)
            if (H5Tequal(type.id(), standard[i]) > 0) return kTypes[i];
        fail(fmt::format("dataset {} should hold little-endian integers of 8 to 64 bits", name));
    }

    /// Bytes, or the enumeration of two values that h5py makes of booleans.
    void require_bytes(const Handle& dataset, const char* name) const {
        const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, name);
        const H5T_class_t kind = H5Tget_class(type.id());
        if ((kind != H5T_INTEGER && kind != H5T_ENUM) || H5Tget_size(type.id()) != 1)
            fail(fmt::format("dataset {} should hold 8-bit integers", name));
    }

    std::vector<std::int64_t> read_integers(const Handle& dataset, const char* name,
                                            std::int64_t count) const {
        const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, name);
        if (H5Tget_class(type.id()) != H5T_INTEGER)
            fail(fmt::format("dataset {} should hold integers", name));
        std::vector<std::int64_t> values(static_cast<std::size_t>(count));
        check(H5Dread(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
              name);
        return values;
    }

    /// A number that is attached to the dataset or to the file as a whole.
    std::optional<std::int64_t> attribute(const Handle& dataset, const char* name) const {
        for (const hid_t owner : {dataset.id(), file_.id()}) {
            if (check(H5Aexists(owner, name), name) == 0) continue;
            const Handle attribute = own(H5Aopen(owner, name, H5P_DEFAULT), H5Aclose, name);
            const Handle space = own(H5Aget_space(attribute.id()), H5Sclose, name);
            const Handle type = own(H5Aget_type(attribute.id()), H5Tclose, name);
            if (H5Sget_simple_extent_npoints(space.id()) != 1 ||
                H5Tget_class(type.id()) != H5T_INTEGER)
                fail(fmt::format("attribute {} should be one integer", name));
            std::int64_t value = 0;
            check(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), name);
            return value;
        }
        return std::nullopt;
    }

    void require_no_user_block() const {
        const Handle creation = own(H5Fget_create_plist(file_.id()), H5Pclose, "file");
        hsize_t bytes = 0;
        check(H5Pget_userblock(creation.id(), &bytes), "file");
        if (bytes != 0) fail("files with a user block are not read");
    }

  private:
    /// Locked as far as the file system knows locks: some parallel ones do not.
    Handle access() const {
        Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
        check(H5Pset_file_locking(access.id(), true, true), "file access");
        return access;
    }

    template <typename Status>
    Status check(Status status, std::string_view what) const {
        if (status < 0) fail(fmt::format("{}: {}", what, hdf5_reason()));
        return status;
    }
    Handle own(hid_t id, Handle::Close close, std::string_view what) const {
        return {check(id, what), close};
    }

    fs::path path_;
    Handle file_;
};

/// Appends the starts of a file's documents, whose first token is `first` of the stream.
void append_documents(const File& file, std::int64_t first, std::int64_t tokens,
                      std::vector<std::int64_t>& documents) {
    const Handle dataset = file.dataset("documents");
    const std::int64_t count = file.length(dataset, "documents");
    if (count > tokens)  // also bounds the memory that a damaged file asks for
        file.fail(fmt::format("{} documents in {} tokens", count, tokens));
    std::int64_t before = 0;
    const auto starts = file.read_integers(dataset, "documents", count);
    for (std::size_t d = 0; d < starts.size(); ++d) {
        if (starts[d] < before || starts[d] >= tokens || (d == 0 && starts[d] != 0))
            file.fail(
                fmt::format("documents[{}] = {}: should ascend from 0 and be less than the "
                            "{} tokens; the one before it begins at {}",
                            d, starts[d], tokens, before));
        before = starts[d];
        if (documents.empty() || documents.back() < first + before)
            documents.push_back(first + before);
    }
}

struct Stream {
    std::vector<TokenFile> files;
    std::vector<std::int64_t> documents;
    std::int64_t tokens = 0;
};

void append_file(const fs::path& path, std::int64_t vocab_size, Stream& stream) {
    TokenFile part{.file = MappedFile(path)};
    const File file(path);
    file.require_no_user_block();
    if (!file.has("tokens")) file.fail("there is no dataset tokens");
    const Handle tokens = file.dataset("tokens");
    part.count = file.length(tokens, "tokens");
    part.type = file.token_type(tokens, "tokens");
    if (part.count == 0) file.fail("dataset tokens is empty");
    part.first_byte = file.place(tokens, "tokens");
    if (part.count > part.file.size() / size_of(part.type))
        file.fail(fmt::format("dataset tokens has {} elements of {} bytes, the file {} bytes",
                              part.count, size_of(part.type), part.file.size()));
    const auto vocabulary = file.attribute(tokens, "vocab_size");
    if (vocabulary && *vocabulary > vocab_size)
        file.fail(fmt::format("made for a vocabulary of {}, but model.vocab_size = {}", *vocabulary,
                              vocab_size));
    if (file.has("loss_mask")) {
        const Handle mask = file.dataset("loss_mask");
        file.require_bytes(mask, "loss_mask");
        if (const auto count = file.length(mask, "loss_mask"); count != part.count)
            file.fail(fmt::format("loss_mask has {} elements, tokens {}", count, part.count));
        part.loss_mask_byte = file.place(mask, "loss_mask");
    }
    const bool tells_documents = file.has("documents");
    if (!stream.files.empty() && tells_documents == stream.documents.empty())
        file.fail("some of the files tell documents apart and others do not: they do not mix");
    if (tells_documents) append_documents(file, stream.tokens, part.count, stream.documents);
    stream.tokens += part.count;
    stream.files.push_back(std::move(part));
}

}  // namespace

std::shared_ptr<const TokenSource> open_hdf5(const fs::path& path, std::int64_t vocab_size) {
    const SilentErrors silent;
    Stream stream;
    for (const auto& file : list_files(path, {".h5", ".hdf5"}))
        append_file(file, vocab_size, stream);
    return std::make_shared<MappedTokens>(path, std::move(stream.files),
                                          std::move(stream.documents), vocab_size);
}

}  // namespace fullshard::data
