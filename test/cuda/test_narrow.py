"""Layers of 2 to 16 rows as few kernels (layers/narrow.c): each makes the operand of the next, also where experts lie
between, whose sum makes that of the next layer. The logits are the CPU's, whatever the number of rows.

Models are random ones of two layers, with heads of 128 and weights in groups of 128, as that form wants them.
test_next.cu compares the kernels themselves.
"""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "test" / "cuda")]

import compare  # noqa: E402  (from scripts/)
import test_one_kernel as one  # noqa: E402  (from test/cuda/)

ROWS = [3, 9] if one.EMULATED else [2, 3, 5, 8, 9, 10, 12, 16]
TOKENS = 10 if one.EMULATED else 32
# A token takes all experts, so that none of them are nearly tied for the last place.
KINDS = {"qwen3": ("qwen3", {}), "gelu": ("qwen3", {"hidden_act": "gelu_pytorch_tanh"}),
         "experts": ("experts", {"num_experts_per_tok": one.EXPERTS["num_experts"]})}


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    kind, changes = KINDS[request.param]
    return one.make_model(tmp_path_factory.mktemp("narrow") / "model", kind, **changes)


@pytest.fixture(scope="module")
def expected(auk, folder):
    return one.evaluate(auk, folder, "--device", "cpu", "--kv", "f32", n=TOKENS)


@pytest.mark.parametrize("rows", ROWS)
def test_logits_are_the_cpus(auk, computed_by_cuda, folder, expected, rows):
    computed_by_cuda(folder)
    got = one.evaluate(auk, folder, "--decode-step", "kernels", n=TOKENS, chunk=rows)
    mean, _, agreeing, decided = compare.report(expected, got)
    print(f"{rows} rows: mean KL {mean:.2e}, same top {agreeing} of {decided}")
    assert mean <= one.BOUND and agreeing >= 0.995 * decided > 0
