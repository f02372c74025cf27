"""Every architecture in every quantised layout: its miniature in AWQ, stored again as others store the same numbers.

A layout that becomes AWQ's form gives the same bits; another is held to the project's bound against the miniature's own
reference (transformers in fp32). int8 weights are not the miniature's numbers: they are compared with the dense
checkpoint of the numbers that they stand for, in fp32. Layouts with references of their own, and groups:
test_layouts.py. The same on GPUs: test/cuda/test_layouts_of_architectures.py.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
import compare  # noqa: E402
import layouts  # noqa: E402

DATA = ROOT / "test" / "data"
NAMES = ["ernie-awq", "exaone4-awq", "gemma2-awq", "gemma3-awq", "gemma3-text-part", "glm-awq", "glm4-awq",
         "gemma4-e-text-part", "gemma4-moe-text-part", "gemma4-unified", "granite-awq", "granite-swa-awq",
         "granite4-awq", "granite4-h-awq", "hunyuan-awq",
         "lfm2-awq", "lfm3-awq", "llama3-awq", "ministral3-awq", "mistral-awq-128", "mistral3-text-part",
         "muse-glimmer-text-part", "nemotron-h-awq", "nemotron-h-latent-awq", "olmo2-awq", "olmo3-yarn", "phi3-awq",
         "qwen2-awq", "qwen3-awq", "qwen3-moe-awq", "qwen3-next-awq",
         "qwen3_5-awq", "qwen3_5-moe-text-part", "seed-oss-awq", "smollm3-awq"]
OTHERWISE = ["gptq-4", "packed-4", "gptq-8", "packed-8"]
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
BYTES = {**PACKED, "format": "int-quantized"}
ROUNDED = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def weights(bits, group):
    """The weights of a group of compressed-tensors' config_groups; group -1: one scale a channel."""
    return {"num_bits": bits, "type": "int", "symmetric": group == -1, "dynamic": False,
            "strategy": "group" if group > 0 else "channel", "group_size": group if group > 0 else None}


def one_group(config, its_weights, **more):
    return {**config, "config_groups": {"group_0": {"targets": ["Linear"], "weights": its_weights, **more}},
            "ignore": ["lm_head"]}


def gptq(bits, group):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": False, "checkpoint_format": "gptq_v2"}


def awq_layers(tensors):
    """{name: (q [n_out][n_in], zeros [n_out][n_groups], scales F16 likewise)} of each quantised layer."""
    return {name[:-len(".qweight")]: (checkpoint.awq_unpack(words).T, checkpoint.awq_unpack(tensors[
        name[:-len("qweight")] + "qzeros"]).T, layouts.transposed(tensors[name[:-len("qweight")] + "scales"]))
        for name, words in tensors.items() if name.endswith(".qweight")}


def others(tensors):
    """Tensors that are no part of a quantised layer's weights."""
    return {name: array for name, array in tensors.items() if name.rpartition(".")[2] not in
            ("qweight", "qzeros", "scales")}


def write(folder, config, tensors):
    folder.mkdir()
    checkpoint.write_json(str(folder / "config.json"), config)
    checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors)
    shutil.copy(DATA / "miniatures" / "llama-f16" / "tokenizer.json", folder)
    return folder


@pytest.fixture
def logits(logits_of):
    """logits(model, ids, *flags): with keys and values in fp32."""
    return lambda model, ids, *flags: logits_of(model, ids, "--kv", "f32", *flags)


def read(directory):
    return json.loads((directory / "config.json").read_text()), checkpoint.read_checkpoint(directory)


def close(expected, got, rows):
    mean, _, agreeing, decided = compare.report(expected, got[rows])
    assert mean <= 1e-6
    assert agreeing == decided > 0


def tensors_of(layout, layer, q, zeros, scales, group):
    bits = int(layout[-1])
    if layout.startswith("gptq"):
        return layouts.gptq_tensors(layer, q, zeros, scales, bits, False, group)
    return layouts.packed_tensors(layer, q, zeros, scales, bits, False)


def stored_otherwise(directory, layout):
    """The config and the tensors of a miniature in `layout`, of OTHERWISE."""
    config, tensors = read(directory)
    bits = int(layout[-1])
    group = config["quantization_config"]["group_size"]
    stored = others(tensors)
    for layer, (q, zeros, scales) in awq_layers(tensors).items():
        stored.update(tensors_of(layout, layer, q, zeros, scales, group))
    config["quantization_config"] = gptq(bits, group) if layout.startswith("gptq") else one_group(
        PACKED, weights(bits, group))
    return config, stored


@pytest.mark.bulk(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", OTHERWISE)
def test_the_same_numbers_stored_otherwise(logits, tmp_path, name, layout):
    directory = DATA / "miniatures" / name
    ids, rows, expected, _ = compare.load_reference(directory / "reference.npz")
    got = logits(write(tmp_path / "other", *stored_otherwise(directory, layout)), ids)
    close(expected, got, rows)
    if layout.endswith("4"):
        assert np.array_equal(got, logits(directory, ids))


SAME_INPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3")


def in_order_of_activations(directory, layout):
    """The config and tensors of a miniature whose inputs are in groups at random, the same for matrices that read the
    same inputs; and the dense ones that they mean. Where a matrix has one group, all groups become two."""
    config, tensors = read(directory)
    bits, group, layers = int(layout[-1]), config["quantization_config"]["group_size"], awq_layers(tensors)
    rng, all_groups, more = np.random.default_rng(1), {}, 2 if any(
        zeros.shape[1] == 1 for _, zeros, _ in layers.values()) else 1
    dense = {key: value for key, value in config.items() if key != "quantization_config"}
    stored, meant = others(tensors), others(tensors)
    for layer, (q, zeros, scales) in layers.items():
        zeros, scales = np.repeat(zeros, more, axis=1), np.repeat(scales, more, axis=1)
        scales[:, 1::2] *= np.float16(0.75)
        room, _, part = layer.rpartition(".")
        groups = all_groups.setdefault((room if part in SAME_INPUTS else layer, q.shape[1]), rng.permutation(
            np.arange(q.shape[1]) * zeros.shape[1] // q.shape[1]).astype(np.int32))
        meant[layer + ".weight"] = (q - zeros[:, groups].astype(np.float32)) * scales[:, groups].astype(np.float32)
        stored.update(tensors_of(layout, layer, q, zeros, scales, group // more))
        stored[layer + (".g_idx" if layout.startswith("gptq") else ".weight_g_idx")] = groups
    config["quantization_config"] = (
        {**gptq(bits, group // more), "desc_act": True} if layout.startswith("gptq") else
        one_group(PACKED, {**weights(bits, group // more), "actorder": "group"}))
    return config, stored, dense, meant


@pytest.mark.bulk(4)
@pytest.mark.parametrize("name", [*NAMES, "deepseek-v2-awq", "minicpm3-awq"])
@pytest.mark.parametrize("layout", ["gptq-4", "packed-8"])
def test_the_order_of_activations(logits, run, tmp_path, name, layout):
    directory = DATA / "miniatures" / name
    config, stored, dense, meant = in_order_of_activations(directory, layout)
    ids, rows, _, _ = compare.load_reference(directory / "reference.npz")
    folder = write(tmp_path / "ordered", config, stored)
    got = logits(folder, ids)
    close(logits(write(tmp_path / "dense", dense, meant), ids)[rows], got, rows)
    assert np.array_equal(got, logits(folder, ids, "--chunk", "7", "-t", "2"))
    assert np.array_equal(got, logits(folder, ids, "--chunk", "1"))
    assert b"; in the order of activations" in run("inspect", folder).stdout


@pytest.mark.parametrize("layout", ["gptq-4", "packed-8"])
def test_the_order_of_activations_of_b_and_a(logits, tmp_path, layout):
    """A key head has too few outputs of b and of a to fill a word, so they are gathered as fp32. The matrix must have
    eights of outputs, and so the layers 8 value heads."""
    directory = DATA / "miniatures" / "qwen3-next-awq"
    config, _, dense, meant = in_order_of_activations(directory, layout)
    bits, rng, keys = int(layout[-1]), np.random.default_rng(2), config["linear_num_key_heads"]
    size, ratio = config["linear_value_head_dim"], 8 // config["linear_num_value_heads"] + 1
    wide = {"in_proj_qkvz.weight": keys * 2 * config["linear_key_head_dim"] + 16 * size, "in_proj_ba.weight": 16,
            "conv1d.weight": keys * 2 * config["linear_key_head_dim"] + 8 * size, "A_log": 8, "dt_bias": 8}
    for name in [name for name in meant if ".linear_attn." in name]:
        for end, n in wide.items():
            if name.endswith(end):
                meant[name] = np.concatenate([meant[name]] * (ratio + 1))[:n]
        if name.endswith("out_proj.weight"):
            meant[name] = np.concatenate([meant[name]] * ratio, axis=1)[:, :8 * size]
    config["linear_num_value_heads"] = dense["linear_num_value_heads"] = 8
    stored = dict(meant)
    for name in [name for name in meant if name.endswith("in_proj_ba.weight")]:
        n_out, n_in = stored.pop(name).shape
        layer, groups = name.removesuffix(".weight"), rng.permutation(np.arange(n_in) * 2 // n_in).astype(np.int32)
        q, zeros = rng.integers(0, 1 << bits, (n_out, n_in)).astype(np.uint8), np.full((n_out, 2), 1 << bits - 1)
        zeros, scales = zeros.astype(np.uint8), (rng.random((n_out, 2)) / (4 << bits)).astype(np.float16)
        stored.update(tensors_of(layout, layer, q, zeros, scales, n_in // 2))
        stored[layer + (".g_idx" if layout.startswith("gptq") else ".weight_g_idx")] = groups
        meant[name] = (q - zeros[:, groups].astype(np.float32)) * scales[:, groups].astype(np.float32)
    ids, rows, _, _ = compare.load_reference(directory / "reference.npz")
    got = logits(write(tmp_path / "ordered", config, stored), ids)
    close(logits(write(tmp_path / "dense", dense, meant), ids)[rows], got, rows)


def as_bytes(weight, group):
    """int8 weights [n_out][n_in], a scale in F16 for each output and group, and what they mean in fp32."""
    group = weight.shape[1] if group == -1 else group
    largest = np.abs(weight).reshape(len(weight), -1, group).max(axis=2)
    scales = (largest / 127).astype(np.float16)
    wide = np.repeat(scales.astype(np.float32), group, axis=1)
    q = np.clip(np.rint(weight / wide), -127, 127).astype(np.int8)
    return q, scales, q.astype(np.float32) * wide


def in_bytes(tensors, group):
    """The same checkpoint with int8 weights, and the dense one that it means."""
    plain = checkpoint.dequantised(tensors)
    stored, meant = others(tensors), dict(plain)
    for layer in awq_layers(tensors):
        q, scales, meant[layer + ".weight"] = as_bytes(plain[layer + ".weight"], group)
        stored.update({layer + ".weight": q, layer + ".weight_scale": scales})
    return stored, meant


@pytest.mark.bulk(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("group", [-1, 32])
def test_bytes(logits, tmp_path, name, group):
    """int-quantized weights with activations as they are."""
    directory = DATA / "miniatures" / name
    config, tensors = read(directory)
    stored, meant = in_bytes(tensors, group)
    dense = {key: value for key, value in config.items() if key != "quantization_config"}
    config["quantization_config"] = one_group(BYTES, {**weights(8, group), "symmetric": True})
    ids, rows, _, _ = compare.load_reference(directory / "reference.npz")
    close(logits(write(tmp_path / "dense", dense, meant), ids)[rows],
          logits(write(tmp_path / "bytes", config, stored), ids), rows)


@pytest.mark.bulk(4)
@pytest.mark.parametrize("name", NAMES)
def test_rounded_activations(logits, tmp_path, name):
    """They change something, little (a mean KL of 7e-5 to 0.1 as measured), the same however a text is cut into steps.
    Their values are tested in test_layouts.py and test/cpu/test_int8.c."""
    config, tensors = read(DATA / "miniatures" / name)
    stored, _ = in_bytes(tensors, -1)
    ids = [i * 7 % 104 for i in range(60)]
    config["quantization_config"] = one_group(BYTES, weights(8, -1))
    exact = logits(write(tmp_path / "exact", config, stored), ids)
    config["quantization_config"] = one_group(BYTES, weights(8, -1), input_activations=ROUNDED)
    rounded = logits(write(tmp_path / "rounded", config, stored), ids)
    assert 1e-5 < compare.kl(exact, rounded).mean() < 0.2
    assert np.array_equal(rounded, logits(tmp_path / "rounded", ids, "--chunk", "7"))


def floats(bits, strategy, group=None):
    return {"num_bits": bits, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy,
            "group_size": group}


# compressed-tensors' format, its weights, and layouts.float_tensors()'s layout and block.
FLOATS = {"fp8": ("float-quantized", floats(8, "channel"), "fp8-packed", "channel"),
          "nvfp4": ("nvfp4-pack-quantized", floats(4, "tensor_group", 16), "nvfp4-packed", None),
          "mxfp4": ("mxfp4-pack-quantized", floats(4, "group", 32), "mxfp4", None)}


def in_floats(directory, kind):
    """The config and tensors of a miniature whose quantised layers are FP8 or FP4, and the dense one that it means."""
    config, tensors = read(directory)
    form, its_weights, layout, block = FLOATS[kind]
    plain = checkpoint.dequantised(tensors)
    stored, meant = others(tensors), dict(plain)
    for layer in awq_layers(tensors):
        parts, meant[layer + ".weight"] = layouts.float_tensors(layer, plain[layer + ".weight"], layout, block,
                                                                np.float32)
        stored.update(parts)
    dense = {key: value for key, value in config.items() if key != "quantization_config"}
    config["quantization_config"] = one_group({**PACKED, "format": form}, its_weights)
    return config, stored, dense, meant


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FLOATS)
def test_floats(logits, sanitized, tmp_path, name, kind):
    if sanitized and list(FLOATS)[NAMES.index(name) % len(FLOATS)] != kind:
        pytest.skip("sanitizers see each reader with some architectures")
    directory = DATA / "miniatures" / name
    config, stored, dense, meant = in_floats(directory, kind)
    ids, rows, _, _ = compare.load_reference(directory / "reference.npz")
    close(logits(write(tmp_path / "dense", dense, meant), ids)[rows],
          logits(write(tmp_path / "floats", config, stored), ids), rows)


@pytest.mark.parametrize("layout, suffixes, quant", [
    ("fp8-inv", (".weight", ".weight_scale_inv"), {"quant_method": "fp8", "weight_block_size": [8, 16]}),
    ("nvfp4", (".weight", ".weight_scale", ".weight_scale_2"), {"quant_method": "modelopt", "quant_algo": "NVFP4"})])
def test_floats_of_all_experts(logits, tmp_path, layout, suffixes, quant):
    """Gate, up and down of all experts of a layer in three tensors, with their scales, as published."""
    directory = DATA / "miniatures" / "step-bf16"
    config, tensors = read(directory)
    stored, meant = dict(tensors), dict(tensors)
    for name in [name for name in tensors if "moe." in name and "_proj" in name]:
        base = name.removesuffix(".weight")
        each = [layouts.float_tensors(base, weight, layout, [8, 16], np.float32)
                for weight in checkpoint.to_f32(tensors[name])]
        for suffix in suffixes:
            parts = [parts[base + suffix] for parts, _ in each]
            stored[base + suffix] = np.stack(parts).view(type(parts[0]))
        meant[name] = np.stack([values for _, values in each])
    ids, rows, _, _ = compare.load_reference(directory / "reference.npz")
    close(logits(write(tmp_path / "dense", config, meant), ids)[rows],
          logits(write(tmp_path / "floats", {**config, "quantization_config": quant}, stored), ids), rows)


def fused(tensors, config):
    """Phi-3's matrices: q, k and v one after the other in one matrix, gate and up in another."""
    stored = dict(tensors)
    for layer in range(config["num_hidden_layers"]):
        for whole, parts in (("self_attn.qkv_proj", "qkv"), ("mlp.gate_up_proj", ("gate", "up"))):
            room = f"model.layers.{layer}.{whole.partition('.')[0]}."
            for suffix in (".weight", ".weight_scale"):
                stored[f"model.layers.{layer}.{whole}{suffix}"] = np.concatenate(
                    [np.asarray(stored.pop(f"{room}{part}_proj{suffix}")) for part in parts])
    return stored


@pytest.mark.parametrize("name", ["int8-weights", "int8-activations"])
def test_bytes_of_several_layers_in_one_matrix(logits, tmp_path, name):
    """A Phi-3 without windows and longrope is a Llama whose matrices lie together."""
    config, tensors = read(DATA / "layouts" / name)
    ids = np.load(DATA / "layouts" / name / "reference.npz")["ids"]
    phi3 = {**config, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    assert np.array_equal(logits(write(tmp_path / "phi3", phi3, fused(tensors, config)), ids),
                          logits(DATA / "layouts" / name, ids))


def meaning(tensors):
    """The dense tensors, in fp32, of a checkpoint of words in groups of 32 and bytes."""
    dense = {}
    for name, array in tensors.items():
        layer, _, part = name.rpartition(".")
        if part == "weight_packed":
            zeros = layouts.unpack(tensors[layer + ".weight_zero_point"].T, 4).T
            dense[layer + ".weight"] = layouts.values(layouts.unpack(array, 4), zeros, tensors[layer + ".weight_scale"],
                                                      32)
        elif part == "weight":
            scales = tensors.get(layer + ".weight_scale", np.ones(1))
            dense[name] = checkpoint.to_f32(array) * checkpoint.to_f32(scales)
    return dense


@pytest.mark.parametrize("activations", [None, ROUNDED], ids=["weights", "activations"])
def test_words_and_bytes_in_one_checkpoint(logits, run, tmp_path, activations):
    """compressed-tensors' format "mixed-precision": each group has its own, and which is the first says nothing."""
    config, tensors = read(DATA / "layouts" / "packed-4-32")
    stored = {name: array for name, array in tensors.items() if ".self_attn." not in name}
    stored.update({name: array for name, array in read(DATA / "layouts" / "int8-weights")[1].items()
                   if ".self_attn." in name})
    words = {"targets": ["re:.*mlp.*"], "format": "pack-quantized", "weights": weights(4, 32)}
    attention = {"targets": ["re:.*self_attn.*"], "format": "int-quantized", "weights": weights(8, -1),
                 "input_activations": activations}
    dense = {key: value for key, value in config.items() if key != "quantization_config"}
    got = []
    for order in ((words, attention), (attention, words)):
        config["quantization_config"] = {**PACKED, "format": "mixed-precision", "ignore": ["lm_head"], "config_groups":
                                         {f"group_{i}": group for i, group in enumerate(order)}}
        folder = write(tmp_path / f"from {len(got)}", config, stored)
        said = run("inspect", folder).stdout.decode()
        assert ("groups of 32, 8 of 8 bits" if order[0] is words else "whole input, 6 of 4 bits") in said
        got.append(logits(folder, range(60)))
    assert np.array_equal(*got)
    if not activations:
        close(logits(write(tmp_path / "dense", dense, meaning(stored)), range(60)), got[0], slice(None))


def test_an_old_name_of_the_config(logits, tmp_path):
    """compressed-tensors' of 2024."""
    for name in ("packed-4-32", "int8-activations"):
        config, tensors = read(DATA / "layouts" / name)
        config["compression_config"] = config.pop("quantization_config")
        assert np.array_equal(logits(write(tmp_path / name, config, tensors), range(60)),
                              logits(DATA / "layouts" / name, range(60)))
