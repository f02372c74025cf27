"""Malformed files as a table: what the tests test_hostile_*.py share.

A kind is a list of cases, at most ten; a case is its name, and what is damaged in a copy of the tiny model. The whole
message that the program must give, one line on standard error, stands in test/data/transcripts/hostile; DIR stands
for the model's directory.
"""
import json
import os
import pathlib
import re
import socket
import struct
import subprocess

import pytest
import transcripts

MOST_OF_A_KIND = 10
LIMIT_S = 10  # each takes milliseconds, with sanitizers a second
USAGE, FAILED, MODEL = 2, 1, 3

INSPECT = ["inspect", "-m", "DIR"]
ANSWER = ["-m", "DIR", "-p", "Hi", "-n", "1", "-t", "1"]
TOKENIZE = ["tokenize", "-m", "DIR", "a b"]
WEIGHTS = "model.safetensors"


def kind(name, *cases, command=INSPECT, status=MODEL):
    """The cases of one kind as parameters of a test."""
    assert len(cases) <= MOST_OF_A_KIND, name
    names = [f"{name}: {what}" for what, _ in cases]
    return [pytest.param(case, command, status, damage, id=case) for case, (_, damage) in zip(names, cases)]


def transcript_fixture(name):
    return transcripts.transcript_fixture(
        pathlib.Path(__file__).resolve().parents[1] / "data" / "transcripts" / "hostile" / f"{name}.txt")


def check(auk, stories, folder, transcript, name, command, status, damage):
    """Damages a copy of the model, runs the command and compares what comes of it."""
    folder.mkdir()
    for file in os.listdir(stories):
        (folder / file).symlink_to(stories / file)
    damage(folder)
    arguments = [part.replace("DIR", str(folder)) for part in command]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AUK_")}
    process = subprocess.run([*auk, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=LIMIT_S, env=environment, check=False)
    compare(process, folder, transcript, name, status)


def compare(process, folder, transcript, name, status):
    """The program said one line, that of the transcript, and nothing else."""
    said = process.stderr.decode().replace(str(folder), "DIR")
    # How much of a deep path is left out depends on how long the folder's name is.
    said = re.sub(r"(\.Sequence\[0\]).*\.Sequence\[0\]", r"\1...", said)
    begin, message, end = said[:5], said[5:-1], said[-1:]
    assert (process.returncode, process.stdout, begin, end) == (status, b"", "auk: ", "\n") and "\n" not in message
    transcripts.compare_text(message, transcript, name)


# --- what is damaged: each gives a function of the model's directory


def put(name, content):
    """A file with this content: bytes, text, or what JSON is made of."""

    def damage(folder):
        path = folder / name
        path.unlink(missing_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    return damage


def both(*damages):
    def damage(folder):
        for one in damages:
            one(folder)

    return damage


def gone(name):
    return lambda folder: (folder / name).unlink()


def sparse(name, size, beginning=b""):
    """A file of this size; only its beginning takes room on a disk."""

    def damage(folder):
        put(name, beginning)(folder)
        os.truncate(folder / name, size)

    return damage


def members(name, change=None, **changes):
    """A JSON file with some members changed; None removes one, NULL makes it null."""

    def damage(folder):
        tree = json.loads((folder / name).read_text(encoding="utf-8"))
        tree.update(changes)
        if change:
            change(tree)
        tree = {key: None if value is NULL else value for key, value in tree.items() if value is not None}
        put(name, tree)(folder)

    return damage


NULL = object()


def config(**changes):
    return members("config.json", **changes)


def raw(name, key, text):
    """A JSON file with a member whose value is this text, be it JSON or not."""

    def damage(folder):
        tree = json.loads((folder / name).read_text(encoding="utf-8"))
        tree[key] = "HERE"
        put(name, json.dumps(tree).replace('"HERE"', text))(folder)

    return damage


def became(name, what):
    """Something else in place of a file."""

    def damage(folder):
        path = folder / name
        path.unlink(missing_ok=True)
        if what == "directory":
            path.mkdir()
        elif what == "fifo":
            os.mkfifo(path)
        elif what == "socket":
            here = os.getcwd()
            os.chdir(folder)  # its name may be no longer than 107 bytes
            socket.socket(socket.AF_UNIX).bind(name)
            os.chdir(here)
        else:
            path.symlink_to(name if what == "loop" else what)

    return damage


# --- weights


def safetensors(header, data=b"", length=None):
    """A file of weights with this header: text or what JSON is made of; of this length by its own account."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return put(WEIGHTS, struct.pack("<Q", len(text) if length is None else length) + text + data)


def entry(dtype="F16", shape=(2,), offsets=(0, 4)):
    """One tensor of a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def tensors(change):
    """The weights with change(), given {name: [dtype, shape, bytes]}, made to them; the file itself is a proper one."""

    def damage(folder):
        data = (folder / WEIGHTS).read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        table = {}
        for name, it in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = it["data_offsets"]
                table[name] = [it["dtype"], it["shape"], bytearray(data[start + begin:start + end])]
        change(table)
        header, at = {}, 0
        for name, (dtype, shape, content) in table.items():
            header[name] = entry(dtype, shape, (at, at + len(content)))
            at += len(content)
        safetensors(header, b"".join(content for _, _, content in table.values()))(folder)

    return damage


def without(name):
    return tensors(lambda table: table.pop(name))


def recast(name, dtype, shape):
    """A tensor of another dtype or shape, and of as many bytes as that has."""
    size = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "F16": 16, "I16": 16, "BF16": 16, "F4": 4}.get(dtype, 8)
    count = 1
    for n in shape:
        count *= n
    return tensors(lambda table: table.update({name: [dtype, list(shape), bytes(count * size // 8)]}))


def number(name, index, bits):
    """An F16 of a tensor with other bits."""
    return tensors(lambda table: struct.pack_into("<H", table[name][2], 2 * index, bits))


def nested(depth):
    return "[" * depth + "]" * depth
