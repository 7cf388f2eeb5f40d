#include "checkpoint/export/torch_file.h"

#include "checkpoint/export/pickle.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

namespace fullshard::checkpoint {
namespace {

std::string_view storage_class(DType dtype) {
    if (dtype == DType::kBFloat16) return "BFloat16Storage";
    return dtype == DType::kFloat16 ? "HalfStorage" : "FloatStorage";
}

/// torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)
void add_tensor(Pickle& pickle, const ExportTensor& tensor, std::size_t storage) {
    const std::vector<std::int64_t>& shape = tensor.source->shape;
    pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
    pickle.mark().text("storage").global("torch", storage_class(tensor.dtype));
    pickle.text(fmt::to_string(storage)).text("cpu").integer(tensor.source->numel());
    pickle.tuple().persistent().integer(0);
    pickle.mark();
    for (const std::int64_t extent : shape) pickle.integer(extent);
    pickle.tuple().mark();
    std::int64_t stride = tensor.source->numel();
    for (const std::int64_t extent : shape) pickle.integer(stride /= extent);
    pickle.tuple().no();
    pickle.global("collections", "OrderedDict").mark().tuple().call();
    pickle.tuple().call();
}

void add_tensors(Pickle& pickle, std::span<const ExportTensor> tensors, State state) {
    pickle.dict().mark();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].source->state != state) continue;
        pickle.text(tensors[i].source->parameter);
        add_tensor(pickle, tensors[i], i);
    }
    pickle.set_items();
}

std::string pickled(std::span<const ExportTensor> tensors, std::int64_t optimizer_step) {
    Pickle pickle;
    const bool weights_alone = std::ranges::all_of(
        tensors, [](const auto& tensor) { return tensor.source->state == State::kModel; });
    if (weights_alone) {
        add_tensors(pickle, tensors, State::kModel);
        return pickle.finish();
    }
    pickle.dict().mark();
    add_tensors(pickle.text("model"), tensors, State::kModel);
    add_tensors(pickle.text("exp_avg"), tensors, State::kFirstMoment);
    add_tensors(pickle.text("exp_avg_sq"), tensors, State::kSecondMoment);
    pickle.text("optimizer_step").integer(optimizer_step).set_items();
    return pickle.finish();
}

std::uint32_t crc_of(const std::string& text) {
    return static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

}  // namespace

TorchFile::TorchFile(std::span<const ExportTensor> tensors, std::int64_t optimizer_step) {
    // Readers take the folder's name from the first member.
    const auto add = [&](const char* name, std::string content) {
        const auto bytes = static_cast<std::int64_t>(content.size());
        texts_.push_back({std::move(content), layout_.add(fmt::format("archive/{}", name), bytes)});
    };
    add("data.pkl", pickled(tensors, optimizer_step));
    add("byteorder", "little");
    add("version", "3\n");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        offsets_.push_back(layout_.add(fmt::format("archive/data/{}", i), tensors[i].bytes()));
    }
}

void TorchFile::write_structure(const PosixFile& file, std::span<const std::uint32_t> crcs) const {
    const auto write = [&](std::int64_t offset, const std::string& bytes) {
        file.write_at(offset, std::as_bytes(std::span(bytes)));
    };
    std::vector<std::uint32_t> all;
    for (const Text& text : texts_) {
        all.push_back(crc_of(text.content));
        write(text.offset, text.content);
    }
    all.insert(all.end(), crcs.begin(), crcs.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const ZipLayout::Header header = layout_.header(i, all[i]);
        write(header.offset, header.bytes);
    }
    const ZipLayout::Header directory = layout_.directory(all);
    write(directory.offset, directory.bytes);
}

}  // namespace fullshard::checkpoint
