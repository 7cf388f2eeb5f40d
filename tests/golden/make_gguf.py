#!/usr/bin/env python3
"""Writes a small Llama as a GGUF file with every type of tensor that FullShard reads, and a GPT-2; the
same models as transformers reads them out of there; and single blocks of each type with their values.

README.md beside this file tells how to run it.
"""

import argparse
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoConfig, AutoModelForCausalLM

from hf_models import logits_of
from make_hf_models import nested, random_tokens
from rng import mix, normal, stable_hash, uniform

SEED = 501
SCHEMA = 1
# Rows of K-quants are multiples of 256 elements, which the width is; two heads share one of keys.
WIDTH, FEED_FORWARD, HEADS, KV_HEADS, HEAD_SIZE, VOCABULARY = 256, 8, 2, 1, 8, 11
# Tensors of one layer: GGUF's name, rows, columns, type.
TENSORS = [
    ("token_embd.weight", VOCABULARY, WIDTH, Type.Q8_0),
    ("blk.0.attn_norm.weight", None, WIDTH, Type.F32),
    ("blk.0.attn_q.weight", HEADS * HEAD_SIZE, WIDTH, Type.Q4_1),
    ("blk.0.attn_k.weight", KV_HEADS * HEAD_SIZE, WIDTH, Type.Q4_0),
    ("blk.0.attn_v.weight", KV_HEADS * HEAD_SIZE, WIDTH, Type.BF16),
    ("blk.0.attn_output.weight", WIDTH, HEADS * HEAD_SIZE, Type.F32),
    ("blk.0.ffn_norm.weight", None, WIDTH, Type.F32),
    ("blk.0.ffn_gate.weight", FEED_FORWARD, WIDTH, Type.Q4_K),
    ("blk.0.ffn_up.weight", FEED_FORWARD, WIDTH, Type.Q6_K),
    ("blk.0.ffn_down.weight", WIDTH, FEED_FORWARD, Type.F16),
    ("output_norm.weight", None, WIDTH, Type.F32),
    ("output.weight", VOCABULARY, WIDTH, Type.Q6_K),
]
# A GPT-2 with a tied head; llama.cpp stores its linear layers [out, in].
GPT2_WIDTH, GPT2_HEADS, GPT2_POSITIONS, GPT2_VOCABULARY = 32, 2, 24, 13
GPT2_TENSORS = [
    ("token_embd.weight", GPT2_VOCABULARY, GPT2_WIDTH, Type.F16),
    ("position_embd.weight", GPT2_POSITIONS, GPT2_WIDTH, Type.F32),
    ("blk.0.attn_norm.weight", None, GPT2_WIDTH, Type.F32),
    ("blk.0.attn_norm.bias", None, GPT2_WIDTH, Type.F32),
    ("blk.0.attn_qkv.weight", 3 * GPT2_WIDTH, GPT2_WIDTH, Type.Q8_0),
    ("blk.0.attn_qkv.bias", None, 3 * GPT2_WIDTH, Type.F32),
    ("blk.0.attn_output.weight", GPT2_WIDTH, GPT2_WIDTH, Type.F16),
    ("blk.0.attn_output.bias", None, GPT2_WIDTH, Type.F32),
    ("blk.0.ffn_norm.weight", None, GPT2_WIDTH, Type.F32),
    ("blk.0.ffn_norm.bias", None, GPT2_WIDTH, Type.F32),
    ("blk.0.ffn_up.weight", 4 * GPT2_WIDTH, GPT2_WIDTH, Type.Q8_0),
    ("blk.0.ffn_up.bias", None, 4 * GPT2_WIDTH, Type.F32),
    ("blk.0.ffn_down.weight", GPT2_WIDTH, 4 * GPT2_WIDTH, Type.Q4_0),
    ("blk.0.ffn_down.bias", None, GPT2_WIDTH, Type.F32),
    ("output_norm.weight", None, GPT2_WIDTH, Type.F32),
    ("output_norm.bias", None, GPT2_WIDTH, Type.F32),
]
BLOCK_TYPES = [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q4_K, Type.Q6_K]
BLOCKS = 3
# Byte offsets of the float16 scales in a block.
SCALES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q4_K: [0, 2], Type.Q6_K: [208]}


def random_bytes(purpose, count):
    return (uniform(mix(SEED, stable_hash(purpose)), count) * 256).astype(np.uint8)


def random_blocks(purpose, kind, count, scales):
    """Blocks whose every bit is random but for their scales."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_bytes(purpose, count * size).reshape(count, size)
    for place, offset in enumerate(SCALES[kind]):
        values = np.roll(np.resize(np.float16(scales), count), place)
        blocks[:, offset:offset + 2] = values.view(np.uint8).reshape(count, 2)
    return blocks


def data_of(name, rows, columns, kind):
    """The package quantises the simple types; blocks of K-quants are made up."""
    if rows is None:
        offset = 0.0 if name.endswith("bias") else 1.0
        return (offset + 0.1 * normal(mix(SEED, stable_hash(name)), columns)).astype(np.float32)
    if kind in (Type.Q4_K, Type.Q6_K):
        small = [0.0002, 0.0003] if kind == Type.Q4_K else [0.00005, 0.00003]
        count = rows * columns // gguf.GGML_QUANT_SIZES[kind][0]
        return random_blocks(name, kind, count, small).reshape(rows, -1)
    drawn = (0.08 * normal(mix(SEED, stable_hash(name)), rows * columns)).astype(np.float32)
    return gguf.quants.quantize(drawn.reshape(rows, columns), kind)


def write_vocabulary(writer, size):
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([1] * size)
    writer.add_token_merges(["t 0", "t 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_tensors(writer, tensors):
    for name, rows, columns, kind in tensors:
        writer.add_tensor(name, data_of(name, rows, columns, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_rope_freq_base(1000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    write_vocabulary(writer, VOCABULARY)
    write_tensors(writer, TENSORS)


def write_gpt2(path):
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(GPT2_POSITIONS)
    writer.add_embedding_length(GPT2_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4 * GPT2_WIDTH)
    writer.add_head_count(GPT2_HEADS)
    writer.add_layer_norm_eps(1e-5)
    write_vocabulary(writer, GPT2_VOCABULARY)
    write_tensors(writer, GPT2_TENSORS)


def write_as_transformers_reads(path, folder):
    """Dequantised, in transformers' names, layouts and order of rows, in float32."""
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    if config.model_type == "gpt2":
        config.n_positions = GPT2_POSITIONS  # transformers does not read gpt2.context_length
    read = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, config=config,
                                                dtype=torch.float32)
    settings = {key: value for key, value in read.config.to_dict().items()
                if key not in ("quantization_config", "_name_or_path")}
    config = type(read.config).from_dict(settings, attn_implementation="eager")
    model = type(read)(config).eval()  # one that does not count as quantised
    model.load_state_dict(read.state_dict())
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    vocab_size = read.config.vocab_size
    tokens = random_tokens(SEED, "golden tokens", 16, vocab_size).reshape(1, 16).tolist()
    with torch.no_grad():
        return {"tokens": tokens, "logits": nested(logits_of(model, tokens).numpy())}


def blocks_of(kind):
    """Scales: of usual size, negative, and subnormal."""
    if kind == Type.F16:
        halves = [0.0, -0.0, 1.5, -65504.0, 2.0**-24, -(2.0**-15), 0.1, 1000.0]
        return np.float16(halves).view(np.uint8)
    if kind == Type.BF16:
        singles = np.float32([0.0, -0.0, 1.5, -3e38, 1e-40, -(2.0**-126), 0.1, 1000.0])
        return (singles.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return random_blocks(kind.name, kind, BLOCKS, [0.0123, -1.75, 2.0**-20]).reshape(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "gguf")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.mkdir(exist_ok=True)
    golden = {"schema": SCHEMA, "seed": SEED}
    for family, write in (("llama", write_llama), ("gpt2", write_gpt2)):
        path = arguments.output / f"{family}.gguf"
        write(path)
        golden[family] = write_as_transformers_reads(path, arguments.output / family)
        print(f"{path.name}: {path.stat().st_size} bytes")
    for kind in BLOCK_TYPES:
        data = blocks_of(kind)
        values = gguf.quants.dequantize(data, kind).astype("<f4")
        golden[kind.name] = {"bytes": data.tobytes().hex(), "values": values.tobytes().hex()}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    (arguments.output / "gguf.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
