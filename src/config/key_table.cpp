#include "config/key_table.h"

namespace fullshard::config {
namespace {

// Upper bounds keep products of sizes (parameters, tokens, bytes of a step) far below 2^63.
constexpr std::int64_t kMaxWidth = 1'000'000;
constexpr std::int64_t kMaxVocabulary = 100'000'000;
constexpr std::int64_t kMaxLayers = 100'000;
constexpr std::int64_t kMaxSequence = 100'000'000;
constexpr std::int64_t kMaxBatch = 1'000'000;
constexpr std::int64_t kMaxRanks = 1'000'000;
constexpr std::int64_t kMaxCount = 1'000'000'000'000;  // steps, sequences

/// Binds a key to the member of its section that holds it.
template <typename SectionStruct, typename Value, typename Format>
Key key(std::string name, SectionStruct Deck::*section, Value SectionStruct::*member, Format format,
        std::string unit, std::string meaning) {
    return {
        .name = std::move(name),
        .type = std::string(Format::kType),
        .unit = std::move(unit),
        .allowed = format.allowed(),
        .meaning = std::move(meaning),
        .text = [=](const Deck& deck) { return format.text(deck.*section.*member); },
        .assign = [=](Deck& deck,
                      std::string_view text) { return format.parse(text, deck.*section.*member); }};
}

Section run_section() {
    const auto s = &Deck::run;
    return {
        "run",
        "The run as a whole.",
        {key("run.dir", s, &Run::dir, Path{}, "",
             "Folder that receives everything the run writes: effective deck, run.log, "
             "metrics.jsonl. Created when missing."),
         key("run.seed", s, &Run::seed, Seed{}, "",
             "Seed of initial weights, dropout, order of the data and synthetic data."),
         key("run.overwrite", s, &Run::overwrite, Boolean{}, "",
             "Replace the run that run.dir already holds; otherwise such a folder is refused.")}};
}

Section model_section() {
    const auto s = &Deck::model;
    const Choice<Family> families{{{"simple_transformer", Family::kSimpleTransformer}}};
    const Choice<Activation> activations{
        {{"relu", Activation::kRelu}, {"gelu", Activation::kGelu}}};
    const Choice<Attention> attentions{
        {{"causal", Attention::kCausal}, {"bidirectional", Attention::kBidirectional}}};
    const Choice<Positions> positions{
        {{"none", Positions::kNone}, {"learned", Positions::kLearned}}};
    return {
        "model",
        "The transformer: token embedding, encoder layers, linear head.",
        {key("model.family", s, &Model::family, families, "", "Kind of model."),
         key("model.vocab_size", s, &Model::vocab_size, Integer{1, kMaxVocabulary}, "tokens",
             "Size of the vocabulary. Text is read as bytes: 256 fits any."),
         key("model.d_model", s, &Model::d_model, Integer{1, kMaxWidth}, "",
             "Width of the residual stream; a multiple of model.num_heads."),
         key("model.num_heads", s, &Model::num_heads, Integer{1, kMaxWidth}, "",
             "Attention heads of a layer."),
         key("model.num_layers", s, &Model::num_layers, Integer{1, kMaxLayers}, "",
             "Encoder layers."),
         key("model.d_ff", s, &Model::d_ff, Integer{1, kMaxWidth}, "",
             "Width of a layer's feed-forward part."),
         key("model.dropout", s, &Model::dropout, Real{.max = 1.0, .max_open = true}, "",
             "Probability of dropping an activation in training."),
         key("model.activation", s, &Model::activation, activations, "",
             "Non-linearity of the feed-forward part."),
         key("model.norm_first", s, &Model::norm_first, Boolean{}, "",
             "Normalise before attention and feed-forward (pre-norm) instead of after them."),
         key("model.attention", s, &Model::attention, attentions, "",
             "What a token sees: itself and earlier tokens (causal), or the whole sequence "
             "(bidirectional)."),
         key("model.positions", s, &Model::positions, positions, "",
             "Position information: none, or a learned table with one row for each of the "
             "data.sequence positions."),
         key("model.init_from", s, &Model::init_from, Path{.may_be_empty = true}, "",
             "Weights to start from: a checkpoint or a run that has some, a consolidated .h5, or a "
             ".safetensors file. Empty: random weights.")}};
}

Section data_section() {
    const auto s = &Deck::data;
    const Choice<Source> sources{{{"synthetic", Source::kSynthetic}, {"text", Source::kText}}};
    const Choice<Targets> targets{{{"next", Targets::kNext}, {"rolled", Targets::kRolled}}};
    return {"data",
            "What the model is trained on.",
            {key("data.source", s, &Data::source, sources, "",
                 "Where tokens come from: seeded random ones (synthetic) or the bytes of files "
                 "(text)."),
             key("data.path", s, &Data::path, Path{.may_be_empty = true}, "",
                 "File or folder of a text source; a synthetic source ignores it."),
             key("data.sequence", s, &Data::sequence, Integer{1, kMaxSequence}, "tokens",
                 "Length of a training sequence."),
             key("data.targets", s, &Data::targets, targets, "",
                 "What is predicted: the next token of the stream (next), or the inputs rolled by "
                 "one, so that the last position predicts the sequence's first token (rolled)."),
             key("data.validation_fraction", s, &Data::validation_fraction,
                 Real{.max = 1.0, .max_open = true}, "",
                 "Share of the data that is held out for evaluation: the tail of the token stream. "
                 "0: no evaluation."),
             key("data.synthetic_sequences", s, &Data::synthetic_sequences, Integer{1, kMaxCount},
                 "sequences", "Size of a synthetic data set, held-out part included."),
             key("data.shuffle", s, &Data::shuffle, Boolean{}, "",
                 "Visit the sequences in a new random order in every epoch, a function of run.seed "
                 "only, instead of in the order of the source.")}};
}

Section train_section() {
    const auto s = &Deck::train;
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
             "is given, else 1."),
         key("train.global_batch", s, &Train::global_batch, Integer{0, kMaxBatch * kMaxRanks},
             "sequences", "Sequences of one step over all ranks. 0: the product of the others."),
         key("train.log_every", s, &Train::log_every, Integer{1, kMaxCount}, "steps",
             "Steps from one progress line to the next."),
         key("train.eval_every", s, &Train::eval_every, Integer{0, kMaxCount}, "steps",
             "Steps from one evaluation to the next. 0: only before the first and after the "
             "last step."),
         key("train.eval_max_sequences", s, &Train::eval_max_sequences, Integer{0, kMaxCount},
             "sequences", "Held-out sequences that one evaluation uses at most. 0: all."),
         key("train.stop_at_step", s, &Train::stop_at_step, Integer{0, kMaxCount}, "steps",
             "Write a checkpoint after this step and leave with exit code 85, as after a signal. "
             "0: never.")}};
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
                 "Decoupled weight decay of matrices; norms and biases have none.")}};
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

Section shard_section() {
    const auto s = &Deck::shard;
    const Choice<Strategy> strategies{
        {{"full_shard", Strategy::kFullShard}, {"no_shard", Strategy::kNoShard}}};
    const Choice<Store> stores{
        {{"auto", Store::kAuto}, {"resident", Store::kResident}, {"slotted", Store::kSlotted}}};
    return {
        "shard",
        "Where parameters, gradients and optimizer state live.",
        {key("shard.strategy", s, &Shard::strategy, strategies, "",
             "full_shard: everything is split over the ranks. no_shard: every rank holds "
             "everything (data parallel, the reference)."),
         key("shard.store", s, &Shard::store, stores, "",
             "How sharded units become whole. resident: they live once in memory that the ranks "
             "of a node share. slotted: they are gathered into slots when needed. auto: resident "
             "when all ranks are on one node and comm.node_shared is on."),
         key("shard.slots", s, &Shard::slots, Integer{2, kMaxLayers}, "",
             "Slots for each size of unit in a slotted store: units that are whole at a "
             "time.")}};
}

Section reduce_section() {
    const Choice<ReduceOrder> orders{{{"tree", ReduceOrder::kTree}}};
    return {
        "reduce",
        "How gradients are summed.",
        {key("reduce.order", &Deck::reduce, &Reduce::order, orders, "",
             "tree: a balanced binary tree over the micro-batches of a step, so that the sum has "
             "the same bits at any power-of-two number of ranks.")}};
}

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

}  // namespace

const std::vector<Section>& key_table() {
    static const std::vector<Section> table{
        run_section(),       model_section(),    data_section(),       train_section(),
        optimizer_section(), schedule_section(), shard_section(),      reduce_section(),
        topology_section(),  comm_section(),     checkpoint_section(), kernels_section(),
        fault_section()};
    return table;
}

const Key* find_key(std::string_view name) {
    for (const Section& section : key_table()) {
        for (const Key& candidate : section.keys) {
            if (candidate.name == name) return &candidate;
        }
    }
    return nullptr;
}

std::vector<std::string> key_names() {
    std::vector<std::string> names;
    for (const Section& section : key_table()) {
        for (const Key& entry : section.keys) names.push_back(entry.name);
    }
    return names;
}

std::string default_text(const Key& key) {
    return key.text(Deck{});
}

}  // namespace fullshard::config
