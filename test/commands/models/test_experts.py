"""Mixtures of experts whose files or configs are wrong: one line that names the tensor or the member, what was found
and what was expected. Their arithmetic: test/commands/measure/test_logits.py."""
import json

import numpy as np
import pytest

MODEL = 3


@pytest.fixture
def changed(root, changed_checkpoint):
    miniatures = root / "test" / "data" / "miniatures"
    return lambda miniature, *change, **members: changed_checkpoint(miniatures / miniature, *change, **members)


def refused(run, folder, *parts):
    done = run("inspect", folder)
    assert done.returncode == MODEL and done.stdout == b"" and done.stderr.count(b"\n") == 1, done.stderr
    for part in parts:
        assert part.encode() in done.stderr, (part, done.stderr)


EACH = "model.layers.1.mlp.experts."
ALL = "model.layers.1.mlp.experts.gate_up_proj"


def test_an_expert_is_missing(run, changed):
    folder = changed("qwen3-moe-awq", lambda tensors: tensors.pop(EACH + "7.up_proj.qweight"))
    refused(run, folder, f"tensor {EACH}7.up_proj.weight is missing")


def test_an_expert_has_another_shape(run, changed):
    def cut(tensors):
        name = EACH + "3.down_proj.qweight"
        tensors[name] = tensors[name][:16]
    refused(run, changed("qwen3-moe-awq", cut), f"tensor {EACH}3.down_proj.qweight is [16, 4], expected [32, 4]")


def test_fewer_experts_than_the_config_says(run, changed):
    folder = changed("qwen3-moe-awq", lambda tensors: tensors.update({
        f"model.layers.{layer}.mlp.gate.weight": np.zeros((9, 32), np.float16) for layer in range(2)}), num_experts=9)
    refused(run, folder, "tensor model.layers.0.mlp.experts.8.gate_proj.weight is missing")


def test_more_experts_than_the_config_says(run, changed):
    folder = changed("qwen3-moe-awq", lambda tensors: tensors.update({
        f"model.layers.{layer}.mlp.gate.weight": np.zeros((7, 32), np.float16) for layer in range(2)}), num_experts=7)
    refused(run, folder, "tensor model.layers.0.mlp.experts.7.gate_proj.qweight is one too many", "says 7 experts")


@pytest.mark.parametrize("miniature, name, found, expected", [
    ("qwen3-moe-awq", "model.layers.0.mlp.gate", "[8, 32]", "[9, 32]"),
    ("qwen3-moe-uneven", "model.layers.1.mlp.gate", "[6, 32]", "[9, 32]"),
])
def test_a_router_of_another_width(run, changed, miniature, name, found, expected):
    refused(run, changed(miniature, num_experts=9), name, found, expected)


def test_tensors_of_all_experts(run, changed):
    def fewer(tensors):
        tensors[ALL] = tensors[ALL][:5]
    refused(run, changed("qwen3-moe-uneven", fewer), f"tensor {ALL} is [5, 64, 32], expected [6, 64, 32]")


def test_half_of_the_tensors_of_all_experts(run, changed):
    folder = changed("qwen3-moe-uneven", lambda tensors: tensors.pop("model.layers.1.mlp.experts.down_proj"))
    refused(run, folder, "tensor model.layers.1.mlp.experts.down_proj is missing, although that of gate and up is")


@pytest.mark.parametrize("part, found, expected", [
    ("gate_up_proj_blocks", "[6, 63, 3, 16]", "[6, 64, 3, 16]"),
    ("gate_up_proj_scales", "[6, 63, 3]", "[6, 64, 3]"),
    ("gate_up_proj_bias", "[6, 63]", "[6, 64]"),
])
def test_blocks_of_another_shape(run, changed, part, found, expected):
    name = "model.layers.0.mlp.experts." + part

    def cut(tensors):
        tensors[name] = tensors[name][:, :63]
    refused(run, changed("gpt-oss-mxfp4", cut), f"tensor {name} is {found}, expected {expected}")


def test_blocks_without_scales(run, changed):
    folder = changed("gpt-oss-mxfp4", lambda tensors: tensors.pop("model.layers.0.mlp.experts.down_proj_scales"))
    refused(run, folder, "tensor model.layers.0.mlp.experts.down_proj_scales is missing, although its _blocks")


def test_more_chosen_than_there_are(run, changed):
    refused(run, changed("qwen3-moe-awq", num_experts_per_tok=9),
            "num_experts_per_tok is 9, expected at most num_experts, 8")


def test_a_missing_choice_bias(run, changed):
    folder = changed("glm4-moe-awq", lambda tensors: tensors.pop("model.layers.1.mlp.gate.e_score_correction_bias"))
    refused(run, folder, "tensor model.layers.1.mlp.gate.e_score_correction_bias is missing")


def test_experts_do_not_fit_a_packed_file(run, root, tmp_path):
    done = run("pack", root / "test" / "data" / "miniatures" / "qwen3-moe-awq", "-o", tmp_path / "out")
    assert done.returncode == MODEL and b"experts" in done.stderr
    assert not (tmp_path / "out").exists()


def test_inspect_tells_of_experts(run, root):
    done = run("inspect", root / "test" / "data" / "miniatures" / "qwen2-moe-awq", "--json")
    report = json.loads(done.stdout)
    experts = report["experts"]
    assert (experts["n_experts"], experts["n_chosen"], experts["intermediate_size"]) == (8, 3, 32)
    assert experts["shared_intermediate_size"] == 64 and experts["shared_gate"] and not experts["renormalise"]
    assert experts["bytes_per_token"] < report["weight_bytes"]
    assert [layer["n_experts"] for layer in report["layers"]] == [8, 8]
