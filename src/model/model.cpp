#include "model/model.h"

namespace fullshard::model {

std::vector<std::vector<float>> Model::initial_values(std::size_t index,
                                                      std::uint64_t /*seed*/) const {
    return std::vector<std::vector<float>>(spec().stages.at(index).parameters.size());
}

}  // namespace fullshard::model
