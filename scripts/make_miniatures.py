#!/usr/bin/env python3
"""make_miniatures.py - tiny random checkpoints with Hugging Face's logits for them, for
test/commands/test_logits.py.

    python3 scripts/make_miniatures.py test/data/miniatures [NAME...]

Each directory is a whole checkpoint (config, weights, a tokenizer of single characters) and reference.npz:
`ids` [64] and `logits` fp32 [64][vocab], teacher-forced, by reference.py. Together they cover the
architectures, layouts, rope scalings, windows, head sizes and spellings of models.md. Weights are seeded and
scaled so that attention and logits are decided, not flat; and every miniature says which members of its
config it is there for (`matters`): reading one wrongly must move the logits, which is checked here, so that
no miniature passes by not testing anything. Needs numpy, torch, transformers 5.
"""

import os
import shutil
import sys
import zlib

import numpy as np

import checkpoint
import compare
import reference

N_TOKENS = 64
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
VOCAB = 104  # the alphabet, three special tokens, five rows that no token has: real checkpoints pad theirs, too
FLOOR = 1e-3  # least mean KL that a wrongly read member must cause: ten times what a test allows
AWQ32 = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True,
         "modules_to_not_convert": None}


def awq(group, **more):
    return {**AWQ32, "group_size": group, **more}


def llama(**config):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 128, "vocab_size": VOCAB, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
            "tie_word_embeddings": True, "bos_token_id": 97, "eos_token_id": 98, "torch_dtype": "float16", **config}


def mistral(**config):
    return llama(architectures=["MistralForCausalLM"], model_type="mistral", **config)


def qwen2(**config):
    return llama(architectures=["Qwen2ForCausalLM"], model_type="qwen2", rms_norm_eps=1e-06, **config)


def qwen3(**config):
    return llama(**{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-06,
                    "attention_bias": False, **config})


def new_names(config):
    """The spellings of transformers 5: dtype, and rope_parameters that hold rope_theta."""
    config = dict(config)
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {**(config.pop("rope_scaling", None) or {"rope_type": "default"}),
                                 "rope_theta": config.pop("rope_theta")}
    return config


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
YARN_MSCALE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 2.0,
               "beta_slow": 0.5, "mscale": 3.0, "mscale_all_dim": 0.5, "truncate": False}
PLAIN = {"rope_type": "default"}

# name: config, and what else there is to it:
#   matters   members of config.json that, replaced so, must move the logits by FLOOR
#   quant     "config": quantization_config lies in config.json; "file": in a quant_config.json with its old names
#   bias      layers that have one
#   shards    number of safetensors files
MINIATURES = {
    "llama-f16": dict(config=llama(), matters=[{"rope_theta": 100.0}]),
    "llama-bf16": dict(config=llama(torch_dtype="bfloat16", num_key_value_heads=4, tie_word_embeddings=False,
                                    head_dim=None), matters=[{"rms_norm_eps": 0.1}]),
    "llama-f32-biases": dict(config=llama(torch_dtype="float32", attention_bias=True, mlp_bias=True, hidden_size=48,
                                          num_key_value_heads=1, intermediate_size=72), bias="qkvogud",
                             matters=[]),
    "llama-head-34": dict(config=llama(head_dim=34, num_attention_heads=4, num_key_value_heads=1), matters=[]),
    "llama-head-80": dict(config=llama(head_dim=80, num_attention_heads=2, num_key_value_heads=1,
                                       quantization_config=awq(16)), matters=[]),
    "llama-head-256": dict(config=llama(head_dim=256, num_attention_heads=2, num_key_value_heads=1,
                                        quantization_config=AWQ32), matters=[]),
    "llama-sharded": dict(config=llama(num_hidden_layers=3, hidden_size=48, intermediate_size=64, num_attention_heads=6,
                                       num_key_value_heads=1), shards=3,
                          matters=[]),
    "llama-linear": dict(config=llama(rope_scaling={"type": "linear", "factor": 4.0}, quantization_config=AWQ32),
                         quant="file", matters=[{"rope_scaling": None}]),
    "llama3-awq": dict(config=llama(rope_scaling=LLAMA3, num_attention_heads=8, head_dim=16, quantization_config=awq(
        32, modules_to_not_convert=["lm_head"])), matters=[
            {"rope_scaling": None}, {"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0}},
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 8.0}},
            {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}}]),
    "llama3-awq-whole": dict(config=new_names(llama(rope_scaling=LLAMA3, tie_word_embeddings=False,
                                                    quantization_config=awq(-1))),
                             matters=[{"rope_parameters": {**PLAIN, "rope_theta": 10000.0}}]),
    "llama-yarn-mscale": dict(config=new_names(llama(num_attention_heads=2, num_key_value_heads=2,
                                                     rope_scaling=YARN_MSCALE)), matters=[
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "truncate": True}},
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "mscale": 1.0}},
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "beta_fast": 32.0}}]),
    "llama-awq-partly": dict(config=llama(quantization_config=awq(
        32, modules_to_not_convert=["model.layers.0.mlp.down_proj", "self_attn.v_proj"])), matters=[]),
    "mistral-window": dict(config=mistral(sliding_window=16, head_dim=None), matters=[
        {"sliding_window": None}, {"sliding_window": 15}, {"sliding_window": 17}]),
    "mistral-awq-128": dict(config=mistral(sliding_window=None, hidden_size=128, intermediate_size=128, head_dim=32,
                                           quantization_config=awq(128)), matters=[{"rope_theta": 100.0}]),
    "qwen2-awq": dict(config=qwen2(quantization_config=AWQ32, use_sliding_window=False, sliding_window=16,
                                   max_window_layers=1), bias="qkv", matters=[
                                       {"use_sliding_window": True}]),
    "qwen2-window": dict(config=qwen2(use_sliding_window=True, sliding_window=16, max_window_layers=1,
                                      num_hidden_layers=3, hidden_size=48, intermediate_size=64,
                                      torch_dtype="bfloat16"), bias="qkv", matters=[
                                          {"use_sliding_window": False}, {"max_window_layers": 0},
                                          {"max_window_layers": 2}]),
    "qwen2-yarn": dict(config=qwen2(rope_scaling=YARN, rope_theta=1000.0, num_attention_heads=2,
                                    num_key_value_heads=2, quantization_config=awq(64), intermediate_size=128,
                                    use_sliding_window=False, tie_word_embeddings=False), bias="qkv", matters=[
                                        {"rope_scaling": None}, {"rope_scaling": {**YARN, "factor": 2.0}},
                                        {"rope_scaling": {**YARN, "beta_slow": 0.25}},
                                        {"rope_scaling": {**YARN, "attention_factor": 1.0}},
                                        {"rope_scaling": {**YARN, "original_max_position_embeddings": 64}}]),
    "qwen3-awq": dict(config=qwen3(head_dim=32, quantization_config=AWQ32), matters=[{"rope_theta": 100.0}]),
    "qwen3-layer-types": dict(config=new_names(qwen3(
        num_hidden_layers=3, hidden_size=48, head_dim=24, use_sliding_window=True, sliding_window=16,
        max_window_layers=0,
        torch_dtype="bfloat16", tie_word_embeddings=False, intermediate_size=80,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])), matters=[
            {"layer_types": ["full_attention"] * 3}, {"layer_types": ["sliding_attention"] * 3}]),
    "qwen3-yarn": dict(config=new_names(qwen3(head_dim=32, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.5},
        rope_theta=1000.0, quantization_config=awq(16))), matters=[
            {"rope_parameters": {**PLAIN, "rope_theta": 1000.0}}]),
}


def linear_shapes(config):
    """name -> (letter, n_out, n_in) of a layer's linears"""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    q, kv = heads * head, config["num_key_value_heads"] * head
    return {"self_attn.q_proj": ("q", q, hidden), "self_attn.k_proj": ("k", kv, hidden),
            "self_attn.v_proj": ("v", kv, hidden), "self_attn.o_proj": ("o", hidden, q),
            "mlp.gate_proj": ("g", inner, hidden), "mlp.up_proj": ("u", inner, hidden),
            "mlp.down_proj": ("d", hidden, inner)}


def make_tensors(name, config, bias=""):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = config.get("torch_dtype") or config["dtype"]
    quant, hidden = config.get("quantization_config"), config["hidden_size"]
    dense = (quant or {}).get("modules_to_not_convert") or []
    tensors = {}

    def put(tensor, values):
        stored = {"float16": np.float16, "float32": np.float32}.get(dtype)
        tensors[tensor] = values.astype(stored) if stored else checkpoint.to_bf16(values)

    def normal(*shape, std):
        return (rng.standard_normal(shape) * std).astype(np.float32)

    # Tied heads: rows of this length make logits of a standard deviation near 3.
    put("model.embed_tokens.weight", normal(config["vocab_size"], hidden, std=3 / hidden**0.5))
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        if config["model_type"] == "qwen3":
            head = config.get("head_dim") or hidden // config["num_attention_heads"]
            norms.update({"self_attn.q_norm": head, "self_attn.k_norm": head})
        for norm, width in norms.items():
            put(prefix + norm + ".weight", 1 + normal(width, std=0.25))
        for linear, (letter, n_out, n_in) in linear_shapes(config).items():
            # Scores q k / sqrt(head_dim) of a standard deviation near 2.5: a few positions get the attention.
            weight = normal(n_out, n_in, std=(1.6 if letter in "qk" else 1.0) / n_in**0.5)
            whole = prefix + linear
            if quant and not any(module in whole for module in dense):
                tensors.update(checkpoint.awq_tensors(whole, *checkpoint.awq_quantise(weight, quant["group_size"])))
            else:
                put(whole + ".weight", weight)
            if letter in bias:
                put(whole + ".bias", normal(n_out, std=0.5))
    put("model.norm.weight", 1 + normal(hidden, std=0.25))
    if not config["tie_word_embeddings"]:
        put("lm_head.weight", normal(config["vocab_size"], hidden, std=3 / hidden**0.5))
    return tensors


def tokenizer():
    """A token for each character of the alphabet and three special ones: `auk eval` wants one beside a
    checkpoint."""
    byte_level_names = {"\n": "\u010a", " ": "\u0120"}  # as GPT-2's alphabet of bytes has them
    vocab = {byte_level_names.get(character, character): i for i, character in enumerate(ALPHABET)}
    special = [{"id": len(ALPHABET) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, content in enumerate(["<pad>", "<s>", "</s>"])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": []}}


def write_config(directory, config, quant):
    config = dict(config)
    if quant == "file":
        old = config.pop("quantization_config")
        checkpoint.write_json(os.path.join(directory, "quant_config.json"), {
            "zero_point": old["zero_point"], "q_group_size": old["group_size"], "w_bit": old["bits"],
            "version": old["version"].upper()})
    checkpoint.write_json(os.path.join(directory, "config.json"), config)


def make(out, name, config, matters, quant="config", bias="", shards=1):
    directory = os.path.join(out, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    tensors = make_tensors(name, config, bias)
    if shards > 1:
        checkpoint.write_shards(directory, tensors, shards)
    else:
        checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    write_config(directory, config, quant)
    checkpoint.write_json(os.path.join(directory, "tokenizer.json"), tokenizer(), indent=None)

    ids = np.random.default_rng(zlib.crc32(name.encode()) + 1).integers(0, VOCAB, N_TOKENS).astype(np.int32)
    logits = reference.logits(reference.load(directory), ids)
    np.savez_compressed(os.path.join(directory, "reference.npz"), ids=ids, logits=logits)
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    print(f"{name}: {size // 1000} kB, logits of standard deviation {logits.std():.1f}")
    for change in matters:
        distance = compare.kl(logits, reference.logits(reference.load(directory, **change), ids)).mean()
        print(f"  {change}: mean KL {distance:.2g}")
        if not distance >= FLOOR:
            sys.exit(f"{name}: {change} moves the logits by a mean KL of {distance:.2g}, expected at least {FLOOR}")


def main(out, *names):
    for name, miniature in MINIATURES.items():
        if not names or name in names:
            make(out, name, **miniature)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
