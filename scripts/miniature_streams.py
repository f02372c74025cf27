"""miniature_streams.py - miniatures of Qwen3.8-Flash-Next: their configs, and the tensors that no other family has.

Used by: make_miniatures.py, miniature_shapes.py, reference.py. Source: transformers 5.23, models/qwen4_exp, and
conversion_mapping.py for the shards of the n-grams' tables.
"""

import math

import numpy as np

from miniature_configs import awq, with_vision
from miniature_experts import qwen3_5_moe

KIND = "qwen4_exp_text"
# Buffers of the n-gram embeddings, which follow from the config.
HASH_BUFFERS = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")


# --- configs


def qwen4_exp(**config):
    config = qwen3_5_moe(**{"architectures": ["Qwen4ExpForCausalLM"], "model_type": KIND, "tie_word_embeddings": False,
                            **config})
    return {key: value for key, value in config.items() if key not in ("intermediate_size", "rope_theta") and
            (key != "full_attention_interval" or "layer_types" not in config)}


def table_rows(config, index):
    """rows of each hash's part of the table of the index-th layer with n-grams, from 0; rows with the padding"""
    n_hashes = (config["ngram_size"] - 1) * config["heads_per_ngram"]
    primes, number = [], config["ngram_vocab_size_base"]
    while len(primes) < (index + 1) * n_hashes:
        if number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1)):
            primes.append(number)
        number += 1
    multiple = config["make_ngram_vocab_size_divisible_by"]
    return primes[index * n_hashes:], -(-sum(primes[index * n_hashes:]) // multiple) * multiple


SPLITMIX_GAMMA, MASK64 = 0x9E3779B97F4A7C15, (1 << 64) - 1


def hash_factors(config, index):
    """The factors of the tokens of an n-gram, the newest first."""
    half = max(1, ((1 << 63) - 1) // config["vocab_size"] // 2)
    factors = []
    for position in range(1, config["ngram_size"] + 1):
        value = config["seed"] + 10007 * index + SPLITMIX_GAMMA * (position + 1) & MASK64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
        factors.append(2 * ((value ^ value >> 31) % half) + 1)
    return factors


# --- tensors


def streams_width(config):
    """Numbers of all residual streams of a token; 0: there is one, as usual."""
    return config["hc_count"] * config["hidden_size"] if config["model_type"] == KIND else 0


def has_ngrams(config, layer):
    return config["model_type"] == KIND and layer + 1 in config.get("ple_layer_ids", [])


def stream_norms(config, layer, is_delta):
    """name -> width of a layer's norms"""
    norms = {name + ".hc_norm": streams_width(config) for name in ("attn_hyper_connection", "mlp_hyper_connection")}
    if has_ngrams(config, layer):
        norms.update({f"ple.norm_{name}": streams_width(config) for name in ("key", "query", "conv")})
    if not is_delta:
        norms.update({f"self_attn.{name}_norm": config["head_dim"] for name in "qk"})
        norms.update({f"self_attn.indexer.{name}_layernorm": config["indexer_head_dim"] for name in "qk"})
    return norms


def put_mix(config, name, with_factors, put, normal):
    """The matrices that mix a token's streams: they make weights, and (with_factors) what outputs are multiplied by.
    Weights and factors are decided: the arguments of their sigmoids have a standard deviation near 1.5."""
    width, rank, n = streams_width(config), config["hc_lowrank"], config["hc_count"]
    put(name + ".input_mix_weight_down.weight", normal(rank, width, std=1.5 * n / width**0.5))
    put(name + ".input_mix_weight_up.weight", normal(width, rank, std=2 / rank**0.5))
    if with_factors:
        put(name + ".block_inject_weight.weight", normal(n, width, std=1.5 * n / width**0.5))


def put_ngrams(config, prefix, index, sharded, put, normal, tensors):
    width, inputs = streams_width(config), config.get("ple_embed_dim", config["hidden_size"])
    n_hashes = (config["ngram_size"] - 1) * config["heads_per_ngram"]
    parts, n_rows = table_rows(config, index)
    table = normal(n_rows, inputs // n_hashes, std=1)
    name = prefix + "ple_embedding.ngram_embedding."
    shards = np.split(table, config["split_ngram_parts"]) if sharded else []
    for i, shard in enumerate(shards):
        put(f"{name}shard_{i}.weight", shard)
    if not shards:  # as save_pretrained() stores it where split_ngram_parts is 1: its buffers, too
        put(name + "weight", table)
        starts = np.cumsum([0] + parts[:-1])
        for buffer, values in zip(HASH_BUFFERS, (hash_factors(config, index), parts, starts)):
            tensors[prefix + "ple_embedding." + buffer] = np.array(values, np.int64)
    put(prefix + "key_proj.weight", normal(width, inputs, std=1 / inputs**0.5))
    # Small enough that what blocks add to the streams is not lost beside it.
    put(prefix + "value_proj.weight", normal(config["hidden_size"], inputs, std=0.6 / inputs**0.5))
    put(prefix + "conv1d.weight", normal(width, 1, config.get("ple_conv_kernel_size", 4), std=0.4))


def stream_tensors(config, prefix, layer, sharded, is_delta, put, normal, tensors):
    """Adds what only these models have to a layer; stream_norms() has the norms."""
    for name in ("attn_hyper_connection", "mlp_hyper_connection"):
        put_mix(config, prefix + name, True, put, normal)
    if has_ngrams(config, layer):
        index = config["ple_layer_ids"].index(layer + 1)
        put_ngrams(config, prefix + "ple.", index, sharded, put, normal, tensors)
    if not is_delta:
        n_out = (config["indexer_n_heads"] + config["indexer_kv_heads"]) * config["indexer_head_dim"]
        put(prefix + "self_attn.indexer.index_qk_proj.weight", normal(
            n_out, config["hidden_size"], std=1 / config["hidden_size"]**0.5))


def joined(tensors):
    """Tensors of a checkpoint as transformers has them: shards of a table are one; buffers are left out."""
    out, shards = {}, {}
    for name, array in tensors.items():
        before, found, rest = name.partition(".shard_")
        if found:
            shards.setdefault(before + ".weight", {})[int(rest.split(".")[0])] = array
        elif not is_hash_buffer(name):
            out[name] = array
    out.update({name: np.concatenate([parts[i] for i in range(len(parts))]) for name, parts in shards.items()})
    return out


def is_hash_buffer(name):
    return name.endswith(HASH_BUFFERS)


ROPE = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}
PART_ROPE = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
             "mrope_section": [2, 1, 1]}
VISION = {"model_type": "qwen4_exp", "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
          "out_hidden_size": 32, "num_position_embeddings": 4, "patch_size": 14}
NOT_AWQ = awq(32, modules_to_not_convert=["mlp.gate.", "shared_expert_gate", "linear_attn", "hyper_connection", ".ple.",
                                          "indexer"])
PART = qwen4_exp(
    head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4, linear_value_head_dim=8,
    num_experts=3, num_experts_per_tok=2, hc_count=2, hc_lowrank=6, ple_layer_ids=[1], ple_conv_kernel_size=2,
    ngram_size=5, heads_per_ngram=2, ngram_vocab_size_base=30, make_ngram_vocab_size_divisible_by=16, seed=7,
    split_ngram_parts=1, indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=12, indexer_budget=6,
    indexer_compress_ratio=3, rope_parameters=PART_ROPE, torch_dtype="float16", quantization_config=NOT_AWQ)
# The text part's eos_token_id, whose first the n-grams use, is not the model's.
PART_TEXT = {**with_vision("", "", PART, None)["text_config"], "eos_token_id": [90, 98]}
# Salts with which every choice of blocks is decided. Scores that are 0 in all heads are frequent, and no rule says
# which of several such blocks is chosen.
STREAM_MINIATURES = {
    "qwen4-exp-bf16": dict(config=qwen4_exp(
        hidden_size=16, num_hidden_layers=4, head_dim=16,
        layer_types=["linear_attention", "full_attention", "linear_attention", "indexed_attention"],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4, linear_value_head_dim=8,
        num_experts=5, num_experts_per_tok=3, moe_intermediate_size=8, shared_expert_intermediate_size=8, hc_count=3,
        hc_lowrank=4, ple_layer_ids=[1, 3], ple_embed_dim=24, ple_conv_kernel_size=3, ngram_size=3, heads_per_ngram=2,
        ngram_vocab_size_base=32, make_ngram_vocab_size_divisible_by=8, seed=1234, split_ngram_parts=4,
        indexer_n_heads=3, indexer_kv_heads=1, indexer_head_dim=12, indexer_budget=8, indexer_compress_ratio=4,
        output_gate_type="sigmoid", rope_parameters=ROPE), experts="all", often=98, salt=144, matters=[
            {"indexer_budget": 12}, {"indexer_budget": 4}, {"indexer_budget": 64}, {"indexer_compress_ratio": 2},
            {"seed": 1235}, {"eos_token_id": 97}, {"output_gate_type": None}, {"num_experts_per_tok": 2},
            {"norm_topk_prob": False}, {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}}]),
    "qwen4-exp-text-part": dict(config=with_vision(
        "Qwen4ExpForConditionalGeneration", "qwen4_exp", PART, VISION, image_token_id=100, tie_word_embeddings=False,
        text_config=PART_TEXT), names=("model.language_model.", "lm_head"), often=90, salt=481, matters=[
            {"text_config": {**PART_TEXT, **change}} for change in (
                {"indexer_budget": 9}, {"indexer_compress_ratio": 2}, {"seed": 1234}, {"eos_token_id": [98, 90]},
                {"output_gate_type": "sigmoid"}, {"num_experts_per_tok": 1})]),
}
