"""`auk bench` on the GPU: models without weights, and the table of kernels. No figure here is a measurement.

Needs a GPU: skipped by name where `auk` finds none. `make test-gpu` runs it.
"""
import json
import os
import pathlib
import re
import subprocess

import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "test" / "data"
EMULATED = os.environ.get("AUK_TEST_SIZE") == "few"
SMALLEST = DATA / "configs" / "Qwen3-0.6B-AWQ"
TIMES = ["-p", "1,3,64", "-r", "1", "-o", "json", "--device", "cuda"]


def bench(auk, *arguments):
    return subprocess.run([*auk, "bench", *map(str, arguments)], capture_output=True, timeout=300,
                          stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("config", sorted((DATA / "miniatures").glob("*/config.json")), ids=lambda it: it.parent.name)
def test_every_architecture_goes_without_weights(auk, config, computed_by_cuda):
    """A logit that is not finite would end the run."""
    computed_by_cuda(config.parent)
    done = bench(auk, "-m", config, "--dummy-weights", "-p", 32, "-n", 16, "-r", 1, "-o", "json", "--device", "cuda")
    assert (done.returncode, done.stderr) == (0, b"")
    rows = json.loads(done.stdout)
    assert [row["test"] for row in rows] == ["pp32", "tg16"]
    assert all(row["backend"] == "cuda" and row["avg_ts"] > 0 for row in rows)


def test_the_machine_is_measured_and_memory_told(auk):
    done = bench(auk, "-m", DATA / "stories260K-awq", "-p", "1,4", "-n", 4, "-d", 8, "-r", 1, "-v", "-o", "json",
                 "--device", "cuda")
    assert done.returncode == 0
    for row in json.loads(done.stdout):
        assert row["machine_gbps"] > 0 and row["machine_tflops"] > 0
        assert 0 < row["of_wall"] < 1 and row["gbps"] > 0
    found = re.fullmatch(r"auk: memory in MB: weights (\S+) as stored, KV cache (\S+), everything else (\S+); "
                         r"(\S+) taken, (\S+) before the weights came\n", done.stderr.decode())
    weights, cache, other, taken, before = map(float, found.groups())
    assert abs(weights + cache + other - taken) < 0.3 and before < taken


@pytest.fixture(scope="module")
def table(auk):
    if EMULATED:
        pytest.skip("an emulated GPU takes minutes for each kernel")
    done = bench(auk, "-m", SMALLEST, "--dummy-weights", "--kernels", *TIMES)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def test_the_machine_comes_first(table):
    assert [(row["layer"], row["kernel"]) for row in table[:2]] == [
        ("machine", "streaming read"), ("machine", "cublas fp16")]
    assert all(row["layer"] != "machine" for row in table[2:])
    # A card of today reads over 100 GB/s and makes over 5 TFLOP/s with tensor cores.
    assert table[0]["gbps"] > 100 and table[1]["tflops"] > 5


def test_every_matrix_has_every_count_and_a_choice(table):
    shapes = {row["layer"]: (row["n_in"], row["n_out"]) for row in table[2:]}
    assert shapes == {"qkv": (1024, 4096), "o": (2048, 1024), "gate_up": (1024, 6144), "down": (3072, 1024),
                      "head": (1024, 151936)}
    for layer in shapes:
        for n_tokens in (1, 3, 64):
            rows = [row for row in table if (row["layer"], row["n_tokens"]) == (layer, n_tokens)]
            names = [row["kernel"] for row in rows]
            assert len(set(names)) == len(names) > 1
            assert sum(row["chosen"] and not row["kernel"].startswith("int8") for row in rows) == 1
            assert ("cublas fp16" in names) == (layer != "head")
            for row in rows:
                assert row["us"] > 0 and row["gbps"] > 0 and row["tflops"] > 0
                # int8 products have twice the fp16 ceiling; clocks differ by some percent from run to run.
                assert 0 < row["of_ceiling"] < (2.2 if row["kernel"].startswith("int8") else 1.2)


@pytest.mark.skipif(EMULATED, reason="an emulated GPU takes minutes for each kernel")
def test_one_kernel_alone(auk):
    done = bench(auk, "-m", SMALLEST, "--dummy-weights", "--kernels", "--kernel", "awq_plain", *TIMES)
    assert {row["kernel"] for row in json.loads(done.stdout)[2:]} == {"awq_plain"}
    done = bench(auk, "-m", SMALLEST, "--dummy-weights", "--kernels", "--kernel", "awq_nothing", *TIMES)
    assert done.returncode == 2 and b"awq_nothing" in done.stderr
