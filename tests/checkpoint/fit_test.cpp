#include "checkpoint/format/fit.h"

#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

namespace fullshard::checkpoint {
namespace {

/// What check_state() says about a checkpoint for a model of two parameters.
class FitTest : public testing::Test {
  protected:
    std::string error() const {
        return toy::error_of([&] { check_state(manifest_, model_, "ORIGIN"); });
    }
    void drop(State state, std::string_view parameter) {
        std::erase_if(manifest_.tensors, [&](const TensorEntry& entry) {
            return entry.state == state && entry.parameter == parameter;
        });
    }

    std::vector<NamedShape> model_ = {{"weight", {2, 3}}, {"gain", {}}};
    Manifest manifest_ = [this] {
        Manifest manifest;
        for (const NamedShape& parameter : model_) {
            for (const State state : kStates) {
                manifest.tensors.push_back({parameter.parameter, state, parameter.shape, {}, {}});
            }
        }
        return manifest;
    }();
};

TEST_F(FitTest, AllStatesOfAllParameters) {
    EXPECT_EQ(error(), "no error");
}

TEST_F(FitTest, FrozenParametersNeedNoMoments) {
    drop(State::kFirstMoment, "gain");
    drop(State::kSecondMoment, "gain");
    model_[1].trainable = false;
    EXPECT_EQ(error(), "no error");
}

TEST_F(FitTest, MomentsOfAParameterThatIsFrozenNowAreLeftAlone) {
    model_[1].trainable = false;
    EXPECT_EQ(error(), "no error");
}

TEST_F(FitTest, TrainableParametersNeedBothMoments) {
    drop(State::kSecondMoment, "gain");
    EXPECT_EQ(error(),
              "ORIGIN does not fit the model: optimizer/exp_avg_sq/gain is missing (was the "
              "parameter frozen?)");
}

TEST_F(FitTest, FrozenParametersNeedTheirWeights) {
    for (const State state : kStates) drop(state, "gain");
    model_[1].trainable = false;
    EXPECT_EQ(error(), "ORIGIN does not fit the model: gain is missing");
}

TEST_F(FitTest, EveryMismatchIsNamedOnce) {
    for (const State state : kStates) drop(state, "gain");
    model_.push_back({"scale", {1}});
    model_[0].shape = {3, 2};
    EXPECT_EQ(error(),
              "ORIGIN does not fit the model: weight has shape [2, 3] instead of [3, 2]; gain is "
              "missing; scale is missing; optimizer/exp_avg/weight has shape [2, 3] instead of [3, "
              "2]; optimizer/exp_avg_sq/weight has shape [2, 3] instead of [3, 2]");
    model_.erase(model_.begin());
    EXPECT_TRUE(toy::contains(error(), "weight is not in the model"));
}

TEST_F(FitTest, MomentsCanBeLeftOut) {
    drop(State::kSecondMoment, "gain");
    EXPECT_EQ(toy::error_of([&] { check_state(manifest_, model_, "ORIGIN", false); }), "no error");
    EXPECT_TRUE(differences(manifest_, model_, false).empty());
    EXPECT_EQ(differences(manifest_, model_).size(), 1u);
}

TEST_F(FitTest, OnlyBeforeTheFirstUpdateMomentsMayBeMissingAltogether) {
    EXPECT_TRUE(has_moments(manifest_));
    std::erase_if(manifest_.tensors,
                  [](const auto& entry) { return entry.state != State::kModel; });
    EXPECT_FALSE(has_moments(manifest_));
    manifest_.progress.optimizer_step = 1;
    EXPECT_TRUE(has_moments(manifest_));
}

TEST_F(FitTest, ScalarIsNoVectorOfOne) {
    model_[1].shape = {1};
    EXPECT_TRUE(toy::contains(error(), "gain has shape [] instead of [1]"));
}

}  // namespace
}  // namespace fullshard::checkpoint
