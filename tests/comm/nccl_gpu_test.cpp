// On GPUs: NCCL itself, started over MPI through the device module, against closed forms. Where
// ranks outnumber GPUs they share them, each with a NCCL_HOSTID of its own.
#include "base/error.h"
#include "comm/exact_numbers.h"
#include "comm/nccl_entry.h"
#include "comm/waiter.h"
#include "device/device_module.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {
namespace {

class NcclGpuTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(device::DeviceModule::installed_file()))
            GTEST_SKIP() << "this build has no device module";
        try {
            open();
        } catch (const RunError& error) {
            GTEST_SKIP() << error.what();
        }
    }
    void TearDown() override {
        if (mesh_ != nullptr) mesh_->close();
    }

    /// Shard groups of two ranks where their number is even, else one of all.
    int shard_size() const { return size() % 2 == 0 ? 2 : size(); }
    int rank() const { return world().rank(); }
    int size() const { return world().size(); }

    void start() {
        const comm::Group shard_group = world().split(rank() / shard_size(), rank(), "shard group");
        const comm::Group replicas = world().split(rank() % shard_size(), rank(), "replicas");
        mesh_ =
            module_->entry<const comm::NcclEntry>(comm::NcclEntry::kFunction)
                .make_mesh(world(), shard_group, replicas, *device_, progress_,
                           {.start_timeout_s = 60.0, .cuda_device = number_}, comm::process_name());
        stream_ = device_->make_stream("collectives");
        event_ = device_->make_event();
    }

    /// Runs `collective` on device memory that holds `values` and gives back what it holds then.
    template <typename T, typename Collective>
    std::vector<T> on_device(const std::vector<T>& values, Collective collective) {
        const std::int64_t bytes = std::ssize(values) * static_cast<std::int64_t>(sizeof(T));
        const device::Buffer memory = device_->allocate("test", bytes);
        const device::Buffer staged =
            device_->allocate("test", bytes, device::Placement::kPinnedHost);
        const TypedSpan on_host = staged.typed(DTypeOf<T>::value);
        const TypedSpan on_gpu = memory.typed(DTypeOf<T>::value);
        std::ranges::copy(values, on_host.as<T>().begin());
        stream_->copy(on_host, on_gpu);
        collective(on_gpu);
        stream_->copy(on_gpu, on_host);
        stream_->record(*event_);
        mesh_->wait(*device_, *event_);
        return {on_host.as<T>().begin(), on_host.as<T>().end()};
    }

    template <typename T>
    std::vector<T> contributions(std::int64_t count) const {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = number<T>(contribution(rank(), i));
        }
        return values;
    }

    /// What FULL_SHARD and HYBRID call for a unit: gather, reduce over the group, then the
    /// replicas.
    template <typename T>
    void expect_closed_forms() {
        auto& group = mesh_->shard_group();
        const int first = rank() / shard_size() * shard_size();
        for (const std::int64_t block : {1, 1001, 1 << 20}) {
            const std::int64_t count = block * shard_size();
            const auto gathered = on_device(contributions<T>(count), [&](TypedSpan all) {
                group.all_gather(adjacent_blocks(all, shard_size()), *stream_);
            });
            const auto reduced = on_device(contributions<T>(count), [&](TypedSpan all) {
                const TypedSpan own = all.part(group.rank() * block, block);
                group.reduce_scatter(adjacent_blocks(all, shard_size()), own, *stream_);
                mesh_->replicas().all_reduce(own, *stream_);
            });
            const auto sent = on_device(contributions<T>(count), [&](TypedSpan all) {
                group.broadcast(all, shard_size() - 1, *stream_);
            });
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const int owner = static_cast<int>(i / block);
                ASSERT_EQ(integer(gathered[at]), contribution(first + owner, i));
                ASSERT_EQ(integer(sent[at]), contribution(first + shard_size() - 1, i));
                if (owner == group.rank()) {
                    ASSERT_EQ(integer(reduced[at]), sum_over(size(), i));
                }
            }
        }
    }

  private:
    void open() {
        module_ = std::make_unique<device::DeviceModule>();
        const int gpus = module_->cuda().count();
        number_ = rank() % gpus;
        device_ = module_->cuda().open(number_, comm::process_name());
        if (size() <= gpus) return;
        ::setenv("NCCL_HOSTID", ("rank" + std::to_string(rank())).c_str(), 1);
        ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        ::setenv("NCCL_NVLS_ENABLE", "0", 1);
        ::setenv("NCCL_MAX_CTAS", "2", 1);
    }

    std::unique_ptr<device::DeviceModule> module_;
    int number_ = 0;
    comm::Progress progress_;
    std::unique_ptr<device::Device> device_;
    std::unique_ptr<device::Stream> stream_;
    std::unique_ptr<device::Event> event_;

  protected:
    std::unique_ptr<comm::StreamMesh> mesh_;  ///< gone before the device
};

TEST_F(NcclGpuTest, CollectivesMatchTheClosedForms) {
    start();
    expect_closed_forms<float>();
    expect_closed_forms<BFloat16>();
}

TEST_F(NcclGpuTest, MeshStartsAgainAfterAnAbort) {
    start();
    EXPECT_TRUE(mesh_->abort());
    start();
    expect_closed_forms<float>();
}

}  // namespace
}  // namespace fullshard::testing
