#include "model/simple_transformer.h"

#include "base/error.h"
#include "model/transformer_stages.h"

#include <utility>

namespace fullshard::model {

Parameter ParameterList::take(std::initializer_list<std::int64_t> shape) {
    ensure(!empty(), "a stage gets all its parameters");
    const Parameter& parameter = parameters_[next_++];
    ensure(parameter.value.is_leaf() && parameter.value.sizes() == at::IntArrayRef(shape),
           "parameters of a stage are leaves in the order and the shapes of its spec");
    return parameter;
}

namespace {

class SimpleTransformerModel final : public Model {
  public:
    explicit SimpleTransformerModel(const spec::SimpleTransformer& model)
        : model_(model), spec_(spec::describe(model)) {}

    const spec::ModelSpec& spec() const override { return spec_; }

    std::unique_ptr<Stage> make_stage(std::size_t index,
                                      std::vector<Parameter> parameters) const override {
        ensure(index < spec_.stages.size(), "a model has an embedding, its layers and a head");
        ParameterList list(std::move(parameters));
        std::unique_ptr<Stage> stage;
        if (index == 0) {
            stage = make_embedding(model_, list);
        } else if (index + 1 < spec_.stages.size()) {
            stage = make_encoder_layer(model_, list);
        } else {
            stage = make_head(model_, list);
        }
        ensure(list.empty(), "a stage gets no parameters but its own");
        return stage;
    }

  private:
    spec::SimpleTransformer model_;
    spec::ModelSpec spec_;
};

}  // namespace

std::shared_ptr<const Model> make_simple_transformer(const spec::SimpleTransformer& model) {
    return std::make_shared<SimpleTransformerModel>(model);
}

}  // namespace fullshard::model
