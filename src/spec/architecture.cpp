#include "spec/architecture.h"

#include <variant>

namespace fullshard::spec {

ModelSpec describe(const Architecture& architecture) {
    return std::visit([](const auto& model) { return describe(model); }, architecture);
}

}  // namespace fullshard::spec
