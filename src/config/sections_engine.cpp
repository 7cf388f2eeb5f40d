// Keys of the engine: sharding, sums, precision.
#include "config/key_binding.h"

namespace fullshard::config {

Section shard_section() {
    const auto s = &Deck::shard;
    const Choice<Strategy> strategies{{{"no_shard", Strategy::kNoShard},
                                       {"zero1", Strategy::kZero1},
                                       {"shard_grad_op", Strategy::kShardGradOp},
                                       {"full_shard", Strategy::kFullShard},
                                       {"hybrid_shard", Strategy::kHybridShard},
                                       {"hybrid_shard_zero2", Strategy::kHybridShardZero2}}};
    const Choice<WrapPolicy> policies{{{"block", WrapPolicy::kBlock},
                                       {"model", WrapPolicy::kModel},
                                       {"size", WrapPolicy::kSize}}};
    const Choice<Prefetch> prefetches{{{"both", Prefetch::kBoth},
                                       {"off", Prefetch::kOff},
                                       {"forward", Prefetch::kForward},
                                       {"backward_pre", Prefetch::kBackwardPre},
                                       {"backward_post", Prefetch::kBackwardPost}}};
    const Choice<Store> stores{
        {{"auto", Store::kAuto}, {"resident", Store::kResident}, {"slotted", Store::kSlotted}}};
    return {
        "shard",
        "Where parameters, gradients and optimizer state live.",
        {key("shard.strategy", s, &Shard::strategy, strategies, "",
             "full_shard (ZeRO-3): everything is split over the ranks. shard_grad_op (ZeRO-2): "
             "likewise, but parameters stay whole from forward to backward. zero1: only optimizer "
             "state is split. no_shard: every rank holds everything (data parallel, the "
             "reference). hybrid_shard, hybrid_shard_zero2: full_shard and shard_grad_op inside "
             "groups of ranks, which hold copies of each other's state."),
         key("shard.group_size", s, &Shard::group_size, Integer{0, kMaxRanks}, "ranks",
             "Ranks over which state is split; a divisor of their number. The groups hold copies "
             "of each other's state. 0: all ranks, or those of a node for the hybrid strategies."),
         key("shard.wrap_policy", s, &Shard::wrap_policy, policies, "",
             "What is gathered together, a unit: each block of the model and each stage between "
             "them (block), everything (model), or successive stages up to shard.min_num_params "
             "elements (size)."),
         key("shard.min_num_params", s, &Shard::min_num_params, Integer{1, kMaxCount}, "elements",
             "Size from which a unit takes no further stage; only for wrap_policy = size."),
         key("shard.reshard_after_forward", s, &Shard::reshard_after_forward, Resharding{}, "",
             "Whether a unit's whole parameters are given up after its forward pass and gathered "
             "again for backward. N: given up too, but each N ranks keep a copy among them, from "
             "which they gather for backward. auto: what the strategy says."),
         key("shard.prefetch", s, &Shard::prefetch, prefetches, "",
             "Which units are gathered early: in forward, while the visit before computes "
             "(forward); in backward, before that visit computes (backward_pre) or after it "
             "(backward_post: less memory, less overlap). both: forward and backward_pre."),
         key("shard.store", s, &Shard::store, stores, "",
             "How sharded units become whole. resident: they live once in memory that the ranks "
             "of a node share. slotted: they are gathered into slots when needed. auto: resident "
             "when all ranks are on one node and comm.node_shared is on."),
         key("shard.slots", s, &Shard::slots, Integer{1, kMaxLayers}, "",
             "Slots for each size of unit: the limit on units of one size that are whole at a "
             "time, and on gradients that wait for their sum. Prefetch runs slots - 1 visits "
             "ahead.")}};
}

Section reduce_section() {
    const auto s = &Deck::reduce;
    const Choice<ReduceOrder> orders{{{"tree", ReduceOrder::kTree}, {"fast", ReduceOrder::kFast}}};
    const Choice<Accumulation> accumulations{{{"auto", Accumulation::kAuto},
                                              {"sharded", Accumulation::kSharded},
                                              {"unsharded", Accumulation::kUnsharded}}};
    return {
        "reduce",
        "How gradients are summed.",
        {key("reduce.order", s, &Reduce::order, orders, "",
             "tree: a balanced binary tree over the micro-batches of a step, so that the sum has "
             "the same bits at any power-of-two number of ranks. fast: as they come, and over "
             "copies of the state once a step; bits depend on the number of ranks."),
         key("reduce.accumulation", s, &Reduce::accumulation, accumulations, "",
             "Where the gradients of a step's micro-batches are added: reduced one by one and "
             "added as shards (sharded), or added whole on each rank in fp32 and reduced once "
             "(unsharded: less traffic, more memory). auto: unsharded for zero1 under fast, else "
             "sharded.")}};
}

Section precision_section() {
    const auto s = &Deck::precision;
    const auto type = [](DType dtype) { return std::pair(std::string(name_of(dtype)), dtype); };
    const Choice<DType> types{
        {type(DType::kFloat32), type(DType::kBFloat16), type(DType::kFloat16)}};
    return {
        "precision",
        "Number formats. Master weights, optimizer state, layer norms, softmax and loss are fp32 "
        "always. Losses are scaled exactly when precision.param = fp16.",
        {key("precision.param", s, &Precision::param, types, "",
             "Parameters, activations and their gradients in forward and backward."),
         key("precision.reduce", s, &Precision::reduce, types, "",
             "What gradients are rounded to before, and sums after, each addition over ranks."),
         key("precision.buffer", s, &Precision::buffer, types, "",
             "Buffers of modules: state that is not trained. simple_transformer has none."),
         key("precision.loss_scale", s, &Precision::loss_scale, PowerOfTwo{.zero_too = true}, "",
             "Fixed factor on the loss. 0: dynamic, by the keys below."),
         key("precision.initial_scale", s, &Precision::initial_scale, PowerOfTwo{}, "",
             "First dynamic scale."),
         key("precision.scale_window", s, &Precision::scale_window, Integer{1, kMaxCount}, "steps",
             "Steps without overflow after which the scale doubles."),
         key("precision.scale_hysteresis", s, &Precision::scale_hysteresis, Integer{1, kMaxCount},
             "overflows", "Overflows, each a skipped step, of which the last halves the scale."),
         key("precision.min_scale", s, &Precision::min_scale, PowerOfTwo{}, "",
             "The scale does not fall below; an overflow there ends the run.")}};
}

}  // namespace fullshard::config
