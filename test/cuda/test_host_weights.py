"""Weights that stay in the host's memory (`--gpu-memory`): the CPU multiplies few rows by them, and for many rows they
are copied to the GPU first.

The references are transformers' logits in fp32, the bound that of test_layouts_of_architectures.py: the CPU's products
are exacter than the GPU's. Where all weights are copied, the kernels are those of a GPU that holds them: the same bits.
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data"
sys.path.insert(0, str(ROOT / "scripts"))

import compare  # noqa: E402  (from scripts/)

BOUND = 1e-4  # mean KL on a GPU
MIXTURES = ["axk1-bf16", "cohere2-moe-bf16", "ernie-moe-awq", "gemma4-moe", "glm4-moe-awq", "glm4-moe-lite-awq",
            "gpt-oss-mxfp4", "granite-moe-bf16", "kimi-linear-bf16", "lfm2-moe-bf16", "llama4-bf16", "mimo-bf16",
            "mixtral-awq", "nemotron-h-latent-awq", "nemotron-h-moe-bf16", "phimoe-bf16", "qwen2-moe-awq",
            "qwen3-moe-awq", "qwen3_5-moe", "qwen4-exp-bf16"]
DENSE = ["apertus-awq", "arcee-awq", "cohere2-bf16", "falcon-h1-bf16", "gemma2-awq", "gemma3n-bf16", "gemma4-e",
         "lfm2-awq", "llama-f32-biases", "nemotron-h-awq", "olmo-hybrid-bf16", "phi3-awq", "qwen2-awq", "qwen3-awq",
         "qwen3_5-awq"]
PLACES = re.compile(r"auk: .* of the weights are on the GPU, .* stay in the host's memory \((.*)\)")


@pytest.fixture
def run(auk, computed_by_cuda, tmp_path):
    """run(model, ids, limit, *flags): the logits, and what stays on the host ("" if nothing does)."""

    def go(model, ids, limit, *flags, refused=False):
        computed_by_cuda(model)
        (tmp_path / "ids").write_text(" ".join(map(str, ids)))
        out = tmp_path / "logits.npy"
        kv = "f16" if "qwen4" in model.name else "f32"  # with an index of positions GPUs take no other
        done = subprocess.run([*auk, "eval", "-m", model, "--ids-file", tmp_path / "ids", "--logits-out", out, "--kv",
                               kv, "--device", "cuda", "--gpu-memory", str(limit), *flags], capture_output=True,
                              check=False)
        said = done.stderr.decode()
        assert (done.returncode != 0) == refused, said
        if refused:
            return said
        places = PLACES.search(said)
        return np.load(out), places.group(1) if places else ""

    return go


@pytest.fixture
def least(run):
    """least(model, ids, *flags): the least limit and the bytes that then are on the host, as a refusal names them."""

    def ask(model, ids, *flags):
        said = run(model, ids, 1, *flags, refused=True)
        found = re.search(r"the GPU needs at least (\d+) bytes \(weights \d+, context of \d+ tokens \d+\) and has 1 "
                          r"free, the host needs (\d+) for the other weights and has \d+ free; a smaller -c", said)
        assert found and int(found[2]) > 0, said
        return int(found[1]), int(found[2])

    return ask


def check(expected, got):
    mean, _, agreeing, decided = compare.report(expected, got)
    print(f"mean KL {mean:.2e}, same top {agreeing} of {decided}")
    assert mean <= BOUND and agreeing >= 0.995 * decided > 0


@pytest.mark.parametrize("name", MIXTURES + DENSE)
def test_everything_on_the_host(run, least, name):
    model = DATA / "miniatures" / name
    ids, rows, expected, _ = compare.load_reference(model / "reference.npz")
    few = "--chunk", "8"
    limit, _ = least(model, ids, *few)
    got, places = run(model, ids, limit, *few)
    assert places.startswith("layers 0 to")
    check(expected, got[rows])
    assert "needs at least" in run(model, ids, limit - 1, *few, refused=True)


@pytest.mark.parametrize("name", MIXTURES)
def test_some_experts_on_the_host(run, least, name):
    model = DATA / "miniatures" / name
    ids, rows, expected, _ = compare.load_reference(model / "reference.npz")
    few = "--chunk", "8"
    limit, host = least(model, ids, *few)
    for tenths in range(10, 0, -1):
        got, places = run(model, ids, limit + host * tenths // 10, *few)
        if places.startswith("experts of layers"):
            check(expected, got[rows])
            return
    raise AssertionError("no limit leaves experts alone on the host")


@pytest.mark.parametrize("name", ["qwen3-moe-awq", "gpt-oss-mxfp4", "qwen3-awq", "qwen3_5-awq"])
def test_copied_weights_give_the_same_bits(run, least, name):
    model = DATA / "miniatures" / name
    ids, _, _, _ = compare.load_reference(model / "reference.npz")
    ids = np.resize(ids, 128) # of experts so many rows that the CPU would be slower
    flags = "--chunk", str(len(ids))
    whole, places = run(model, ids, "1T", *flags)
    assert not places
    got, places = run(model, ids, least(model, ids, *flags)[0], *flags)
    assert places
    np.testing.assert_array_equal(whole, got)


@pytest.mark.parametrize("name", ["qwen3-moe-awq", "qwen3-awq"])
def test_answers(auk, computed_by_cuda, name):
    """Decoding token by token: a graph with calls of the CPU in it gives what the same launches give one by one."""
    model = DATA / "miniatures" / name
    computed_by_cuda(model)

    def answer(limit, *flags):
        return subprocess.run([*auk, "-m", model, "--raw", "--device", "cuda", "-c", "64", "--temp", "0", "-n", "20",
                               "-p", "one two", "--json", "--ids", "--ignore-eos", "--gpu-memory", limit, *flags],
                              capture_output=True, check=False)

    refused = answer("1").stderr.decode()
    limit = re.search(r"at least (\d+) bytes", refused)[1]
    plain, graph = answer(limit, "--no-graphs"), answer(limit)
    assert PLACES.search(graph.stderr.decode())[1].startswith("layers 0 to")
    assert graph.returncode == 0 and json.loads(graph.stdout)["ids"] == json.loads(plain.stdout)["ids"]


@pytest.mark.parametrize("name", ["qwen3-moe-awq", "gemma2-awq"])
def test_many_records(auk, computed_by_cuda, name):
    """Steps of several sequences with calls of the CPU in them, as graphs and without."""
    model = DATA / "miniatures" / name
    computed_by_cuda(model)
    lines = "".join(f"line {i} {'of many ' * (i % 3)}\n" for i in range(6))

    def answers(limit, *flags):
        return subprocess.run([*auk, "-m", model, "--raw", "--device", "cuda", "-c", "64", "--temp", "0", "-n", "8",
                               "--map", "-", "--parallel", "4", "--json", "--ids", "--ignore-eos", "--gpu-memory",
                               limit, *flags], input=lines.encode(),
                              capture_output=True, check=False)

    least = re.search(rb"at least (\d+) bytes \(weights (\d+)", answers("1").stderr)
    several = re.search(rb"(\d+) bytes needed for 4 sequences", answers(least[1].decode()).stderr)
    limit = str(int(least[2]) + int(several[1]))
    plain, graph = answers(limit, "--no-graphs"), answers(limit)
    assert graph.returncode == 0 and PLACES.search(graph.stderr.decode()), graph.stderr
    ids = [[json.loads(line)["ids"] for line in done.stdout.splitlines()] for done in (plain, graph)]
    assert len(ids[0]) == 6 and ids[0] == ids[1]


@pytest.mark.parametrize("name", ["qwen3-moe-awq", "qwen3-awq"])
def test_inspect_predicts(auk, name):
    def inspect(*flags):
        return subprocess.run([*auk, "inspect", DATA / "miniatures" / name, *flags], capture_output=True, check=False)

    refused = inspect("--gpu-memory", "1").stderr.decode()
    limit = re.search(r"the GPU needs at least (\d+) bytes \(weights \d+, context of 128 tokens", refused)[1]
    report = json.loads(inspect("--json", "--gpu-memory", limit).stdout)
    places = report["gpu_memory"]
    assert places["layers_on_host"] == report["num_hidden_layers"] and 0 < places["host_weight_bytes"]
    seconds = places["host_bytes_per_token"] / places["host_gbps"] + places["gpu_bytes_per_token"] / places["gpu_gbps"]
    assert places["most_tokens_per_second"] == pytest.approx(1e9 / seconds, rel=1e-3)
    lines = inspect("--gpu-memory", limit).stdout.decode()
    assert re.search(r"^on the host +.* \(layers 0 to 1\)$", lines, re.M) and re.search("^decode +at most", lines, re.M)
    assert re.search("^on the host +no weights$", inspect("--gpu-memory", "1T").stdout.decode(), re.M)
    whole = json.loads(inspect("--json", "--gpu-memory", "1T").stdout)["gpu_memory"]
    assert whole["most_tokens_per_second"] == pytest.approx(
        1e9 * whole["gpu_gbps"] / whole["gpu_bytes_per_token"], rel=1e-3)
    assert json.loads(inspect("--json").stdout)["gpu_memory"] is None


@pytest.mark.parametrize("size", ["12X", "", "-1", "0", "1e99", "G", "12GG", "nan"])
def test_sizes_that_are_none(auk, size):
    done = subprocess.run([*auk, "eval", "-m", DATA / "stories260K-awq", "--ids-file", "-", "--gpu-memory", size],
                          input=b"1 2", capture_output=True, check=False)
    assert done.returncode == 2 and b"--gpu-memory" in done.stderr
