// A torch-free description of a model: what sharding, planning and checkpoints need to know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::spec {

/// Whether weight decay applies. The rule is that matrices decay (two dimensions or more, embedding
/// and position tables included, as in PyTorch's AdamW) and vectors do not (norms and biases).
enum class DecayClass : std::uint8_t { kDecay, kNoDecay };

/// How a parameter starts. Values are a function of (seed, name, element index) only.
struct InitRule {
    enum class Kind : std::uint8_t {
        kConstant,  ///< every element is `scale`
        kUniform,   ///< uniform in [-scale, scale)
        kNormal,    ///< normal with mean 0 and standard deviation `scale`
        kModule,    ///< what the stage's own module says (models that are built from user code)
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
    /// Full name of the parameter of an earlier stage that this one is: same shape, same memory,
    /// one gradient. Empty: a parameter of its own. `decay`, `init` and `trainable` are the
    /// other's.
    std::string tied_to = {};
    /// Rows at the end that only round the shape up: they start as zeros, and as no gradient ever
    /// reaches them they stay so.
    std::int64_t padding_rows = 0;

    std::int64_t numel() const;
    std::int64_t padding_numel() const;  ///< elements of the padding rows
};

/// A module that is run as a whole; stages are executed in order. A module that is used twice is
/// two stages, all parameters of the second one tied to those of the first.
struct StageSpec {
    std::string name;
    std::vector<ParameterSpec> parameters;
    bool block = false;  ///< one of the repeated blocks, which activation checkpointing counts

    std::int64_t numel() const;  ///< without tied parameters
};

struct ModelSpec {
    std::string family;
    std::vector<StageSpec> stages;

    std::int64_t numel() const;  ///< tied parameters count once
};

/// Writes elements [first, first + out.size()) of the parameter's initial value, row-major.
/// A pure function of (seed, parameter.name, element): the same however the range is cut and at any
/// world size. Element i is drawn from RandomStream(mix(seed, stable_hash(name))) at counter i in
/// double precision and rounded once; padding rows are zeros. Throws LogicError for a range outside
/// the parameter.
void initialize(const ParameterSpec& parameter, std::uint64_t seed, std::int64_t first,
                std::span<float> out);

}  // namespace fullshard::spec
