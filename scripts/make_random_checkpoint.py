"""make_random_checkpoint.py - a checkpoint of random weights in AutoAWQ's layout, of the shape of a config.json.

usage: make_random_checkpoint.py CONFIG_DIRECTORY OUT_DIRECTORY

For measuring what needs a real file, where the real one is not at hand: start, streaming, the page cache. The text that
it writes is nonsense. For architectures of Llama's tensors, with Qwen's biases and norms of q and k. Its tokenizer has
a word for each token, so that every token is text.
"""
import os
import pathlib
import shutil
import sys

import numpy as np

import checkpoint

VARIANCE = 42.5  # of the difference of two numbers of 4 bits: (16 * 16 - 1) / 6


class Numbers:
    """Tensors as pieces of a few random blocks, each from another place on: fast to make, and good enough for speed."""

    def __init__(self, seed=1):
        random = np.random.default_rng(seed)
        self.words = np.frombuffer(random.bytes(1 << 26), np.int32)
        self.even = random.uniform(-1, 1, 1 << 22).astype(np.float32)
        self.begin = 0

    def take(self, block, n):
        self.begin += 7919 * 4096
        first = self.begin % max(len(block) - n, 1)
        return block[first:first + n]  # all of it where more is wanted

    def integers(self, *shape):
        return np.resize(self.take(self.words, np.prod(shape)), shape)

    def halves(self, middle, spread, *shape):
        even = self.take(self.even, np.prod(shape))
        return np.resize((middle + spread * even).astype(np.float16), shape)


def quantised(tensors, numbers, name, n_in, n_out, group):
    scale = (VARIANCE * n_in) ** -0.5  # a product of about its input's variance
    tensors[name + ".qweight"] = numbers.integers(n_in, n_out // 8)
    tensors[name + ".qzeros"] = numbers.integers(n_in // group, n_out // 8)
    tensors[name + ".scales"] = numbers.halves(scale, 0.1 * scale, n_in // group, n_out)


def make_tensors(config, numbers):
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or hidden // heads
    group = config["quantization_config"]["group_size"]
    qwen2, qwen3 = config["model_type"] == "qwen2", config["model_type"] == "qwen3"
    layers = {"self_attn.q_proj": (hidden, heads * dim), "self_attn.k_proj": (hidden, kv_heads * dim),
              "self_attn.v_proj": (hidden, kv_heads * dim), "self_attn.o_proj": (heads * dim, hidden),
              "mlp.gate_proj": (hidden, middle), "mlp.up_proj": (hidden, middle), "mlp.down_proj": (middle, hidden)}
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if qwen3:
        norms.update({"self_attn.q_norm": dim, "self_attn.k_norm": dim})
    tensors = {"model.embed_tokens.weight": numbers.halves(0, 1, config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        for name, (n_in, n_out) in layers.items():
            quantised(tensors, numbers, f"model.layers.{i}.{name}", n_in, n_out, group)
            if qwen2 and name[-6] in "qkv":
                tensors[f"model.layers.{i}.{name}.bias"] = numbers.halves(0, 0.1, n_out)
        for name, n in norms.items():
            tensors[f"model.layers.{i}.{name}.weight"] = np.ones(n, np.float16)
    tensors["model.norm.weight"] = np.ones(hidden, np.float16)
    if not config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = numbers.halves(0, 3 * hidden**-0.5, config["vocab_size"], hidden)
    return tensors


def letters_of_bytes():
    """GPT-2's: printable bytes are themselves, the others the letters from U+0100 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def word(i):
    """A word for each number: a blank, then four or more small letters."""
    text = ""
    while i or len(text) < 4:
        i, letter = divmod(i, 26)
        text = chr(ord("a") + letter) + text
    return "\u0120" + text


def make_tokenizer(n):
    letters = letters_of_bytes()[:n]
    words = [*letters, *(word(i) for i in range(n - len(letters)))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {text: i for i, text in enumerate(words)}, "merges": []}}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = map(pathlib.Path, sys.argv[1:])
    config = checkpoint.read_json(source / "config.json")
    if config["model_type"] not in ("llama", "mistral", "qwen2", "qwen3"):
        sys.exit(f"make_random_checkpoint.py: no random weights for model_type {config['model_type']}")
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "config.json", out)
    checkpoint.write_json(str(out / "tokenizer.json"), make_tokenizer(config["vocab_size"]), indent=None)
    checkpoint.write_safetensors(os.path.join(out, "model.safetensors"), make_tensors(config, Numbers()))


if __name__ == "__main__":
    main()
