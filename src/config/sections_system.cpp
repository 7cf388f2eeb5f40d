// Keys of ranks and nodes, communication, checkpoints, compute threads and faults.
#include "config/key_binding.h"

namespace fullshard::config {

Section topology_section() {
    return {"topology",
            "How ranks lie on nodes.",
            {key("topology.ranks_per_node", &Deck::topology, &Topology::ranks_per_node,
                 Integer{0, kMaxRanks}, "ranks",
                 "Pretend that a node holds this many ranks (for tests on one machine). 0: ask the "
                 "hardware.")}};
}

Section comm_section() {
    const auto s = &Deck::comm;
    const Choice<Backend> backends{{{"mpi", Backend::kMpi}}};
    return {"comm",
            "How ranks talk to each other.",
            {key("comm.backend", s, &Comm::backend, backends, "", "Library that moves the bytes."),
             key("comm.node_shared", s, &Comm::node_shared, Boolean{}, "",
                 "Ranks of a node exchange data through shared memory instead of messages."),
             key("comm.timeout_s", s, &Comm::timeout_s, Real{.min_open = true}, "s",
                 "A rank that waits longer than this for the others ends the job.")}};
}

Section checkpoint_section() {
    const auto s = &Deck::checkpoint;
    return {"checkpoint",
            "What a run can be continued from: folders run.dir/checkpoints/step-NNNNNNNN.",
            {key("checkpoint.every", s, &Checkpoint::every, Integer{0, kMaxCount}, "steps",
                 "Steps from one checkpoint to the next; the last step writes one too. 0: none, "
                 "except when the run is asked to stop."),
             key("checkpoint.keep_last", s, &Checkpoint::keep_last, Integer{0, kMaxCount}, "",
                 "Newest checkpoints to keep. 0: all."),
             key("checkpoint.resume", s, &Checkpoint::resume, Path{}, "",
                 "auto: go on from the newest whole checkpoint in run.dir, if there is one. "
                 "never: start afresh. Else the path of a checkpoint, or of a run that has "
                 "some.")}};
}

Section kernels_section() {
    const auto s = &Deck::kernels;
    return {"kernels",
            "How a rank computes.",
            {key("kernels.threads", s, &Kernels::threads, Integer{1, 1024}, "threads",
                 "Compute threads of each rank. Equal results need equal numbers of threads.")}};
}

Section fault_section() {
    const auto s = &Deck::fault;
    return {"fault",
            "Faults on purpose, for tests only; the log announces them.",
            {key("fault.throw_at_step", s, &Fault::throw_at_step, Integer{0, kMaxCount}, "steps",
                 "The step, counted from 1, in which rank fault.rank throws. 0: never."),
             key("fault.rank", s, &Fault::rank, Integer{0, kMaxRanks}, "", "The rank that throws."),
             key("fault.delay_us", s, &Fault::delay_us, Integer{0, 10'000'000}, "us",
                 "Longest random delay of a rank at each synchronisation point. 0: none."),
             key("fault.poison", s, &Fault::poison, Boolean{}, "",
                 "Fill parameter and gradient slots with NaN between uses.")}};
}

}  // namespace fullshard::config
