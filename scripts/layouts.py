"""layouts.py - GPTQ's, compressed-tensors' and ModelOpt's layouts of linear layers, with numpy alone.

Used by: make_layouts.py, check_layouts.py. Layouts: models.md, "Quantised layouts".
Weights are q [n_out][n_in], zero points
[n_out][n_groups], both as they are subtracted (0 .. 15 or 0 .. 255), scales [n_out][n_groups] fp32:

    w[o][i] = (q[o][i] - zero[o][i / group]) * scale[o][i / group]

AutoAWQ's layout is in checkpoint.py.
"""

import re

import numpy as np

import checkpoint


def quantise(weight, bits, group, symmetric, least=0):
    """Dense fp32 [n_out][n_in] -> zero points of at least `least`, scales, group. group -1: the whole input."""
    n_out, n_in = weight.shape
    group = n_in if group == -1 else group
    parts = weight.reshape(n_out, -1, group).astype(np.float64)
    top = 2**bits - 1
    if symmetric:
        zeros = np.full(parts.shape[:2], 2**(bits - 1))
        scales = np.abs(parts).max(axis=2) / (2**(bits - 1) - 0.5)
    else:
        low, high = np.minimum(parts.min(axis=2), 0), np.maximum(parts.max(axis=2), 0)
        scales = (high - low) / top
        zeros = np.clip(np.rint(-low / scales), least, top)
    return zeros.astype(np.int64), scales.astype(np.float32), group


def levels(weight, bits, zeros, scales, group):
    """q: the nearest levels with scales as they are stored."""
    wide = np.repeat(checkpoint.to_f32(scales).astype(np.float64), group, axis=1)
    q = np.rint(weight / wide) + np.repeat(zeros, group, axis=1)
    return np.clip(q, 0, 2**bits - 1).astype(np.int64)


def values(q, zeros, scales, group):
    """-> fp32 [n_out][n_in]"""
    difference = (q - np.repeat(zeros, group, axis=1)).astype(np.float32)
    return difference * np.repeat(checkpoint.to_f32(scales), group, axis=1)


# --- words: 32 / bits numbers along the last axis, the first in the lowest bits


def pack(numbers, bits):
    per_word = 32 // bits
    runs = numbers.reshape(*numbers.shape[:-1], -1, per_word).astype(np.uint32)
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    return np.bitwise_or.reduce(runs << shifts, axis=-1).view(np.int32)


def unpack(words, bits):
    per_word = 32 // bits
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    words = np.ascontiguousarray(words).view(np.uint32)
    numbers = words[..., None] >> shifts & np.uint32(2**bits - 1)
    return numbers.reshape(*words.shape[:-1], -1).astype(np.int64)


# --- as tensors


def gptq_tensors(name, q, zeros, scales, bits, less_one, group):
    """qweight [n_in / per_word][n_out], qzeros [n_groups][n_out / per_word], scales [n_groups][n_out]"""
    return {name + ".qweight": np.ascontiguousarray(pack(q, bits).T),
            name + ".qzeros": pack(zeros.T - less_one, bits),
            name + ".scales": transposed(scales),
            name + ".g_idx": (np.arange(q.shape[1]) // group).astype(np.int32)}


def packed_tensors(name, q, zeros, scales, bits, symmetric):
    """weight_packed [n_out][n_in / per_word], weight_zero_point [n_out / per_word][n_groups], weight_scale
    [n_out][n_groups]"""
    tensors = {name + ".weight_packed": pack(q, bits), name + ".weight_scale": scales,
               name + ".weight_shape": np.array(q.shape, np.int64)}
    if not symmetric:
        tensors[name + ".weight_zero_point"] = np.ascontiguousarray(pack(zeros.T, bits).T)
    return tensors


def awq_tensors(name, q, zeros, scales, with_zeros):
    tensors = checkpoint.awq_tensors(name, q.T, zeros.T, transposed(scales))
    if not with_zeros:
        del tensors[name + ".qzeros"]
    return tensors


def int8_tensors(name, q, scales):
    return {name + ".weight": (q - 128).astype(np.int8), name + ".weight_scale": scales}


def transposed(array):
    turned = np.ascontiguousarray(np.asarray(array).T)
    return turned.view(checkpoint.Bf16) if isinstance(array, checkpoint.Bf16) else turned


def matches(name, patterns):
    """As compressed-tensors' `ignore`: names, and regular expressions after "re:" that fit from the beginning."""
    return any(re.match(p[3:], name) if p.startswith("re:") else name == p for p in patterns)


# --- floating point: FP8 (E4M3) with scales of blocks, FP4 (E2M1) with scales of groups of inputs

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def spread(scales, block_out, block_in, shape):
    """Scales of blocks -> a scale for each weight of `shape`; blocks at the edges may be smaller."""
    wide = np.repeat(np.repeat(checkpoint.to_f32(scales), block_out, axis=0), block_in, axis=1)
    return wide[:shape[0], :shape[1]]


def fp8_quantise(weight, block_out, block_in, dtype):
    """-> E4M3 codes, scales [blocks of outputs][blocks of inputs] as dtype() stores them, the weights' values."""
    n_out, n_in = weight.shape
    scales = np.array([[np.abs(weight[o:o + block_out, i:i + block_in]).max() for i in range(0, n_in, block_in)]
                       for o in range(0, n_out, block_out)]) / 448
    scales = dtype(scales.astype(np.float32))
    wide = spread(scales, block_out, block_in, weight.shape)
    codes = checkpoint.to_e4m3(weight / wide)
    return codes, scales, checkpoint.to_f32(codes) * wide


def fp4_codes(values):
    """The nearest codes: bits 0 to 2 the magnitude, bit 3 the sign."""
    return (np.searchsorted((E2M1[1:] + E2M1[:-1]) / 2, np.abs(values)) | np.signbit(values) * 8).astype(np.uint8)


def fp4_values(codes):
    return np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])


def fp4_pack(codes):
    """Two codes a byte, the first in the lower bits."""
    return codes[:, ::2] | codes[:, 1::2] << 4


def fp4_unpack(packed):
    packed = np.asarray(packed)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def nvfp4_quantise(weight, divides):
    """-> codes, E4M3 scales [n_out][n_in / 16], the global scale, the weights' values. The global scale is a divisor
    or a factor."""
    sizes = np.abs(weight.reshape(len(weight), -1, 16)).max(axis=2) / 6
    factor = np.float32(sizes.max() / 448)
    if divides:
        whole = np.float32(1 / factor)
        scales = checkpoint.to_e4m3(sizes * whole)
        wide = checkpoint.to_f32(scales) / whole
    else:
        whole = factor
        scales = checkpoint.to_e4m3(sizes / whole)
        wide = checkpoint.to_f32(scales) * whole
    wide = np.repeat(wide, 16, axis=1)
    codes = fp4_codes(np.divide(weight, wide, out=np.zeros_like(weight), where=wide > 0))
    return codes, scales, whole, fp4_values(codes) * wide


def mxfp4_quantise(weight):
    """-> codes, exponents u8 [n_out][n_in / 32], the weights' values."""
    sizes = np.abs(weight.reshape(len(weight), -1, 32)).max(axis=2)
    exponents = np.floor(np.log2(np.maximum(sizes, 2.0**-100))) - 2
    wide = np.repeat(2.0**exponents, 32, axis=1).astype(np.float32)
    codes = fp4_codes(weight / wide)
    return codes, (exponents + 127).astype(np.uint8), fp4_values(codes) * wide


def float_tensors(name, weight, layout, block, dtype):
    """-> the tensors of a layer in FP8 or FP4, and its weights as they mean. `block` is [outputs, inputs] of FP8's
    blocks, or "channel" or "tensor"."""
    n_out, n_in = weight.shape
    if layout.startswith("fp8"):
        sizes = (1, n_in) if block == "channel" else weight.shape if block == "tensor" else block
        codes, scales, values = fp8_quantise(weight, *sizes, dtype)
        if block == "tensor":
            scales = scales.reshape([] if layout == "fp8" else [1])
        suffix = ".weight_scale_inv" if layout == "fp8-inv" else ".weight_scale"
        return {name + ".weight": codes, name + suffix: scales}, values
    if layout == "mxfp4":
        codes, scales, values = mxfp4_quantise(weight)
        return {name + ".weight_packed": fp4_pack(codes), name + ".weight_scale": scales}, values
    codes, scales, whole, values = nvfp4_quantise(weight, layout == "nvfp4-packed")
    if layout == "nvfp4-packed":
        return {name + ".weight_packed": fp4_pack(codes), name + ".weight_scale": scales,
                name + ".weight_global_scale": np.array([whole], np.float32),
                name + ".input_global_scale": np.array([7], np.float32)}, values
    return {name + ".weight": fp4_pack(codes), name + ".weight_scale": scales,
            name + ".weight_scale_2": np.array(whole, np.float32),
            name + ".input_scale": np.array(0.01, np.float32)}, values
