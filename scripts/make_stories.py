#!/usr/bin/env python3
"""make_stories.py - the tiny trained model under test/data, from llama2.c's file of it.

    python3 scripts/make_stories.py stories260K.bin stories260K-tokenizer.bin test/data

Writes stories260K-f32 (dense, exactly the source's numbers) and stories260K-awq (AutoAWQ's layout, groups of
16, norms and embedding in F16), each with config, generation_config and tokenizer.json. The same bytes on
every run. Source: https://huggingface.co/karpathy/tinyllamas, stories260K (MIT). Format of both files:
llama2.c, run.c (MIT). Needs numpy.
"""

import os
import struct
import sys

import numpy as np

import checkpoint

HEADER = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len"]  # i32 each
GROUP = 16
PADDED = 176  # the intermediate size 172 rounded up to whole groups; the rows and columns added are zeros


def read_weights(path):
    """llama2.c's file -> its header and the tensors under Hugging Face's names, fp32."""
    data = np.fromfile(path, "<i4", len(HEADER))
    h = dict(zip(HEADER, data.tolist()))
    if h["vocab_size"] <= 0:
        sys.exit(f"{path}: vocab_size is {h['vocab_size']}, expected a positive one (a head tied to the embedding)")
    numbers, at = np.fromfile(path, "<f4", offset=4 * len(HEADER)), 0
    dim, inner, layers, head = h["dim"], h["hidden_dim"], h["n_layers"], h["dim"] // h["n_heads"]
    q_dim, kv_dim = h["n_heads"] * head, h["n_kv_heads"] * head

    def take(*shape):
        nonlocal at
        at += int(np.prod(shape))
        return numbers[at - int(np.prod(shape)):at].reshape(shape)

    tensors = {"model.embed_tokens.weight": take(h["vocab_size"], dim)}
    order = [("input_layernorm", (dim,)), ("self_attn.q_proj", (q_dim, dim)), ("self_attn.k_proj", (kv_dim, dim)),
             ("self_attn.v_proj", (kv_dim, dim)), ("self_attn.o_proj", (dim, q_dim)),
             ("post_attention_layernorm", (dim,)), ("mlp.gate_proj", (inner, dim)), ("mlp.down_proj", (dim, inner)),
             ("mlp.up_proj", (inner, dim))]
    for name, shape in order:
        for layer, weight in enumerate(take(layers, *shape)):
            if name.endswith(("q_proj", "k_proj")):
                weight = pairs_to_halves(weight, head)
            tensors[f"model.layers.{layer}.{name}.weight"] = weight
    tensors["model.norm.weight"] = take(dim)
    if numbers.size - at != h["max_seq_len"] * head:
        sys.exit(f"{path}: {numbers.size - at} numbers behind the weights, expected two rotary tables of "
                 f"{h['max_seq_len'] * head} together")
    return h, tensors


def pairs_to_halves(weight, head):
    """Rows of q or k: rotary pairs (2i, 2i + 1) of a head become (i, i + head / 2), as Hugging Face has
    them."""
    rows, n_in = weight.shape
    pairs = weight.reshape(rows // head, head // 2, 2, n_in)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3).reshape(rows, n_in))


def padded(name, weight):
    if name.endswith(("gate_proj.weight", "up_proj.weight")):
        return np.pad(weight, ((0, PADDED - len(weight)), (0, 0)))
    if name.endswith("down_proj.weight"):
        return np.pad(weight, ((0, 0), (0, PADDED - weight.shape[1])))
    return weight


def quantised(tensors):
    out = {}
    for name, weight in tensors.items():
        if name.endswith("_proj.weight"):
            layer = name.removesuffix(".weight")
            out.update(checkpoint.awq_tensors(layer, *checkpoint.awq_quantise(padded(name, weight), GROUP)))
        else:
            out[name] = weight.astype(np.float16)
    return out


def read_vocabulary(path):
    """i32 longest, then for each token f32 score, i32 length, bytes -> [(score, text)], spaces as U+2581."""
    with open(path, "rb") as file:
        data = file.read()
    tokens, at = [], 4
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        text = data[at + 8:at + 8 + length].decode()
        tokens.append((score, text.strip("\n").replace(" ", "\u2581")))  # "\n<s>\n" is <s>
        at += 8 + length
    return tokens


def make_tokenizer(tokens):
    """llama2.c joins, again and again, the leftmost neighbours whose union has the highest score; here
    each such union is a merge rule, the highest score first. Unions have distinct scores, and no three
    neighbours of this vocabulary can join left or right to the same union by different rules, so that the
    order of rules for one union never matters: checked below."""
    vocab = {text: i for i, (_, text) in enumerate(tokens)}
    words = [text for i, (_, text) in enumerate(tokens) if i >= 259]  # after <unk>, <s>, </s> and 256 bytes
    merges = []
    for union in sorted(words, key=lambda text: -tokens[vocab[text]][0]):
        rules = [(union[:cut], union[cut:]) for cut in range(1, len(union))
                 if union[:cut] in words and union[cut:] in words]
        for left in rules:
            assert not any(left[1] == right[0] and left != right for right in rules), union
        merges += [" ".join(rule) for rule in rules]
    special = [{"id": i, "content": tokens[i][1], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in range(3)]
    begin, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [begin, text],
                           "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }


def write_model(directory, h, tensors, tokenizer, dtype, **more):
    os.makedirs(directory, exist_ok=True)
    checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    checkpoint.write_json(os.path.join(directory, "config.json"), {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": h["dim"],
        "intermediate_size": h["hidden_dim"], "num_hidden_layers": h["n_layers"], "num_attention_heads": h["n_heads"],
        "num_key_value_heads": h["n_kv_heads"], "max_position_embeddings": h["max_seq_len"],
        "vocab_size": h["vocab_size"], "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": None,
        "tie_word_embeddings": True, "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": dtype, **more})
    # It was trained on stories one after the other, each opened by <s>: that token ends a story as well.
    checkpoint.write_json(os.path.join(directory, "generation_config.json"),
                          {"bos_token_id": 1, "eos_token_id": [1, 2]})
    checkpoint.write_json(os.path.join(directory, "tokenizer.json"), tokenizer, indent=None)


def main(weights, vocabulary, out):
    h, tensors = read_weights(weights)
    tokenizer = make_tokenizer(read_vocabulary(vocabulary))
    write_model(os.path.join(out, "stories260K-f32"), h, tensors, tokenizer, "float32")
    quantisation = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": GROUP, "zero_point": True,
                    "modules_to_not_convert": None}
    write_model(os.path.join(out, "stories260K-awq"), {**h, "hidden_dim": PADDED}, quantised(tensors), tokenizer,
                "float16", quantization_config=quantisation)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
