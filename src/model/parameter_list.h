// A stage's parameters, handed out one by one.
#pragma once

#include "model/computing.h"
#include "model/parameter.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace fullshard::model {

/// Hands out a stage's parameters in the order of its spec and checks their shapes; knows who
/// computes with them.
class ParameterList {
  public:
    ParameterList(std::vector<Parameter> parameters, const Computing& computing)
        : parameters_(std::move(parameters)), computing_(computing) {}

    Parameter take(std::initializer_list<std::int64_t> shape);
    const Computing& computing() const { return computing_; }
    const std::vector<Parameter>& all() const { return parameters_; }
    bool empty() const { return next_ == parameters_.size(); }

  private:
    std::vector<Parameter> parameters_;
    Computing computing_;
    std::size_t next_ = 0;
};

}  // namespace fullshard::model
