#!/usr/bin/env python3
"""Writes a drafter of random bf16 weights, in the shape of a published one for Qwen3-8B, for `auk bench --draft DIR`.

usage: random_drafter.py (dflash | eagle3) DIR        (2.1 and 0.8 GB)

Sizes: z-lab/Qwen3-8B-DFlash-b16 and AngelSlim/Qwen3-8B_eagle3 on Hugging Face. Needs numpy. FIGURES.md beside
this file has what they gave.
"""
import json
import pathlib
import struct
import sys

import numpy as np

HIDDEN, WIDTH, HEADS, KV_HEADS, HEAD_DIM, VOCAB, SOME_WORDS = 4096, 12288, 32, 8, 128, 151936, 32000


def layer(prefix, n_in):
    """Tensors of a layer by their names; q, k and v take n_in numbers."""
    return {prefix + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, n_in),
            prefix + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, n_in),
            prefix + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, n_in),
            prefix + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            prefix + "mlp.gate_proj.weight": (WIDTH, HIDDEN), prefix + "mlp.up_proj.weight": (WIDTH, HIDDEN),
            prefix + "mlp.down_proj.weight": (HIDDEN, WIDTH),
            prefix + "input_layernorm.weight": (HIDDEN,), prefix + "post_attention_layernorm.weight": (HIDDEN,)}


def drafter(kind):
    config = {"hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": WIDTH, "vocab_size": VOCAB,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
              "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
              "tie_word_embeddings": False, "attention_bias": False}
    shapes = {"norm.weight": (HIDDEN,)}
    if kind == "dflash":
        config |= {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
                   "block_size": 16, "num_target_layers": 36,
                   "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33], "mask_token_id": 151669}}
        shapes |= {"fc.weight": (HIDDEN, 5 * HIDDEN), "hidden_norm.weight": (HIDDEN,)}
        for i in range(5):
            norms = {f"layers.{i}.self_attn.{which}_norm.weight": (HEAD_DIM,) for which in "qk"}
            shapes |= layer(f"layers.{i}.", HIDDEN) | norms
    else:
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
                   "draft_vocab_size": SOME_WORDS}
        shapes |= {"fc.weight": (HIDDEN, 3 * HIDDEN), "midlayer.hidden_norm.weight": (HIDDEN,), "d2t": (SOME_WORDS,),
                   "lm_head.weight": (SOME_WORDS, HIDDEN)} | layer("midlayer.", 2 * HIDDEN)
    return config, shapes


def numbers(name, shape, random):
    """The bytes of a tensor: ids three apart, ones for norms, else a normal distribution in bf16."""
    if name == "d2t":
        return (np.arange(shape[0], dtype=np.int64) * 3).tobytes()
    is_norm = len(shape) == 1
    values = np.ones(shape, np.float32) if is_norm else random.standard_normal(shape, np.float32) * np.float32(0.02)
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def main(kind, folder):
    config, shapes = drafter(kind)
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
    random = np.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            file.write(numbers(name, shape, random))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("dflash", "eagle3"):
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
