// What a run is asked to do: one plain struct per section of an input deck. A module receives its
// own section and nothing else; names, ranges and meanings of the keys are in sections_*.cpp.
#pragma once

#include "base/span.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {

struct Run {
    std::filesystem::path dir = "runs/default";
    std::uint64_t seed = 1;
    bool overwrite = false;     ///< replace an earlier run in `dir`
    bool rank_logs = false;     ///< every rank keeps a log of its own
    bool measure_peak = false;  ///< of each rank's arithmetic, before the first step
    double peak_gflops = 0.0;   ///< a rank's, in the compute type; 0: unknown

    bool operator==(const Run&) const = default;
};

enum class Family : std::uint8_t {
    kSimpleTransformer,
    kGpt2,
    kLlama,
    kTorchScript,
    kCustom,  ///< built into the program that reads the deck
};
enum class Activation : std::uint8_t { kRelu, kGelu };
enum class Attention : std::uint8_t { kCausal, kBidirectional };
enum class Positions : std::uint8_t { kNone, kLearned };
/// How rotary positions are stretched beyond the length that a model was pretrained on.
enum class RopeScaling : std::uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn };

struct Model {
    Family family = Family::kSimpleTransformer;
    std::filesystem::path config = {};  ///< gives the sizes that no key sets; empty: none does
    std::int64_t vocab_size = 1000;
    std::int64_t pad_vocab_to = 1;  ///< rows of token tables are a multiple of this
    std::int64_t d_model = 256;
    std::int64_t num_heads = 4;
    std::int64_t num_kv_heads = 0;  ///< 0: as many as num_heads
    std::int64_t head_size = 0;     ///< 0: d_model / num_heads
    std::int64_t num_layers = 3;
    std::int64_t d_ff = 2048;
    std::int64_t max_positions = 0;  ///< 0: Data::sequence
    double norm_eps = 1e-5;
    double init_deviation = 0.02;
    double rope_theta = 10'000.0;
    RopeScaling rope_scaling = RopeScaling::kNone;
    double rope_factor = 1.0;
    std::int64_t rope_original_positions = 0;  ///< 0: max_positions
    double rope_low_freq_factor = 1.0;
    double rope_high_freq_factor = 4.0;
    double rope_beta_fast = 32.0;
    double rope_beta_slow = 1.0;
    double rope_attention_factor = 0.0;  ///< 0: by the variant's formula
    double dropout = 0.1;
    Activation activation = Activation::kRelu;
    bool norm_first = false;
    Attention attention = Attention::kCausal;
    Positions positions = Positions::kNone;
    bool tie_embeddings = false;                   ///< the head's matrix is the embedding's
    std::vector<std::filesystem::path> path = {};  ///< TorchScript files, run one after another
    std::filesystem::path init_from = {};          ///< weights to start from; empty: random ones

    bool operator==(const Model&) const = default;
};

enum class Source : std::uint8_t { kSynthetic, kText, kLlmc, kMegatron, kHdf5, kJsonl };
enum class Targets : std::uint8_t { kNext, kRolled };
/// How documents become sequences.
enum class Packing : std::uint8_t {
    kStream,     ///< one after the other, cut wherever a sequence is full
    kDocuments,  ///< as many whole ones as fit; only those longer than a sequence are cut
    kNone,       ///< each begins a sequence of its own
};

/// One of several sources that are mixed.
struct DataSource {
    std::string name;
    Source kind = Source::kText;
    std::filesystem::path path = {};
    std::filesystem::path validation_path = {};
    double weight = 1.0;  ///< its share of the training sequences, relative to the others'

    bool operator==(const DataSource&) const = default;
};

struct Data {
    Source source = Source::kSynthetic;  ///< the only one where `sources` is empty
    std::filesystem::path path;
    std::filesystem::path validation_path =
        {};  ///< empty: validation_fraction of `path` is held out
    std::vector<DataSource> sources = {};
    std::int64_t sequence = 128;  ///< tokens
    Targets targets = Targets::kNext;
    Packing packing = Packing::kStream;
    bool document_mask = false;  ///< tokens see their own document only
    std::int64_t document_end =
        -1;  ///< token that ends a document where files do not say; -1: none
    double validation_fraction = 0.1;
    std::int64_t synthetic_sequences = 100;
    bool shuffle = true;
    std::int64_t prefetch = 2;  ///< micro-batches that a thread reads ahead; 0: no thread
    std::filesystem::path tokenizer = {};  ///< folder of tokenizer files; empty: tokens are bytes

    bool operator==(const Data&) const = default;
};

/// Text that a model continues.
struct Generate {
    std::string prompt = {};
    std::vector<std::int64_t> prompt_tokens = {};  ///< in place of `prompt`
    std::int64_t samples = 1;
    std::int64_t max_tokens = 64;
    double temperature = 0.8;  ///< 0: the most likely token
    std::int64_t top_k = 0;    ///< 0: all tokens
    double top_p = 1.0;
    std::int64_t stop_token = -1;  ///< ends a sample; -1: none
    std::uint64_t seed = 1;

    bool operator==(const Generate&) const = default;
};

/// What a loss or gradient norm that is not finite does, unless dynamic loss scaling deals with it.
enum class OnNonfinite : std::uint8_t { kAbort, kSkip };

/// Batch sizes are in sequences. The three of them are tied by
/// global_batch = micro_batch * grad_accum_steps * ranks; 0 asks resolve_batch() to derive one.
struct Train {
    std::int64_t steps = 100;
    std::int64_t micro_batch = 0;
    std::int64_t grad_accum_steps = 0;
    std::int64_t global_batch = 0;
    std::int64_t log_every = 1;   ///< steps
    std::int64_t eval_every = 0;  ///< steps; 0: before the first and after the last step only
    std::int64_t eval_max_sequences = 0;  ///< 0: the whole validation split
    std::int64_t stop_at_step = 0;        ///< checkpoint and stop after this step; 0: never
    OnNonfinite on_nonfinite = OnNonfinite::kAbort;
    std::int64_t activation_checkpointing = 0;  ///< every n-th block is recomputed; 0: none

    bool operator==(const Train&) const = default;
};

/// One global batch that many numbers of ranks can share, as DeepSpeed's section of this name.
/// Takes the place of Train's batch sizes; the arithmetic is in config/elasticity.h.
struct Elasticity {
    bool enabled = false;
    std::int64_t max_train_batch_size = 0;             ///< sequences of a step; 0: not given
    std::vector<std::int64_t> micro_batch_sizes = {};  ///< sequences; a rank uses one of them
    std::int64_t min_ranks = 1;
    std::int64_t max_ranks = 10'000;
    bool prefer_larger_batch = true;  ///< of global batches that fit equally many numbers of ranks
    std::int64_t ranks_per_node = 1;  ///< numbers of ranks are multiples of this

    bool operator==(const Elasticity&) const = default;
};

enum class OptimizerName : std::uint8_t { kAdamw };

/// Parameters with options of their own: those whose full name matches one of `patterns` (`*` and
/// `?` stand for any characters and for one) and that no earlier group has.
struct ParameterGroup {
    std::string name;
    std::vector<std::string> patterns = {};
    std::optional<double> lr = std::nullopt;            ///< peak, in place of Optimizer::lr
    std::optional<double> weight_decay = std::nullopt;  ///< of all of them, vectors included
    bool frozen = false;                                ///< not trained

    bool operator==(const ParameterGroup&) const = default;
};

/// Defaults of torch.optim.AdamW.
struct Optimizer {
    OptimizerName name = OptimizerName::kAdamw;
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;
    double clip_norm = 0.0;   ///< largest global 2-norm of the gradient; 0: no limit
    double clip_value = 0.0;  ///< largest magnitude of a gradient's element; 0: no limit
    std::vector<ParameterGroup> groups = {};

    bool operator==(const Optimizer&) const = default;
};

enum class ScheduleKind : std::uint8_t { kConstant, kLinear, kCosine };

struct Schedule {
    ScheduleKind kind = ScheduleKind::kConstant;  ///< shape of the decay that ends at Train::steps
    std::int64_t warmup_steps = 0;
    double min_lr_ratio = 0.0;  ///< final learning rate over Optimizer::lr

    bool operator==(const Schedule&) const = default;
};

enum class Strategy : std::uint8_t {
    kNoShard,
    kZero1,
    kShardGradOp,
    kFullShard,
    kHybridShard,
    kHybridShardZero2,
};
enum class WrapPolicy : std::uint8_t { kBlock, kModel, kSize };
enum class Prefetch : std::uint8_t { kBoth, kOff, kForward, kBackwardPre, kBackwardPost };
enum class Store : std::uint8_t { kAuto, kResident, kSlotted };

/// What becomes of a unit's whole parameters after its forward pass.
struct ReshardAfterForward {
    enum class Kind : std::uint8_t {
        kAuto,   ///< what the strategy says
        kYes,    ///< given up, and gathered again for backward
        kNo,     ///< kept until backward
        kGroup,  ///< kept in parts by each `group` ranks, which gather them again for backward
    };
    Kind kind = Kind::kAuto;
    std::int64_t group = 0;  ///< ranks, 2 or more; of kGroup only

    bool operator==(const ReshardAfterForward&) const = default;
};

struct Shard {
    Strategy strategy = Strategy::kFullShard;
    std::int64_t group_size = 0;  ///< ranks; 0: all, or those of a node for the hybrid strategies
    WrapPolicy wrap_policy = WrapPolicy::kBlock;
    std::int64_t min_num_params = 100'000'000;  ///< elements of a unit under WrapPolicy::kSize
    ReshardAfterForward reshard_after_forward = {};
    Prefetch prefetch = Prefetch::kBoth;
    Store store = Store::kAuto;
    std::int64_t slots = 2;  ///< per size class

    bool operator==(const Shard&) const = default;
};

enum class ReduceOrder : std::uint8_t { kTree, kFast };
enum class Accumulation : std::uint8_t { kAuto, kSharded, kUnsharded };

struct Reduce {
    ReduceOrder order = ReduceOrder::kTree;
    Accumulation accumulation = Accumulation::kAuto;

    bool operator==(const Reduce&) const = default;
};

/// Losses are scaled exactly when `param` is fp16. Scales are powers of two.
struct Precision {
    DType param = DType::kFloat32;  ///< of parameters and activations in forward and backward
    DType reduce = DType::kFloat32;
    DType buffer = DType::kFloat32;
    double loss_scale = 0.0;  ///< fixed; 0: dynamic, by the values below
    double initial_scale = 65536.0;
    std::int64_t scale_window = 1000;   ///< steps without overflow before the scale doubles
    std::int64_t scale_hysteresis = 2;  ///< overflows before the scale halves
    double min_scale = 1.0;

    bool operator==(const Precision&) const = default;
};

struct Topology {
    std::int64_t ranks_per_node = 0;  ///< 0: ask the hardware

    bool operator==(const Topology&) const = default;
};

/// kAuto: NCCL between devices, MPI between CPUs.
enum class Backend : std::uint8_t { kAuto, kMpi, kNccl };

/// Whether a thread of its own moves messages between nodes while a rank computes.
enum class ProgressThread : std::uint8_t { kAuto, kOn, kOff };

struct Comm {
    Backend backend = Backend::kAuto;
    bool node_shared = true;
    double timeout_s = 300.0;        ///< longest silence of a rank, and longest wait for others
    double start_timeout_s = 600.0;  ///< the same until the first step is done
    bool check = false;              ///< ranks compare every collective before it runs
    ProgressThread progress_thread = ProgressThread::kAuto;

    bool operator==(const Comm&) const = default;
};

/// How a run ends before its last step. Times are in seconds.
struct Stop {
    double time_limit_s = 0.0;  ///< after the start; 0: none but the job's
    double margin_s = 60.0;     ///< left over when the run stops before the job's end
    double grace_s = 120.0;     ///< longest time from a signal to the ranks' agreement
    double save_s = 600.0;      ///< longest time for the checkpoint that follows

    bool operator==(const Stop&) const = default;
};

enum class CheckpointFiles : std::uint8_t { kOne, kNode };
enum class OnSaveError : std::uint8_t { kContinue, kAbort };

struct Checkpoint {
    std::int64_t every = 0;                 ///< steps; 0: none
    std::int64_t keep_last = 2;             ///< 0: all
    std::int64_t keep_every = 0;            ///< steps; 0: none besides the last ones
    std::filesystem::path resume = "auto";  ///< "auto", "never" or a checkpoint's path
    CheckpointFiles files = CheckpointFiles::kOne;
    bool async = false;        ///< written while training goes on
    double timeout_s = 600.0;  ///< longest time for a save
    OnSaveError on_error = OnSaveError::kContinue;
    bool verify_load = true;
    bool load_strict = true;
    bool load_optimizer = true;

    bool operator==(const Checkpoint&) const = default;
};

/// The library that multiplies fp32 matrices. kPreferred: the first of the others that all ranks
/// can load; kAuto: the one that rank 0 measures to be the fastest.
enum class Gemm : std::uint8_t { kPreferred, kAuto, kOneDnn, kOpenBlas, kLibTorch };

struct Kernels {
    std::int64_t threads = 1;  ///< of each rank
    Gemm gemm = Gemm::kPreferred;

    bool operator==(const Kernels&) const = default;
};

/// Points of a save, in their order; the later ones are passed by rank 0 only.
enum class SaveStage : std::uint8_t {
    kNone,
    kBeforeData,
    kDuringData,
    kBeforeManifest,
    kBeforeComplete,
    kBeforeRename,
    kBeforeRetain,
};

/// Faults that tests inject.
struct Fault {
    std::int64_t throw_at_step = 0;             ///< steps count from 1; 0: never
    std::int64_t hang_at_step = 0;              ///< the rank does nothing more
    std::int64_t stray_collective_at_step = 0;  ///< the rank makes a call that others do not
    double slow_step_s = 0.0;                   ///< longer takes each step of the rank
    SaveStage kill_in_save = SaveStage::kNone;
    std::int64_t rank = 0;      ///< the rank that all of the above happen to
    std::int64_t delay_us = 0;  ///< longest random delay at a synchronisation point
    bool poison = false;        ///< fill slots with NaN between uses

    bool operator==(const Fault&) const = default;
};

enum class Processor : std::uint8_t { kCpu, kCuda };

struct Device {
    Processor kind = Processor::kCpu;

    bool operator==(const Device&) const = default;
};

struct Trace {
    std::vector<std::int64_t> steps;  ///< to be recorded; counted from 1

    bool operator==(const Trace&) const = default;
};

struct Deck {
    Run run;
    Model model;
    Data data;
    Generate generate;
    Train train;
    Elasticity elasticity;
    Optimizer optimizer;
    Schedule schedule;
    Shard shard;
    Reduce reduce;
    Precision precision;
    Topology topology;
    Comm comm;
    Stop stop;
    Checkpoint checkpoint;
    Kernels kernels;
    Device device;
    Trace trace;
    Fault fault;

    /// Where the keys that were set got their values: "text.ini:12" or "command line". A key that
    /// is absent has its default.
    std::map<std::string, std::string, std::less<>> origins;

    /// Equal values in every key; origins do not count.
    friend bool operator==(const Deck& a, const Deck& b);
};

/// The origin of `key` in words: its place, or "default".
std::string origin_of(const Deck& deck, std::string_view key);

}  // namespace fullshard::config
