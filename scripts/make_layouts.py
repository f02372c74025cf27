#!/usr/bin/env python3
"""make_layouts.py - tiny checkpoints in every quantised layout, with Hugging Face's logits for them, for
test/commands/models/test_layouts.py.

    python3 scripts/make_layouts.py test/data/layouts [NAME...]

As make_miniatures.py makes them: seeded random weights, a whole checkpoint in each directory, and
reference.npz: `ids` [64] and `logits` fp32 [64][vocab] of transformers on the dequantised weights. Where
activations are rounded to int8, `logits` are with the rounding, as compressed-tensors does it, and `exact` are
without. Needs numpy, torch, transformers 5.
"""

import os
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch

import checkpoint
import compare
import layouts
import make_miniatures
import reference
from make_miniatures import llama, mistral, phi3, qwen2, qwen3


def ct(bits, group, symmetric=True, activations=None, **more):
    """A group of compressed-tensors' config_groups."""
    strategy = "channel" if group == -1 else "group"
    return {"targets": ["Linear"], "weights": {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": None if group == -1 else group,
        "strategy": strategy, "dynamic": False, "actorder": None, "observer": "minmax", "block_structure": None},
        "input_activations": activations, "output_activations": None, **more}


INT8_TOKENS = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None, "strategy": "token",
               "dynamic": True, "actorder": None, "observer": None, "block_structure": None}


def compressed(*groups, format="pack-quantized", ignore=("lm_head",)):
    return {"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
            "config_groups": {f"group_{i}": group for i, group in enumerate(groups)}, "ignore": list(ignore),
            "kv_cache_scheme": None, "global_compression_ratio": None}


def gptq(bits, group, symmetric=True, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": False,
            "damp_percent": 0.01, "true_sequential": True, "static_groups": False, **more}


def autoround(group, packing, symmetric=True, **more):
    return {"quant_method": "auto-round", "bits": 4, "group_size": group, "sym": symmetric, "data_type": "int",
            "packing_format": packing, "block_name_to_quantize": "model.layers", "iters": 200, **more}


def ct_float(bits, group=None, strategy="tensor_group", block=None, activations=True, **more):
    """A group of compressed-tensors' config_groups with weights in floating point."""
    numbers = {"num_bits": bits, "type": "float", "symmetric": True, "observer": "minmax"}
    inputs = {**numbers, "group_size": group, "strategy": strategy if bits == 4 else "token",
              "dynamic": "local" if strategy == "tensor_group" else True, "block_structure": None}
    return {"targets": ["Linear"], "weights": {**numbers, "group_size": group, "strategy": strategy, "dynamic": False,
                                               "block_structure": block},
            "input_activations": inputs if activations else None, "output_activations": None, **more}


def modelopt_file(algorithm, **more):
    """hf_quant_config.json"""
    return {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": {
        "quant_algo": algorithm, "kv_cache_quant_algo": "FP8", **more}}


def mixed_layers(n_layers, **algorithms):
    """quantized_layers: the linear layers with these names in every layer; _N: in layer N alone."""
    return {f"model.layers.{layer}.{'mlp' if name in ('gate_proj', 'up_proj', 'down_proj') else 'self_attn'}.{name}":
            how for layer in range(n_layers) for name, how in algorithms.items()}


NVFP4, W4A16, PLAIN_FP8 = ({"quant_algo": "NVFP4", "group_size": 16}, {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                           {"quant_algo": "FP8"})

WIDE = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1}
BF16 = {"torch_dtype": "bfloat16"}

# name: config, and how its linear layers lie:
#   layout    of its tensors: awq, awq-no-zeros, gptq (version 1), gptq-v2, packed, int8; of layouts.float_tensors():
#             fp8 (weight_scale without a side), fp8-packed, fp8-inv (weight_scale_inv), nvfp4, nvfp4-packed, mxfp4
#   block     [outputs, inputs] of FP8's blocks, or channel or tensor
#   bits, group, symmetric, scales ("float16" and so on)
#   dense     layers left dense; more: {pattern: other bits, or another layout}; both as regular expressions, on the
#             whole name
#   head      the output head is quantised
#   file      the config lies in a file of this name
#   bias      layers that have one
LAYOUTS = {
    "awq-symmetric": dict(config=llama(quantization_config={
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": False}),
        layout="awq-no-zeros", group=32, symmetric=True),
    "awq-bf16-scales": dict(config=qwen3(head_dim=32, intermediate_size=128, **BF16, quantization_config={
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 64, "zero_point": True}),
        layout="awq", group=64, symmetric=False, scales="bfloat16"),
    "awq-head": dict(config=llama(tie_word_embeddings=False, quantization_config={
        "quant_method": "awq", "format": "gemm", "checkpoint_format": "gemm", "bits": 4, "group_size": 32,
        "zero_point": True, "sym": False, "lm_head": True, "dynamic": {"-:.*\\.0\\.mlp\\.down_proj": {}}}),
        layout="awq", group=32, symmetric=False, head=True, dense="model.layers.0.mlp.down_proj"),
    "autoround-awq": dict(config=mistral(sliding_window=None, **WIDE, quantization_config=autoround(
        128, "auto_round:auto_awq", extra_config={"model.layers.0.self_attn.v_proj": {"bits": 16},
                                                  ".*gate_proj.*": {"bits": 16, "data_type": "float"}})),
        layout="awq", group=128, symmetric=True, dense=".*(v_proj|gate_proj)"),
    "autoround-gptq": dict(config=qwen2(use_sliding_window=False, quantization_config=autoround(
        32, "auto_round:auto_gptq")), layout="gptq", group=32, symmetric=True, bias="qkv"),
    "autoround-own": dict(config=llama(intermediate_size=128, quantization_config=autoround(
        64, "auto_round", symmetric=False)), layout="gptq-v2", group=64, symmetric=False),
    "gptq-symmetric": dict(config=llama(**WIDE, quantization_config=gptq(4, 128, checkpoint_format="gptq")),
                           layout="gptq", group=128, symmetric=True),
    "gptq-asymmetric": dict(config=qwen3(head_dim=32, quantization_config=gptq(4, 32, False)),
                            layout="gptq", group=32, symmetric=False),
    "gptq-zero-16": dict(config=llama(quantization_config=gptq(4, 32, False)), layout="gptq", group=32,
                         symmetric=False, zeros=16),
    "gptq-v2": dict(config=llama(intermediate_size=128, quantization_config=gptq(
        4, 64, False, desc_act=True, format="gptq_v2", checkpoint_format="gptq_v2")), layout="gptq-v2", group=64,
        symmetric=False),
    "gptq-whole": dict(config=mistral(sliding_window=16, quantization_config=gptq(4, -1)), layout="gptq", group=-1,
                       symmetric=True, file="quantize_config.json"),
    "gptq-8": dict(config=llama(quantization_config=gptq(8, 32)), layout="gptq", bits=8, group=32, symmetric=True),
    "gptq-8-v2": dict(config=qwen3(head_dim=32, **WIDE, quantization_config=gptq(8, 128, False, format="gptq_v2")),
                      layout="gptq-v2", bits=8, group=128, symmetric=False),
    "gptq-dynamic": dict(config=llama(tie_word_embeddings=False, quantization_config=gptq(
        4, 32, dynamic={"+:.*down_proj": {"bits": 8}, "-:model\\.layers\\.1\\..*(q|k)_proj": {}}, lm_head=True)),
        layout="gptq", group=32, symmetric=True, more={".*down_proj": 8}, dense=".*layers.1.*(q|k)_proj", head=True),
    "gptq-phi3": dict(config=phi3(quantization_config=gptq(4, 32, False)), layout="gptq", group=32, symmetric=False),
    "packed-4-32": dict(config=llama(quantization_config=compressed(ct(4, 32, False))), layout="packed", group=32,
                        symmetric=False),
    "packed-4-64": dict(config=qwen3(head_dim=32, intermediate_size=128, **BF16, quantization_config=compressed(
        ct(4, 64))), layout="packed", group=64, symmetric=True, scales="bfloat16"),
    "packed-4-32-bf16": dict(config=qwen3(head_dim=32, num_hidden_layers=1, **BF16, quantization_config=compressed(
        ct(4, 32))), layout="packed", group=32, symmetric=True, scales="bfloat16"),
    "packed-4-128": dict(config=mistral(sliding_window=None, **WIDE, quantization_config=compressed(ct(4, 128))),
                         layout="packed", group=128, symmetric=True),
    "packed-4-channel": dict(config=qwen2(use_sliding_window=False, **BF16, quantization_config=compressed(
        ct(4, -1, False))), layout="packed", group=-1, symmetric=False, scales="bfloat16", bias="qkv"),
    "packed-4-f32": dict(config=llama(torch_dtype="float32", quantization_config=compressed(ct(4, 32, False))),
                         layout="packed", group=32, symmetric=False, scales="float32"),
    "packed-4-phi3": dict(config=phi3(quantization_config=compressed(ct(4, 32))), layout="packed", group=32,
                          symmetric=True),
    "packed-8-32": dict(config=llama(quantization_config=compressed(ct(8, 32, False))), layout="packed", bits=8,
                        group=32, symmetric=False),
    "packed-8-128": dict(config=qwen3(head_dim=32, **WIDE, **BF16, quantization_config=compressed(ct(8, 128))),
                         layout="packed", bits=8, group=128, symmetric=True, scales="bfloat16"),
    "packed-8-channel": dict(config=llama(quantization_config=compressed(ct(8, -1))), layout="packed", bits=8,
                             group=-1, symmetric=True),
    "packed-mixed": dict(config=llama(tie_word_embeddings=False, quantization_config=compressed(
        ct(4, 32), ct(8, 32, targets=["re:.*down_proj", "lm_head"]),
        ignore=["model.layers.0.self_attn.o_proj", "re:.*layers\\.1\\..*v_proj$"])), layout="packed", group=32,
        symmetric=True, more={".*down_proj|lm_head": 8}, head=True,
        dense=".*0.self_attn.o_proj|.*layers.1.*v_proj"),
    "int8-weights": dict(config=llama(quantization_config=compressed(ct(8, -1), format="int-quantized")),
                         layout="int8", bits=8, group=-1, symmetric=True),
    "int8-activations": dict(config=llama(quantization_config=compressed(
        ct(8, -1, activations=INT8_TOKENS), format="int-quantized")), layout="int8", bits=8, group=-1,
        symmetric=True),
    "int8-activations-qwen2": dict(config=qwen2(use_sliding_window=False, **BF16, tie_word_embeddings=False,
                                                quantization_config=compressed(ct(
                                                    8, -1, activations=INT8_TOKENS), format="int-quantized")),
                                   layout="int8", bits=8, group=-1, symmetric=True, scales="bfloat16", bias="qkv"),
    "nvfp4-packed": dict(config=qwen3(head_dim=32, **BF16, quantization_config=compressed(
        ct_float(4, 16), format="nvfp4-pack-quantized")), layout="nvfp4-packed"),
    "nvfp4-modelopt": dict(config=llama(**BF16, tie_word_embeddings=False, quantization_config=modelopt_file(
        "NVFP4", group_size=16, exclude_modules=["lm_head", "model.layers.1.self_attn*"])), layout="nvfp4",
        file="hf_quant_config.json", dense=".*layers.1.self_attn.*"),
    "modelopt-mixed": dict(config=qwen3(head_dim=32, **BF16, tie_word_embeddings=False, quantization_config={
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["model.layers.*.k_proj"],
        "quantized_layers": {"lm_head": W4A16, **mixed_layers(
            2, q_proj=PLAIN_FP8, v_proj=PLAIN_FP8, o_proj=PLAIN_FP8, gate_proj=NVFP4, up_proj=NVFP4,
            down_proj=W4A16)}}), layout="nvfp4", more={".*self_attn.*": "fp8"}, block="tensor",
        dense=".*k_proj", head=True),
    "mxfp4-packed": dict(config=llama(**BF16, quantization_config=compressed(
        ct_float(4, 32, "group", activations=False), format="mxfp4-pack-quantized")), layout="mxfp4"),
    "fp8-blocks": dict(config=phi3(**BF16, quantization_config={
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [48, 48]}),
        layout="fp8-inv", block=[48, 48], scales="bfloat16"),
    "fp8-channel": dict(config=qwen2(use_sliding_window=False, **BF16, quantization_config=compressed(
        ct_float(8, strategy="channel"), format="float-quantized")), layout="fp8-packed", block="channel",
        scales="bfloat16", bias="qkv"),
    "fp8-tensor": dict(config=llama(head_dim=34, **BF16, quantization_config={
        "quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}), layout="fp8-packed",
        block="tensor", scales="float32"),
}


def stored(values, dtype):
    if dtype == "bfloat16":
        return checkpoint.to_bf16(values)
    return values.astype({"float16": np.float16, "float32": np.float32}[dtype])


def convert(name, weight, layout, bits, group, symmetric, scales, zeros):
    """-> the layer's tensors, and its weights as they mean"""
    least = 1 if layout == "gptq" else 0  # what version 1 can store
    zero_points, steps, group = layouts.quantise(weight, bits, group, symmetric, least)
    if zeros:  # every zero point in some columns
        zero_points[::3] = zeros
    steps = stored(steps, scales)
    q = layouts.levels(weight, bits, zero_points, steps, group)
    dense = layouts.values(q, zero_points, steps, group)
    if layout in ("awq", "awq-no-zeros"):
        return layouts.awq_tensors(name, q, zero_points, steps, layout == "awq"), dense
    if layout in ("gptq", "gptq-v2"):
        return layouts.gptq_tensors(name, q, zero_points, steps, bits, layout == "gptq", group), dense
    if layout == "packed":
        return layouts.packed_tensors(name, q, zero_points, steps, bits, symmetric), dense
    return layouts.int8_tensors(name, q, steps), dense


def make_tensors(name, config, layout, group=0, symmetric=True, bits=4, scales=None, dense=None, more=None,
                 head=False, zeros=0, bias="", block=None):
    """-> the checkpoint's tensors, and those of the dense one that means the same"""
    dtype = config.get("torch_dtype")
    plain = {**config, "torch_dtype": "float32"}
    plain.pop("quantization_config")
    tensors, meant = {}, {}
    for tensor, values in make_miniatures.make_tensors(name, plain, bias).items():
        layer, _, part = tensor.rpartition(".")
        linear = part == "weight" and ("_proj" in layer or (head and layer == "lm_head"))
        if not linear or (dense and layouts.matches(layer, ["re:(" + dense + ")$"])):
            tensors[tensor] = stored(values, dtype)
            meant[tensor] = checkpoint.to_f32(tensors[tensor])
            continue
        own = next((other for pattern, other in (more or {}).items()
                    if layouts.matches(layer, ["re:(" + pattern + ")$"])), bits)
        its = own if isinstance(own, str) else layout
        if its.startswith(("fp8", "nvfp4", "mxfp4")):
            parts, meant[tensor] = layouts.float_tensors(layer, values, its, block,
                                                         lambda some: stored(some, scales or "float32"))
        else:
            parts, meant[tensor] = convert(layer, values, layout, own, group, symmetric, scales or "float16", zeros)
        tensors.update(parts)
    return tensors, meant


# --- references


def load_dense(config, tensors):
    """A model with the given fp32 weights, by way of a dense checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        config = {**config, "torch_dtype": "float32"}
        config.pop("quantization_config", None)
        checkpoint.write_json(os.path.join(directory, "config.json"), config)
        checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
        return reference.load(directory)


def round_activations(module, inputs):
    """compressed-tensors' dynamic int8 by token: 127.5 steps to the largest number, ties to even."""
    x = inputs[0]
    scale = x.abs().amax(dim=-1, keepdim=True) / 127.5
    scale = torch.where(scale == 0, torch.finfo(x.dtype).eps, scale)
    return (torch.clamp(torch.round(x / scale), -128, 127) * scale,)


def with_int8_activations(model):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(round_activations)
    return model


def make(out, name, config, file=None, **how):
    directory = os.path.join(out, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    tensors, meant = make_tensors(name, config, **how)
    checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    written = dict(config)
    if file:
        quant = written.pop("quantization_config")
        checkpoint.write_json(os.path.join(directory, file), {k: v for k, v in quant.items() if k != "quant_method"})
    checkpoint.write_json(os.path.join(directory, "config.json"), written)
    checkpoint.write_json(os.path.join(directory, "tokenizer.json"), make_miniatures.tokenizer(), indent=None)

    ids = np.random.default_rng(zlib.crc32(name.encode()) + 1).integers(0, make_miniatures.VOCAB, 64).astype(np.int32)
    model = load_dense(config, meant)
    arrays = {"logits": reference.logits(model, ids)}
    if "activations" in name:
        arrays = {"exact": arrays["logits"], "logits": reference.logits(with_int8_activations(model), ids)}
        print(f"  rounding moves the logits by a mean KL of {compare.kl(arrays['logits'], arrays['exact']).mean():.2g}")
    np.savez_compressed(os.path.join(directory, "reference.npz"), ids=ids, **arrays)
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    print(f"{name}: {size // 1000} kB, logits of standard deviation {arrays['logits'].std():.1f}")


def main(out, *names):
    for name, layout in LAYOUTS.items():
        if not names or name in names:
            make(out, name, **layout)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
