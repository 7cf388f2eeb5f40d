#include "comm/nccl_rig.h"

#include <algorithm>

namespace fullshard::testing {

NcclGroups nccl_groups(int shard_group_size) {
    const int rank = world().rank();
    return {world().split(rank / shard_group_size, rank, "shard group"),
            world().split(rank % shard_group_size, rank, "replicas")};
}

NcclTest::NcclTest() = default;

// The shim's messages of one test must not meet those of the next.
NcclTest::~NcclTest() {
    world().barrier();
}

std::unique_ptr<comm::StreamMesh> NcclTest::start(const NcclGroups& groups) {
    return comm::make_nccl_mesh(world(), groups.shard_group, groups.replicas, gpu_, progress_,
                                options_);
}

std::string NcclTest::agreed_error(ExitCode code, const std::function<void()>& work) {
    std::string text = "no error";
    try {
        work();
        ADD_FAILURE() << "no error";
    } catch (const comm::AgreedError& error) {
        text = error.what();
        EXPECT_EQ(error.exit_code(), code) << text;
    }
    const std::vector<std::string> texts = world().all_gather(text);
    EXPECT_TRUE(std::ranges::all_of(texts, [&](const auto& other) { return other == text; }))
        << text;
    return text;
}

std::string NcclTest::failed_start(ExitCode code) {
    const NcclGroups groups = nccl_groups(size());
    std::string text = agreed_error(code, [&] { start(groups); });
    EXPECT_EQ(shim_.communicators, 0);
    return text;
}

::testing::AssertionResult has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess() << text;
    return ::testing::AssertionFailure() << "no '" << part << "' in '" << text << "'";
}

::testing::AssertionResult has(const std::vector<std::string>& list, const std::string& item) {
    if (std::ranges::find(list, item) != list.end()) return ::testing::AssertionSuccess() << item;
    return ::testing::AssertionFailure() << "no " << item;
}

std::vector<std::string> call_texts(const NcclShim& shim) {
    std::vector<std::string> texts;
    for (const NcclCall& call : shim.calls) {
        texts.push_back(call.comm.empty() ? call.function : call.function + " " + call.comm);
    }
    return texts;
}

}  // namespace fullshard::testing
