#include "train/metrics.h"

#include "base/error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace fullshard::train {
namespace {

TEST(Metrics, ARecordThatTheDiskDoesNotTakeIsAnError) {
    Metrics metrics("/dev/full", /*writes=*/true);
    try {
        metrics.write("step", {{"step", 1}});
        FAIL() << "a record was lost silently";
    } catch (const RunError& error) {
        EXPECT_NE(std::string(error.what()).find("cannot write /dev/full"), std::string::npos);
    }
}

TEST(Metrics, AFileThatCannotBeOpenedIsAnErrorOfTheRankThatWrites) {
    EXPECT_THROW(Metrics("/proc/no/metrics.jsonl", /*writes=*/true), RunError);
    Metrics other("/proc/no/metrics.jsonl", /*writes=*/false);
    EXPECT_NO_THROW(other.write("step", {{"step", 1}}));
}

}  // namespace
}  // namespace fullshard::train
