"""layouts.py - GPTQ's and compressed-tensors' layouts of linear layers, with numpy alone.

Used by: make_layouts.py, check_layouts.py. Layouts: models.md. Weights are q [n_out][n_in], zero points
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
    """As compressed-tensors' `ignore`: names, and regular expressions behind "re:" that fit from the beginning."""
    return any(re.match(p[3:], name) if p.startswith("re:") else name == p for p in patterns)
