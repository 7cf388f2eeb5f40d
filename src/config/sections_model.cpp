// Keys of the run, its model and its data.
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
                                   {"torchscript", Family::kTorchScript},
                                   {"custom", Family::kCustom}}};
    const Choice<Activation> activations{
        {{"relu", Activation::kRelu}, {"gelu", Activation::kGelu}}};
    const Choice<Attention> attentions{
        {{"causal", Attention::kCausal}, {"bidirectional", Attention::kBidirectional}}};
    const Choice<Positions> positions{
        {{"none", Positions::kNone}, {"learned", Positions::kLearned}}};
    return {
        "model",
        "The model. simple_transformer: token embedding, encoder layers, linear head.",
        {key("model.family", s, &Model::family, families, "",
             "simple_transformer: the built-in model below. torchscript: files that "
             "torch.jit.save wrote. custom: the model of a program built with one of its own, "
             "which may read the other keys as it likes."),
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
         key("model.tie_embeddings", s, &Model::tie_embeddings, Boolean{}, "",
             "The head's matrix is the embedding's: one parameter, one gradient."),
         key("model.path", s, &Model::path, Paths{}, "",
             "TorchScript files that are run one after another, each a stage: the first takes "
             "tokens, the last gives logits of model.vocab_size classes. Only for torchscript."),
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

}  // namespace fullshard::config
