"""How much memory a run takes: the files it maps, the cache it says it needs, and 50 MB for all else."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)

DEMO = ROOT / "models" / "smollm2-135m-awq"
ALL_ELSE = 50_000_000  # the program and its libraries, activations, the tokenizer's tables
LIMIT_S = 120

# A process begins with the pages of the one that starts it counted in, so a small one does, which has no others.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.parametrize("limit", ["-v", "-d"])
def test_the_context_fits_a_limit_of_the_process(auk, variant, sanitized, limit):
    """300 MB of addresses, or of data: a model of a million positions is run with what they have room for, and a
    longer context is refused with what makes it shorter, before anything is loaded."""
    if sanitized:
        pytest.skip("sanitizers take addresses of their own")
    model = variant(config={"max_position_embeddings": 1_000_000})
    command = ["sh", "-c", f'ulimit {limit} 300000 && exec "$@"', "sh", *auk, "-m", str(model), "--raw", "-p", "Once",
               "-n", "3", "--device", "cpu", "-t", "2", "-v"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    context = int(re.search(rb", context (\d+),", done.stderr)[1])
    assert 50_000 < context < 300_000
    done = subprocess.run([*command, "-c", "1000000"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 1 and done.stdout == b""
    assert b"not enough memory: " in done.stderr and b"a smaller -c needs less" in done.stderr


def test_more_sequences_than_fit_are_refused_with_both_counts(auk, variant, sanitized):
    """300 MB hold the tables of 250,000 positions for many sequences, not for 256 of them."""
    if sanitized:
        pytest.skip("sanitizers take addresses of their own")
    model = variant(config={"max_position_embeddings": 1_000_000})
    command = ["sh", "-c", 'ulimit -v 300000 && exec "$@"', "sh", *auk, "-m", str(model), "--raw", "--map", "-",
               "-n", "3", "--device", "cpu", "-t", "2", "-c", "200000", "--parallel"]
    done = subprocess.run([*command, "256"], input=b"Once\n", capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    needed, free, most = map(int, re.fullmatch(
        rb"auk: not enough memory: (\d+) bytes needed for 256 sequences and a context of 200000 tokens, (\d+) free, "
        rb"enough for (\d+); a smaller --parallel or -c needs less\n", done.stderr).groups())
    assert needed > free and 1 < most < 256
    done = subprocess.run([*command, str(most)], input=b"Once\n", capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


def test_threads_count_before_the_context_is_chosen(auk, variant, sanitized):
    """32 threads take 256 MB of the 1,000 MB of addresses for their stacks, so that 847 MB of cache do not fit."""
    if sanitized:
        pytest.skip("sanitizers take addresses of their own")
    model = variant(config={"max_position_embeddings": 1_000_000})
    command = ["sh", "-c", 'ulimit -s 8192 && ulimit -v 1000000 && exec "$@"', "sh", *auk, "-m", str(model), "--raw",
               "-p", "Once", "-n", "3", "--device", "cpu", "-c", "880000", "-t"]
    done = subprocess.run([*command, "32"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 1 and done.stdout == b""
    assert done.stderr.startswith(b"auk: not enough memory: "), done.stderr
    assert done.stderr.endswith(b" free; a smaller -c needs less\n")
    done = subprocess.run([*command, "1"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["stories", "demo"])
def test_a_run_takes_its_files_its_cache_and_little_else(auk, run, sanitized, request, name):
    if sanitized:
        pytest.skip("sanitizers take memory of their own")
    if name == "demo" and not DEMO.is_dir():
        pytest.skip(f"needs {DEMO.relative_to(ROOT)}: make demo")
    model = DEMO if name == "demo" else request.getfixturevalue("stories")
    said = json.loads(run("inspect", model, "--json").stdout)
    context = 512  # a cache so small that a copy of the weights would show
    assert said["max_position_embeddings"] >= context
    mapped = sum(path.stat().st_size for path in model.iterdir() if path.suffix in (".safetensors", ".json"))
    command = [*auk, "-m", str(model), "--raw", "-p", "Once upon a time", "-n", "8", "-c", str(context),
               "--ignore-eos", "--device", "cpu"]
    measured = subprocess.run([sys.executable, "-S", "-c", MEASURE, *command], capture_output=True, timeout=LIMIT_S)
    status, resident = map(int, measured.stdout.split())
    assert status == 0, measured.stderr
    assert resident <= mapped + said["kv_bytes_per_token"]["f16"] * context + ALL_ELSE
    print(f"{resident} bytes resident, {mapped} mapped, {said['kv_bytes_per_token']['f16'] * context} of cache")


def without(folder, *endings):
    path = folder / "model.safetensors"
    tensors = {name: array.copy() for name, array in checkpoint.read_safetensors(path).items()
               if not name.endswith(endings)}
    checkpoint.write_safetensors(str(path), tensors)


def with_config(folder, **members):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


def fp8_blocks(folder, sizes):
    config = json.loads((folder / "config.json").read_text())
    with_config(folder, quantization_config={**config["quantization_config"], "weight_block_size": sizes})


REFUSED = {
    "nothing is wrong": ("miniatures/qwen3_5-tied", None, "not enough memory: "),
    "a layer of an unknown kind": ("miniatures/qwen3_5-tied", lambda folder: with_config(
        folder, layer_types=["linear_attention", "mamba", "full_attention", "linear_attention"]), "layer_types[1]"),
    "no convolution": ("miniatures/qwen3_5-tied", lambda folder: without(folder, "0.linear_attn.conv1d.weight"),
                       "conv1d.weight is missing"),
    "no decay": ("miniatures/qwen3_5-tied", lambda folder: without(folder, "0.linear_attn.A_log"), "A_log is missing"),
    "experts": ("miniatures/qwen3_5-tied", lambda folder: with_config(
        folder, architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", num_experts=8,
        moe_intermediate_size=8, shared_expert_intermediate_size=8), "mlp.shared_expert.gate_proj.weight is missing"),
    "FP4 without its scale": ("layouts/nvfp4-packed", lambda folder: without(folder, "q_proj.weight_global_scale"),
                              "weight_global_scale is missing"),
    "FP8 of blocks that divide nothing": ("layouts/fp8-blocks", lambda folder: fp8_blocks(folder, [48, 40]),
                                          "weight_block_size of 40 inputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_takes_no_memory(auk, sanitized, tmp_path, case):
    """100 MB of data: no room for the context that is asked for, which is not what such a model is refused for."""
    if sanitized:
        pytest.skip("sanitizers take memory of their own")
    name, damage, message = REFUSED[case]
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "test" / "data" / name, folder)
    with_config(folder, max_position_embeddings=1_000_000)
    if damage:
        damage(folder)
    command = ["sh", "-c", 'ulimit -d 100000 && exec "$@"', "sh", *auk, "-m", str(folder), "--raw", "-p", "a", "-n",
               "1", "-c", "1000000", "--device", "cpu", "-t", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (3 if damage else 1, b""), done.stderr
    assert message in done.stderr.decode() and done.stderr.count(b"\n") == 1


def many_experts(folder):
    """A model of a layer of 64 experts in GPTQ's layout, which is repacked: 105 MB. A token takes one of them."""
    shutil.copytree(ROOT / "test" / "data" / "miniatures" / "qwen3-moe-awq", folder)
    hidden, width, n_experts, group = 1024, 1024, 64, 128
    with_config(folder, hidden_size=hidden, moe_intermediate_size=width, num_experts=n_experts, num_experts_per_tok=1,
                num_hidden_layers=1, num_attention_heads=8, quantization_config={
                    "quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": True})
    random = np.random.default_rng(0)
    tensors = {name: np.ones(n, np.float16) for name, n in (
        ("model.norm.weight", hidden), ("model.layers.0.input_layernorm.weight", hidden),
        ("model.layers.0.post_attention_layernorm.weight", hidden), ("model.layers.0.self_attn.q_norm.weight", 16),
        ("model.layers.0.self_attn.k_norm.weight", 16))}
    tensors["model.embed_tokens.weight"] = random.standard_normal((104, hidden)).astype(np.float16)
    tensors["model.layers.0.mlp.gate.weight"] = random.standard_normal((n_experts, hidden)).astype(np.float16)
    matrices = {"self_attn.q_proj": (hidden, 128), "self_attn.k_proj": (hidden, 16), "self_attn.v_proj": (hidden, 16),
                "self_attn.o_proj": (128, hidden)}
    matrices |= {f"mlp.experts.{e}.{part}_proj": (hidden, width) for e in range(n_experts)
                 for part in ("gate", "up", "down")}
    for name, (n_in, n_out) in matrices.items():
        tensors[f"model.layers.0.{name}.qweight"] = np.full((n_in // 8, n_out), 0x12345678, np.int32)
        tensors[f"model.layers.0.{name}.qzeros"] = np.full((n_in // group, n_out // 8), 0x77777777, np.int32)
        tensors[f"model.layers.0.{name}.scales"] = np.full((n_in // group, n_out), 0.01, np.float16)
    checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def test_only_the_chosen_experts_are_read(auk, sanitized, tmp_path):
    """Less than the file holds: repacking every expert, as a GPU does when it loads a model, takes 117 MB. Their
    scales are checked when the model is loaded, and pages around what is read are mapped with it."""
    if sanitized:
        pytest.skip("sanitizers take memory of their own")
    model = many_experts(tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", MEASURE, *auk, "-m", str(model), "--raw", "-p", "a", "-n", "1",
                           "--device", "cpu", "-t", "2", "-c", "64"], capture_output=True, timeout=LIMIT_S)
    status, taken = map(int, done.stdout.split())
    assert status == 0, done.stderr
    assert taken < 0.7 * (model / "model.safetensors").stat().st_size
