#include "doctor/groups.h"

namespace fullshard::doctor {

std::vector<NamedGroup> groups_of(const Subject& subject) {
    const comm::Group& world = subject.world();
    std::vector<NamedGroup> groups{{"world", world}};
    if (subject.topology.nodes() == 1) return groups;
    if (subject.topology.nodes() < world.size()) groups.push_back({"node", subject.topology.node});
    const comm::Mesh mesh =
        comm::make_mesh(subject.topology, world.size(), subject.request.deck.comm.node_shared);
    const comm::Group& lane = mesh.lanes.lane;
    if (lane.size() < world.size()) groups.push_back({"between nodes", lane});
    return groups;
}

}  // namespace fullshard::doctor
