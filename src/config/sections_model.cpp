// Keys of the run and its model.
#include "config/key_binding.h"

namespace fullshard::config {

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
             "Replace the run that run.dir already holds. off: as checkpoint.resume says."),
         key("run.rank_logs", s, &Run::rank_logs, Boolean{}, "",
             "Every rank writes its lines to a file of its own, run.dir/logs/rank-NNNNN.log."),
         key("run.measure_peak", s, &Run::measure_peak, Boolean{}, "",
             "Measure how fast each rank multiplies matrices, all ranks at the same time, before "
             "the first step (less than a second). The model FLOP/s utilisation (MFU) at the end "
             "refers to it."),
         key("run.peak_gflops", s, &Run::peak_gflops, Real{}, "GFLOP/s",
             "Peak of a rank in precision.param, which the MFU refers to. 0: unknown, no MFU "
             "unless run.measure_peak = on.")}};
}

Section model_section() {
    const auto s = &Deck::model;
    const Choice<Family> families{{{"simple_transformer", Family::kSimpleTransformer},
                                   {"gpt2", Family::kGpt2},
                                   {"llama", Family::kLlama},
                                   {"torchscript", Family::kTorchScript},
                                   {"custom", Family::kCustom}}};
    const Choice<Activation> activations{
        {{"relu", Activation::kRelu}, {"gelu", Activation::kGelu}}};
    const Choice<Attention> attentions{
        {{"causal", Attention::kCausal}, {"bidirectional", Attention::kBidirectional}}};
    const Choice<Positions> positions{
        {{"none", Positions::kNone}, {"learned", Positions::kLearned}}};
    const Choice<RopeScaling> rope_scalings{{{"none", RopeScaling::kNone},
                                             {"linear", RopeScaling::kLinear},
                                             {"dynamic", RopeScaling::kDynamic},
                                             {"llama3", RopeScaling::kLlama3},
                                             {"yarn", RopeScaling::kYarn}}};
    return {
        "model",
        "The model: token embedding, layers, head. A key that the family does not read warns.",
        {key("model.family", s, &Model::family, families, "",
             "simple_transformer: encoder layers as PyTorch's. gpt2: GPT-2 (pre-norm, learned "
             "positions, tanh GELU, biases). llama: Llama and models of its shape (RMSNorm, "
             "rotary positions, SwiGLU, grouped-query attention). torchscript: files that "
             "torch.jit.save wrote. custom: the model of a program built with one of its own, "
             "which may read the other keys as it likes."),
         key("model.config", s, &Model::config, Path{.may_be_empty = true}, "",
             "Where gpt2 and llama take the sizes that no other key sets from: a config.json of "
             "Hugging Face or a folder with one, a GGUF file, a GPT-2 file of llm.c, or a "
             "checkpoint of such a model. Empty: the keys and their defaults."),
         key("model.vocab_size", s, &Model::vocab_size, Integer{1, kMaxVocabulary}, "tokens",
             "Size of the vocabulary. Text is read as bytes: 256 fits any."),
         key("model.pad_vocab_to", s, &Model::pad_vocab_to, Integer{1, kMaxVocabulary}, "rows",
             "gpt2, llama: token tables get zero rows up to a multiple of this, which no token "
             "and no prediction uses."),
         key("model.d_model", s, &Model::d_model, Integer{1, kMaxWidth}, "",
             "Width of the residual stream; a multiple of model.num_heads."),
         key("model.num_heads", s, &Model::num_heads, Integer{1, kMaxWidth}, "",
             "Attention heads of a layer."),
         key("model.num_kv_heads", s, &Model::num_kv_heads, Integer{0, kMaxWidth}, "",
             "llama: heads of keys and values, each shared by a group of attention heads; divides "
             "model.num_heads. 0: as many as those."),
         key("model.head_size", s, &Model::head_size, Integer{0, kMaxWidth}, "",
             "llama: width of an attention head, an even number. 0: model.d_model / "
             "model.num_heads."),
         key("model.num_layers", s, &Model::num_layers, Integer{1, kMaxLayers}, "", "Layers."),
         key("model.d_ff", s, &Model::d_ff, Integer{1, kMaxWidth}, "",
             "Width of a layer's feed-forward part."),
         key("model.max_positions", s, &Model::max_positions, Integer{0, kMaxSequence}, "tokens",
             "Longest sequence: rows of a learned position table, and for llama the length that "
             "the variants of rotary positions refer to. 0: data.sequence."),
         key("model.norm_eps", s, &Model::norm_eps, Real{.min_open = true}, "",
             "gpt2, llama: added to the variance under a norm's root."),
         key("model.init_deviation", s, &Model::init_deviation, Real{}, "",
             "gpt2, llama: standard deviation of initial weights; GPT-2's projections back to the "
             "residual stream start smaller by sqrt(2 layers)."),
         key("model.rope_theta", s, &Model::rope_theta, Real{.min_open = true}, "",
             "llama: base of the rotary frequencies."),
         key("model.rope_scaling", s, &Model::rope_scaling, rope_scalings, "",
             "llama: how rotary positions reach beyond model.rope_original_positions: linear "
             "(position interpolation), dynamic (NTK-aware, by the sequence at hand), llama3, "
             "yarn."),
         key("model.rope_factor", s, &Model::rope_factor, Real{.min = 1.0}, "",
             "llama: how many times longer; all of model.rope_scaling."),
         key("model.rope_original_positions", s, &Model::rope_original_positions,
             Integer{0, kMaxSequence}, "tokens",
             "llama: length of pretraining, which dynamic, llama3 and yarn start from. 0: "
             "model.max_positions."),
         key("model.rope_low_freq_factor", s, &Model::rope_low_freq_factor, Real{.min_open = true},
             "", "llama, rope_scaling = llama3: wavelengths above original / this are stretched."),
         key("model.rope_high_freq_factor", s, &Model::rope_high_freq_factor,
             Real{.min_open = true}, "",
             "llama, rope_scaling = llama3: wavelengths below original / this are kept."),
         key("model.rope_beta_fast", s, &Model::rope_beta_fast, Real{.min_open = true}, "turns",
             "llama, rope_scaling = yarn: frequencies of more turns over the original length are "
             "kept."),
         key("model.rope_beta_slow", s, &Model::rope_beta_slow, Real{.min_open = true}, "turns",
             "llama, rope_scaling = yarn: frequencies of fewer turns are stretched."),
         key("model.rope_attention_factor", s, &Model::rope_attention_factor, Real{}, "",
             "llama, rope_scaling = yarn: factor of queries and keys. 0: 0.1 ln(factor) + 1."),
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
             "model.max_positions positions."),
         key("model.tie_embeddings", s, &Model::tie_embeddings, Boolean{}, "",
             "The head's matrix is the embedding's: one parameter, one gradient. Where nothing "
             "sets it, GPT-2's are tied."),
         key("model.path", s, &Model::path, Paths{}, "",
             "TorchScript files that are run one after another, each a stage: the first takes "
             "tokens, the last gives logits of model.vocab_size classes. Only for torchscript."),
         key("model.init_from", s, &Model::init_from, Path{.may_be_empty = true}, "",
             "Weights to start from: a checkpoint or a run that has some, a consolidated .h5, a "
             ".safetensors file, a folder of Hugging Face, or for gpt2 and llama a GGUF file or a "
             "model of llm.c. Empty: random weights.")}};
}

}  // namespace fullshard::config
