// The tests that every implementation of StreamKernels passes, with references that share nothing
// with them. A program instantiates them for the implementations that it has.
#pragma once

#include "kernels/stream_rig.h"

#include <gtest/gtest.h>

namespace fullshard::kernels {

class StreamKernelsTest : public ::testing::TestWithParam<testing::StreamRigMaker> {
  protected:
    testing::StreamRig rig_ = GetParam().make();
};

inline std::string rig_name(const ::testing::TestParamInfo<testing::StreamRigMaker>& info) {
    return info.param.name;
}

}  // namespace fullshard::kernels
