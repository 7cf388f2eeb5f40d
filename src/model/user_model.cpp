#include "model/user_model.h"

#include "base/error.h"
#include "base/rng.h"
#include "model/stage.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

namespace fullshard::model {

namespace {

/// Each tensor once, under the first of its names.
std::vector<ModuleTensor> distinct(const std::vector<ModuleTensor>& tensors) {
    std::vector<ModuleTensor> result;
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const ModuleTensor& entry : tensors) {
        if (seen.insert(entry.tensor.unsafeGetTensorImpl()).second) result.push_back(entry);
    }
    return result;
}

/// Makes the module's parameters views of the caller's memory, in place: handles that the module
/// keeps elsewhere see it too.
std::vector<Parameter> bind_parameters(const UserModule& module,
                                       std::vector<Parameter> parameters) {
    const std::vector<ModuleTensor> own = distinct(module.parameters);
    ensure(own.size() == parameters.size(), "a stage gets all its parameters and no others");
    for (std::size_t i = 0; i < own.size(); ++i) {
        at::Tensor leaf = own[i].tensor;
        const at::Tensor& view = parameters[i].value;
        ensure(leaf.sizes() == view.sizes(), "parameters of a stage have the shapes of its spec");
        leaf.set_requires_grad(false);
        leaf.set_data(view);
        leaf.set_requires_grad(view.requires_grad());
        parameters[i].value = std::move(leaf);
    }
    return parameters;
}

/// A module on bound parameters.
class BoundModule {
  public:
    BoundModule(std::string name, UserModule module, const std::vector<Parameter>& parameters)
        : name_(std::move(name)), module_(std::move(module)) {
        if (!parameters.empty()) compute_type_ = parameters.front().value.scalar_type();
        note_versions();
    }

    void set_buffer_type(at::ScalarType type) {
        for (ModuleTensor& buffer : module_.buffers) {
            if (buffer.tensor.is_floating_point()) buffer.tensor.set_data(buffer.tensor.to(type));
        }
        note_versions();
    }

    at::Tensor run(const at::Tensor& x, const MicroBatch& batch) {
        if (training_ != batch.training) module_.set_training(batch.training);
        training_ = batch.training;
        // A buffer of a wider type may have widened what the stage before computed.
        const bool cast = x.defined() && x.is_floating_point() && compute_type_;
        const at::Tensor input = !x.defined() ? batch.tokens : cast ? x.to(*compute_type_) : x;
        const auto version = input._version();
        at::Tensor out = module_.forward(input);
        // The stage before owns it, and a checkpointed stage starts from it again.
        if (input._version() != version) {
            throw UsageError(c10::str("stage '", name_,
                                      "' changes its input in place: let it compute a new tensor"));
        }
        if (!out.defined() || !out.is_floating_point()) {
            throw UsageError(c10::str("stage '", name_,
                                      "' gives no floating-point tensor: only the first stage sees "
                                      "tokens, and each hands one tensor of numbers to the next"));
        }
        require_constant_buffers();
        return out;
    }

    const std::string& name() const { return name_; }

  private:
    void note_versions() {
        versions_.clear();
        for (const ModuleTensor& buffer : module_.buffers) {
            versions_.push_back(buffer.tensor._version());
        }
    }

    /// What ranks changed for themselves would be neither averaged nor saved.
    void require_constant_buffers() const {
        for (std::size_t i = 0; i < versions_.size(); ++i) {
            if (module_.buffers[i].tensor._version() == versions_[i]) continue;
            throw UsageError(c10::str(
                "stage '", name_, "' changes its buffer '", module_.buffers[i].name,
                "' while it runs, but buffers are constants here: use a module without running "
                "statistics (for BatchNorm track_running_stats(false))"));
        }
    }

    std::string name_;
    UserModule module_;
    std::optional<at::ScalarType> compute_type_;
    std::vector<std::uint32_t> versions_;
    std::optional<bool> training_;
};

class ModuleStage final : public Stage {
  public:
    ModuleStage(std::vector<Parameter> parameters, BoundModule module)
        : Stage(std::move(parameters)), module_(std::move(module)) {}

    void set_buffer_type(at::ScalarType type) override { module_.set_buffer_type(type); }
    at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) override {
        return module_.run(x, batch);
    }

  private:
    BoundModule module_;
};

class ModuleHead final : public HeadStage {
  public:
    ModuleHead(std::vector<Parameter> parameters, BoundModule module)
        : HeadStage(std::move(parameters)), module_(std::move(module)) {}

    void set_buffer_type(at::ScalarType type) override { module_.set_buffer_type(type); }

    at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) override {
        const at::Tensor rows = logits(x, batch).flatten(0, 1).to(at::kFloat);
        return at::cross_entropy_loss(rows, batch.targets.flatten(), /*weight=*/{},
                                      at::Reduction::None, MicroBatch::kIgnoredTarget)
            .sum(at::kDouble)
            .mul(batch.loss_factor)
            .to(at::kFloat);
    }

    at::Tensor logits(const at::Tensor& x, const MicroBatch& batch) override {
        at::Tensor out = module_.run(x, batch);
        if (out.dim() != 3 || out.sizes().slice(0, 2) != batch.targets.sizes()) {
            throw UsageError(c10::str("the last stage '", module_.name(),
                                      "' gives a tensor of shape ", out.sizes(),
                                      " for targets of shape ", batch.targets.sizes(),
                                      ": give logits, [batch, sequence, vocabulary]"));
        }
        return out;
    }

  private:
    BoundModule module_;
};

/// Full name of the parameter that `name` is tied to by the first tie that fits; empty if none.
std::string tied_name(const std::string& name, const std::vector<Tie>& ties,
                      std::vector<bool>& used) {
    for (std::size_t i = 0; i < ties.size(); ++i) {
        if (!name.starts_with(ties[i].name)) continue;
        const std::string rest = name.substr(ties[i].name.size());
        if (!rest.empty() && rest.front() != '.') continue;
        used[i] = true;
        return ties[i].to + rest;
    }
    return {};
}

class SpecReader {
  public:
    explicit SpecReader(const std::vector<Tie>& ties) : ties_(ties), used_(ties.size()) {}

    spec::StageSpec read(const UserStage& stage) {
        spec::StageSpec result{stage.name, {}, stage.block};
        for (const auto& [name, tensor] : distinct(stage.build().parameters)) {
            result.parameters.push_back(parameter(stage.prefix + name, tensor));
        }
        // Only now: a parameter is tied to one of an earlier stage.
        for (const spec::ParameterSpec& parameter : result.parameters) {
            if (!known_.emplace(parameter.name, parameter).second) {
                throw UsageError(c10::str("two parameters of the model are called '",
                                          parameter.name, "': give stages different names"));
            }
        }
        return result;
    }

    void require_used_ties() const {
        for (std::size_t i = 0; i < ties_.size(); ++i) {
            if (used_[i]) continue;
            throw UsageError(c10::str("no parameter is called '", ties_[i].name, "' or '",
                                      ties_[i].name, ".*', which is to be tied to '", ties_[i].to,
                                      "'"));
        }
    }

  private:
    spec::ParameterSpec parameter(const std::string& name, const at::Tensor& tensor) {
        if (!tensor.is_floating_point()) {
            throw UsageError(
                c10::str("parameter '", name, "' is no floating-point tensor: make it a buffer"));
        }
        spec::ParameterSpec result{
            .name = name,
            .shape = tensor.sizes().vec(),
            .decay = tensor.dim() > 1 ? spec::DecayClass::kDecay : spec::DecayClass::kNoDecay,
            .init = {spec::InitRule::Kind::kModule},
            .trainable = tensor.requires_grad()};
        const std::string other = tied_name(name, ties_, used_);
        if (other.empty()) return result;
        const auto found = known_.find(other);
        if (found == known_.end()) {
            throw UsageError(c10::str("parameter '", name, "' cannot be tied to '", other,
                                      "': no earlier stage has that"));
        }
        if (found->second.shape != result.shape) {
            throw UsageError(c10::str("parameter '", name, "' cannot be tied to '", other,
                                      "': its shape is ", at::IntArrayRef(result.shape),
                                      ", the other's ", at::IntArrayRef(found->second.shape)));
        }
        const spec::ParameterSpec& target = found->second;
        result.tied_to = target.tied_to.empty() ? target.name : target.tied_to;
        result.trainable = target.trainable;
        return result;
    }

    const std::vector<Tie>& ties_;
    std::vector<bool> used_;
    std::map<std::string, spec::ParameterSpec> known_;
};

class UserModel final : public Model {
  public:
    UserModel(std::string family, std::vector<UserStage> stages, const std::vector<Tie>& ties)
        : stages_(std::move(stages)), spec_{std::move(family), {}} {
        if (stages_.empty()) throw UsageError("a model has at least one stage");
        SpecReader reader(ties);
        for (const UserStage& stage : stages_) spec_.stages.push_back(reader.read(stage));
        reader.require_used_ties();
    }

    const spec::ModelSpec& spec() const override { return spec_; }

    std::unique_ptr<Stage> make_stage(std::size_t index, std::vector<Parameter> parameters,
                                      const Computing& /*computing*/) const override {
        const UserStage& stage = stages_.at(index);
        seed_generator(index);  // equal buffers on all ranks, random ones too
        UserModule module = stage.build();
        parameters = bind_parameters(module, std::move(parameters));
        BoundModule bound(stage.name, std::move(module), parameters);
        if (index + 1 < stages_.size()) {
            return std::make_unique<ModuleStage>(std::move(parameters), std::move(bound));
        }
        return std::make_unique<ModuleHead>(std::move(parameters), std::move(bound));
    }

    bool uses_gemm() const override { return false; }

    std::vector<std::vector<float>> initial_values(std::size_t index,
                                                   std::uint64_t seed) const override {
        seed_generator(mix(seed, index));
        const std::vector<ModuleTensor> tensors = distinct(stages_.at(index).build().parameters);
        std::vector<std::vector<float>> values(tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (!spec_.stages[index].parameters[i].tied_to.empty()) continue;
            const at::Tensor flat = tensors[i].tensor.detach().to(at::kFloat).contiguous();
            const float* const first = flat.const_data_ptr<float>();
            values[i].assign(first, first + flat.numel());
        }
        return values;
    }

  private:
    std::vector<UserStage> stages_;
    spec::ModelSpec spec_;
};

}  // namespace

std::shared_ptr<const Model> make_user_model(std::string family, std::vector<UserStage> stages,
                                             const std::vector<Tie>& ties) {
    return std::make_shared<UserModel>(std::move(family), std::move(stages), ties);
}

}  // namespace fullshard::model
