// Keys of ranks and nodes, communication, checkpoints, compute threads, devices, traces and faults.
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
    const Choice<Backend> backends{
        {{"auto", Backend::kAuto}, {"mpi", Backend::kMpi}, {"nccl", Backend::kNccl}}};
    const Choice<ProgressThread> threads{{{"auto", ProgressThread::kAuto},
                                          {"on", ProgressThread::kOn},
                                          {"off", ProgressThread::kOff}}};
    return {
        "comm",
        "How ranks talk to each other.",
        {key("comm.backend", s, &Comm::backend, backends, "",
             "Library that moves parameters and gradients. auto: mpi where ranks compute on CPUs, "
             "nccl "
             "where they compute on devices. Everything else is always MPI's."),
         key("comm.node_shared", s, &Comm::node_shared, Boolean{}, "",
             "Ranks of a node exchange data through shared memory instead of messages."),
         key("comm.timeout_s", s, &Comm::timeout_s, Real{.min_open = true}, "s",
             "A rank that waits longer than this for the others, or does longer than this "
             "without a word to them, ends the job, and the log says which rank is to blame."),
         key("comm.start_timeout_s", s, &Comm::start_timeout_s, Real{.min_open = true}, "s",
             "The same until the first step is done: setting up, reading data and checkpoints."),
         key("comm.check", s, &Comm::check, Boolean{}, "",
             "Ranks compare every collective before it runs, and the job ends with both calls "
             "named where two differ. Costs a message and a wait for each."),
         key("comm.progress_thread", s, &Comm::progress_thread, threads, "",
             "A thread of each rank moves messages and sums gradients while the rank computes: "
             "MPI moves nothing outside its calls. auto: on several nodes, and on one where each "
             "rank has a CPU more than kernels.threads. Changes no bit. no_shard has none.")}};
}

Section stop_section() {
    const auto s = &Deck::stop;
    return {
        "stop",
        "How a run ends before its last step: after a signal (USR1, USR2, TERM, INT) or before "
        "the job's time is up it writes a checkpoint and ends with exit code 85.",
        {key("stop.time_limit_s", s, &Stop::time_limit_s, Real{}, "s",
             "The job's time is up so long after the start. 0: when the batch system says, if it "
             "does. With both the earlier one counts."),
         key("stop.margin_s", s, &Stop::margin_s, Real{}, "s",
             "The run stops when the job has less time left than this, the longest step, and "
             "twice the longest checkpoint so far."),
         key("stop.grace_s", s, &Stop::grace_s, Real{.min_open = true}, "s",
             "Longest time from a signal until all ranks have agreed to stop, which they do "
             "after each step, round of an evaluation and checkpoint: more than a step takes. Then "
             "the job ends at once, without a new checkpoint, with exit code 5."),
         key("stop.save_s", s, &Stop::save_s, Real{.min_open = true}, "s",
             "Longest time for the checkpoint that follows, or that was being written. Then the "
             "job ends at once with exit code 5; earlier checkpoints stay whole.")}};
}

Section checkpoint_section() {
    const auto s = &Deck::checkpoint;
    const Choice<CheckpointFiles> files{
        {{"one", CheckpointFiles::kOne}, {"node", CheckpointFiles::kNode}}};
    const Choice<OnSaveError> on_error{
        {{"continue", OnSaveError::kContinue}, {"abort", OnSaveError::kAbort}}};
    return {
        "checkpoint",
        "What a run can be continued from: folders run.dir/checkpoints/step-NNNNNNNN.",
        {key("checkpoint.every", s, &Checkpoint::every, Integer{0, kMaxCount}, "steps",
             "Steps from one checkpoint to the next; the last step writes one too. 0: none, "
             "except when the run is asked to stop."),
         key("checkpoint.keep_last", s, &Checkpoint::keep_last, Integer{0, kMaxCount}, "",
             "Newest checkpoints to keep. 0: all."),
         key("checkpoint.keep_every", s, &Checkpoint::keep_every, Integer{0, kMaxCount}, "steps",
             "Checkpoints of steps that are a multiple of this are kept besides. 0: none."),
         key("checkpoint.resume", s, &Checkpoint::resume, Path{}, "",
             "auto: go on from the newest whole checkpoint in run.dir, if there is one; a run of "
             "the same deck that was interrupted before its first one starts again. never: start "
             "afresh, in a folder without a run. Else the path of a checkpoint, or of a run that "
             "has some; the same command again goes on from where run.dir is by then."),
         key("checkpoint.files", s, &Checkpoint::files, files, "",
             "one: all ranks write to one file. node: the ranks of each node have one of their "
             "own, for file systems on which nodes should not share files."),
         key("checkpoint.async", s, &Checkpoint::async, Boolean{}, "",
             "Training goes on while a copy of the state is written, which needs memory for "
             "that copy. The last save, and one on request, is waited for."),
         key("checkpoint.timeout_s", s, &Checkpoint::timeout_s, Real{.min_open = true}, "s",
             "Longest time for a save. One in the background is given up when it is waited for "
             "longer than this, before the next save and at the end of the run; another one "
             "ends the job."),
         key("checkpoint.on_error", s, &Checkpoint::on_error, on_error, "",
             "What a save that fails (a full disk) does to the run. continue: a warning, and "
             "the next one is tried; the save at the end of the run must succeed. abort: the "
             "run ends. Earlier checkpoints stay whole."),
         key("checkpoint.verify_load", s, &Checkpoint::verify_load, Boolean{}, "",
             "Compare what is loaded with its digests."),
         key("checkpoint.load_strict", s, &Checkpoint::load_strict, Boolean{}, "",
             "Model and checkpoint must have the same tensors. off: those that fit are loaded, "
             "the log lists the others, and parameters without values keep their initial "
             "ones."),
         key("checkpoint.load_optimizer", s, &Checkpoint::load_optimizer, Boolean{}, "",
             "Load the moments too. off: AdamW and the learning rate schedule start afresh "
             "with the loaded weights.")}};
}

Section kernels_section() {
    const auto s = &Deck::kernels;
    const Choice<Gemm> libraries{{{"preferred", Gemm::kPreferred},
                                  {"auto", Gemm::kAuto},
                                  {"onednn", Gemm::kOneDnn},
                                  {"openblas", Gemm::kOpenBlas},
                                  {"libtorch", Gemm::kLibTorch}}};
    return {"kernels",
            "How a rank computes.",
            {key("kernels.threads", s, &Kernels::threads, Integer{1, 1024}, "threads",
                 "Compute threads of each rank. Equal results need equal numbers of threads."),
             key("kernels.gemm", s, &Kernels::gemm, libraries, "",
                 "Library that multiplies fp32 matrices. preferred: the first of onednn, openblas, "
                 "libtorch that all ranks can load. auto: rank 0 measures those it can load for "
                 "a moment and picks the fastest for all. The effective deck and checkpoints hold "
                 "what was picked, and a run that goes on uses it again: equal results need equal "
                 "libraries. Products of 16-bit types and of models of one's own (torchscript, "
                 "custom) are LibTorch's.")}};
}

Section device_section() {
    const Choice<Processor> kinds{{{"cpu", Processor::kCpu}, {"cuda", Processor::kCuda}}};
    return {"device",
            "What ranks compute on.",
            {key("device.kind", &Deck::device, &Device::kind, kinds, "",
                 "cuda: each rank has a GPU of its own, the one of its number on the node. Needs a "
                 "build with CUDA and reduce.order = fast. Not run on a GPU yet.")}};
}

Section trace_section() {
    return {
        "trace",
        "What happened when, in a file for ui.perfetto.dev or chrome://tracing.",
        {key("trace.steps", &Deck::trace, &Trace::steps, Integers{{1, kMaxCount}}, "steps",
             "Steps, counted from 1, of which run.dir/trace.json shows what each rank did: "
             "lanes for computing, gathers, reductions, optimizer and checkpoints. The "
             "summary then says how much of the communication was hidden behind computing. With "
             "device.kind = cuda the lanes are the GPU's, and profilers see the same names.")}};
}

Section fault_section() {
    const auto s = &Deck::fault;
    const Choice<SaveStage> stages{{{"none", SaveStage::kNone},
                                    {"before_data", SaveStage::kBeforeData},
                                    {"during_data", SaveStage::kDuringData},
                                    {"before_manifest", SaveStage::kBeforeManifest},
                                    {"before_complete", SaveStage::kBeforeComplete},
                                    {"before_rename", SaveStage::kBeforeRename},
                                    {"before_retain", SaveStage::kBeforeRetain}}};
    return {"fault",
            "Faults on purpose, for tests only; the log announces them.",
            {key("fault.throw_at_step", s, &Fault::throw_at_step, Integer{0, kMaxCount}, "steps",
                 "The step, counted from 1, in which rank fault.rank throws. 0: never."),
             key("fault.hang_at_step", s, &Fault::hang_at_step, Integer{0, kMaxCount}, "steps",
                 "The step in which rank fault.rank stops doing anything. 0: never."),
             key("fault.stray_collective_at_step", s, &Fault::stray_collective_at_step,
                 Integer{0, kMaxCount}, "steps",
                 "The step in which rank fault.rank calls a collective that the others do not. "
                 "0: never."),
             key("fault.slow_step_s", s, &Fault::slow_step_s, Real{}, "s",
                 "Each step of rank fault.rank takes so much longer."),
             key("fault.kill_in_save", s, &Fault::kill_in_save, stages, "",
                 "Where in a save rank fault.rank is killed; it is 0 for before_manifest and "
                 "later."),
             key("fault.rank", s, &Fault::rank, Integer{0, kMaxRanks}, "",
                 "The rank that a fault of a rank happens to."),
             key("fault.delay_us", s, &Fault::delay_us, Integer{0, 10'000'000}, "us",
                 "Longest random delay of a rank at each synchronisation point. 0: none."),
             key("fault.poison", s, &Fault::poison, Boolean{}, "",
                 "Fill parameter and gradient slots with NaN between uses.")}};
}

}  // namespace fullshard::config
