"""gguf_file.py - reads a GGUF file: its metadata, and its tensors as fp32. Python's library and numpy
alone.

Used by: demo_convert.py.   Format: the GGUF specification of ggml (docs/gguf.md), version 3; block layouts of
ggml-common.h.

    "GGUF", u32 version, u64 tensors, u64 members
    members   string key, u32 type, value; a string is u64 bytes and the bytes, an array u32 type, u64 count, values
    tensors   string name, u32 dimensions, u64 sizes (the innermost first), u32 type, u64 offset
    padding up to a multiple of general.alignment, then the data that the offsets count from
"""

import struct

import numpy as np

NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
BLOCK = 32  # weights of a quantised block
Q4_1_BLOCK = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])  # byte i: weight i low, weight i + 16 high
Q8_0_BLOCK = np.dtype([("d", "<f2"), ("q", "i1", 32)])


class Gguf:
    """metadata: {key: value}; tensor(name) gives one as fp32, the outermost dimension first."""

    def __init__(self, path):
        self.path = path
        self.raw = np.memmap(path, np.uint8, "r")
        self.at = 0
        if bytes(self.raw[:4]) != b"GGUF":
            raise ValueError(f"{path}: begins with {bytes(self.raw[:4])!r}, expected b'GGUF'")
        self.at = 4
        version, n_tensors, n_members = self.number("<I"), self.number("<Q"), self.number("<Q")
        if version != 3:
            raise ValueError(f"{path}: GGUF version {version}, expected 3")
        self.metadata = {}
        for _ in range(n_members):
            key = self.string()
            self.metadata[key] = self.value(self.number("<I"))
        self.entries = {}
        for _ in range(n_tensors):
            name = self.string()
            shape = [self.number("<Q") for _ in range(self.number("<I"))][::-1]
            self.entries[name] = (shape, self.number("<I"), self.number("<Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self.data = (self.at + alignment - 1) // alignment * alignment

    def number(self, form):
        value, = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.number("<Q")
        self.at += size
        return bytes(self.raw[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.number("<I"), self.number("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.number(NUMBERS[kind])

    def blocks(self, name, count, dtype):
        begin = self.data + self.entries[name][2]
        return self.raw[begin:begin + count * dtype.itemsize].view(dtype)

    def tensor(self, name):
        shape, kind, _ = self.entries[name]
        count = int(np.prod(shape))
        if kind == F32:
            return self.blocks(name, count, np.dtype("<f4")).reshape(shape)
        if kind == Q8_0:  # w = d q
            blocks = self.blocks(name, count // BLOCK, Q8_0_BLOCK)
            return (blocks["d"].astype(np.float32)[:, None] * blocks["q"]).reshape(shape)
        if kind == Q4_1:  # w = d q + m, q in 0..15
            blocks = self.blocks(name, count // BLOCK, Q4_1_BLOCK)
            q = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float32)
            q *= blocks["d"].astype(np.float32)[:, None]
            q += blocks["m"].astype(np.float32)[:, None]
            return q.reshape(shape)
        raise ValueError(f"{self.path}: tensor {name} is of type {kind}, expected F32, Q4_1 or Q8_0")
