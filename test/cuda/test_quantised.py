"""Quantised layouts on the GPU: all that the CPU runs, near Hugging Face's logits on the dequantised weights.

commands/models/test_layouts.py has the same on the CPU. The bound is the project's: a mean KL of 1e-4, the same top
token wherever the reference's two best differ by 0.05 or more; fp16 activations alone cost some 1e-6. Where they are
rounded to int8, what fp16 rounds before falls the other way now and then, and spreads: the same in fp32 by torch, with
only x rounded to fp16 first, is as far from the reference (1.9e-3, of a rounding that costs 2.8e-3). Then the mean KL
is within twice what the rounding itself costs, and test_linear.cu holds each product to its definition.
Needs a GPU: skipped by name where `auk` finds none. `make test-gpu` runs it.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compare  # noqa: E402  (from scripts/)

DATA = ROOT / "test" / "data"
LAYOUTS = sorted(path for path in (DATA / "layouts").iterdir())
RUN = [path.name for path in LAYOUTS]
ALL = os.environ.get("AUK_TEST_SIZE") != "few"  # few: an emulated GPU
BOUND = 1e-4
ROUNDED = [name for name in RUN if "activations" in name]


@pytest.fixture
def evaluate(auk, tmp_path):
    """evaluate(name, *flags): the finished process, which has written logits to tmp_path."""

    def run_it(name, *flags):
        ids = np.load(DATA / "layouts" / name / "reference.npz")["ids"]
        (tmp_path / "ids").write_text(" ".join(map(str, ids)))
        return subprocess.run([*auk, "eval", "-m", DATA / "layouts" / name, "--ids-file", tmp_path / "ids",
                               "--logits-out", tmp_path / "logits.npy", "--device", "cuda", *flags],
                              capture_output=True, check=False)

    return run_it


@pytest.mark.parametrize("name", [name for name in RUN if name not in ROUNDED])
@pytest.mark.parametrize("chunk", ["64", "1"] if ALL else ["64"])  # many rows at a time, and one: other kernels
def test_equals_transformers(evaluate, tmp_path, name, chunk):
    done = evaluate(name, "--kv", "f32", "--chunk", chunk)
    assert done.returncode == 0, done.stderr
    expected = np.load(DATA / "layouts" / name / "reference.npz")["logits"]
    mean, _, agreeing, decided = compare.report(expected, np.load(tmp_path / "logits.npy"))
    print(f"mean KL {mean:.1e}, top token {agreeing} of {decided}")
    assert mean <= BOUND
    assert agreeing == decided


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("chunk", ["64", "1"] if ALL else ["1"])
def test_rounded_activations_stay_near(evaluate, tmp_path, name, chunk):
    done = evaluate(name, "--kv", "f32", "--chunk", chunk)
    assert done.returncode == 0, done.stderr
    reference = np.load(DATA / "layouts" / name / "reference.npz")
    logits = np.load(tmp_path / "logits.npy")
    cost = compare.kl(reference["logits"], reference["exact"]).mean()
    distance = compare.kl(reference["logits"], logits).mean()
    print(f"mean KL {distance:.1e}, of the rounding {cost:.1e}")
    assert distance <= 2 * cost
    assert compare.kl(reference["exact"], logits).mean() >= cost / 2, "activations that are not rounded"


@pytest.mark.parametrize("name", ["fp8-tensor", "nvfp4-packed"])
def test_int8_activations_are_refused_by_name(evaluate, name):
    done = evaluate(name, "--act", "int8")
    assert done.returncode == 3
    assert b"no kernel multiplies" in done.stderr and b" of FP" in done.stderr


def test_int8_activations_need_quantised_layers(auk):
    flags = ["-m", DATA / "miniatures" / "qwen3_5", "-p", "x", "-n", "1", "--device", "cuda", "--act", "int8"]
    done = subprocess.run([*auk, *flags], capture_output=True)
    assert done.returncode == 3 and b"quantised layers" in done.stderr


def test_inspect_agrees(auk):
    for path in LAYOUTS:
        report = json.loads(subprocess.run([*auk, "inspect", path, "--json"], capture_output=True, check=True).stdout)
        assert "cuda" in report["runs_on"], path.name
