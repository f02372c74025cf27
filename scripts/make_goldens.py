#!/usr/bin/env python3
"""make_goldens.py - Hugging Face's logits for the real models, for test/commands/measure/test_logits.py.

    python3 scripts/make_goldens.py stories      the tiny model: 64 of 512 positions, beside its weights
    python3 scripts/make_goldens.py demo TEXT    the demo model (`make demo` first): 16 positions of the text's
                                                 first 512 tokens, to test/data/smollm2-135m/reference.npz

The demo's reference names the SHA-256 of the weights that it is for: what is converted anew needs a new
reference. Committed: TEXT was tinyshakespeare.txt. Needs numpy, torch, transformers 5, tokenizers.
"""

import hashlib
import os
import sys

import numpy as np
import tokenizers
import torch

import compare
import reference

N_TOKENS = 512
DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test", "data")
DEMO = os.path.join(DATA, "..", "..", "models", "smollm2-135m-awq")


def stories():
    """The text is a story that the dense model writes, since the model knows such texts; both layouts get the
    same one."""
    dense = reference.load(os.path.join(DATA, "stories260K-f32"))
    torch.manual_seed(1)
    with torch.no_grad():
        ids = dense.generate(torch.tensor([[1]]), do_sample=True, max_new_tokens=N_TOKENS - 1, eos_token_id=None,
                             pad_token_id=0)[0].numpy()
    rows = np.r_[0:32, N_TOKENS - 32:N_TOKENS]
    for layout in ("f32", "awq"):
        directory = os.path.join(DATA, "stories260K-" + layout)
        logits = reference.logits(reference.load(directory), ids)[rows]
        compare.save_reference(os.path.join(directory, "reference.npz"), ids, rows, logits)
        print(f"{directory}: {len(rows)} rows")


def demo(text):
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(DEMO, "tokenizer.json"))
    with open(text, encoding="utf-8", newline="") as file:
        ids = tokenizer.encode(file.read(16 * N_TOKENS), add_special_tokens=False).ids[:N_TOKENS]
    with open(os.path.join(DEMO, "model.safetensors"), "rb") as file:
        digest = hashlib.sha256(file.read()).digest()
    rows = np.arange(N_TOKENS // 16 - 1, N_TOKENS, N_TOKENS // 16)
    logits = reference.logits(reference.load(DEMO), ids)[rows]
    os.makedirs(os.path.join(DATA, "smollm2-135m"), exist_ok=True)
    path = os.path.join(DATA, "smollm2-135m", "reference.npz")
    compare.save_reference(path, ids, rows, logits, packed=True, sha256=np.frombuffer(digest, np.uint8))
    kept = compare.load_reference(path)[2]
    print(f"{path}: {len(rows)} rows, {os.path.getsize(path) // 1000} kB, mean KL to the unpacked logits "
          f"{compare.kl(logits, kept).mean():.1e}")


if __name__ == "__main__":
    if sys.argv[1:] == ["stories"]:
        stories()
    elif len(sys.argv) == 3 and sys.argv[1] == "demo":
        demo(sys.argv[2])
    else:
        sys.exit(__doc__)
