"""Copies of weights of 4 bits as bytes, which `--act int8` makes on compute capability 9.0 where they fit. Without
them it multiplies many rows as fp16."""
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "test" / "data" / "miniatures" / "mistral-awq-128"
sys.path.insert(0, str(ROOT / "scripts"))

import compare  # noqa: E402  (from scripts/)

IDS = [(7 * i * i + i) % 101 + 2 for i in range(100)]  # one step, of more rows than int8_wgmma takes


@pytest.fixture
def evaluate(auk, computed_by_cuda, tmp_path):
    """evaluate(*flags): the logits, or the message of a refusal."""
    computed_by_cuda(MODEL)
    (tmp_path / "ids").write_text(" ".join(map(str, IDS)))

    def go(*flags):
        out = tmp_path / "logits.npy"
        done = subprocess.run([*auk, "eval", "-m", MODEL, "--ids-file", tmp_path / "ids", "--logits-out", out,
                               "--kv", "f32", "--device", "cuda", *flags], capture_output=True, check=False)
        return np.load(out) if done.returncode == 0 else done.stderr.decode()

    return go


def test_copies_are_multiplied_where_they_fit(evaluate):
    by_bytes = evaluate("--act", "int8", "--kernel", "int8_bytes")
    if isinstance(by_bytes, str):
        assert "never multiplies" in by_bytes
        pytest.skip(by_bytes.strip())
    exact = evaluate()
    assert not np.array_equal(by_bytes, exact)
    assert np.array_equal(evaluate("--act", "int8"), by_bytes)
    refused = evaluate("--act", "int8", "--gpu-memory", "1")
    weights, state = map(int, re.search(r"\(weights (\d+), context of \d+ tokens (\d+)\)", refused).groups())
    enough = weights + state + 1000  # for all but the copies
    assert np.array_equal(evaluate("--act", "int8", "--gpu-memory", str(enough)), exact)
    assert np.array_equal(evaluate("--act", "int8", "--gpu-memory", str(8 * enough)), by_bytes)
    distance = compare.kl(exact, by_bytes).mean()
    print(f"mean KL of bytes {distance:.1e}")
    assert distance <= 1e-2
