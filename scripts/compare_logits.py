#!/usr/bin/env python3
"""compare_logits.py - the program's logits for a checkpoint against Hugging Face's in fp32, at every
position.

    python3 scripts/compare_logits.py DIR [--reference FILE.npz | --text FILE] [--tokens 512] [--auk PROGRAM] [FLAG...]

Tokens are those of a reference.npz (default: the demo's), or the first of a text. FLAGs go to `auk eval`;
without --kv among them both KV types are measured. Prints for each: mean and largest KL divergence in nats,
and how often the top token is the same where the reference's two best differ by 0.05 or more. Needs numpy,
torch, transformers 5, tokenizers.
"""

import argparse
import os
import subprocess
import tempfile

import numpy as np
import tokenizers

import compare
import reference

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEMO_REFERENCE = os.path.join(ROOT, "test", "data", "smollm2-135m", "reference.npz")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("directory")
    parser.add_argument("--reference", default=DEMO_REFERENCE)
    parser.add_argument("--text")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--auk", default=os.environ.get("AUK", os.path.join(ROOT, "build", "auk")))
    options, flags = parser.parse_known_args()

    if options.text:
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.directory, "tokenizer.json"))
        with open(options.text, encoding="utf-8", newline="") as file:
            ids = tokenizer.encode(file.read(), add_special_tokens=False).ids
    else:
        ids = compare.load_reference(options.reference)[0]
    ids = ids[:options.tokens]
    expected = reference.logits(reference.load(options.directory), ids)
    for kv in [None] if "--kv" in flags else ["f32", "f16"]:
        with tempfile.TemporaryDirectory() as folder:
            ids_file, out = os.path.join(folder, "ids"), os.path.join(folder, "logits.npy")
            with open(ids_file, "w", encoding="ascii") as file:
                file.write(" ".join(map(str, ids)))
            subprocess.run([options.auk, "eval", "-m", options.directory, "--ids-file", ids_file, "--logits-out", out,
                            *flags, *(["--kv", kv] if kv else [])], check=True, stdout=subprocess.DEVNULL)
            found = np.load(out)
        mean, largest, agreeing, decided = compare.report(expected, found)
        print(f"{kv or ' '.join(flags)}: {len(ids)} tokens, mean KL {mean:.2e}, largest {largest:.2e}, "
              f"top token {agreeing} of {decided}")


if __name__ == "__main__":
    main()
