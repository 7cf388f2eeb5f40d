// A stage's parameters, handed out one by one.
#pragma once

#include "model/parameter.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace fullshard::model {

/// Hands out a stage's parameters in the order of its spec and checks their shapes.
class ParameterList {
  public:
    explicit ParameterList(std::vector<Parameter> parameters)
        : parameters_(std::move(parameters)) {}

    Parameter take(std::initializer_list<std::int64_t> shape);
    const std::vector<Parameter>& all() const { return parameters_; }
    bool empty() const { return next_ == parameters_.size(); }

  private:
    std::vector<Parameter> parameters_;
    std::size_t next_ = 0;
};

}  // namespace fullshard::model
