"""`auk --split 2`: two GPUs share each layer of a model. Needs two GPUs that reach each other's memory; the
emulated one can be two. By NCCL, for which the emulated GPU has a stand-in (emulator/nccl), they need not.

The sums of o and down are those of one GPU but for the order of fp32 additions, so models differ from one GPU by no
more than GPUs do from the CPU (test_model.py).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import test_one_kernel as random_models
from test_one_kernel import checkpoint, compare

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
EMULATED = os.environ.get("AUK_TEST_SIZE") == "few"
BOUND = 2e-5  # mean KL, as for all models on GPUs
GPUS = {"EMULATED_GPUS": "2", **os.environ}
KIND = "shared"  # each GPU's part is one that the fused step is for


@pytest.fixture(scope="module", autouse=True)
def two_gpus(auk):
    done = run(auk, "-m", DATA / "stories260K-awq", "--split", "8", "-p", "x", EMULATED_GPUS="2")
    if "only 1 GPU is" in done.stderr:
        pytest.skip("needs two GPUs")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setitem(random_models.KINDS, KIND, ({**random_models.QWEN3, "num_attention_heads": 4}, 128))
    monkeypatch.setattr(random_models, "INTERMEDIATE", 1024)
    return random_models.make_model(tmp_path / "model", KIND)


def run(auk, *flags, **environment):
    stand_in = {"LD_LIBRARY_PATH": str(pathlib.Path(auk[-1]).parent / "nccl")} if EMULATED else {}
    return subprocess.run([*auk, *map(str, flags), "--device", "cuda"], env={**GPUS, **stand_in, **environment},
                          capture_output=True, text=True, errors="replace")


@pytest.fixture
def nccl(auk):
    """The flags for sums by NCCL; on the emulated GPU by its stand-in."""
    flags = ["--split-by", "nccl"]
    done = run(auk, "-m", DATA / "miniatures" / "ernie-awq", "--raw", "-p", "x", "-n", "1", "--split", "2", *flags)
    if "NCCL cannot be loaded" in done.stderr:
        pytest.skip("needs NCCL")
    return flags


def logits(auk, model, folder, n, *flags):
    vocabulary = 90
    (folder / "ids").write_text(" ".join(map(str, np.random.default_rng(3).integers(3, vocabulary, n))))
    done = run(auk, "eval", "-m", model, "--ids-file", folder / "ids", "--logits-out", folder / "out.npy", *flags)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "out.npy")


def assert_alike(auk, model, folder, n, *flags, by=(), n_gpus=2):
    one, two, again = (logits(auk, model, folder, n, *flags, *split)
                       for split in ([], ["--split", n_gpus, *by], ["--split", n_gpus, *by]))
    mean, worst, same, decided = compare.report(one, two)
    print(f"{model.name} {flags}: mean KL {mean:.2e}, worst {worst:.2e}, same top {same} of {decided}")
    assert mean <= BOUND and same >= 0.995 * decided
    assert two.tobytes() == again.tobytes()


@pytest.mark.parametrize("n, flags", [
    (6, ["--chunk", "1", "--decode-step", "cluster"]), (6, ["--chunk", "1", "--decode-step", "kernels"]),
    (7, ["--chunk", "6"]), (40, ["--chunk", "40"]), (72, [])],
    ids=["one kernel", "kernels", "packets", "read from the other", "logits in several turns"])
def test_two_gpus_are_one(auk, model, tmp_path, n, flags):
    if "cluster" in flags and "no clusters" in run(auk, "-m", model, "--raw", "-p", "x", "-n", "1", *flags[2:]).stderr:
        pytest.skip("needs GPUs with clusters")
    assert_alike(auk, model, tmp_path, n, *flags)


def test_each_gpu_sums_its_own_rows(auk, tmp_path, monkeypatch):
    """Prompts of so many numbers that the GPUs send each other rows, rounded (peers_own_rows_pay())."""
    if EMULATED:
        pytest.skip("takes an emulated GPU minutes")
    monkeypatch.setitem(random_models.KINDS, KIND, ({**random_models.QWEN3, "num_attention_heads": 4}, 128))
    monkeypatch.setattr(random_models, "INTERMEDIATE", 1024)
    model = random_models.make_model(tmp_path / "model", KIND, hidden=1024, max_position_embeddings=2048)
    assert_alike(auk, model, tmp_path, 2000, "--chunk", 1100)


def test_each_part_has_its_copies(auk, model, tmp_path):
    """On compute capability 9.0 so many rows with `--act int8` would else be multiplied as without it."""
    exact, rounded = (logits(auk, model, tmp_path, 72, "--split", 2, *flags) for flags in ([], ["--act", "int8"]))
    assert exact.tobytes() != rounded.tobytes()
    assert compare.report(exact, rounded)[0] <= 1e-2


# An expert's part has three FFN blocks (a cluster may have the last one of an expert and the first of the next), one,
# or two, in groups of 128 and in smaller ones, where zero points lie otherwise.
MIXTURES = {
    "experts": (random_models.KINDS["experts"][0], 128),
    "experts in groups of 64": (random_models.KINDS["experts"][0], 64),
    "hybrid": random_models.KINDS["hybrid"],
    "hybrid in FP4": random_models.KINDS["hybrid in FP4"],  # 12 value heads: b and a are no one matrix
    "hybrid with experts": random_models.KINDS["hybrid with experts"],
    "hybrid with wide experts": ({**random_models.KINDS["hybrid with experts"][0], "moe_intermediate_size": 512,
                                  "shared_expert_intermediate_size": 512}, 128),
}
NARROW = {**random_models.KINDS["hybrid with experts"][0], "num_attention_heads": 8, "linear_num_value_heads": 32,
          "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}


def mixture(folder, monkeypatch, kind, n_gpus=2):
    monkeypatch.setitem(random_models.KINDS, KIND, kind)
    monkeypatch.setattr(random_models, "INTERMEDIATE", 512 * n_gpus)
    return random_models.make_model(folder / "model", KIND)


def assert_one_kernel_is_one_gpus(auk, model, folder, n_gpus=2):
    flags = ["--chunk", "1", "--decode-step"]
    if "no clusters" in run(auk, "-m", model, "--raw", "-p", "x", "-n", "1", *flags[2:], "cluster").stderr:
        pytest.skip("needs GPUs with clusters")
    assert_alike(auk, model, folder, 5, *flags, "cluster", n_gpus=n_gpus)
    fused, others = (logits(auk, model, folder, 2, *flags, step, "--split", n_gpus) for step in ("cluster", "kernels"))
    assert fused.tobytes() != others.tobytes(), "one of them was not computed"
    assert compare.report(others, fused)[0] <= BOUND


@pytest.mark.parametrize("kind", MIXTURES)
def test_one_kernel_of_experts_and_hybrids(auk, tmp_path, monkeypatch, kind):
    """All GPUs choose the same experts: the residual stream is the same on each to the bit."""
    assert_one_kernel_is_one_gpus(auk, mixture(tmp_path, monkeypatch, MIXTURES[kind]), tmp_path)


@pytest.mark.parametrize("kind", ["qwen3 in FP8", "qwen2 in fp16"])
def test_one_kernel_of_wide_weights(auk, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(random_models, "INTERMEDIATE", 1024)
    config, group = random_models.KINDS[kind]
    monkeypatch.setitem(random_models.KINDS, kind, ({**config, "num_attention_heads": 4}, group))
    assert_one_kernel_is_one_gpus(auk, random_models.make_model(tmp_path / "model", kind), tmp_path)


def test_one_kernel_and_a_cache_in_8_bits(auk, model, tmp_path):
    """A number near the middle of two steps of the cache may fall to the other side on two GPUs. So they may differ by
    a part of what such a cache costs (LOG.md, "Three miniatures above a KL of 2e-5")."""
    flags = ["--chunk", "1", "--decode-step", "cluster"]
    if "no clusters" in run(auk, "-m", model, "--raw", "-p", "x", "-n", "1", *flags[2:]).stderr:
        pytest.skip("needs GPUs with clusters")
    exact, one, two = (logits(auk, model, tmp_path, 6, *flags, *more)
                       for more in ([], ["--kv", "q8"], ["--kv", "q8", "--split", 2]))
    cost, apart = (compare.report(other, one)[0] for other in (exact, two))
    assert two.tobytes() != one.tobytes() and apart <= 0.6 * cost


def test_four_gpus_are_one(auk, tmp_path, monkeypatch):
    """A KV head is that of two GPUs, and an expert's part is one FFN block."""
    said = run(auk, "-m", DATA / "stories260K-awq", "--split", "8", "-p", "x", EMULATED_GPUS="4").stderr
    if re.search("only [123] GPU", said):
        pytest.skip("needs four GPUs")
    monkeypatch.setitem(GPUS, "EMULATED_GPUS", "4")
    assert_one_kernel_is_one_gpus(auk, mixture(tmp_path, monkeypatch, (NARROW, 128), 4), tmp_path, 4)


def test_parts_that_differ_run_separate_kernels(auk, tmp_path, monkeypatch):
    """Three groups of an expert's hidden units: two for the first GPU, which has more FFN blocks than clusters of the
    other."""
    model = mixture(tmp_path, monkeypatch, ({**random_models.KINDS["experts"][0], "moe_intermediate_size": 384}, 128))
    flags = ["--split", "2", "--chunk", "1", "--decode-step"]
    kernels, auto = (logits(auk, model, tmp_path, 2, *flags, step) for step in ("kernels", "auto"))
    assert kernels.tobytes() == auto.tobytes()
    refused = run(auk, "-m", model, "--raw", "-p", "x", "-n", "1", *flags[:2], "--decode-step", "cluster")
    if "no clusters" not in refused.stderr:
        assert refused.returncode == 3 and "or parts of them, that differ" in refused.stderr, refused.stderr


@pytest.mark.parametrize("n, flags", [(4, ["--chunk", "1"]), (4, ["--chunk", "1", "--no-graphs"]), (72, [])],
                         ids=["steps", "no graphs", "logits in several turns"])
def test_nccl_adds_up_for_two(auk, nccl, model, tmp_path, n, flags):
    assert_alike(auk, model, tmp_path, n, *flags, by=nccl)


@pytest.mark.parametrize("name", ["gemma4-moe-text-part", "qwen2-moe-awq"])
def test_norms_caps_and_experts_by_nccl(auk, nccl, tmp_path, name):
    assert_alike(auk, DATA / "miniatures" / name, tmp_path, 12, by=nccl)


@pytest.mark.parametrize("name", ["layouts/fp8-channel", "layouts/gptq-8-v2", "layouts/nvfp4-packed",
                                  "miniatures/ernie-biases", "miniatures/gemma4-text-part",
                                  "miniatures/gemma4-moe-text-part", "miniatures/glm4-moe-awq",
                                  "miniatures/gpt-oss-bf16", "miniatures/qwen2-moe-awq",
                                  "miniatures/qwen3_5-moe", "miniatures/lfm3-awq"])
def test_forms_and_families(auk, tmp_path, name):
    """Weights of 8 bits, FP8 and FP4; biases; norms of what is added, capped logits and a tied head. Experts: with
    norms of their own, an MLP beside them that is one of them or not, biases and sinks. Recurrent layers: the
    gated delta rule and short convolutions. The last models have one KV head, which both GPUs have."""
    assert_alike(auk, DATA / name, tmp_path, 12)


def test_parts_of_different_widths(auk, tmp_path):
    """gpt-oss in MXFP4: three groups of hidden units, two for the first GPU. Gate and up alternate."""
    model, hidden, width, experts = tmp_path / "model", 96, 96, 6
    shutil.copytree(DATA / "miniatures" / "gpt-oss-mxfp4", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "intermediate_size": width}))
    random, file = np.random.default_rng(5), str(model / "model.safetensors")
    tensors = checkpoint.read_safetensors(file)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.mlp.experts."
        for part, n_out, n_in in ("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width):
            tensors[f"{name}{part}_blocks"] = random.integers(0, 256, (experts, n_out, n_in // 32, 16), np.uint8)
            tensors[f"{name}{part}_scales"] = random.integers(121, 125, (experts, n_out, n_in // 32), np.uint8)
        tensors[f"{name}gate_up_proj_bias"] = checkpoint.to_bf16(random.standard_normal((experts, 2 * width)) / 4)
    checkpoint.write_safetensors(file, tensors)
    assert_alike(auk, model, tmp_path, 12)


def test_a_row_of_several_blocks(auk, tmp_path, monkeypatch):
    """Where there are clusters, each block sends and normalises 1,024 numbers of a row; the last one here has 256."""
    monkeypatch.setitem(random_models.KINDS, KIND, ({**random_models.QWEN3, "num_attention_heads": 4}, 128))
    monkeypatch.setattr(random_models, "LAYERS", 1)
    assert_alike(auk, random_models.make_model(tmp_path / "model", KIND, hidden=1280), tmp_path, 7, "--chunk", "6")


@pytest.mark.parametrize("by", ["memory", "nccl"])
def test_answers_come_again(auk, tmp_path, by, request):
    if by == "nccl":
        request.getfixturevalue("nccl")
    flags = ["-m", DATA / "miniatures" / "ernie-awq", "--raw", "-n", "4", "--temp", "1", "-s", "5", "--ignore-eos",
             "-c", "64", "--split", "2", "--split-by", by]
    prompt, again = (run(auk, *flags, "-p", "12 dogs") for _ in range(2))
    assert prompt.returncode == 0 and prompt.stdout and prompt.stdout == again.stdout, prompt.stderr
    (tmp_path / "in").write_text("".join(f"{i} dogs\n" for i in range(3)))
    many, again = (run(auk, *flags, "--map", tmp_path / "in", "-p", "{}", "--parallel", "2") for _ in range(2))
    assert many.returncode == 0 and many.stdout.count("\n") >= 3 and many.stdout == again.stdout, many.stderr


@pytest.mark.parametrize("by", ["memory", "nccl"])
def test_tokens_after_a_prompt(auk, model, by, request):
    """Separate kernels for the prompt, then fused steps where there are clusters. Each GPU picks for itself; picks that
    differ end the answer. With guesses steps have several rows, which are picked from at once without penalties. By
    NCCL the first GPU picks."""
    if by == "nccl":
        request.getfixturevalue("nccl")
    flags = ["-m", model, "--raw", "--ids", "--json", "-p", "ab cd ab cd ab", "-n", "8", "--ignore-eos", "-c", "64",
             "-s", "3", "--split", "2", "--split-by", by]
    for more in (["--temp", "1", "--guess", "0"], ["--temp", "0.3", "--guess", "3"],
                 ["--temp", "0.3", "--guess", "3", "--repeat-penalty", "1.2"]):
        done = run(auk, *flags, *more)
        assert done.returncode == 0 and len(json.loads(done.stdout)["ids"]) == 8, done.stderr


@pytest.mark.parametrize("kind", [["--temp", "0"], ["--temp", "1", "--top-k", "5"], ["--temp", "0", "--logprobs", "3"]],
                         ids=["greedy", "of the best five", "with all logits"])
def test_picks_from_lm_head_in_8_bits(auk, model, kind):
    """Each GPU bounds its rows of lm_head, and the best of all GPUs is the pick. With a penalty, which is too small to
    change a logit, steps make all logits."""
    flags = ["-m", model, "--raw", "--ids", "--json", "-p", "ab cd", "-n", "8", "--ignore-eos", "-c", "64", "-s", "3",
             "--guess", "0", "--split", "2", *kind]
    few, all_logits = (run(auk, *flags, *more) for more in ([], ["--presence-penalty", "1e-12"]))
    assert few.returncode == 0, few.stderr
    few, all_logits = (json.loads(done.stdout) for done in (few, all_logits))
    assert len(few["ids"]) == 8 and few["ids"] == all_logits["ids"]
    assert few.get("logprobs") == all_logits.get("logprobs")


@pytest.mark.parametrize("by", ["memory", "nccl"])
def test_a_gpu_that_fails_ends_the_answer(auk, model, by):
    program = auk[-1]
    if b"EMULATED_FAULT_GPU" not in open(program, "rb").read():
        pytest.skip("needs the emulated GPU")
    for call in (120, 220):  # while loading or in a step
        failed = run(auk, "-m", model, "--raw", "-p", "abc", "-n", "8", "--ignore-eos", "-c", "64", "--split", "2",
                     "--decode-step", "kernels", "--split-by", by, AUK_FAULT=f"cuda:{call}", EMULATED_FAULT_GPU="1")
        assert failed.returncode == 1 and failed.stderr.startswith("auk: GPU") and failed.stderr.count("\n") == 1


def test_gpus_that_cannot_reach_each_other_use_nccl(auk, tmp_path):
    if not EMULATED:
        pytest.skip("needs the emulated GPU")
    flags = ["-m", DATA / "miniatures" / "ernie-awq", "--raw", "-p", "x", "-n", "4", "--temp", "0", "--split", "2"]
    apart, asked = run(auk, *flags, EMULATED_PEERS="0"), run(auk, *flags, "--split-by", "nccl")
    assert apart.returncode == 0 and apart.stdout and apart.stdout == asked.stdout, apart.stderr
    (tmp_path / "libnccl.so.2").write_text("no library")
    lacking = run(auk, *flags, EMULATED_PEERS="0", LD_LIBRARY_PATH=str(tmp_path))
    assert lacking.returncode == 1 and lacking.stderr.count("\n") == 1
    assert lacking.stderr.startswith("auk: --split: GPU 0 cannot reach the memory of GPU 1, and NCCL cannot be loaded:")
    assert "LD_LIBRARY_PATH can name its folder" in lacking.stderr


def test_nccl_needs_a_thread_for_each_gpu(auk, nccl):
    done = run(auk, "-m", DATA / "miniatures" / "ernie-awq", "--raw", "-p", "x", "-n", "1", "--split", "2", *nccl,
               OMP_THREAD_LIMIT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "auk: --split 2 by NCCL needs 2 OpenMP threads, and gets 1 (OMP_THREAD_LIMIT)\n"


def test_memory_that_nccl_takes_is_counted(auk, nccl):
    flags = ["bench", "-m", DATA / "configs" / "Qwen3-14B-AWQ", "--dummy-weights", "-p", "0", "-n", "1", "-d", "40000",
             "--split", "2"]
    if not EMULATED:
        pytest.skip("needs the emulated GPU")  # a small one: others hold this model
    free = [int(re.search(r" and has (\d+) free", run(auk, *flags, *by).stderr)[1]) for by in ([], nccl)]
    assert free[0] - free[1] == 5 << 28


def test_inspect_says_what_each_gpu_holds(auk):
    model = DATA / "miniatures" / "ernie-awq"

    def inspect(*flags):
        done = subprocess.run([*auk, "inspect", str(model), *flags], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    whole = json.loads(inspect("--json", "--split", "2")[1])
    part = whole["split"]
    assert part["num_key_value_heads"] * 2 == whole["num_key_value_heads"]
    assert part["kv_bytes_per_token"]["f16"] * 2 == whole["kv_bytes_per_token"]["f16"]
    # The layers and lm_head are halved; the embedding is on both, and every row and piece begins at a round address.
    assert len(part["weight_bytes"]) == 2 and part["other_bytes"] > 0
    assert whole["loaded_bytes"] / 2 < min(part["weight_bytes"])
    assert part["expert_intermediate_size"] is None
    status, out, err = inspect("--split", "3")
    assert (status, out) == (3, "")
    assert err == "auk: --split 3 does not divide this model: it has 2 KV heads; it would work with 2\n"
    lines = inspect("--split", "2")[1]
    assert all(f"weights GPU {i}  {part['weight_bytes'][i]} bytes" in lines for i in range(2))
    assert "no such model was measured on so many GPUs" in lines and part["decode_gain"] is None


@pytest.mark.parametrize("flags, environment, message", [
    (["--split", "4"], {}, "--split 4: only 2 GPUs are visible"),
    (["--split", "2", "--gpu", "0"], {}, "--split 2 shares a model among 2 GPUs, and --gpu 0 names 1"),
    (["--split", "2", "--gpu-memory", "1G"], {}, "--gpu-memory is for one GPU"),
    (["--split", "2", "--gpu", "all"], {"EMULATED_GPUS": "4"}, "--gpu all names 4"),
    (["--split", "2", "--draft", DATA / "miniatures" / "olmo2-awq"], {}, "olmo2-awq: --split 2: Olmo2ForCausalLM has"),
    (["--split", "2", "--split-by", "memory"], {"EMULATED_PEERS": "0"}, "GPU 0 cannot reach the memory of GPU 1"),
    (["--split", "2", "--split-by", "nccl", "--decode-step", "cluster"], {}, "GPUs that reach each other's memory"),
    (["--split-by", "nccl"], {}, "--split-by needs --split"),
    (["--split", "3"], {"EMULATED_GPUS": "3"}, "it has 2 KV heads; it would work with 2"),
])
def test_refusals(auk, flags, environment, message):
    if environment and not EMULATED:
        pytest.skip("needs the emulated GPU")
    refused = run(auk, "-m", DATA / "miniatures" / "ernie-awq", "-p", "x", *flags, **environment)
    assert refused.returncode in (1, 2, 3) and message in refused.stderr and refused.stdout == "", refused.stderr
    assert refused.stderr.count("\n") == 1


def test_groups_of_gpus(auk, tmp_path):
    """Two copies of the model, each on two GPUs, answer the records of one queue."""
    (tmp_path / "in").write_text("".join(f"{i} dogs\n" for i in range(4)))
    flags = ["-m", DATA / "miniatures" / "ernie-awq", "--raw", "-n", "2", "--temp", "1", "-s", "5", "--ignore-eos",
             "-c", "64", "--split", "2", "--map", tmp_path / "in", "-p", "{}", "--parallel", "2"]
    two = run(auk, *flags, "--gpu", "0,1,2,3", "-v", EMULATED_GPUS="4")
    if "expected 0 to" in two.stderr:
        pytest.skip("needs four GPUs")
    one = run(auk, *flags, "--gpu", "0,1")
    assert one.returncode == 0 and two.stdout == one.stdout, two.stderr
    assert all(f"GPUs {gpus}: 2 sequences at once" in two.stderr for gpus in ("0 and 1", "2 and 3"))
    refused = run(auk, *flags, "--gpu", "0,1,2", EMULATED_GPUS="4")
    assert refused.returncode == 2 and "names 3, which are no groups of 2" in refused.stderr
    if EMULATED:
        fails = run(auk, *flags, "--gpu", "all", EMULATED_GPUS="4", AUK_FAULT="cuda:120", EMULATED_FAULT_GPU="2")
        assert fails.stdout == one.stdout and "GPUs 2 and 3 fail, and leave" in fails.stderr, fails.stderr


@pytest.mark.parametrize("by", ["memory", "nccl"])
def test_two_gpus_share_a_drafter(auk, by, request):
    """Guesses change no token but where two nearly tie; test_drafters.cu compares them with references."""
    if by == "nccl":
        request.getfixturevalue("nccl")
    flags = ["-m", DATA / "drafters" / "target", "--raw", "-p", "ab cd ab", "-n", "5", "--ignore-eos", "--temp", "0",
             "-c", "64", "--json", "--ids", "--split", "2", "--split-by", by]
    alone, guessed = (run(auk, *flags, *more) for more in (
        ["--guess", "0"], ["--draft", DATA / "drafters" / "eagle3", "--guess", "3"]))
    assert guessed.returncode == 0, guessed.stderr
    alone, guessed = (json.loads(done.stdout) for done in (alone, guessed))
    assert guessed["ids"] == alone["ids"] and guessed["usage"]["guessed_tokens"] > 0
