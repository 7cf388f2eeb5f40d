// A torch-free description of a model: what sharding, planning and checkpoints need to know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::spec {

/// Whether weight decay applies (matrices) or not (norms and biases).
enum class DecayClass : std::uint8_t { kDecay, kNoDecay };

/// How a parameter starts. Values are a function of (seed, name, element index) only.
struct InitRule {
    enum class Kind : std::uint8_t {
        kConstant,  ///< every element is `scale`
        kUniform,   ///< uniform in [-scale, scale)
        kNormal,    ///< normal with mean 0 and standard deviation `scale`
    };
    Kind kind = Kind::kConstant;
    double scale = 0.0;
};

struct ParameterSpec {
    std::string name;                 ///< full name, unique in the model, as PyTorch would call it
    std::vector<std::int64_t> shape;  ///< row-major
    DecayClass decay = DecayClass::kDecay;
    InitRule init;
    bool trainable = true;

    std::int64_t numel() const;
};

/// A module that is run as a whole; stages are executed in order.
struct StageSpec {
    std::string name;
    std::vector<ParameterSpec> parameters;

    std::int64_t numel() const;
};

struct ModelSpec {
    std::string family;
    std::vector<StageSpec> stages;

    std::int64_t numel() const;
};

/// Writes elements [first, first + count) of the parameter's initial value, row-major, to `out`.
/// A pure function of (seed, parameter.name, element): the same at any world size.
void initialize(const ParameterSpec& parameter, std::uint64_t seed, std::int64_t first,
                std::int64_t count, float* out);

}  // namespace fullshard::spec
