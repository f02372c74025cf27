#!/usr/bin/env python3
"""Writes a drafter of random bf16 weights, in the shape of a published one, for `auk bench --draft`.

usage: random_drafter.py (dflash | eagle3) DIR [CONFIG]     for Qwen3-8B, 2.1 and 0.8 GB, or for the dense model of
                                                      this config.json, of its sizes
       random_drafter.py assistant DIR                for Gemma 4 31B, 0.9 GB
       random_drafter.py mtp DIR CONFIG               for the model of this config.json (Qwen3.5 to 3.8): DIR gets the
                                                      config and its layer for several tokens, for
                                                      `auk bench -m DIR --dummy-weights --draft mtp --accept P`

Sizes: z-lab/Qwen3-8B-DFlash-b16, AngelSlim/Qwen3-8B_eagle3 and google/gemma-4-31B-it-assistant on Hugging Face (of
the last the width and number of layers; heads and MLP are chosen to give its number of weights). Needs numpy.
FIGURES.md beside this file has what they gave.
"""
import json
import pathlib
import struct
import sys

import numpy as np

QWEN3_8B = {"hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 151936, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 36, "max_position_embeddings": 40960,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6}


def layer(prefix, target, n_in):
    """Tensors of a layer by their names; q, k and v take n_in numbers."""
    hidden, width, dim = target["hidden_size"], target["intermediate_size"], target["head_dim"]
    queries, keys = target["num_attention_heads"] * dim, target["num_key_value_heads"] * dim
    return {prefix + "self_attn.q_proj.weight": (queries, n_in), prefix + "self_attn.k_proj.weight": (keys, n_in),
            prefix + "self_attn.v_proj.weight": (keys, n_in), prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "mlp.gate_proj.weight": (width, hidden), prefix + "mlp.up_proj.weight": (width, hidden),
            prefix + "mlp.down_proj.weight": (hidden, width),
            prefix + "input_layernorm.weight": (hidden,), prefix + "post_attention_layernorm.weight": (hidden,)}


def drafter(kind, path=None):
    target = json.loads(pathlib.Path(path).read_text()) if path else QWEN3_8B
    target.setdefault("head_dim", target["hidden_size"] // target["num_attention_heads"])
    hidden, n_layers, vocab_size = target["hidden_size"], target["num_hidden_layers"], target["vocab_size"]
    config = {"hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False}
    config |= {name: target[name] for name in QWEN3_8B}
    shapes = {"norm.weight": (hidden,)}
    if kind == "dflash":
        taps = [1 + i * (n_layers - 4) // 4 for i in range(5)]
        config |= {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
                   "block_size": 16, "num_target_layers": n_layers,
                   "dflash_config": {"target_layer_ids": taps, "mask_token_id": min(151669, vocab_size - 1)}}
        shapes |= {"fc.weight": (hidden, 5 * hidden), "hidden_norm.weight": (hidden,)}
        for i in range(5):
            norms = {f"layers.{i}.self_attn.{which}_norm.weight": (target["head_dim"],) for which in "qk"}
            shapes |= layer(f"layers.{i}.", target, hidden) | norms
    else:
        some_words = min(32000, vocab_size // 4)
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
                   "draft_vocab_size": some_words}
        shapes |= {"fc.weight": (hidden, 3 * hidden), "midlayer.hidden_norm.weight": (hidden,), "d2t": (some_words,),
                   "lm_head.weight": (some_words, hidden)} | layer("midlayer.", target, 2 * hidden)
    return config, shapes


def assistant():
    hidden, width, heads, backbone, vocabulary = 1024, 8192, 32, 5376, 262144
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    text = {"model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": hidden,
            "intermediate_size": width, "num_hidden_layers": len(kinds), "num_attention_heads": heads,
            "num_key_value_heads": 16, "num_global_key_value_heads": 4, "attention_k_eq_v": True, "head_dim": 256,
            "global_head_dim": 512, "sliding_window": 1024, "hidden_size_per_layer_input": 0, "rms_norm_eps": 1e-6,
            "vocab_size": vocabulary, "max_position_embeddings": 262144, "tie_word_embeddings": True,
            "attention_bias": False, "layer_types": kinds, "num_kv_shared_layers": len(kinds),
            "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                   "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    config = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
              "backbone_hidden_size": backbone, "text_config": text, "tie_word_embeddings": True}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "pre_projection.weight": (hidden, 2 * backbone),
              "post_projection.weight": (backbone, hidden), "model.norm.weight": (hidden,)}
    for i, kind in enumerate(kinds):
        dim, prefix = 512 if kind == "full_attention" else 256, f"model.layers.{i}."
        norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        shapes |= {prefix + "self_attn.q_proj.weight": (heads * dim, hidden),
                   prefix + "self_attn.q_norm.weight": (dim,),
                   prefix + "self_attn.o_proj.weight": (hidden, heads * dim), prefix + "layer_scalar": (1,),
                   prefix + "mlp.gate_proj.weight": (width, hidden), prefix + "mlp.up_proj.weight": (width, hidden),
                   prefix + "mlp.down_proj.weight": (hidden, width)}
        shapes |= {f"{prefix}{name}_layernorm.weight": (hidden,) for name in norms}
    return config, shapes


def mtp(path):
    config = json.loads(pathlib.Path(path).read_text())
    text = config.get("text_config", config)
    hidden, width, dim = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    queries, keys = text["num_attention_heads"] * dim, text["num_key_value_heads"] * dim
    prefix = "mtp.layers.0."
    shapes = {"mtp.fc.weight": (hidden, 2 * hidden), "mtp.pre_fc_norm_hidden.weight": (hidden,),
              "mtp.pre_fc_norm_embedding.weight": (hidden,), "mtp.norm.weight": (hidden,),
              prefix + "input_layernorm.weight": (hidden,), prefix + "post_attention_layernorm.weight": (hidden,),
              prefix + "self_attn.q_proj.weight": (2 * queries, hidden),  # queries and their gates
              prefix + "self_attn.k_proj.weight": (keys, hidden), prefix + "self_attn.v_proj.weight": (keys, hidden),
              prefix + "self_attn.o_proj.weight": (hidden, queries), prefix + "self_attn.q_norm.weight": (dim,),
              prefix + "self_attn.k_norm.weight": (dim,), prefix + "mlp.gate_proj.weight": (width, hidden),
              prefix + "mlp.up_proj.weight": (width, hidden), prefix + "mlp.down_proj.weight": (hidden, width)}
    return config, shapes


def numbers(name, shape, random):
    """The bytes of a tensor: ids three apart, ones for norms, else normally distributed ones in bf16 that repeat."""
    if name == "d2t":
        return (np.arange(shape[0], dtype=np.int64) * 3).tobytes()
    values = np.ones(shape, np.float32) if len(shape) == 1 else random
    return np.resize((values.view(np.uint32) >> 16).astype(np.uint16), shape).tobytes()


def main(kind, folder, *rest):
    config, shapes = mtp(*rest) if kind == "mtp" else assistant() if kind == "assistant" else drafter(kind, *rest)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape)) * (8 if name == "d2t" else 2)
        header[name] = {"dtype": "I64" if name == "d2t" else "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1).standard_normal(3_000_017, np.float32) * np.float32(0.02)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            file.write(numbers(name, shape, random))


if __name__ == "__main__":
    kinds = {"dflash": (3, 4), "eagle3": (3, 4), "assistant": (3,), "mtp": (4,)}
    if len(sys.argv) < 2 or len(sys.argv) not in kinds.get(sys.argv[1], ()):
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
