#include "checkpoint/exchange/model_weights.h"

#include "base/error.h"
#include "checkpoint/exchange/mapping.h"
#include "checkpoint/exchange/rearrange.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using InFile = std::map<std::string_view, const WeightsSource::Tensor*>;

std::string shape_text(std::span<const std::int64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Whether a safetensors file of GPT-2 is one that FullShard wrote under its own names:
/// transformers has them too, and its matrices the other way around. That of c_attn is never
/// square.
bool has_our_layout(const InFile& in_file, const std::vector<MappedTensor>& ours) {
    return std::ranges::any_of(ours, [&](const MappedTensor& tensor) {
        const auto found = in_file.find(tensor.ours);
        return tensor.ours.ends_with(".attn.c_attn.weight") && found != in_file.end() &&
               found->second->shape == tensor.shape;
    });
}

/// Which tensors of a file are which parameters, and what does not fit.
class Plan {
  public:
    Plan(const fs::path& path, const spec::Architecture& architecture)
        : architecture_(architecture) {
        const WeightsPlace place = locate_weights(path);
        path_ = place.path;
        source_ = open_weights(place.path);
        for (const auto& tensor : source_->tensors()) in_file_.emplace(tensor.name, &tensor);
        names_ = names_of(place.kind);
        for (MappedTensor& tensor : map_parameters(architecture, names_)) add(std::move(tensor));
        for (const auto& tensor : source_->tensors()) {
            if (in_file_.contains(tensor.name)) look_at_extra(tensor);
        }
    }

    const std::vector<MappedTensor>& found() const { return found_; }
    const std::vector<std::string>& passed_over() const { return passed_over_; }
    std::vector<std::string>& problems() { return problems_; }
    std::unique_ptr<WeightsSource> take_source() { return std::move(source_); }
    void require_fit() const {
        if (problems_.empty()) return;
        throw DataError(fmt::format("{} does not fit the model: {}", path_.string(),
                                    fmt::join(problems_, "; ")));
    }

  private:
    NamesOf names_of(WeightsKind kind) const {
        switch (kind) {
            case WeightsKind::kCheckpoint:
            case WeightsKind::kHdf5:
                return NamesOf::kFullShard;
            case WeightsKind::kSafetensors:
                return has_our_layout(in_file_, map_parameters(architecture_, NamesOf::kFullShard))
                           ? NamesOf::kFullShard
                           : NamesOf::kTransformers;
            case WeightsKind::kGguf:
                return NamesOf::kLlamaCpp;
            case WeightsKind::kLlmc:
                return NamesOf::kLlmc;
        }
        throw LogicError("unknown kind of weights");
    }

    /// Takes a tensor out of the list of those that nobody has asked for.
    const WeightsSource::Tensor* take(std::string_view name) {
        auto found = in_file_.find(name);
        if (found == in_file_.end() && names_ == NamesOf::kTransformers) {
            found = in_file_.find(without_model_prefix(name));
        }
        if (found == in_file_.end()) return nullptr;
        const WeightsSource::Tensor* tensor = found->second;
        in_file_.erase(found);
        return tensor;
    }

    void add(MappedTensor&& tensor) {
        const WeightsSource::Tensor* file = take(tensor.theirs);
        if (file == nullptr) {
            problems_.push_back(
                tensor.theirs == tensor.ours
                    ? fmt::format("{} is missing", tensor.ours)
                    : fmt::format("{} is missing (it is {} here)", tensor.theirs, tensor.ours));
            return;
        }
        if (!file->unread_type.empty()) {
            problems_.push_back(
                fmt::format("{} is of type {}, which is not read", file->name, file->unread_type));
            return;
        }
        // Our own files have the padding of the model that they were written for.
        const bool fits =
            file->shape == tensor.their_shape ||
            (tensor.arrangement == Arrangement::kPaddedRows && file->shape == tensor.shape);
        if (!fits) {
            problems_.push_back(fmt::format("{} has shape {} instead of {}", file->name,
                                            shape_text(file->shape),
                                            shape_text(tensor.their_shape)));
            return;
        }
        tensor.theirs = file->name;
        found_.push_back(std::move(tensor));
    }

    void look_at_extra(const WeightsSource::Tensor& tensor) {
        if (tensor.name == head_name(names_) && ties_embeddings(architecture_)) {
            if (const auto problem = problem_of_tied_head(tensor)) {
                problems_.push_back(*problem);
            } else {
                passed_over_.push_back(fmt::format("{} (tied)", tensor.name));
            }
        } else if (tensor.name == "rope_freqs.weight" && !scales_as_llama3()) {
            problems_.push_back(fmt::format(
                "{} asks for rotary frequencies that the model does not have (Llama 3's scaling)",
                tensor.name));
        } else if (is_computed(tensor.name)) {
            passed_over_.push_back(tensor.name);
        } else {
            problems_.push_back(fmt::format("{} is not in the model", tensor.name));
        }
    }

    bool scales_as_llama3() const {
        const auto* llama = std::get_if<spec::Llama>(&architecture_);
        return llama != nullptr && llama->rope.scaling == spec::Rope::Scaling::kLlama3;
    }

    /// A head that the model ties to its table and the file has apart must be the same numbers.
    std::optional<std::string> problem_of_tied_head(const WeightsSource::Tensor& head) {
        const auto table =
            std::ranges::find(found_, Arrangement::kPaddedRows, &MappedTensor::arrangement);
        if (table == found_.end()) return fmt::format("{} is tied to what is missing", head.name);
        const auto place =
            std::ranges::find(source_->tensors(), table->theirs, &WeightsSource::Tensor::name);
        if (head.shape != place->shape) {
            return fmt::format("{} has shape {} instead of {}, that of {}, to which it is tied",
                               head.name, shape_text(head.shape), shape_text(place->shape),
                               table->theirs);
        }
        if (!head.unread_type.empty()) {
            return fmt::format("{} is of type {}, which is not read", head.name, head.unread_type);
        }
        constexpr std::int64_t kAtOnce = std::int64_t{1} << 18;
        std::vector<float> left, right;
        for (std::int64_t begin = 0; begin < numel(head.shape); begin += kAtOnce) {
            const auto count =
                static_cast<std::size_t>(std::min(kAtOnce, numel(head.shape) - begin));
            left.resize(count);
            right.resize(count);
            source_->read(head.name, begin, left);
            source_->read(table->theirs, begin, right);
            if (std::memcmp(left.data(), right.data(), count * sizeof(float)) == 0) continue;
            return fmt::format(
                "{} differs from {}, to which the model ties it (tie_word_embeddings)", head.name,
                table->theirs);
        }
        return std::nullopt;
    }

    const spec::Architecture& architecture_;
    fs::path path_;
    std::unique_ptr<WeightsSource> source_;
    InFile in_file_;  ///< tensors that nobody has asked for yet
    NamesOf names_ = NamesOf::kFullShard;
    std::vector<MappedTensor> found_;
    std::vector<std::string> passed_over_;
    std::vector<std::string> problems_;
};

class ModelWeights : public WeightsSource {
  public:
    ModelWeights(std::unique_ptr<WeightsSource> source, std::vector<MappedTensor> mapped,
                 std::int64_t head_size, std::int64_t vocab_size)
        : source_(std::move(source)), head_size_(head_size), vocab_size_(vocab_size) {
        for (MappedTensor& tensor : mapped) {
            tensors_.push_back({tensor.ours, tensor.shape});
            std::string name = tensor.ours;
            places_.emplace(std::move(name), std::move(tensor));
        }
    }
    const std::vector<Tensor>& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override {
        const auto found = places_.find(parameter);
        if (found == places_.end()) {
            throw DataError(fmt::format("the weights have no parameter {}", parameter));
        }
        const MappedTensor& tensor = found->second;
        const auto count = static_cast<std::int64_t>(out.size());
        if (begin < 0 || count > numel(tensor.shape) - begin) {
            throw DataError(
                fmt::format("{}: elements from {} on, {} of them, are outside of its {}", parameter,
                            begin, count, numel(tensor.shape)));
        }
        const ReadTheirs read = [&](std::int64_t first, std::span<float> values) {
            source_->read(tensor.theirs, first, values);
        };
        switch (tensor.arrangement) {
            case Arrangement::kSame:
                return read(begin, out);
            case Arrangement::kTransposed:
                return read_transposed(read, tensor.shape, begin, out);
            case Arrangement::kRotaryRows:
                return read_rotary_rows(read, tensor.shape, head_size_, begin, out);
            case Arrangement::kPaddedRows:
                return read_padded(read, vocab_size_ * tensor.shape.back(), begin, out);
        }
        throw LogicError("unknown arrangement");
    }

  private:
    std::unique_ptr<WeightsSource> source_;
    std::vector<Tensor> tensors_;
    std::map<std::string, MappedTensor, std::less<>> places_;
    std::int64_t head_size_;
    std::int64_t vocab_size_;
};

/// A line of the table: all layers of one parameter.
struct Line {
    std::string ours;
    std::string theirs;
    std::string arrangement;
};

/// "transformer.h.{0..11}.ln_1.weight [768]"
std::string named_shape(const LayerName& name, std::int64_t last_layer,
                        std::span<const std::int64_t> shape) {
    std::string text = name.pattern;
    const std::string layers = last_layer > 0 ? fmt::format("{{0..{}}}", last_layer) : "0";
    if (name.layer) text.replace(text.find("{}"), 2, layers);
    return fmt::format("{} {}", text, shape_text(shape));
}

}  // namespace

std::unique_ptr<WeightsSource> open_model_weights(const fs::path& path,
                                                  const spec::Architecture& architecture,
                                                  std::vector<std::string>* left_out) {
    Plan plan(path, architecture);
    if (left_out == nullptr) {
        plan.require_fit();
    } else {
        *left_out = std::move(plan.problems());
    }
    return std::make_unique<ModelWeights>(plan.take_source(), plan.found(),
                                          head_size_of(architecture), vocab_size_of(architecture));
}

std::string mapping_text(const fs::path& path, const spec::Architecture& architecture) {
    Plan plan(path, architecture);
    plan.require_fit();
    std::vector<Line> lines;
    std::size_t ours_width = 0, theirs_width = 0;
    const std::int64_t last_layer =
        std::visit([](const auto& model) { return model.num_layers; }, architecture) - 1;
    for (const MappedTensor& tensor : plan.found()) {
        const LayerName ours = layer_name(tensor.ours);
        if (ours.layer.value_or(0) > 0) continue;
        lines.push_back({named_shape(ours, last_layer, tensor.shape),
                         named_shape(layer_name(tensor.theirs), last_layer, tensor.their_shape),
                         std::string(name_of(tensor.arrangement))});
        ours_width = std::max(ours_width, lines.back().ours.size());
        theirs_width = std::max(theirs_width, lines.back().theirs.size());
    }
    std::string text = fmt::format("{:<{}}  {:<{}}  rearranged\n", "parameter", ours_width,
                                   "in the file", theirs_width);
    for (const Line& line : lines) {
        text += fmt::format("{:<{}}  {:<{}}  {}\n", line.ours, ours_width, line.theirs,
                            theirs_width, line.arrangement);
    }
    for (const std::string& name : plan.passed_over()) {
        text += fmt::format("passed over: {}\n", name);
    }
    return text;
}

}  // namespace fullshard::checkpoint
