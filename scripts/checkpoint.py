"""checkpoint.py - Hugging Face checkpoints and AutoAWQ's layout, with Python's library and numpy alone.

Used by: demo_convert.py, make_stories.py, make_miniatures.py, compare_logits.py. Layouts: models.md, "Hugging
Face directory" and "AutoAWQ gemm". A linear layer is [n_out][n_in] where it is dense and [n_in][n_out] where
it is quantised, as on disk.
"""

import json
import os
import struct

import numpy as np

# Column 8c + ORDER[k] of a row sits in bits 4k .. 4k+3 of word c (AutoAWQ, pack order of its gemm version).
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "I32": np.dtype("<i4"),
          "I8": np.dtype("<i1"), "I64": np.dtype("<i8"), "U8": np.dtype("<u1"), "BOOL": np.dtype("?"),
          "F8_E4M3": np.dtype("<u1")}


class Bf16(np.ndarray):
    """uint16 words that are bf16 numbers: numpy has no such type, safetensors has."""


class E4m3(np.ndarray):
    """uint8 codes that are FP8 numbers, F8_E4M3 of safetensors: E4M3_VALUES has what they stand for."""


def e4m3_values():
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    sizes = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0**(exponent - 10.0))
    sizes[[0x7F, 0xFF]] = np.nan
    return np.where(codes & 0x80, -sizes, sizes).astype(np.float32)


E4M3_VALUES = e4m3_values()


def to_e4m3(values):
    """Rounds fp32 to the nearest number of E4M3; magnitudes above 448 become 448."""
    sizes = E4M3_VALUES[:0x7F]
    codes = np.searchsorted((sizes[1:] + sizes[:-1]) / 2, np.abs(values))
    return (codes | np.signbit(values) * 0x80).astype(np.uint8).view(E4m3)


def to_bf16(values):
    """Rounds fp32 to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(Bf16)


def to_f32(values):
    if isinstance(values, Bf16):
        return (np.asarray(values).astype(np.uint32) << 16).view(np.float32)
    if isinstance(values, E4m3):
        return E4M3_VALUES[np.asarray(values)]
    return np.asarray(values, np.float32)


# --- safetensors: u64 length of a JSON header, the header, the tensors one after the other


def dtype_of(array):
    if isinstance(array, Bf16):
        return "BF16"
    if isinstance(array, E4m3):
        return "F8_E4M3"
    return next(name for name, dtype in DTYPES.items() if name not in ("BF16", "F8_E4M3") and dtype == array.dtype)


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": dtype_of(array), "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)
    os.replace(path + ".part", path)


def write_shards(directory, tensors, n_shards):
    """The same tensors in n_shards files, with the index that names the file of each."""
    names, weight_map = list(tensors), {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
        mine = names[len(names) * shard // n_shards: len(names) * (shard + 1) // n_shards]
        write_safetensors(os.path.join(directory, file), {name: tensors[name] for name in mine})
        weight_map.update({name: file for name in mine})
    total = sum(array.nbytes for array in tensors.values())
    write_json(os.path.join(directory, "model.safetensors.index.json"),
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def read_safetensors(path):
    raw = np.memmap(path, np.uint8, "r")
    size = int(raw[:8].view("<u8")[0])
    header, tensors = json.loads(bytes(raw[8:8 + size])), {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = raw[8 + size + begin:8 + size + end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = array.view({"BF16": Bf16, "F8_E4M3": E4m3}.get(entry["dtype"], np.ndarray))
    return tensors


def read_checkpoint(directory):
    """All tensors of a directory, from one file or from shards."""
    index = os.path.join(directory, "model.safetensors.index.json")
    files = sorted(set(read_json(index)["weight_map"].values())) if os.path.exists(index) else ["model.safetensors"]
    tensors = {}
    for file in files:
        tensors.update(read_safetensors(os.path.join(directory, file)))
    return tensors


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value, indent=2):
    with open(path + ".part", "w", encoding="utf-8") as file:
        separators = (",", ":") if indent is None else None
        json.dump(value, file, indent=indent, ensure_ascii=False, separators=separators)
        file.write("\n")
    os.replace(path + ".part", path)


# --- AutoAWQ: w[i][o] = (q[i][o] - z[i / group][o]) * scale[i / group][o]


def awq_pack(q):
    """[rows][n_out] of 0..15 -> I32 [rows][n_out / 8]"""
    runs = q.astype(np.uint32).reshape(q.shape[0], -1, 8)
    words = np.zeros(runs.shape[:2], np.uint32)
    for k, column in enumerate(ORDER):
        words |= runs[:, :, column] << np.uint32(4 * k)
    return words.view(np.int32)


def awq_unpack(words):
    """I32 [rows][n_out / 8] -> uint8 [rows][n_out]"""
    words = np.ascontiguousarray(words).view(np.uint32)
    runs = np.empty(words.shape + (8,), np.uint8)
    for k, column in enumerate(ORDER):
        runs[:, :, column] = words >> np.uint32(4 * k) & 15
    return runs.reshape(words.shape[0], -1)


def awq_dequantise(qweight, qzeros, scales):
    """-> fp32 [n_out][n_in]. q - z is exact and the product rounds once, as in (q - z) * s anywhere in
    fp32."""
    q, zeros = awq_unpack(qweight).astype(np.float32), awq_unpack(qzeros).astype(np.float32)
    n_in, n_out = q.shape
    groups = (len(zeros), n_in // len(zeros), n_out)
    weight = (q.reshape(groups) - zeros[:, None]) * np.asarray(scales, np.float32)[:, None]
    return np.ascontiguousarray(weight.reshape(n_in, n_out).T)


def awq_tensors(name, q, zeros, scales):
    return {name + ".qweight": awq_pack(q), name + ".qzeros": awq_pack(zeros), name + ".scales": scales}


def dequantised(tensors):
    """A checkpoint's tensors as fp32, with a plain .weight for each quantised layer."""
    plain = {}
    for name, array in tensors.items():
        layer, _, part = name.rpartition(".")
        if part == "qweight":
            plain[layer + ".weight"] = awq_dequantise(array, tensors[layer + ".qzeros"], tensors[layer + ".scales"])
        elif part not in ("qzeros", "scales"):
            plain[name] = to_f32(array)
    return plain


# --- quantisation: for each group the scale (fp16) and the zero (0..15) with the least squared error

# The search tries zeros around the one that the group's span suggests, and scales below the one that
# clips nothing. On SmolLM2's Q4_1 layers the summed error is within 0.1 % of that of trying all 16 zeros with
# seven scales.
SHIFTS = (0, -1, 1, -2, 2)
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)
SMALLEST = np.float32(2.0**-24)  # the least positive fp16: no scale is zero


def sums(values):
    """[size][n] -> [n]. Added up in one order, in fp32: the same bits on every processor, which numpy's own sums
    do not promise, so that a conversion is the same everywhere."""
    while len(values) > 1:
        half, odd = divmod(len(values), 2)
        last = values[-1]
        values = values[:half] + values[half:2 * half]
        if odd:
            values[0] += last
    return values[0]


def levels(group, zero, scale):
    """q - z: the nearest representable multiples of the scale."""
    k = group / scale
    np.rint(k, out=k)
    np.maximum(k, -zero, out=k)  # np.clip() takes twice as long for bounds that are arrays
    return np.minimum(k, 15 - zero, out=k)


def fit(group, importance, zero, scale):
    """The levels for this scale, the scale that is best for those levels (least squares), in fp16, and its
    error. group [size][n], importance [size][1], zero and scale [n] -> scale fp32 [n], squared error [n]."""
    k = levels(group, zero, scale)
    weighted = k * importance
    dot, square = sums(weighted * group), sums(weighted * k)
    best = np.divide(dot, square, out=scale.copy(), where=dot > 0)
    best = np.maximum(best.astype(np.float16).astype(np.float32), SMALLEST)
    difference = levels(group, zero, best) * best - group
    return best, sums(difference * difference * importance)


def quantise_group(group, importance, shifts=SHIFTS, shrinks=SHRINKS):
    """n columns' groups [size][n] fp32, what each row's squared errors count [size][1]
    -> q uint8 [size][n], zero uint8 [n], scale fp16 [n]."""
    low, high = np.minimum(group.min(axis=0), 0), np.maximum(group.max(axis=0), 0)
    near = np.rint(-low * 15 / np.maximum(high - low, SMALLEST))
    best_error, best_zero, best_scale = np.full_like(low, np.inf), np.zeros_like(low), np.ones_like(low)
    for shift in shifts:
        zero = np.clip(near + shift, 0, 15)
        whole = np.maximum(-low / np.maximum(zero, 0.5), high / np.maximum(15 - zero, 0.5))
        for shrink in shrinks:
            scale, error = fit(group, importance, zero, np.maximum(whole * np.float32(shrink), SMALLEST))
            better = error < best_error
            best_error, best_zero, best_scale = (
                np.where(better, new, old)
                for new, old in ((error, best_error), (zero, best_zero), (scale, best_scale)))
    q = levels(group, best_zero, best_scale) + best_zero
    return q.astype(np.uint8), best_zero.astype(np.uint8), best_scale.astype(np.float16)


def awq_quantise(weight, group, importance=None, search=True):
    """Dense fp32 [n_out][n_in] -> q [n_in][n_out], zeros [n_in / group][n_out], scales [n_in / group][n_out].
    group -1: the whole input. importance [n_in]: the mean square of each input, so that what is made least is
    the layer's error rather than the weights'; None: all alike. search=False: the zero and the scale that a
    group's span suggests, in a twentieth of the time, for random weights."""
    columns = np.ascontiguousarray(weight.T, np.float32)
    group = len(columns) if group == -1 else group
    importance = np.ones(len(columns)) if importance is None else importance
    importance = importance.astype(np.float32)[:, None]
    candidates = (SHIFTS, SHRINKS) if search else (SHIFTS[:1], SHRINKS[:1])
    parts = [quantise_group(columns[i:i + group], importance[i:i + group], *candidates)
             for i in range(0, len(columns), group)]
    q, zeros, scales = zip(*parts)
    return np.concatenate(q), np.stack(zeros), np.stack(scales)
