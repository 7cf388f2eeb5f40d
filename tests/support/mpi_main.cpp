// main() of MPI tests: all ranks run all tests in the same order; a failure on any rank fails the
// test on every rank, and a wrong number of ranks fails the whole run.
#include "comm/mpi_session.h"
#include "support/mpi_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace fullshard::testing {
namespace {

constexpr double kTimeoutSeconds = 40.0;
std::optional<comm::Group> the_world;

/// After each test the ranks agree on the result, so that no rank goes on alone.
class AgreeOnResults : public ::testing::EmptyTestEventListener {
    void OnTestEnd(const ::testing::TestInfo& info) override {
        std::array<std::int64_t, 1> failed{info.result()->Failed() ? 1 : 0};
        world().all_reduce(failed, comm::Reduction::kMax);
        if (failed[0] != 0 && !info.result()->Failed()) {
            ADD_FAILURE() << "rank " << world().rank()
                          << " passed, but the test failed on another rank";
        }
    }
};

/// Ranks other than 0 only speak when something fails.
void quiet_other_ranks() {
    if (world().rank() == 0) return;
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    class Failures : public ::testing::EmptyTestEventListener {
        void OnTestPartResult(const ::testing::TestPartResult& result) override {
            if (!result.failed()) return;
            std::fputs(fmt::format("rank {}: {}:{}: {}\n", world().rank(),
                                   result.file_name() ? result.file_name() : "",
                                   result.line_number(), result.message())
                           .c_str(),
                       stderr);
        }
    };
    listeners.Append(new Failures);
}

}  // namespace

const comm::Group& world() {
    return *the_world;
}

}  // namespace fullshard::testing

int main(int argc, char** argv) {
    using namespace fullshard;
    comm::MpiSession session(argc, argv);
    ::testing::InitGoogleTest(&argc, argv);
    constexpr std::string_view kExpect = "--expect-ranks=";
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word.starts_with(kExpect) &&
            std::atoi(word.substr(kExpect.size()).data()) != session.size()) {
            comm::MpiSession::abort(
                fmt::format("{} but MPI started {} ranks", word, session.size()), 1);
        }
    }
    fullshard::testing::the_world = comm::Group::world(fullshard::testing::kTimeoutSeconds);
    fullshard::testing::quiet_other_ranks();
    ::testing::UnitTest::GetInstance()->listeners().Append(new fullshard::testing::AgreeOnResults);
    int status = 1;
    try {
        status = RUN_ALL_TESTS();
    } catch (const std::exception& error) {
        comm::MpiSession::abort(error.what(), 1);
    }
    fullshard::testing::the_world.reset();
    return status;
}
