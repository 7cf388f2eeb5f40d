// The entry of the device module that gives the program NCCL.
#include "comm/nccl/nccl_checks.h"
#include "comm/nccl/nccl_mesh.h"
#include "comm/nccl_entry.h"
#include "comm/waiter.h"

namespace fullshard::comm {

namespace {

class Entry final : public NcclEntry {
  public:
    std::unique_ptr<StreamMesh> make_mesh(const Group& world, const Group& shard_group,
                                          const Group& replicas, device::Device& device,
                                          Progress& progress, const NcclOptions& options,
                                          const std::string& process) const override {
        set_process_name(process);
        return make_nccl_mesh(world, shard_group, replicas, device, progress, options);
    }
    std::vector<std::string> environment_notes() const override { return nccl_environment_notes(); }
};

}  // namespace

}  // namespace fullshard::comm

extern "C" [[gnu::visibility("default")]] void* fullshard_nccl() {
    static fullshard::comm::Entry entry;
    return static_cast<fullshard::comm::NcclEntry*>(&entry);
}
