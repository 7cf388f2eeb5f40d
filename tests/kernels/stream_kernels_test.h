// The tests that every implementation of StreamKernels passes, with references that share nothing
// with them. A program instantiates them for the implementations that it has.
#pragma once

#include "kernels/stream_rig.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace fullshard::kernels {

class StreamKernelsTest : public ::testing::TestWithParam<testing::StreamRigMaker> {
  protected:
    void SetUp() override {
        if (const auto& why_absent = GetParam().why_absent) {
            const std::string reason = why_absent();
            if (!reason.empty()) GTEST_SKIP() << reason;
        }
        rig_.emplace(GetParam().make());
    }

    std::optional<testing::StreamRig> rig_;
};

inline std::string rig_name(const ::testing::TestParamInfo<testing::StreamRigMaker>& info) {
    return info.param.name;
}

}  // namespace fullshard::kernels
