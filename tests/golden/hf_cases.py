"""GPT-2 and Llama models whose logits and losses transformers gives: one entry per file in hf/.

`config` is what a config.json says; some are spelled as transformers 4 does (rope_theta,
rope_scaling, torch_dtype) and some as version 5 does (rope_parameters, dtype).
"""

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 61,
        "n_positions": 20, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True,
        "bos_token_id": 30, "eos_token_id": 30}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 61,
         "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
         "max_position_embeddings": 64, "initializer_range": 0.02, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
         "bos_token_id": 1, "eos_token_id": 2}
V4 = {"torch_dtype": "float32", "transformers_version": "4.46.0"}
V5 = {"dtype": "float32", "transformers_version": "5.0.0"}
# Wide heads and a small base: wavelengths of 6 to 400 tokens lie on both sides of the lengths that
# the variants of RoPE tell apart.
ROPE = {**LLAMA, "vocab_size": 31, "head_dim": 16, "num_attention_heads": 2,
        "num_key_value_heads": 1}


def case(seed, config, batch=2, sequence=16, documents=None, train=None, folder=None,
         differs_from_default=False):
    """`documents`: lengths of the documents of each row, the rest being padding. `folder`: saved by
    transformers under this name too, in shards of at most that many bytes. `differs_from_default`:
    the script makes sure that plain RoPE gives other logits."""
    return {"seed": seed, "config": config, "batch": batch, "sequence": sequence,
            "documents": documents, "train": train, "folder": folder,
            "differs_from_default": differs_from_default}


def rope(seed, parameters, sequence, **config):
    return case(seed, {**ROPE, **V5, **config, "rope_parameters": parameters}, batch=1,
                sequence=sequence, differs_from_default=True)


def rope_v4(seed, theta, scaling, sequence, differs=True, **config):
    return case(seed, {**ROPE, **V4, **config, "rope_theta": theta, "rope_scaling": scaling},
                batch=1, sequence=sequence, differs_from_default=differs)


TRAIN = {"steps": 10, "batch": 4, "sequence": 16}
DOCUMENTS = [[5, 1, 7], [16], [3, 9, 2]]

CASES = {
    "gpt2_tied": case(101, {**GPT2, **V4}, train=TRAIN),
    "gpt2_untied": case(102, {**GPT2, **V5, "tie_word_embeddings": False, "n_inner": 80},
                        train=TRAIN),
    "gpt2_odd_sizes": case(2**63 + 103, {**GPT2, **V5, "vocab_size": 37, "n_embd": 21, "n_head": 3,
                                         "n_layer": 3, "n_inner": 35, "n_positions": 7,
                                         "layer_norm_epsilon": 1e-3}, sequence=7),
    "gpt2_documents": case(104, {**GPT2, **V4, "vocab_size": 41, "resid_pdrop": 0.1,
                                 "embd_pdrop": 0.1, "attn_pdrop": 0.1},
                           batch=3, documents=DOCUMENTS),
    "llama_untied": case(201, {**LLAMA, **V4, "rope_theta": 10000.0, "rope_scaling": None},
                         train=TRAIN),
    "llama_tied": case(202, {**LLAMA, **V5, "tie_word_embeddings": True, "rms_norm_eps": 1e-3,
                             "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
                       train=TRAIN),
    "llama_one_kv_head": case(203, {**LLAMA, **V4, "num_key_value_heads": 1, "rope_theta": 100.0}),
    # Without num_key_value_heads, and with no word on RoPE at all: the defaults.
    "llama_no_groups": case(204, {key: value for key, value in {**LLAMA, **V4}.items()
                                  if key != "num_key_value_heads"}),
    "llama_head_size": case(205, {**LLAMA, **V5, "head_dim": 14, "rope_parameters":
                                  {"rope_type": "default", "rope_theta": 1000.0}}),
    "llama_odd_sizes": case(206, {**LLAMA, **V4, "vocab_size": 37, "hidden_size": 42,
                                  "num_attention_heads": 3, "num_key_value_heads": 1,
                                  "intermediate_size": 35, "num_hidden_layers": 3,
                                  "rope_theta": 300.0, "head_dim": 10}, sequence=7),
    "llama_documents": case(207, {**LLAMA, **V5, "vocab_size": 41, "rope_parameters":
                                  {"rope_type": "default", "rope_theta": 30.0}},
                            batch=3, documents=DOCUMENTS),
    "llama_rope_linear": rope(301, {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0},
                              sequence=32),
    "llama_rope_linear_v4": rope_v4(302, 100.0, {"type": "linear", "factor": 4.0}, sequence=32),
    # The base grows beyond max_position_embeddings tokens only, and with the sequence at hand.
    "llama_rope_dynamic": rope(303, {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 50.0},
                               sequence=40, max_position_embeddings=16),
    "llama_rope_dynamic_short": rope_v4(304, 50.0, {"type": "dynamic", "factor": 3.0},
                                        sequence=16, differs=False, max_position_embeddings=16),
    # Wavelengths below 16 are kept, above 64 stretched; three lie between.
    "llama_rope_llama3": rope(305, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "rope_theta": 100.0,
                                    "original_max_position_embeddings": 64},
                              sequence=48, max_position_embeddings=512),
    "llama_rope_llama3_v4": rope_v4(306, 100.0, {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 2.0, "high_freq_factor": 6.0,
        "original_max_position_embeddings": 128}, sequence=48, max_position_embeddings=4096),
    "llama_rope_yarn": rope(307, {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
                                  "original_max_position_embeddings": 32},
                            sequence=48, max_position_embeddings=128),
    "llama_rope_yarn_v4": rope_v4(308, 100.0, {
        "rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 0.5,
        "attention_factor": 1.3, "original_max_position_embeddings": 64},
        sequence=48, max_position_embeddings=512),
    "gpt2_folder": case(401, {**GPT2, "n_embd": 24}, train=TRAIN, folder=10**9),
    "llama_folder": case(402, {**LLAMA, "hidden_size": 24, "tie_word_embeddings": True,
                               "rope_parameters": {"rope_type": "default",
                                                   "rope_theta": 10000.0}},
                         train=TRAIN, folder=20_000),
}
