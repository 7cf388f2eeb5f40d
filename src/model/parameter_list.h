// A stage's parameters, handed out one by one.
#pragma once

#include "kernels/gemm.h"
#include "model/parameter.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace fullshard::model {

/// Hands out a stage's parameters in the order of its spec and checks their shapes; knows the
/// library that multiplies by them, which must outlive the stage.
class ParameterList {
  public:
    ParameterList(std::vector<Parameter> parameters, const kernels::Gemm& gemm)
        : parameters_(std::move(parameters)), gemm_(&gemm) {}

    Parameter take(std::initializer_list<std::int64_t> shape);
    const kernels::Gemm& gemm() const { return *gemm_; }
    const std::vector<Parameter>& all() const { return parameters_; }
    bool empty() const { return next_ == parameters_.size(); }

  private:
    std::vector<Parameter> parameters_;
    const kernels::Gemm* gemm_;
    std::size_t next_ = 0;
};

}  // namespace fullshard::model
