"""Quantised layouts on the GPU: those that become 4 bits as AutoAWQ has them run there, near Hugging Face's logits on
the dequantised weights; the others are refused by name.

test/commands/test_layouts.py has all of them on the CPU. The bound is the project's: a mean KL of 1e-4, the same top
token wherever the reference's two best differ by 0.05 or more; fp16 activations alone cost some 1e-6.
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
RUN = ["autoround-awq", "autoround-gptq", "autoround-own", "awq-bf16-scales", "awq-head", "awq-symmetric",
       "gptq-asymmetric", "gptq-symmetric", "gptq-v2", "gptq-whole", "packed-4-128", "packed-4-32", "packed-4-64",
       "packed-4-channel"]
REFUSED = [path.name for path in LAYOUTS if path.name not in RUN]
if os.environ.get("AUK_TEST_SIZE") == "few":  # an emulated GPU
    RUN = ["awq-head", "gptq-asymmetric", "packed-4-channel"]
BOUND = 1e-4


@pytest.fixture(scope="session", autouse=True)
def gpu(auk):
    """Skips everything here where there is no GPU that this program can use."""
    done = subprocess.run([*auk, "eval", "-m", DATA / "stories260K-awq", "--ids-file", "-", "--device", "cuda"],
                          input=b"1 2 3", capture_output=True)
    if done.returncode:
        pytest.skip(f"needs a GPU: {done.stderr.decode().strip()}")


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


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("chunk", ["64", "1"])  # many rows at a time, and one: other kernels
def test_equals_transformers(evaluate, tmp_path, name, chunk):
    done = evaluate(name, "--kv", "f32", "--chunk", chunk)
    assert done.returncode == 0, done.stderr
    expected = np.load(DATA / "layouts" / name / "reference.npz")["logits"]
    mean, _, agreeing, decided = compare.report(expected, np.load(tmp_path / "logits.npy"))
    print(f"mean KL {mean:.1e}, top token {agreeing} of {decided}")
    assert mean <= BOUND
    assert agreeing == decided


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_computes_is_refused_by_name(evaluate, tmp_path, name):
    done = evaluate(name)
    assert done.returncode == 3 and b"which GPUs do not compute yet" in done.stderr
    assert not (tmp_path / "logits.npy").exists()


def test_inspect_agrees(auk):
    """But for what only the numbers tell: a zero point that is too large."""
    for path in LAYOUTS:
        report = json.loads(subprocess.run([*auk, "inspect", path, "--json"], capture_output=True, check=True).stdout)
        assert ("cuda" in report["runs_on"]) == (path.name not in REFUSED or path.name == "gptq-zero-16"), path.name
