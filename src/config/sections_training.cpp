// Keys of training: batches, optimizer, learning rate.
#include "config/key_binding.h"

#include <fmt/format.h>

namespace fullshard::config {

Section train_section() {
    const auto s = &Deck::train;
    const Choice<OnNonfinite> nonfinite{
        {{"abort", OnNonfinite::kAbort}, {"skip", OnNonfinite::kSkip}}};
    return {
        "train",
        "Length of the training, sizes of batches, evaluation. "
        "global_batch = micro_batch * grad_accum_steps * ranks.",
        {key("train.steps", s, &Train::steps, Integer{1, kMaxCount}, "steps", "Optimizer steps."),
         key("train.micro_batch", s, &Train::micro_batch, Integer{0, kMaxBatch}, "sequences",
             "Sequences a rank computes at once. 0: derived from the other two when both are "
             "given, else 4."),
         key("train.grad_accum_steps", s, &Train::grad_accum_steps, Integer{0, kMaxBatch}, "",
             "Micro-batches of a rank in one step. 0: derived from train.global_batch when that "
             "is given, else 1. A run that goes on adapts it to the number of ranks when "
             "train.global_batch is not given."),
         key("train.global_batch", s, &Train::global_batch, Integer{0, kMaxBatch * kMaxRanks},
             "sequences",
             "Sequences of one step over all ranks. 0: the product of the others, or the "
             "checkpoint's in a run that goes on, whatever the number of ranks."),
         key("train.log_every", s, &Train::log_every, Integer{1, kMaxCount}, "steps",
             "Steps from one progress line to the next."),
         key("train.eval_every", s, &Train::eval_every, Integer{0, kMaxCount}, "steps",
             "Steps from one evaluation to the next. 0: only before the first and after the "
             "last step."),
         key("train.eval_max_sequences", s, &Train::eval_max_sequences, Integer{0, kMaxCount},
             "sequences",
             "Held-out sequences of each source that one evaluation uses at most. 0: all."),
         key("train.stop_at_step", s, &Train::stop_at_step, Integer{0, kMaxCount}, "steps",
             "Write a checkpoint after this step and leave with exit code 85, as after a signal. "
             "0: never."),
         key("train.on_nonfinite", s, &Train::on_nonfinite, nonfinite, "",
             "A loss or gradient norm that is infinite or not a number ends the run with exit code "
             "4 (abort), or the step is reported and leaves everything as it was (skip). Dynamic "
             "loss scaling skips by itself."),
         key("train.activation_checkpointing", s, &Train::activation_checkpointing,
             Integer{0, kMaxLayers}, "blocks",
             "Every n-th block keeps only its input and is run again for its backward pass: less "
             "memory, more work, equal numbers. 1: every block. 0: none.")}};
}

Section elasticity_section() {
    const auto s = &Deck::elasticity;
    return {
        "elasticity",
        "One global batch that many numbers of ranks can share, so that a job may go on with more "
        "or fewer nodes. Derives train.micro_batch, grad_accum_steps and global_batch, which must "
        "not be set then. `fullshard train DECK --print-world-sizes` shows the valid numbers of "
        "ranks. Keys and arithmetic are those of DeepSpeed, with ranks for GPUs.",
        {key("elasticity.enabled", s, &Elasticity::enabled, Boolean{}, "",
             "Derive the batch sizes from the keys below and the number of ranks."),
         key("elasticity.max_train_batch_size", s, &Elasticity::max_train_batch_size,
             Integer{0, kMaxBatch * kMaxRanks}, "sequences",
             "The global batch is not larger. Needed."),
         key("elasticity.micro_batch_sizes", s, &Elasticity::micro_batch_sizes,
             Integers{{1, kMaxBatch}}, "sequences",
             "What a rank may compute at once; it takes the largest size that fits. Needed."),
         key("elasticity.min_ranks", s, &Elasticity::min_ranks, Integer{1, kMaxRanks}, "ranks",
             "Smallest valid number of ranks."),
         key("elasticity.max_ranks", s, &Elasticity::max_ranks, Integer{1, kMaxRanks}, "ranks",
             "Largest valid number of ranks."),
         key("elasticity.prefer_larger_batch", s, &Elasticity::prefer_larger_batch, Boolean{}, "",
             "Of global batches that are valid for equally many numbers of ranks, take the "
             "largest. off: the smallest."),
         key("elasticity.ranks_per_node", s, &Elasticity::ranks_per_node, Integer{1, kMaxRanks},
             "ranks", "Valid numbers are whole nodes of so many ranks.")}};
}

Section optimizer_section() {
    const auto s = &Deck::optimizer;
    const Choice<OptimizerName> names{{{"adamw", OptimizerName::kAdamw}}};
    const Real momentum{.max = 1.0, .max_open = true};
    return {"optimizer",
            "How parameters follow their gradients.",
            {key("optimizer.name", s, &Optimizer::name, names, "", "Kind of optimizer."),
             key("optimizer.lr", s, &Optimizer::lr, Real{}, "",
                 "Peak learning rate; the schedule scales it."),
             key("optimizer.beta1", s, &Optimizer::beta1, momentum, "",
                 "Decay of the average of gradients."),
             key("optimizer.beta2", s, &Optimizer::beta2, momentum, "",
                 "Decay of the average of squared gradients."),
             key("optimizer.eps", s, &Optimizer::eps, Real{.min_open = true}, "",
                 "Added to the root of the second moment."),
             key("optimizer.weight_decay", s, &Optimizer::weight_decay, Real{}, "",
                 "Decoupled weight decay of matrices; norms and biases have none."),
             key("optimizer.clip_norm", s, &Optimizer::clip_norm, Real{}, "",
                 "Gradients are scaled down to this 2-norm, taken over all parameters, when theirs "
                 "is larger. 0: off."),
             key("optimizer.clip_value", s, &Optimizer::clip_value, Real{}, "",
                 "Elements of gradients are cut to [-x, x]. 0: off.")}};
}

Section parameter_group_sections() {
    const auto keys = [](std::string_view prefix, std::string_view group) {
        const auto bind = [&](std::string_view name, auto member, auto format,
                              std::string meaning) {
            return entry_key(fmt::format("{}{}.{}", prefix, group, name), &Deck::optimizer,
                             &Optimizer::groups, std::string(group), member, format, "",
                             std::move(meaning));
        };
        return std::vector<Key>{
            bind("parameters", &ParameterGroup::patterns, Patterns{},
                 "The group's parameters by full name; * stands for any characters, ? for one. A "
                 "parameter belongs to the first group that names it."),
            bind("lr", &ParameterGroup::lr, RealOrAuto{},
                 "Peak learning rate; the schedule scales it. auto: optimizer.lr."),
            bind("weight_decay", &ParameterGroup::weight_decay, RealOrAuto{},
                 "Decoupled weight decay of all of them, vectors included. auto: "
                 "optimizer.weight_decay for matrices, none for norms and biases."),
            bind("frozen", &ParameterGroup::frozen, Boolean{},
                 "Leave them as they are: no gradient, no optimizer state.")};
    };
    return list_section(
        "optimizer.group",
        "Parameters with options of their own. Any number of such sections, with names of your "
        "choice for NAME.",
        [](const Deck& deck) { return names_of(deck.optimizer.groups); }, keys);
}

Section schedule_section() {
    const auto s = &Deck::schedule;
    const Choice<ScheduleKind> kinds{{{"constant", ScheduleKind::kConstant},
                                      {"linear", ScheduleKind::kLinear},
                                      {"cosine", ScheduleKind::kCosine}}};
    return {
        "schedule",
        "The learning rate over time.",
        {key("schedule.kind", s, &Schedule::kind, kinds, "",
             "Shape of the decay from the end of the warm-up to train.steps."),
         key("schedule.warmup_steps", s, &Schedule::warmup_steps, Integer{0, kMaxCount}, "steps",
             "Steps over which the learning rate grows linearly to optimizer.lr."),
         key("schedule.min_lr_ratio", s, &Schedule::min_lr_ratio, Real{.max = 1.0}, "",
             "Final learning rate as a share of optimizer.lr; a constant schedule ignores it.")}};
}

}  // namespace fullshard::config
