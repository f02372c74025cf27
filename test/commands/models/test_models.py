"""The list that `auk models` makes, of checkpoints that will not run, on a terminal, and where folders cannot be read;
names, the cache and the rest of the list: test/data/transcripts/commands/models.txt."""
import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import termios

import pytest
from terminals import read_all

HUB_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "AUK_MODEL")


@pytest.fixture
def clean(tmp_path):
    """An environment that knows of no cache but the test's."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    return {**{k: v for k, v in os.environ.items() if k not in HUB_VARIABLES},
            "HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "hub")}


@pytest.fixture
def call(run, clean, tmp_path):
    """call(*arguments, VARIABLE=value): run in an empty directory and that environment; a value of None removes."""

    def call_it(*arguments, **changes):
        environment = {k: str(v) for k, v in {**clean, **changes}.items() if v is not None}
        return run(*arguments, cwd=tmp_path / "here", env=environment)

    return call_it


def weigh(folder, files):
    """Files of that many bytes, all of them zero."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in files.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
ONE = {"model.safetensors": 1}
LONG = "A" * 63
# config.json, further files (of a size, or holding this JSON), and what the list then says: architecture, method, bits,
# group, dtype, context, bytes; and the size in words.
FACTS = {
    "nothing": ({}, {"model.safetensors": 0}, (None, None, None, None, None, None, None), "-"),
    "plain": ({"architectures": ["A", "B"], "model_type": "t", "max_position_embeddings": 77, "torch_dtype": "f",
               "dtype": "g"}, {"model.safetensors": 1023}, ("A", None, None, None, "f", 77, 1023), "1023 B"),
    "type": ({"model_type": "t", "dtype": "g"}, {"model.safetensors": 1024},
             ("t", None, None, None, "g", None, 1024), "1.0 KiB"),
    "awq": ({"quantization_config": AWQ}, {"model.safetensors": 10239},
            (None, "awq", 4, 128, None, None, 10239), "10.0 KiB"),
    "whole": ({"quantization_config": {**AWQ, "group_size": -1}}, {"model.safetensors": 10240},
              (None, "awq", 4, -1, None, None, 10240), "10 KiB"),
    "odd": ({"quantization_config": {"quant_method": "x", "bits": -2, "group_size": 0}, "max_position_embeddings": 1.5},
            {"model.safetensors": 3 << 20}, (None, "x", None, None, None, None, 3 << 20), "3.0 MiB"),
    "no method": ({"quantization_config": {"bits": 3}}, ONE, (None, None, None, None, None, None, 1), "1 B"),
    "w_bit": ({"quantization_config": {"w_bit": 3, "q_group_size": 64}}, ONE,
              (None, "awq", 3, 64, None, None, 1), "1 B"),
    "nvfp4": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, {"model.safetensors": 1},
              (None, "modelopt", 4, None, None, None, 1), "1 B"),
    "fp8": ({}, {"model.safetensors": 1, "hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}},
            (None, "modelopt", 8, None, None, None, 1), "1 B"),
    "groups": ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "group_size": 32}}, "group_1": {"weights": {"num_bits": 4}}}}}, ONE,
        (None, "compressed-tensors", 8, 32, None, None, 1), "1 B"),
    "text part": ({"text_config": {"max_position_embeddings": 9, "quantization_config": AWQ}}, ONE,
                  (None, "awq", 4, 128, None, 9, 1), "1 B"),
    "text part beside": ({"max_position_embeddings": 5, "quantization_config": {**AWQ, "bits": 8},
                          "text_config": {"max_position_embeddings": 9, "quantization_config": AWQ}}, ONE,
                         (None, "awq", 8, 128, None, 5, 1), "1 B"),
    "older": ({"quantization_config": {"bits": 8}}, {**ONE, "quantize_config.json": {"bits": 4, "group_size": 32},
                                                     "quant_config.json": {"q_group_size": 64}},
              (None, "awq", 8, 64, None, None, 1), "1 B"),
    "long": ({"architectures": [LONG], "model_type": "t"}, ONE, (LONG, None, None, None, None, None, 1), "1 B"),
    "too long": ({"architectures": [LONG + "A"], "model_type": "t"}, ONE, ("t",) + (None,) * 5 + (1,), "1 B"),
    "shards": ({}, {"model-1.safetensors": 10, "model-2.safetensors": 20, "other.safetensors": 400, "x.bin": 8000},
               (None, None, None, None, None, None, 30), "30 B"),
    "others": ({}, {"other.safetensors": 7, "x.bin": 9}, (None, None, None, None, None, None, 7), "7 B"),
    "pickles": ({}, {"a.bin": 1, "b.pt": 2, "c.pth": 4, "d.gguf": 99}, (None,) * 6 + (7,), "7 B"),
    "a pickle's name": ({}, {"model.bin": 5, "other.safetensors": 9}, (None,) * 6 + (9,), "9 B"),
    "a gguf's name": ({}, {"model.gguf": 3, "x.bin": 4}, (None,) * 6 + (4,), "4 B"),
    "gguf": ({}, {"d.gguf": 99, "model.txt": 3}, (None,) * 6 + (99,), "99 B"),
    "n" * 61: ({}, ONE, (None,) * 6 + (1,), "1 B"),
}


def test_what_a_refused_checkpoint_says_of_itself_is_told(call, tmp_path):
    tree = tmp_path / "here" / "t"
    for name, (config, files, *_) in FACTS.items():
        weigh(tree / name, {file: size for file, size in files.items() if isinstance(size, int)})
        for file, content in {"config.json": config, **files}.items():
            if isinstance(content, dict):
                (tree / name / file).write_text(json.dumps(content))
    entries = listed(call("models", "--json", "t"))
    keys = ("architecture", "quantisation", "bits", "group", "dtype", "context", "bytes")
    assert {it["name"][2:]: tuple(it[key] for key in keys) for it in entries} == {
        name: facts for name, (_, _, facts, _) in FACTS.items()}
    assert not any(it["runs"] for it in entries) and all(it["path"] == it["name"] for it in entries)

    def words(it):
        method = it["quantisation"]
        return (method or it["dtype"] or "") + (f", {it['bits']} bits" if method and it["bits"] else "") + (
            f", groups of {it['group']}" if method and (it["group"] or 0) > 0 else "")

    width = max(len(it["name"]) for it in entries if len(it["name"]) < 60)
    want = [f"{'NAME':{width}}  RUNS      SIZE  CONTEXT  {'ARCHITECTURE':22}  QUANTISATION"]
    for it in entries:
        size = FACTS[it["name"][2:]][3]
        want += [f"{it['name']:{width}}  no    {size:>8}  {it['context'] or '-':>7}  {it['architecture'] or '-':22}  "
                 f"{words(it)}", f"    {it['reason']}"]
    assert call("models", "t").stdout.decode().splitlines() == want


def listed(process):
    assert process.returncode == 0, process.stderr.decode()
    return json.loads(process.stdout)


@pytest.fixture
def local(stories, tmp_path):
    """local(path): a model in ./models."""

    def make(path):
        shutil.copytree(stories, tmp_path / "here" / "models" / path)

    return make


def test_lines_fit_a_narrow_terminal(clean, auk, local, tmp_path):
    local("one")
    mine, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    done = subprocess.run([*auk, "models"], env={**clean, "AUK_MODEL": "models/one"}, cwd=tmp_path / "here",
                          stdout=its, timeout=60)
    os.close(its)
    lines = read_all(mine).decode().splitlines()
    os.close(mine)
    assert done.returncode == 0 and max(map(len, lines)) < 80 and "ARCHITECTURE" not in lines[0]
    assert lines[1].startswith("models/one  yes ") and lines[2] == "    (default: AUK_MODEL)"


def test_directories_that_cannot_be_read_are_named(call, clean, stories, auk):
    """Root reads everything, so the program runs as another user there, who needs a folder that lets him through."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        tree.parent.chmod(0o755)
        shutil.copytree(stories, tree / "fine")
        (tree / "locked").mkdir()
        (tree / "locked").chmod(0o600 if user else 0)
        environment = {**clean, "HF_HUB_CACHE": str(tree / "locked"), "HOME": folder}

        def models(*arguments):
            return subprocess.run([*auk, "models", *map(str, arguments)], env=environment, cwd=folder, timeout=60,
                                  capture_output=True, **user)

        try:
            if subprocess.run([*auk, "--version"], capture_output=True, **user).returncode != 0:
                pytest.skip("another user cannot run the program where it lies")
        except PermissionError:
            pytest.skip("another user cannot run the program where it lies")
        process = models("--json", tree)
        assert [entry["path"] for entry in listed(process)] == [str(tree / "fine")]
        # Once as the cache, once below the folder.
        assert process.stderr.decode() == f"auk: {tree}/locked: cannot look there: Permission denied\n" * 2
        environment["HF_HUB_CACHE"] = str(tree / "none")
        for number in range(20):
            (tree / f"locked{number:02}").mkdir(mode=0o700)
            (tree / f"locked{number:02}").chmod(0o700 if user else 0)
        lines = models("--names", tree).stderr.decode().splitlines()
        assert len(lines) == 9 and lines[-1] == "auk: ... and 13 more that cannot be looked into"
        process = models(tree / "locked")
        assert process.returncode == 1 and b"Permission denied" in process.stderr
        for path in tree.iterdir():
            path.chmod(0o700)
