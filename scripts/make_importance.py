#!/usr/bin/env python3
"""make_importance.py - how much each input of the demo model's layers matters, for demo_convert.py.

    python3 scripts/make_importance.py TEXT...      to scripts/demo_importance.npz, from 1024 tokens of each

What an error of a weight costs is its square times the mean square of the input it meets. These mean squares
come from the dense model (`make demo` first) reading the texts. For each place in a layer that weights meet, a
uint8 array [layers][inputs]: an input's mean square over the average one's is 2^((value - 128) / 8). The first
position of each text counts like any other, and has to: a few of its inputs to layer 11's down_proj are some
hundred times larger than others, all later positions attend to what comes of them, and leaving it out here
leaves the perplexity where it is without any of this.
Committed: TEXTs were cal_c4.utf8, cal_technical.utf8, cal_code.utf8. Needs numpy, torch, transformers 5,
tokenizers.
"""

import os
import sys

import numpy as np
import tokenizers
import torch

import reference

N_TOKENS = 1024
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "smollm2-135m-f16")
PLACES = {"attention": "self_attn.q_proj", "output": "self_attn.o_proj", "gate": "mlp.gate_proj",
          "down": "mlp.down_proj"}


def main(*texts):
    model = reference.load(MODEL)
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    sums = {}

    def watch(module, key):
        module.register_forward_hook(lambda _, inputs, __: sums.__setitem__(
            key, sums.get(key, 0) + (inputs[0][0].double() ** 2).sum(0).numpy()))

    for layer, block in enumerate(model.model.layers):
        for place, name in PLACES.items():
            watch(block.get_submodule(name), (place, layer))
    for text in texts:
        with open(text, encoding="utf-8", newline="") as file:
            ids = tokenizer.encode(file.read(16 * N_TOKENS), add_special_tokens=False).ids[:N_TOKENS]
        with torch.no_grad():
            model.model(torch.tensor([ids]), use_cache=False)
    arrays = {}
    for place in PLACES:
        squares = np.stack([sums[place, layer] for layer in range(len(model.model.layers))])
        octaves = np.log2(squares / squares.mean(axis=1, keepdims=True))
        arrays[place] = np.clip(np.rint(8 * octaves) + 128, 0, 255).astype(np.uint8)
    path = os.path.join(ROOT, "scripts", "demo_importance.npz")
    np.savez_compressed(path, **arrays)
    print(f"{path}: {os.path.getsize(path) // 1000} kB")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
