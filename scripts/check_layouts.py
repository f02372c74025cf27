#!/usr/bin/env python3
"""check_layouts.py - the committed checkpoints of test/data/layouts, read by the libraries that define the layouts.

    python3 scripts/check_layouts.py test/data/layouts [--autogptq DIR] [--autoawq DIR]

What lies in each is taken apart by compressed-tensors' own decompress() and dequantize(), AutoGPTQ's QuantLinear,
AutoAWQ's dequantize_gemm() and torch's FP8, and has to be what layouts.py makes of it, weight for weight; what
layouts.py packs has to be what
compressed-tensors' compress() and AutoGPTQ's pack() make of the same weights, word for word; and the rounding of
activations is compared with compressed-tensors' own. DIR is an unpacked auto_gptq wheel (0.7.1) or autoawq source
(0.2.9), from which single files are loaded; without one, those checkpoints are skipped by name. Needs torch,
compressed-tensors (pip install --no-deps compressed-tensors loguru psutil). For developers: no test runs it.
"""

import argparse
import importlib.util
import os
import sys
import types

import numpy as np
import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize, fake_quantize
from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

import checkpoint
import layouts
from make_layouts import LAYOUTS, round_activations


def load_file(root, module):
    """A module of a package, without its package's own __init__."""
    parts = module.split(".")
    for i in range(1, len(parts)):
        package = types.ModuleType(".".join(parts[:i]))
        package.__path__ = [os.path.join(root, *parts[:i])]
        sys.modules[package.__name__] = package
    spec = importlib.util.spec_from_file_location(module, os.path.join(root, *parts) + ".py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def as_torch(array):
    tensor = torch.from_numpy(np.array(array))
    kinds = {checkpoint.Bf16: torch.bfloat16, checkpoint.E4m3: torch.float8_e4m3fn}
    return tensor.view(kinds[type(array)]) if type(array) in kinds else tensor


def same(what, ours, theirs):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or not np.array_equal(ours, theirs):
        sys.exit(f"{what}: differs from the library's")


def scheme_of(config, name, bits):
    """The group of the config that is for this layer; its weights are read in fp32, which loses nothing."""
    groups = config["quantization_config"]["config_groups"].values()
    found = [group for group in groups if group["weights"]["num_bits"] == bits]
    return QuantizationScheme(**{key: value for key, value in found[0].items() if key != "format"})


def check_packed(name, parts, config, bits):
    scheme = scheme_of(config, name, bits)
    state = {part: as_torch(array) for part, array in parts.items()}
    state["weight_scale"] = state["weight_scale"].float()
    theirs = PackedQuantizationCompressor.decompress(state, scheme)["weight"]
    q = layouts.unpack(parts["weight_packed"], bits)
    zeros = np.full(parts["weight_scale"].shape, 2**(bits - 1))
    if "weight_zero_point" in parts:
        zeros = layouts.unpack(parts["weight_zero_point"].T, bits).T
    group = q.shape[1] // zeros.shape[1]
    ours = layouts.values(q, zeros, parts["weight_scale"], group)
    same(name, ours, theirs)
    again = dict(state, weight=theirs)
    again.pop("weight_packed"), again.pop("weight_shape")
    if "weight_zero_point" in parts:
        again["weight_zero_point"] = torch.from_numpy(zeros - 2**(bits - 1)).to(torch.int8)
    packed = PackedQuantizationCompressor.compress(again, scheme)
    for part in ("weight_packed", "weight_shape", "weight_zero_point"):
        if part in parts:
            same(f"{name}.{part}", parts[part], packed[part])


def check_int8(name, parts, config, bits):
    state = {part: as_torch(array) for part, array in parts.items()}
    state["weight_scale"] = state["weight_scale"].float()
    theirs = NaiveQuantizationCompressor.decompress(state, scheme_of(config, name, bits))["weight"]
    same(name, parts["weight"].astype(np.float32) * checkpoint.to_f32(parts["weight_scale"]), theirs)


def check_floats(name, parts, config):
    """FP8 and FP4: compressed-tensors' own numbers where the checkpoint is one of its, else torch's FP8."""
    state = {part: as_torch(array) for part, array in parts.items() if not part.startswith("input")}
    ours, compressor = float_values(parts), None
    if "weight_packed" in parts:
        compressor = MXFP4PackedCompressor if parts["weight_scale"].dtype == np.uint8 and not isinstance(
            parts["weight_scale"], checkpoint.E4m3) else NVFP4PackedCompressor
        # unpack_fp4_from_uint8() gives bf16, which holds E2M1; its products are to be fp32
        unpacked = unpack_fp4_from_uint8(state["weight_packed"], *ours.shape, dtype=torch.float32)
        scale = compressor._decompress_scale(state["weight_scale"], torch.float32)
        theirs = dequantize(unpacked, scale, args=scheme_of(config, name, 4).weights, dtype=torch.float32,
                            global_scale=state.get("weight_global_scale"))
    elif config["quantization_config"]["quant_method"] == "compressed-tensors":
        theirs = dequantize(state["weight"].float(), state["weight_scale"].float(), dtype=torch.float32,
                            args=scheme_of(config, name, 8).weights)
    elif "weight_scale_2" in parts:
        theirs = unpack_fp4_from_uint8(state["weight"], *ours.shape, dtype=torch.float32)
        theirs *= (state["weight_scale"].float() * state["weight_scale_2"]).repeat_interleave(16, dim=1)
    else:
        scale = state.get("weight_scale_inv", state.get("weight_scale")).float()
        block = config["quantization_config"].get("weight_block_size")
        if block:
            scale = scale.repeat_interleave(block[0], dim=0).repeat_interleave(block[1], dim=1)
            scale = scale[:ours.shape[0], :ours.shape[1]]
        theirs = state["weight"].float() * scale
    same(name, ours, theirs)


def float_values(parts):
    """The weights of a layer in FP8 or FP4 by layouts.py."""
    scales = parts.get("weight_scale", parts.get("weight_scale_inv"))
    weights = parts.get("weight_packed", parts.get("weight"))
    if isinstance(weights, checkpoint.E4m3):
        rows, columns = scales.shape if scales.ndim == 2 else (1, 1)
        sizes = [{1: size}.get(n, 48) for n, size in zip((rows, columns), weights.shape)]
        sizes[0] = 1 if rows == weights.shape[0] else sizes[0]
        return checkpoint.to_f32(weights) * layouts.spread(scales.reshape(rows, columns), *sizes, weights.shape)
    codes = layouts.fp4_unpack(weights)
    if "weight_global_scale" in parts:
        wide = checkpoint.to_f32(scales) / parts["weight_global_scale"]
    elif "weight_scale_2" in parts:
        wide = checkpoint.to_f32(scales) * parts["weight_scale_2"]
    else:
        wide = (2.0 ** (scales.astype(np.float64) - 127)).astype(np.float32)
    return layouts.fp4_values(codes) * np.repeat(wide, codes.shape[1] // wide.shape[1], axis=1)


def check_gptq(name, parts, bits, less_one, quant_linear):
    """AutoGPTQ knows version 1; of version 2 the words of weights are the same, zero points one less."""
    q = layouts.unpack(parts["qweight"].T, bits)
    zeros = layouts.unpack(parts["qzeros"], bits).T + less_one
    scales, group = checkpoint.to_f32(parts["scales"]).T, q.shape[1] // zeros.shape[1]
    if q.shape[1] % 32 or q.shape[0] % 32:
        return
    linear = torch.nn.Linear(q.shape[1], q.shape[0], bias=False)
    linear.weight.data = torch.from_numpy(layouts.values(q, zeros, scales, group)).double()
    theirs = quant_linear(bits, group, q.shape[1], q.shape[0], False, weight_dtype=torch.float64)
    theirs.pack(linear, torch.from_numpy(scales.copy()).double(), torch.from_numpy(zeros.copy()).double(), None)
    same(name + ".qweight", parts["qweight"], theirs.qweight)
    if zeros.min() > 0:  # pack() spoils the words of others
        same(name + ".qzeros", layouts.pack(zeros.T - 1, bits), theirs.qzeros)


def check_awq(name, parts, dequantize_gemm):
    zeros = parts.get("qzeros", np.full((len(parts["scales"]), parts["qweight"].shape[1]), -2004318072, np.int32))
    scales, group = as_torch(parts["scales"]).float(), len(parts["qweight"]) // len(zeros)
    theirs = dequantize_gemm(as_torch(parts["qweight"]), torch.from_numpy(np.array(zeros)), scales, 4, group)
    same(name, checkpoint.awq_dequantise(parts["qweight"], zeros, checkpoint.to_f32(parts["scales"])), theirs.T)


def check_rounding():
    x = torch.randn(64, 96) * torch.logspace(-3, 3, 64)[:, None]
    x[0] = 0
    groups = LAYOUTS["int8-activations"]["config"]["quantization_config"]["config_groups"]
    scheme = QuantizationScheme(**groups["group_0"])
    args = scheme.input_activations
    scale, zero = compute_dynamic_scales_and_zp(x[None], args, None)
    same("rounding of activations", round_activations(None, (x[None],))[0], fake_quantize(x[None], scale, zero, args))


def layers_of(tensors):
    layers = {}
    for name, array in tensors.items():
        layer, _, part = name.rpartition(".")
        layers.setdefault(layer, {})[part] = array
    return layers.items()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--autogptq")
    parser.add_argument("--autoawq")
    args = parser.parse_args()
    gptq = args.autogptq and load_file(args.autogptq, "auto_gptq.nn_modules.qlinear.qlinear_cuda_old").QuantLinear
    awq = args.autoawq and load_file(args.autoawq, "awq.utils.packing_utils").dequantize_gemm
    check_rounding()
    for name, how in LAYOUTS.items():
        directory, n = os.path.join(args.directory, name), 0
        config = how["config"]
        for layer, parts in layers_of(checkpoint.read_checkpoint(directory)):
            bits = how.get("bits", 4)
            if any(isinstance(array, checkpoint.E4m3) or array.dtype == np.uint8 for array in parts.values()):
                check_floats(f"{name}: {layer}", parts, config)
            elif "weight_packed" in parts:
                bits = parts["weight_packed"].shape[1] * 32 // int(parts["weight_shape"][1])
                check_packed(f"{name}: {layer}", parts, config, bits)
            elif "qweight" in parts and how["layout"].startswith("gptq") and gptq:
                bits = len(parts["qweight"]) * 32 // len(parts["g_idx"])
                check_gptq(f"{name}: {layer}", parts, bits, how["layout"] == "gptq", gptq)
            elif "qweight" in parts and how["layout"].startswith("awq") and awq:
                check_awq(f"{name}: {layer}", parts, awq)
            elif "weight_scale" in parts:
                check_int8(f"{name}: {layer}", parts, config, bits)
            else:
                continue
            n += 1
        print(f"{name}: {n} layers" if n else f"{name}: skipped, needs the library's source")


if __name__ == "__main__":
    main()
