"""Quantised layouts: logits against Hugging Face transformers in fp32 on the dequantised weights, what `auk inspect`
says of each, and what a packed file makes of them.

References (scripts/make_layouts.py) cover each layout of models.md with the groups, types of scales and mixtures that
are published. The bounds are the project's own: mean KL 1e-6 with an fp32 KV cache and 1e-4 with fp16, the same top
token wherever the reference's two best differ by 0.05 or more. Where activations are rounded to int8 one rounding may
fall the other way and spread: then the mean KL is within twice what the rounding itself costs.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

LIMIT_S = 60
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
import compare  # noqa: E402

LAYOUTS = ROOT / "test" / "data" / "layouts"
NAMES = sorted(path.name for path in LAYOUTS.iterdir())
ROUNDED = [name for name in NAMES if "activations" in name]
GPTQ = [name for name in NAMES if name.startswith("gptq")]

# For each directory: how the line "linear layers" begins, and what runs them.
AWQ, GPTQ_4, GPTQ_8 = "AutoAWQ gemm, 4 bits", "GPTQ, 4 bits", "GPTQ, 8 bits"
PACKED = "compressed-tensors pack-quantized, "
BYTES = "compressed-tensors int-quantized"
FP8, MODELOPT = "FP8, 8 bits", "ModelOpt NVFP4, 4 bits"
FLOAT_4 = "compressed-tensors {}-pack-quantized, 4 bits, groups of {}"
EVERYWHERE = "CPU and GPU"
SAYS = {
    "awq-symmetric": (f"14 of 14 {AWQ}, groups of 32", EVERYWHERE),
    "awq-bf16-scales": (f"14 of 14 {AWQ}, groups of 64", EVERYWHERE),
    "awq-head": (f"13 of 14 {AWQ}, groups of 32; dense: model.layers.0.mlp.down_proj (F16)", EVERYWHERE),
    "autoround-awq": (f"5 of 7 {AWQ}, groups of 128; dense: model.layers.0.self_attn.v_proj (F16), ", EVERYWHERE),
    "autoround-gptq": (f"14 of 14 {GPTQ_4}, groups of 32; repacked when loaded", EVERYWHERE),
    "autoround-own": (f"14 of 14 {GPTQ_4}, groups of 64; repacked when loaded", EVERYWHERE),
    "gptq-symmetric": (f"7 of 7 {GPTQ_4}, groups of 128; repacked when loaded", EVERYWHERE),
    "gptq-asymmetric": (f"14 of 14 {GPTQ_4}, groups of 32; repacked when loaded", EVERYWHERE),
    "gptq-zero-16": (f"14 of 14 {GPTQ_4}, groups of 32; repacked when loaded", EVERYWHERE),  # its numbers say more
    "gptq-v2": (f"14 of 14 {GPTQ_4}, groups of 64; repacked when loaded", EVERYWHERE),
    "gptq-whole": (f"14 of 14 {GPTQ_4}, one group for the whole input; repacked when loaded", EVERYWHERE),
    "gptq-8": (f"14 of 14 {GPTQ_8}, groups of 32; repacked when loaded", EVERYWHERE),
    "gptq-8-v2": (f"7 of 7 {GPTQ_8}, groups of 128; repacked when loaded", EVERYWHERE),
    "gptq-dynamic": (f"12 of 14 {GPTQ_4}, groups of 32, 2 of 8 bits; repacked when loaded; dense: "
                     "model.layers.1.self_attn.q_proj (F16), model.layers.1.self_attn.k_proj (F16)",
                     EVERYWHERE),
    "gptq-phi3": (f"8 of 8 {GPTQ_4}, groups of 32; repacked when loaded", EVERYWHERE),
    "packed-4-32": (f"14 of 14 {PACKED}4 bits, groups of 32; repacked when loaded", EVERYWHERE),
    "packed-4-64": (f"14 of 14 {PACKED}4 bits, groups of 64; repacked when loaded", EVERYWHERE),
    "packed-4-128": (f"7 of 7 {PACKED}4 bits, groups of 128; repacked when loaded", EVERYWHERE),
    "packed-4-channel": (f"14 of 14 {PACKED}4 bits, one group for the whole input; repacked when loaded", EVERYWHERE),
    "packed-4-f32": (f"14 of 14 {PACKED}4 bits, groups of 32; repacked when loaded",
                     EVERYWHERE + ", there as 8 bits where scales are no F16 numbers"),
    "packed-4-phi3": (f"8 of 8 {PACKED}4 bits, groups of 32; repacked when loaded", EVERYWHERE),
    "packed-8-32": (f"14 of 14 {PACKED}8 bits, groups of 32; repacked when loaded", EVERYWHERE),
    "packed-8-128": (f"7 of 7 {PACKED}8 bits, groups of 128; repacked when loaded", EVERYWHERE),
    "packed-8-channel": (f"14 of 14 {PACKED}8 bits, one group for the whole input; repacked when loaded", EVERYWHERE),
    "packed-mixed": (f"12 of 14 {PACKED}4 bits, groups of 32, 2 of 8 bits; repacked when loaded; dense: "
                     "model.layers.0.self_attn.o_proj (F16), model.layers.1.self_attn.v_proj (F16)",
                     EVERYWHERE),
    "int8-weights": (f"14 of 14 {BYTES}, 8 bits, one group for the whole input; repacked when loaded", EVERYWHERE),
    "int8-activations": (f"14 of 14 {BYTES}, int8 activations, 8 bits, one group for the whole input", EVERYWHERE),
    "int8-activations-qwen2": (f"14 of 14 {BYTES}, int8 activations, 8 bits, one group for the whole input",
                               EVERYWHERE),
    "packed-4-32-bf16": (f"7 of 7 {PACKED}4 bits, groups of 32; repacked when loaded", EVERYWHERE),
    "nvfp4-packed": ("14 of 14 " + FLOAT_4.format("nvfp4", 16), EVERYWHERE),
    "nvfp4-modelopt": (f"10 of 14 {MODELOPT}, groups of 16; dense: model.layers.1.self_attn.q_proj (BF16), ",
                       EVERYWHERE),
    "modelopt-mixed": (f"12 of 14 {MODELOPT}, groups of 16, 6 in FP8; dense: model.layers.0.self_attn.k_proj (BF16), ",
                       EVERYWHERE),
    "mxfp4-packed": ("14 of 14 " + FLOAT_4.format("mxfp4", 32), EVERYWHERE),
    "fp8-blocks": (f"8 of 8 {FP8}, blocks of 48 outputs and 48 inputs", EVERYWHERE),
    "fp8-channel": (f"14 of 14 {FP8}, one scale an output", EVERYWHERE),
    "fp8-tensor": (f"14 of 14 {FP8}, one scale an output or a matrix",
                   EVERYWHERE),
}
WITH_INPUT_SCALES = ["nvfp4-packed", "nvfp4-modelopt", "modelopt-mixed"]  # of activations, which are not rounded
# Models that a packed file holds: 4 bits everywhere, as AutoAWQ has them, of architectures whose config it can say.
PACKABLE = ["awq-symmetric", "autoround-own", "gptq-symmetric", "gptq-asymmetric", "gptq-v2", "packed-4-32",
            "packed-4-128"]


@pytest.fixture
def evaluate(auk, tmp_path):
    """evaluate(directory, name, *flags): the logits of the ids that layout `name` has a reference for."""

    def run_it(directory, name, *flags):
        ids = np.load(LAYOUTS / name / "reference.npz")["ids"]
        (tmp_path / "ids").write_text(" ".join(map(str, ids)))
        out = tmp_path / "logits.npy"
        subprocess.run([*auk, "eval", "-m", directory, "--ids-file", tmp_path / "ids", "--logits-out", out,
                        "--device", "cpu", "-t", "1", *flags], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        return np.load(out)

    return run_it


def reference(name, which="logits"):
    return np.load(LAYOUTS / name / "reference.npz")[which]


def with_config(name, folder, change):
    """A copy of layout `name` whose quantization_config change() has changed."""
    shutil.copytree(LAYOUTS / name, folder)
    config = json.loads((folder / "config.json").read_text())
    change(config["quantization_config"])
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ROUNDED])
@pytest.mark.parametrize("kv, bound", [("f32", 1e-6), ("f16", 1e-4)])
def test_equals_transformers(evaluate, name, kv, bound):
    mean, largest, agreeing, decided = compare.report(reference(name), evaluate(LAYOUTS / name, name, "--kv", kv))
    print(f"mean KL {mean:.1e}, largest {largest:.1e}, top token {agreeing} of {decided}")
    assert mean <= bound
    assert decided >= 32, "a reference that decides nothing tests nothing"
    assert agreeing == decided


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_activations_stay_near(evaluate, name):
    """Without rounding the distance would be that of the references, and by any other rounding rule nearly so."""
    cost = compare.kl(reference(name), reference(name, "exact")).mean()
    assert cost > 1e-4, "a rounding that changes nothing tests nothing"
    distance = compare.kl(reference(name), evaluate(LAYOUTS / name, name, "--kv", "f32")).mean()
    print(f"mean KL {distance:.1e}, of the rounding {cost:.1e}")
    assert distance <= 2 * cost
    assert distance <= cost / 4, "what was measured is a twentieth: this is another rounding"


@pytest.mark.parametrize("name", ["gptq-dynamic", "gptq-zero-16", "packed-mixed", "packed-8-32", "packed-4-phi3",
                                  "int8-activations-qwen2", "modelopt-mixed", "mxfp4-packed", "fp8-blocks",
                                  "fp8-tensor"])
def test_nothing_depends_on_chunks_or_threads(evaluate, name):
    whole = evaluate(LAYOUTS / name, name, "--kv", "f32", "--chunk", "64")
    for flags in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "1", "-t", "2"], ["--chunk", "64", "-t", "2"]):
        assert np.array_equal(evaluate(LAYOUTS / name, name, "--kv", "f32", *flags), whole), flags


@pytest.mark.parametrize("name, change", [
    ("gptq-asymmetric", {"checkpoint_format": "gptq_v2"}), ("gptq-v2", {"format": "gptq", "checkpoint_format": "gptq"}),
    ("gptq-8", {"checkpoint_format": "gptq_v2"}), ("gptq-zero-16", {"checkpoint_format": "gptq_v2"}),
    ("autoround-own", {"packing_format": "auto_round:auto_gptq"}),
], ids=str)
def test_the_version_of_gptq_matters(evaluate, tmp_path, name, change):
    """Zero points that are one off must not go unnoticed by these tests."""
    other = with_config(name, tmp_path / "other", lambda quant: quant.update(change))
    assert compare.kl(reference(name), evaluate(other, name, "--kv", "f32")).mean() > 1e-3


def test_every_layout_is_described():
    assert sorted(SAYS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_inspect_says_what_it_is_and_what_runs_it(run, name):
    done = run("inspect", LAYOUTS / name)
    assert done.returncode == 0 and done.stderr == b""
    lines = dict(line.split(None, 1) for line in done.stdout.decode().replace("linear layers", "linear_layers")
                 .replace("runs on", "runs_on").splitlines())
    layers, devices = SAYS[name]
    assert lines["linear_layers"].startswith(layers)
    assert lines["runs_on"].startswith(devices)
    unused = re.findall(r"model[a-z0-9_.]*|lm_head[a-z_.]*", lines.get("unused", ""))
    assert all(tensor.endswith((".input_scale", ".input_global_scale")) for tensor in unused), unused
    assert bool(unused) == ("unused" in lines) == (name in WITH_INPUT_SCALES), "every other tensor means something"


@pytest.mark.parametrize("name, change, said", [
    ("awq-symmetric", {"version": "gemv"}, "AWQ layout gemv is not supported, expected gemm: save the model again"),
    ("awq-symmetric", {"version": "gemv_fast"}, "AWQ layout gemv_fast is not supported"),
    ("awq-symmetric", {"backend": "llm-awq"}, "AWQ layout llm-awq is not supported"),
    ("awq-symmetric", {"quant_method": "bitsandbytes"}, "bitsandbytes (NF4 or LLM.int8()) is not supported"),
    ("awq-symmetric", {"quant_method": "exl3"}, "exl3 (ExLlamaV3) is not supported"),
    ("gptq-symmetric", {"is_marlin_format": True}, "GPTQ layout marlin is not supported"),
    ("gptq-symmetric", {"bits": 3}, "GPTQ of 3 bits is not supported, expected 4 or 8"),
    ("gptq-symmetric", {"group_size": 64}, "qzeros is [1, 16], expected [2, 16] for groups of 64"),
    ("packed-4-128", {"format": "mxfp8-quantized"}, "mxfp8-quantized (FP8 with a scale for 32 inputs) is not"),
    ("packed-4-128", {"format": "float-quantized"}, "FP8 weights of 4 bits as integers, symmetric, are not supported"),
    ("packed-4-128", {"quant_method": "fp8"}, "is stored as compressed-tensors pack-quantized has it"),
    ("fp8-blocks", {"weight_block_size": [64, 48]}, "is [3, 2], expected [2, 2] for blocks of 64 outputs"),
    ("fp8-blocks", {"weight_block_size": [48, 40]}, "weight_block_size of 40 inputs is not supported, expected a mult"),
    ("fp8-blocks", {"weight_block_size": None}, "weight_scale_inv is [3, 2], expected [1, 1]"),
    ("fp8-blocks", {"quant_method": "modelopt", "quant_algo": "NVFP4"},
     "weight is stored as FP8 has it, but"),
    ("modelopt-mixed", {"quant_algo": "NVFP4_AWQ"}, "NVFP4_AWQ is not supported, expected NVFP4, W4A16_NVFP4"),
    ("modelopt-mixed", {"quantized_layers": {"x": {"quant_algo": "W4A16_AWQ"}}},
     "quant_algo W4A16_AWQ of x is not supported"),
    ("modelopt-mixed", {"quantized_layers": {"*": {"quant_algo": "FP8"}}},
     "is stored as ModelOpt NVFP4 has it, but"),
], ids=str)
def test_inspect_says_why_not(run, tmp_path, name, change, said):
    done = run("inspect", with_config(name, tmp_path / "other", lambda quant: quant.update(change)))
    assert done.returncode == 3 and not done.stdout
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("auk: ") and said in lines[0], lines


@pytest.mark.parametrize("matrix, inputs, said", [
    ("down_proj", {0: 1}, "down_proj.g_idx: group 0 has 31 inputs, expected 32"),
    ("down_proj", {5: 3}, "down_proj.g_idx: element 5 is 3, expected 0 to 2"),
    ("gate_proj", {0: 1, 32: 0}, "mlp.gate_proj and model.layers.1.mlp.up_proj are in different orders of activations"),
    ("down_proj", {0: 1, 32: 0}, ""),
])
def test_groups_of_inputs(run, tmp_path, matrix, inputs, said):
    """Inputs that are in the groups of others: in the order of activations if groups keep their sizes."""
    other = with_config("gptq-asymmetric", tmp_path / "other", lambda quant: None)
    tensors = checkpoint.read_checkpoint(other)
    groups = tensors[f"model.layers.1.mlp.{matrix}.g_idx"] = tensors[f"model.layers.1.mlp.{matrix}.g_idx"].copy()
    for i, group in inputs.items():
        groups[i] = group
    checkpoint.write_safetensors(str(other / "model.safetensors"), tensors)
    done = run("inspect", other)
    assert done.returncode == (3 if said else 0)
    assert said in done.stderr.decode() and (b"in the order of activations" in done.stdout) == (not said)


@pytest.mark.parametrize("name", NAMES)
def test_random_weights_of_each_config_run(run, name):
    """`auk bench --dummy-weights` makes layers of the same kinds from the config alone."""
    done = run("bench", "-m", LAYOUTS / name, "--dummy-weights", "-p", "5", "-n", "2", "-r", "1", "-o", "json",
               "--device", "cpu", "-t", "1")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2


@pytest.mark.parametrize("name", PACKABLE)
def test_packing_changes_no_bit(run, evaluate, tmp_path, name):
    """The file holds AutoAWQ's layout, which is what these were repacked to."""
    packed = tmp_path / "packed" / "model.ak48"
    packed.parent.mkdir()
    done = run("pack", LAYOUTS / name, "-o", packed)
    assert done.returncode == 0, done.stderr
    shutil.copy(LAYOUTS / name / "config.json", packed.parent)
    assert np.array_equal(evaluate(packed, name), evaluate(LAYOUTS / name, name))


@pytest.mark.parametrize("name, why", [
    ("gptq-8", b"holds only 4-bit layers as AutoAWQ has them"), ("packed-8-32", b"8 bits"),
    ("int8-activations", b"4-bit"), ("gptq-zero-16", b"scales or zero points"), ("packed-4-f32", b"scales or zero"),
    ("awq-head", b"down_proj"), ("gptq-dynamic", b"8 bits"), ("nvfp4-packed", b"has weights in FP4"),
    ("fp8-channel", b"has weights in FP8"),
])
def test_what_a_packed_file_cannot_hold_is_refused(run, tmp_path, name, why):
    done = run("pack", LAYOUTS / name, "-o", tmp_path / "model.ak48")
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1
    assert why in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []
