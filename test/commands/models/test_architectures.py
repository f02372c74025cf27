"""Checkpoints of the architectures that are not Llama's children: other spellings of the same are the same to the bit,
and a part that is missing, too much or of another shape is named."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from hostile import MODEL, compare, transcript_fixture  # noqa: E402  (from test/commands/)
import checkpoint  # noqa: E402  (from scripts/)

MINIATURES = ROOT / "test" / "data" / "miniatures"
IDS = [i * 7 % 104 for i in range(60)]  # longer than any window of them


@pytest.fixture
def changed(tmp_path):
    """changed(name, config=..., tensors=...): the miniature with what these functions make of its config.json and of
    its tensors by name."""

    def make(name, config=None, tensors=None, folder="changed"):
        folder = tmp_path / folder
        shutil.copytree(MINIATURES / name, folder)
        if config:
            members = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(config(members) or members))
        if tensors:
            stored = {key: value.copy()
                      for key, value in checkpoint.read_safetensors(folder / "model.safetensors").items()}
            checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors(stored) or stored)
        return folder

    return make


@pytest.fixture
def logits(logits_of):
    return lambda model, *flags: logits_of(model, IDS, *flags)


def renamed(old, new):
    return lambda tensors: {name.replace(old, new, 1): array for name, array in tensors.items()}


def without(*names):
    return lambda tensors: {name: array for name, array in tensors.items() if name not in names}


def with_config(**members):
    def change(config):
        config.update(members)
        given = {key: value for key, value in config.items() if value is not None}
        return {key: None if value == "null" else value for key, value in given.items()}
    return change


def one_by_one(tensors):
    """Experts in tensors of their own, outputs first, as quantised checkpoints of Llama 4 have them."""
    out = {}
    for name, array in tensors.items():
        before, found, matrix = name.partition(".experts.")
        if not found:
            out[name] = array
            continue
        names = ("gate_proj", "up_proj") if matrix == "gate_up_proj" else ("down_proj",)
        for expert, whole in enumerate(array.swapaxes(1, 2)):
            for part, rows in zip(names, np.split(whole, len(names))):
                out[f"{before}.experts.{expert}.{part}.weight"] = rows.copy()
    return out


def as_published(tensors):
    """Olmo Hybrid's names of norms before the delta rule, and three convolutions in place of one."""
    published = {}
    for name, array in tensors.items():
        if name.endswith("conv1d.weight"):
            for part, rows in zip("qkv", np.split(array, [12, 24])):
                published[name.replace("conv1d", part + "_conv1d")] = rows.copy()
            continue
        if name.startswith("model.layers.0."):
            name = name.replace(".input_layernorm.", ".attention_layer_norm.")
            name = name.replace(".post_attention_layernorm.", ".feedforward_layer_norm.")
        published[name] = array
    return published


def a_part_of_gemma3n(config):
    """The text part beside towers of images and sound."""
    text = {key: value for key, value in config.items() if key not in ("architectures", "torch_dtype")}
    return {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": text,
            "vision_config": {"model_type": "gemma3n_vision"}, "audio_config": {"model_type": "gemma3n_audio"},
            "eos_token_id": [98], "torch_dtype": "bfloat16"}


# --- other spellings

def step_alone(config):
    """The text part, as a model of its own."""
    return {**config["text_config"], "architectures": ["Step3p5ForCausalLM"],
            **{key: config[key] for key in ("bos_token_id", "eos_token_id")}}


def step_by_transformers(config):
    """Members as transformers 5 saves them."""
    text = config["text_config"]
    full, sliding = ({"rope_type": "default", "rope_theta": text["rope_theta"][layer],
                      "partial_rotary_factor": text["partial_rotary_factors"][layer]} for layer in (0, 1))
    full.update(text["rope_scaling"])
    heads = text["attention_other_setting"]["num_attention_heads"]
    by_layer = {str(layer): {"num_attention_heads": heads} for layer in (1, 2)}
    old = ("rope_theta", "rope_scaling", "partial_rotary_factors", "attention_other_setting", "num_attention_groups",
           "moe_num_experts", "moe_top_k", "moe_layers_enum", "num_nextn_predict_layers")
    lists = {key: text[key][:4] for key in ("layer_types", "swiglu_limits", "swiglu_limits_shared")}
    return {**config, "text_config": {
        **{key: value for key, value in text.items() if key not in old}, **lists, "num_sliding_attention_heads": heads,
        "per_layer_config": by_layer, "num_key_value_heads": text["num_attention_groups"], "query_pre_attn_scalar": 8,
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
        "n_routed_experts": text["moe_num_experts"], "num_experts_per_tok": text["moe_top_k"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}}


def step_one_by_one(tensors):
    """Experts in tensors of their own."""
    out = {}
    for name, array in tensors.items():
        before, found, matrix = name.partition(".moe.")
        if not found or "_proj" not in matrix:
            out[name] = array
        else:
            out.update({f"{before}.moe.experts.{e}.{matrix}": rows.copy() for e, rows in enumerate(array)})
    return out


SAME = {
    "gemma 3 by transformers 5": ("gemma3-awq", with_config(
        rope_theta=None, rope_local_base_freq=None, rope_scaling=None, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}), None),
    "gemma 3 layer by layer": ("gemma3-awq", with_config(
        sliding_window_pattern=None, layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2), None),
    "gemma 2 layer by layer": ("gemma2-awq", with_config(
        layer_types=["sliding_attention", "full_attention"] * 2, hidden_act="gelu_pytorch_tanh"), None),
    "a text part alone": ("gemma3-text-part", None, renamed("language_model.", "")),
    "a text part by new transformers": (
        "gemma3-text-part", None, renamed("language_model.model.", "model.language_model.")),
    "a text part by old transformers": ("mistral3-text-part", None, lambda tensors: {
        ("language_model." + name if name.startswith("lm_head")
         else name.replace("model.language_model.", "language_model.model.")): array
        for name, array in tensors.items()}),
    "a text part that says it is tied": ("mistral3-text-part", with_config(tie_word_embeddings=True), None),
    "smollm3 by its list": ("smollm3-awq", with_config(
        no_rope_layers=[1, 1, 1, 0, 0], no_rope_layer_interval=2, layer_types=["full_attention"] * 4), None),
    "phi-3 by transformers 5": ("phi3-longrope-long", lambda config: {
        **{key: value for key, value in config.items() if key not in ("rope_scaling", "rope_theta",
                                                                     "partial_rotary_factor")},
        "rope_parameters": {**config["rope_scaling"], "rope_type": "longrope", "type": "longrope",
                            "rope_theta": config["rope_theta"], "partial_rotary_factor": 0.75}}, None),
    "phi-3 by its first name for longrope": ("phi3-longrope", lambda config: {
        **config, "rope_scaling": {**config["rope_scaling"], "type": "su"}}, None),
    "a hybrid by its interval": ("qwen3_5", lambda config: {**config, "text_config": {
        key: value for key, value in config["text_config"].items() if key != "layer_types"}}, None),
    "a hybrid by its list": ("qwen3_5-tied", with_config(full_attention_interval=None, layer_types=[
        "linear_attention", "linear_attention", "full_attention", "linear_attention"]), None),
    "a hybrid without drafts and towers": ("qwen3_5", None, without("mtp.fc.weight",
                                                                   "model.visual.patch_embed.proj.bias")),
    "olmo hybrid as published": (
        "olmo-hybrid-bf16", with_config(rope_parameters=None, rope_theta="null"), as_published),
    "gemma 3n by transformers 5": ("gemma3n-bf16", with_config(
        rope_theta=None, rope_local_base_freq=None, rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}), None),
    "gemma 3n as published": ("gemma3n-bf16", a_part_of_gemma3n, lambda tensors: {
        **{name.replace("model.", "model.language_model.", 1): array for name, array in tensors.items()},
        **{f"model.language_model.layers.3.self_attn.{name}": tensors[f"model.layers.1.self_attn.{name}"]
           for name in ("k_proj.weight", "v_proj.weight", "k_norm.weight")},
        "model.vision_tower.timm_model.conv_stem.conv.weight": np.zeros((2, 3, 3, 3), np.float32),
        "model.audio_tower.conformer.0.norm.weight": np.ones(4, np.float32),
        "model.embed_vision.embedding.weight": np.ones((4, 4), np.float32),
        "model.embed_audio.embedding_projection.weight": np.ones((4, 4), np.float32)}),
    "kimi linear by transformers 5": ("kimi-linear-bf16", with_config(
        linear_attn_config=None, linear_head_dim=6, linear_num_heads=3, linear_conv_kernel_dim=3,
        layer_types=["linear_attention", "full_attention"], mlp_layer_types=["dense", "sparse"],
        first_k_dense_replace=None, head_dim=4), lambda tensors: {
            name.replace("layers.0.mlp.", "layers.0.block_sparse_moe."): array for name, array in tensors.items()}),
    "its members by their usual names": ("kimi-linear-bf16", with_config(
        model_max_length=None, max_position_embeddings=128, moe_renormalize=None, num_expert_group=None, n_group=2,
        num_experts_per_token=None, num_experts_per_tok=2, num_shared_experts=None, n_shared_experts=2), None),
    "a head's rate in a list": ("kimi-linear-bf16", None, lambda tensors: {
        name: array.reshape(-1) if name.endswith("A_log") else array for name, array in tensors.items()}),
    "ling by transformers 5": ("ling-bf16", with_config(
        head_dim=4, linear_head_dim=6, linear_num_heads=2, linear_conv_kernel_dim=3,
        layer_types=["linear_attention", "full_attention"], mlp_layer_types=["dense", "sparse"], norm_topk_prob=None,
        moe_renormalize=True, n_group=None, num_expert_group=2, max_position_embeddings=None, model_max_length=128,
        rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), None),
    "ling's outputs by their usual name": ("ling-bf16", None, lambda tensors: {
        name.replace("attention.dense", "attention.o_proj"): array for name, array in tensors.items()}),
    "gemma 4 by transformers 5": ("gemma4-bf16", with_config(
        global_head_dim=None, num_global_key_value_heads=None,
        per_layer_config={"5": {"head_dim": 32, "num_key_value_heads": 1}}), None),
    "gemma 4 with keys of layers that share": ("gemma4-e", None, lambda tensors: {
        **tensors, "model.layers.4.self_attn.k_proj.weight": tensors["model.layers.1.self_attn.k_proj.weight"]}),
    "lfm3 by the names of transformers' modules": ("lfm3-bf16", None, lambda tensors: {
        name.replace("self_attn.gate_proj", "self_attn.g_proj"): array for name, array in tensors.items()}),
    "laguna by other names of its gates": ("laguna-awq", None, lambda tensors: {
        name.replace("self_attn.g_proj", "self_attn.gate_proj"): array for name, array in tensors.items()}),
    "apertus with all numbers as lists": ("apertus-awq", None, lambda tensors: {
        name: array.reshape(1) if array.ndim == 0 else array for name, array in tensors.items()}),
    "step's text alone": ("step-bf16", step_alone, None),
    "step by transformers 5": ("step-bf16", step_by_transformers, None),
    "step with experts one by one": ("step-bf16", None, step_one_by_one),
    "step with a layer that predicts further tokens": ("step-bf16", None, lambda tensors: {
        **tensors, "model.layers.4.enorm.weight": np.ones(16, np.float32)}),
    "llama 4 with experts one by one": ("llama4-bf16", None, one_by_one),
    "llama 4 as first published": ("llama4-bf16", with_config(
        attn_temperature_tuning=4, moe_layers=[1], interleave_moe_layer_step=1, layer_types=[
            "chunked_attention", "full_attention", "chunked_attention"]), None),
    "granite's tensors of others": ("granite-awq", None, lambda tensors: {
        **tensors, "model.rotary_emb.inv_freq": np.zeros(8, np.float32)}),
    "scales of activations beside experts in one tensor": ("mistral4-text-part", None, lambda tensors: {
        **tensors, "model.language_model.layers.0.mlp.experts.down_proj_activation_scale": np.ones(8, np.float32)}),
}


@pytest.mark.parametrize("case", SAME)
def test_another_spelling_is_the_same(case, changed, logits):
    name, config, tensors = SAME[case]
    assert np.array_equal(logits(changed(name, config, tensors)), logits(MINIATURES / name))


def test_numbers_of_an_activation_may_be_missing(changed, logits):
    """beta is then 0.5, eps -1e-6; another beta changes the logits."""
    given = changed("apertus-awq", None, lambda tensors: {
        name: np.float32(0.5 if name.endswith("beta") else -1e-6) if array.ndim == 0 else array
        for name, array in tensors.items()})
    left_out = changed("apertus-awq", None, lambda tensors: {
        name: array for name, array in tensors.items() if array.ndim > 0}, folder="left-out")
    assert np.array_equal(logits(given), logits(left_out))
    assert not np.allclose(logits(left_out), logits(MINIATURES / "apertus-awq"), atol=0.1)


def test_a_text_part_without_a_head_is_tied(changed, logits):
    """As transformers ties it; its own head is another matrix."""
    tied = changed("mistral3-text-part", None, without("lm_head.weight"))
    assert not np.array_equal(logits(tied), logits(MINIATURES / "mistral3-text-part"))
    own = changed("mistral3-text-part", None, lambda tensors: {
        **tensors, "lm_head.weight": tensors["model.language_model.embed_tokens.weight"]}, folder="own")
    assert np.array_equal(logits(tied), logits(own))


def test_minicpm_is_granite_by_other_factors(changed, logits):
    """transformers has no MiniCPM; Granite has the same arithmetic."""
    def granite(config):
        return {**config, "embedding_multiplier": 3.0, "attention_multiplier": 0.25, "residual_multiplier": 0.75,
                "logits_scaling": 2.0}  # heads of 16 numbers

    def minicpm(config):
        return {**{key: value for key, value in granite(config).items() if "multiplier" not in key},
                "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "scale_emb": 3,
                "scale_depth": 0.75 * config["num_hidden_layers"] ** 0.5, "dim_model_base": config["hidden_size"] // 2}

    expected = logits(changed("granite-awq", granite))
    assert np.allclose(logits(changed("granite-awq", minicpm, folder="other")), expected, rtol=0, atol=1e-5)
    assert not np.allclose(logits(MINIATURES / "granite-awq"), expected, rtol=0, atol=1e-2)


# A miniature of each text part that is the default of a model whose text part may be any.
TEXTS = {"llama": "llama3-awq", "mistral": "mistral-nemo", "qwen2": "qwen2-awq", "qwen3": "qwen3-awq",
         "lfm2": "lfm2-awq", "lfm3": "lfm3-awq", "exaone4": "exaone4-awq", "qwen3_5_text": "qwen3_5-awq",
         "deepseek_v3": "deepseek-v3-bf16", "nemotron_h": "nemotron-h-awq"}
WHOLES = re.findall(r'^  { "(\w+)", "(\w+)", "(\w+)",\s+"[^"]+",\s+\.is = ANY_TEXT', (
    ROOT / "src" / "model" / "config" / "multimodal.c").read_text(), re.MULTILINE)


def part_of(architecture, model_type):
    """Functions that make a text model the text part of a model of several parts."""
    key = "llm_config" if model_type in ("internvl_chat", "NemotronH_Nano_Omni_Reasoning_V3") else "text_config"
    body, head = ("model.text_model.", "lm_head") if model_type in ("idefics3", "smolvlm") else (
        "language_model.model.", "language_model.lm_head")
    if model_type == "hyperclovax_vision_v2":
        body, head = "model.language_model.model.", "model.language_model.lm_head"

    def config(members):
        text = {name: value for name, value in members.items() if name not in ("architectures", "quantization_config")}
        return {"architectures": [architecture], "model_type": model_type, key: text, "vision_config": {},
                **{name: members[name] for name in ("quantization_config",) if name in members}}

    return config, lambda tensors: {
        "vision_tower.bias": np.zeros(8, np.float32),
        **{"language_model." + name if name.startswith("backbone.") else
           name.replace("model.", body, 1).replace("lm_head", head): array for name, array in tensors.items()}}


@pytest.mark.parametrize("architecture, model_type, text", WHOLES, ids=[row[1] for row in WHOLES])
def test_a_text_part_of_any_kind_is_that_text_model(architecture, model_type, text, changed, logits):
    if text not in TEXTS:
        pytest.skip("the default text part is no model of its own")
    folder = changed(TEXTS[text], *part_of(architecture, model_type))
    assert np.array_equal(logits(folder), logits(MINIATURES / TEXTS[text]))


@pytest.mark.parametrize("name, architecture, model_type", [
    ("llama4-bf16", "Llama4ForConditionalGeneration", "llama4"),
    ("apertus1p5-bf16", "Apertus1p5ForConditionalGeneration", "apertus1p5")])  # which has an output head of 100 tokens
def test_the_text_part_of_one_kind_is_that_text_model(name, architecture, model_type, changed, logits_of):
    ids = [token % 100 for token in IDS]
    assert np.array_equal(logits_of(changed(name, *part_of(architecture, model_type)), ids),
                          logits_of(MINIATURES / name, ids))


def test_a_text_part_with_factors_is_that_text_model(changed, logits):
    """HyperCLOVA X SEED Think 32B as published, whose head has the text model's factor of logits."""
    for architecture, model_type in (("HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax_vision_v2"),
                                     ("HCXVisionV2ForCausalLM", "vlm")):
        folder = changed("hyperclovax-awq", *part_of(architecture, model_type), folder=model_type)
        assert np.array_equal(logits(folder), logits(MINIATURES / "hyperclovax-awq"))
    vision = changed("granite-docling-awq", lambda config: {
        **config, "architectures": ["Granite4VisionForConditionalGeneration"], "model_type": "granite4_vision",
        "text_config": {**config["text_config"], "model_type": "granite4_vision_text", "residual_multiplier": 0.263}},
        renamed("model.text_model.", "model.language_model."))
    assert np.array_equal(logits(vision), logits(MINIATURES / "granite-docling-awq"))


def test_every_place_of_a_text_part_is_known(changed, logits):
    """Names as transformers 5 saves Qwen2.5-VL, and its config; GLM-4.6V, which has GLM-4.1V's text part."""
    flat = MINIATURES / "qwen2_5-vl-awq"
    beside = ("architectures", "model_type", "vision_config", "quantization_config")
    nested = changed("qwen2_5-vl-awq", lambda config: {
        **{key: config[key] for key in beside}, "text_config": {
            **{key: value for key, value in config.items() if key not in beside}, "model_type": "qwen2_5_vl_text"}},
        lambda tensors: {re.sub(r"^model\.", "model.language_model.", name): array for name, array in tensors.items()})
    assert np.array_equal(logits(nested), logits(flat))
    flash = changed("glm4v-awq", with_config(architectures=["Glm46VForConditionalGeneration"], model_type="glm46v"),
                    folder="flash")
    assert np.array_equal(logits(flash), logits(MINIATURES / "glm4v-awq"))
    omni = changed("nemotron-h-omni-awq", lambda config: {  # as transformers 5 saves it
        {"llm_config": "text_config"}.get(key, key): value for key, value in config.items()},
        renamed(".backbone.", ".model."), folder="omni")
    assert np.array_equal(logits(omni), logits(MINIATURES / "nemotron-h-omni-awq"))
    nested = changed("hunyuan-vl-awq", lambda config: {
        **{key: config[key] for key in beside}, "text_config": {
            **{key: value for key, value in config.items() if key not in beside}, "model_type": "hunyuan_vl_text",
            "rope_scaling": {**config["rope_scaling"], "type": "dynamic"}}},
        lambda tensors: {re.sub(r"^model\.", "model.language_model.", name): array for name, array in tensors.items()},
        folder="nested-hunyuan")
    assert np.array_equal(logits(nested), logits(MINIATURES / "hunyuan-vl-awq"))
    usual = changed("qwen3-vl-moe-bf16", None, lambda tensors: {
        name: array.swapaxes(1, 2).copy() if ".mlp.experts." in name else array
        for name, array in tensors.items()}, folder="usual")  # experts as transformers 5 saves them
    assert np.array_equal(logits(usual), logits(MINIATURES / "qwen3-vl-moe-bf16"))


def test_longrope_is_of_the_whole_text(logits):
    """Texts up to the original length have one set of positions, longer ones another, in all of their tokens: cut into
    any steps, and not what a shorter text has for its beginning."""
    model = MINIATURES / "phi3-longrope-long"  # 32 tokens
    short, longer = (logits(model, "--kv", "f32", "--max-tokens", str(n)) for n in (32, 33))
    assert not np.allclose(longer[:32], short)
    assert np.array_equal(logits(model, "--kv", "f32", "--max-tokens", "33", "--chunk", "5"), longer)
    assert np.array_equal(logits(model, "--kv", "f32", "--max-tokens", "20"), short[:20])


def test_axk1_may_have_no_bias_of_choice_and_norms_that_do_nothing(changed, logits):
    """As it is published: without the bias, and in layers without experts with the norm of layers that have some."""
    bias, norm = LAYER + "mlp.gate.e_score_correction_bias", "model.layers.0.post_mlp_layernorm.weight"
    zeros = changed("axk1-bf16", None, lambda tensors: {**tensors, bias: np.zeros(4, np.float32)})
    published = changed("axk1-bf16", with_config(model_type="AXK1"), lambda tensors: {
        **without(bias)(tensors), norm: np.full(16, 3, np.float32)}, folder="published")
    assert np.array_equal(logits(published), logits(zeros))
    assert not np.allclose(logits(MINIATURES / "axk1-bf16"), logits(zeros), rtol=0, atol=1e-2)


def test_norms_of_cohere2_moe_may_be_rmsnorm(changed, logits):
    """Where what is normalised has a mean of 0, RMSNorm is LayerNorm: here where all that layers add has one."""
    def without_means(tensors):
        for name, array in tensors.items():
            if any(part in name for part in ("embed_tokens", "o_proj", "down_proj")):
                values = checkpoint.to_f32(array)
                outputs = -1 if "embed" in name else -2
                tensors[name] = values - values.mean(axis=outputs, keepdims=True)

    layer_norm = changed("cohere2-moe-bf16", None, without_means)
    rms_norm = changed("cohere2-moe-bf16", with_config(rms_norm_eps=1e-5), without_means, folder="rms")
    assert np.allclose(logits(layer_norm, "--kv", "f32"), logits(rms_norm, "--kv", "f32"), rtol=0, atol=1e-4)
    other = changed("cohere2-moe-bf16", with_config(rms_norm_eps=0.5), without_means, folder="other")
    assert not np.allclose(logits(other, "--kv", "f32"), logits(rms_norm, "--kv", "f32"), rtol=0, atol=1e-2)


def test_phimoe_has_factors_of_its_own_for_long_texts(changed, logits):
    """60 tokens are no long text. With an original length of 16 they are one: then what long texts have counts."""
    def swapped(config):
        rope = config["rope_scaling"]
        rope["original_max_position_embeddings"] = 16
        for part in ("factor", "mscale"):
            rope["short_" + part], rope["long_" + part] = rope["long_" + part], rope["short_" + part]

    published = logits(MINIATURES / "phimoe-bf16", "--kv", "f32")
    assert np.array_equal(logits(changed("phimoe-bf16", swapped), "--kv", "f32"), published)
    other = changed("phimoe-bf16", with_config(architectures=["PhimoeForCausalLM"]), folder="other")
    assert np.array_equal(logits(other, "--kv", "f32"), published)


@pytest.mark.parametrize("salt", [0, 4, 10])
def test_an_answer_goes_on_as_its_text_grows_long(salt, auk, run, tmp_path):
    """28 characters and 9 more pass the original length of 32 on the way: each is the best of the text so far, taken
    as a whole."""
    model, alphabet = MINIATURES / "phi3-longrope-long", "\n" + "".join(map(chr, range(32, 127)))
    ids, out = [(i * 31 + salt * 7) % 95 + 1 for i in range(28)], tmp_path / "logits.npy"
    prompt = "".join(alphabet[i] for i in ids)
    for _ in range(9):
        subprocess.run([*auk, "eval", "-m", model, "--ids-file", "-", "--logits-out", out, "--device", "cpu", "-t", "1",
                        "--kv", "f32"], input=" ".join(map(str, ids)).encode(), check=True, stdout=subprocess.DEVNULL)
        ids.append(int(np.load(out)[-1].argmax()))
    answer = run("-m", model, "--raw", "-p", prompt, "-n", 9, "--temp", 0, "--kv", "f32", "--device", "cpu", "-t", 1,
                 "--no-newline")
    assert answer.returncode == 0
    assert answer.stdout.decode() == "".join(alphabet[i] for i in ids[28:])


def test_command_r_is_r7b_whose_layers_all_have_a_rope(changed, logits):
    """A window as long as the text hides nothing."""
    as_older = with_config(architectures=["CohereForCausalLM"], model_type="cohere", layer_types=None)
    older = changed("cohere2-bf16", as_older, folder="older")
    newer = changed("cohere2-bf16", with_config(layer_types=["sliding_attention"] * 2, sliding_window=128))
    assert np.allclose(logits(older), logits(newer), rtol=0, atol=1e-5)
    assert not np.allclose(logits(older), logits(MINIATURES / "cohere2-bf16"), rtol=0, atol=1e-2)


# --- what is wrong with a part

def cut(name, *shape):
    def change(tensors):
        tensors[name] = tensors[name][tuple(slice(side) for side in shape)].copy()
    return change


def turned(name):
    def change(tensors):
        tensors[name] = tensors[name].T.copy()
    return change


def not_a_number(name):
    def change(tensors):
        tensors[name][3] = np.nan
    return change


def with_routers_of(n):
    return lambda tensors: {**tensors, **{f"model.layers.{layer}.mlp.gate.weight": np.zeros((n, 32), np.float16)
                                          for layer in range(2)}}


CONV = "model.layers.2.conv."
DELTA = "model.language_model.layers.1.linear_attn."
PHI, LAYER = "model.layers.1.self_attn.qkv_proj", "model.layers.1."
WRONG = {
    "a fused matrix is missing": (
        "phi3-awq", None, without(PHI + ".qweight")),
    "matrices are not fused": (
        "phi3-awq", None, renamed("qkv_proj", "q_proj")),
    "a fused matrix is too narrow": (
        "phi3-awq", None, cut(PHI + ".qweight", 64, 8)),
    "its scales are": (
        "phi3-awq", None, cut(PHI + ".scales", 2, 64)),
    "more heads than a fused matrix has": (
        "phi3-awq", with_config(num_key_value_heads=4), None),
    "a dense fused matrix is too short": (
        "phi3-longrope", None, cut("model.layers.0.mlp.gate_up_proj.weight", 48)),
    "a norm before the gated product is missing": (
        "gemma2-awq", None, without(LAYER + "pre_feedforward_layernorm.weight")),
    "a norm behind it is": (
        "olmo2-awq", None, without(LAYER + "post_feedforward_layernorm.weight")),
    "a norm behind attention is no number": (
        "olmo2-awq", None, not_a_number(LAYER + "post_attention_layernorm.weight")),
    "a norm over all heads is of one": (
        "olmo2-awq", None, cut(LAYER + "self_attn.q_norm.weight", 16)),
    "a norm of one head is wider": (
        "gemma3-awq", None, lambda tensors: {**tensors, LAYER + "self_attn.k_norm.weight": np.ones(64, np.float16)}),
    "a layer's own number is missing": (
        "gemma4-bf16", None, without(LAYER + "layer_scalar")),
    "a layer with a window has no values": (
        "gemma4-bf16", None, without(LAYER + "self_attn.v_proj.weight")),
    "the table of the layers' inputs is too narrow": (
        "gemma4-e", None, cut("model.embed_tokens_per_layer.weight", 106, 80)),
    "AltUp's router has another number of streams": (
        "gemma3n-bf16", with_config(altup_num_inputs=4), None),
    "AltUp's coefficients are too few": (
        "gemma3n-bf16", None, cut(LAYER + "altup.prediction_coefs.weight", 3)),
    "AltUp's scale is missing": (
        "gemma3n-bf16", None, without(LAYER + "altup.correct_output_scale")),
    "AltUp's scale is no number": (
        "gemma3n-bf16", None, lambda tensors: {**tensors, LAYER + "altup.correct_output_scale": np.full(
            16, np.nan, np.float32)}),
    "an embedding's matrix for a stream is missing": (
        "gemma3n-bf16", None, without("model.altup_unembed_projections.1.weight")),
    "LAuReL has another rank": (
        "gemma3n-bf16", with_config(laurel_rank=5), None),
    "LAuReL's norm is missing": (
        "gemma3n-bf16", None, without(LAYER + "laurel.post_laurel_norm.weight")),
    "a layer's MLP has the width of another": (
        "gemma3n-bf16", with_config(intermediate_size=12), None),
    "an MLP is not of twice the width": (
        "gemma4-e", with_config(use_double_wide_mlp=False), None),
    "a bias that the config promises is missing": (
        "granite-biases", None, without(LAYER + "mlp.down_proj.bias")),
    "attention's gate is missing": (
        "muse-glimmer-text-part", None, without("model.language_model.layers.1.self_attn.gate_proj.qweight")),
    "the sinks of a layer are missing": (
        "granite-swa-awq", None, without(LAYER + "self_attn.sinks")),
    "there are fewer sinks than heads": (
        "granite-swa-awq", None, cut(LAYER + "self_attn.sinks", 1)),
    "a sink is no number": (
        "granite-swa-bf16", None, lambda tensors: {**tensors, LAYER + "self_attn.sinks": np.array(
            [1, np.inf], np.float16)}),
    "another one": (
        "qwen3-biases", None, without(LAYER + "self_attn.o_proj.bias")),
    "one layer has no gate": (
        "laguna-awq", None, without("model.layers.1.self_attn.g_proj.weight")),
    "the bias of a last norm called otherwise is missing": (
        "phi-bf16", None, without("model.final_layernorm.bias")),
    "the bias of a norm before the MLP is missing": (
        "starcoder2-bf16", None, without(LAYER + "post_attention_layernorm.bias")),
    "a norm has weights where norms have none": (
        "olmo-bf16", None, lambda tensors: {**tensors, LAYER + "input_layernorm.weight": np.ones(16, np.float32)}),
    "a layer called otherwise holds a tensor that is not known": (
        "exaone-bf16", None, lambda tensors: {**tensors, "transformer.h.1.ln_3.weight": np.ones(16, np.float32)}),
    "a norm of a layer called otherwise is missing": (
        "exaone-bf16", None, without("transformer.h.1.ln_2.weight")),
    "q, k and v as one are too short": (
        "sarvam-moe-bf16", with_config(num_key_value_heads=2), None),
    "the matrices of the delta rule are not one": (
        "lara-mini-bf16", None, renamed("linear_attn.in_proj.", "linear_attn.in_proj_qkv.")),
    "the output head has more tokens than the config says": (
        "apertus1p5-bf16", with_config(output_vocab_size=99), None),
    "the embedding has as many rows as the output head": (
        "apertus1p5-bf16", None, cut("model.embed_tokens.weight", 100)),
    "an activation's number is missing": (
        "apertus-awq", None, without(LAYER + "mlp.act_fn.alpha_n")),
    "an activation has two numbers of a kind": (
        "apertus-awq", None, lambda tensors: {**tensors, LAYER + "mlp.act_fn.alpha_p": np.ones(2, np.float16)}),
    "an activation's number is none": (
        "apertus-awq", None, lambda tensors: {**tensors, LAYER + "mlp.act_fn.beta": np.float16(np.nan)}),
    "values are as long as keys": (
        "mimo-bf16", with_config(v_head_dim=12), None),
    "sinks of a layer without them": (
        "mimo-bf16", None, lambda tensors: {
            **tensors, "model.layers.0.self_attn.attention_sink_bias": np.zeros(4, np.float16)}),
    "the up of all experts is missing": (
        "step-bf16", None, without("model.layers.1.moe.up_proj.weight")),
    "the down of all experts is too narrow": (
        "step-bf16", None, cut("model.layers.2.moe.down_proj.weight", 4, 16, 8)),
    "experts have the shape of other families'": (
        "llama4-bf16", None, lambda tensors: {
            name: array.swapaxes(1, 2).copy() if ".experts." in name else array for name, array in tensors.items()}),
    "a text part has a name that nobody gives": (
        "gemma3-text-part", None, renamed("language_model.model.", "text_model.")),
    "a head alone is of several parts": (
        "mistral-nemo", None, renamed("lm_head", "language_model.lm_head")),
    "a hybrid layer has no convolution": (
        "qwen3_5", None, without(DELTA + "conv1d.weight")),
    "its convolution has another shape": (
        "qwen3_5", None, cut(DELTA + "conv1d.weight", 104, 1, 3)),
    "a hybrid layer has no A_log": ("qwen3_5", None, without(DELTA + "A_log")),
    "a hybrid layer has no dt_bias": ("qwen3_5", None, without(DELTA + "dt_bias")),
    "its A_log is no number": (
        "qwen3_5", None, not_a_number(DELTA + "A_log")),
    "a hybrid layer has no z": ("qwen3_5", None, without(DELTA + "in_proj_z.weight")),
    "queries have no gates": (
        "qwen3_5-tied", None, cut("model.layers.2.self_attn.q_proj.weight", 64)),
    "a hybrid layer is of a kind nobody knows": (
        "qwen3_5-tied", with_config(layer_types=["linear_attention", "mamba", "full_attention", "linear_attention"]),
        None),
    "Mamba-2 beside attention has no output": (
        "falcon-h1-bf16", None, without(LAYER + "mamba.out_proj.weight")),
    "its output is too narrow": (
        "falcon-h1-bf16", None, cut(LAYER + "mamba.out_proj.weight", 16, 8)),
    "its norm, which the config promises, is missing": (
        "falcon-h1-bf16", with_config(mamba_rms_norm=True), None),
    "attention beside it has no keys": (
        "falcon-h1-bf16", None, without(LAYER + "self_attn.k_proj.weight")),
    "its factors are too few": (
        "falcon-h1-bf16", with_config(ssm_multipliers=[1, 2]), None),
    "one of three convolutions is missing": (
        "olmo-hybrid-bf16", None, lambda tensors: without("model.layers.0.linear_attn.k_conv1d.weight")(
            as_published(tensors))),
    "one of them has other taps": (
        "olmo-hybrid-bf16", with_config(linear_conv_kernel_dim=3), as_published),
    "the delta rule's keys are missing": (
        "olmo-hybrid-bf16", None, without("model.layers.0.linear_attn.k_proj.weight")),
    "a norm before it is missing": (
        "olmo-hybrid-bf16", None, without("model.layers.0.post_attention_layernorm.weight")),
    "one of two matrices of a gate is missing": (
        "kimi-linear-bf16", None, without("model.layers.0.self_attn.f_a_proj.weight")),
    "the other has inputs of another number": (
        "kimi-linear-bf16", None, cut("model.layers.0.self_attn.g_b_proj.weight", 18, 4)),
    "there is a decay for each head alone": (
        "kimi-linear-bf16", None, cut("model.layers.0.self_attn.dt_bias", 3)),
    "A_log has fewer heads": (
        "kimi-linear-bf16", None, cut("model.layers.0.self_attn.A_log", 1, 1, 2, 1)),
    "an MLP beside experts has another name": (
        "kimi-linear-bf16", None, renamed("block_sparse_moe.shared_experts", "mlp.shared_experts")),
    "a layer's kind is said by no list": (
        "kimi-linear-bf16", with_config(linear_attn_config={"kda_layers": [1], "full_attn_layers": []}), None),
    "heads of latent attention have no gates": (
        "ling-bf16", None, without(LAYER + "attention.g_proj.weight")),
    "their gates are of each number": (
        "ling-bf16", None, lambda tensors: {
            **tensors, LAYER + "attention.g_proj.weight": np.ones((32, 16), np.float16)}),
    "its output has two names": (
        "ling-bf16", None, lambda tensors: {
            **tensors, LAYER + "attention.o_proj.weight": tensors[LAYER + "attention.dense.weight"]}),
    "the norm of attention and MLP is missing": (
        "cohere2-bf16", None, without(LAYER + "input_layernorm.weight")),
    "there is no window": (
        "cohere2-bf16", with_config(sliding_window="null"), None),
    "the norms of q's heads are missing": (
        "command-r-plus-bf16", None, without(LAYER + "self_attn.q_norm.weight")),
    "the norms of k's heads are too short": (
        "command-r-plus-bf16", None, cut(LAYER + "self_attn.k_norm.weight", 1, 4)),
    "the norm of one of q's heads is missing": (
        "stablelm-12b-bf16", None, without(LAYER + "self_attn.q_layernorm.norms.1.weight")),
    "the norm of a head is too short": (
        "stablelm-12b-bf16", None, cut(LAYER + "self_attn.k_layernorm.norms.0.weight", 4)),
    "q, k and v are of fewer KV heads": (
        "falcon-new-bf16", None, cut("transformer.h.0.self_attention.query_key_value.weight", 24, 16)),
    "the norm of an MLP beside attention is missing": (
        "falcon-new-bf16", None, without("transformer.h.0.ln_mlp.weight")),
    "the bias of a norm with a name of its own is missing": (
        "falcon-new-bf16", None, without("transformer.h.0.ln_attn.bias")),
    "an MLP beside attention has a norm that the config does not say": (
        "falcon-new-bf16", with_config(num_ln_in_parallel_attn=1), None),
    "the bias of q, k and v is missing": (
        "gpt-neox-bf16", None, without("gpt_neox.layers.0.attention.query_key_value.bias")),
    "a matrix of inputs times outputs is stored the other way": (
        "gpt2-bf16", None, turned("h.0.mlp.c_fc.weight")),
    "the positions are missing": (
        "gpt2-bf16", None, without("wpe.weight")),
    "there are more positions than the table has": (
        "gpt2-bf16", with_config(n_positions=129), None),
    "the output head has neither name": (
        "gpt-neox-bf16", None, without("embed_out.weight")),
    "a factor of logits is no number": (
        "cohere2-bf16", with_config(logit_scale="x"), None),
    "the bias of a norm is missing": (
        "phimoe-bf16", None, without(LAYER + "post_attention_layernorm.bias")),
    "the bias of a norm is too short": (
        "phimoe-bf16", None, cut(LAYER + "input_layernorm.bias", 15)),
    "the bias of the last norm is missing": (
        "phimoe-bf16", None, without("model.norm.bias")),
    "the output head has no bias": (
        "phimoe-bf16", None, without("lm_head.bias")),
    "the output head has a bias of another shape": (
        "phimoe-bf16", None, cut("lm_head.bias", 103)),
    "the output head has a bias, and the config has none": (
        "phimoe-bf16", with_config(lm_head_bias=False), None),
    "the output head's bias is no bool": (
        "phimoe-bf16", with_config(lm_head_bias="x"), None),
    "a rope has no factor of long texts": (
        "phimoe-bf16", lambda config: config["rope_scaling"].pop("long_mscale") and None, None),
    "the norm of experts is missing": (
        "axk1-bf16", None, without(LAYER + "post_mlp_layernorm.weight")),
    "the norm of experts has a bias": (
        "axk1-bf16", None, lambda tensors: {**tensors, LAYER + "post_mlp_layernorm.bias": np.ones(16, np.float32)}),
    "the router's function is another": (
        "cohere2-moe-bf16", with_config(expert_selection_fn="tanh"), None),
    "the MLP beside experts is missing": (
        "cohere2-moe-bf16", None, without(LAYER + "mlp.shared_experts.up_proj.weight")),
    "a layer without experts has another width": (
        "cohere2-moe-bf16", with_config(prefix_dense_intermediate_size=16), None),
    "a short convolution has no taps": (
        "lfm2-awq", None, without(CONV + "conv.weight")),
    "a short convolution has other taps": (
        "lfm3-bf16", None, cut(CONV + "conv.weight", 32, 1, 6)),
    "a short convolution has no bias": (
        "lfm2-awq", None, without(CONV + "conv.bias")),
    "what it is made of has no bias": (
        "lfm2-awq", None, without(CONV + "in_proj.bias")),
    "what it is added by has no bias": (
        "lfm2-awq", None, without(CONV + "out_proj.bias")),
    "it is too narrow for its gates": (
        "lfm2-bf16", None, cut(CONV + "in_proj.weight", 64)),
    "a tap is no number": (
        "lfm2-awq", None, lambda tensors: {**tensors, CONV + "conv.weight": np.full((32, 1, 4), np.inf, np.float16)}),
    "a norm of its name is missing": (
        "lfm3-bf16", None, without("model.layers.2.post_operator_norm.weight")),
    "the last norm is missing": (
        "lfm2-bf16", None, without("model.embedding_norm.weight")),
    "a layer has attention where there is a convolution": (
        "lfm2-awq", with_config(layer_types=["conv", "full_attention", "full_attention", "conv"]), None),
    "longrope has fewer factors than pairs": (
        "phi3-longrope", with_config(partial_rotary_factor=1.0), None),
    "an expert is missing": ("qwen3-moe-awq", None, without(LAYER + "mlp.experts.7.up_proj.qweight")),
    "an expert has another shape": ("qwen3-moe-awq", None, cut(LAYER + "mlp.experts.3.down_proj.qweight", 16)),
    "there are fewer experts than the config says": (
        "qwen3-moe-awq", with_config(num_experts=9), with_routers_of(9)),
    "there are more experts than the config says": (
        "qwen3-moe-awq", with_config(num_experts=7), with_routers_of(7)),
    "a router has another width": ("qwen3-moe-awq", with_config(num_experts=9), None),
    "a router has another width beside layers without experts": (
        "qwen3-moe-uneven", with_config(num_experts=9), None),
    "a tensor of all experts has fewer": ("qwen3-moe-uneven", None, cut(LAYER + "mlp.experts.gate_up_proj", 5)),
    "one of two tensors of all experts is missing": (
        "qwen3-moe-uneven", None, without(LAYER + "mlp.experts.down_proj")),
    "blocks of all experts are too short": (
        "gpt-oss-mxfp4", None, cut("model.layers.0.mlp.experts.gate_up_proj_blocks", 6, 63)),
    "their scales are too short": (
        "gpt-oss-mxfp4", None, cut("model.layers.0.mlp.experts.gate_up_proj_scales", 6, 63)),
    "their biases are too short": ("gpt-oss-mxfp4", None, cut("model.layers.0.mlp.experts.gate_up_proj_bias", 6, 63)),
    "blocks have no scales": ("gpt-oss-mxfp4", None, without("model.layers.0.mlp.experts.down_proj_scales")),
    "more experts are chosen than there are": ("qwen3-moe-awq", with_config(num_experts_per_tok=9), None),
    "a bias of choice is missing": ("glm4-moe-awq", None, without(LAYER + "mlp.gate.e_score_correction_bias")),
}


transcript = transcript_fixture("architectures")


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case, changed, run, transcript):
    folder = changed(*WRONG[case])
    done = run("inspect", folder)
    compare(done, folder, transcript, case, MODEL)


# `auk inspect --architectures`

ELSEWHERE = {"minicpm", "granite4_vision_text"}  # Granite by other names, as tests above have it


@pytest.fixture
def listed(run):
    """(architecture, model_type, text part, models) of each line after the first, whose columns these are."""
    done = run("inspect", "--architectures")
    assert done.returncode == 0 and done.stderr == b""
    head, *rows = [re.split("  +", line) for line in done.stdout.decode().splitlines()]
    assert head == ["architecture", "model_type", "text part", "models"] and {len(row) for row in rows} == {4}
    return rows


def test_the_list_has_the_rows_of_the_tables(listed):
    tables = [(ROOT / "src/model/config" / name).read_text() for name in ("architectures.c", "multimodal.c")]
    rows = [row for table in tables for row in re.findall(r'^  { "(\w+)", "(\w+)",', table, re.MULTILINE)]
    others = re.findall(r'\.other_(?:name|type) = "(\w+)"', tables[0])
    assert len(listed) == len(rows) + len(others) > 150
    assert set(rows) <= {(name, kind) for name, kind, _, _ in listed}
    assert set(others) <= {word for name, kind, _, _ in listed for word in (name, kind)}


def test_what_is_listed_is_known(listed, run, tmp_path):
    """A config.json with these names is refused for what it lacks, not for its names."""
    for name, kind, part, _ in listed:
        text = {"text_config": {} if " " in part else {"model_type": part}}
        parts = {} if part == "-" else {"llm_config": {}, "thinker_config": text, **text}
        config = {"architectures": [name], "model_type": kind, **parts}
        (tmp_path / "config.json").write_text(json.dumps(config))
        done = run("inspect", tmp_path)
        assert done.returncode == MODEL and b"--architectures" not in done.stderr, (name, kind, done.stderr)
        assert b"model_type" not in done.stderr, (name, kind, done.stderr)


def test_every_architecture_has_a_miniature(listed):
    """Each text model has one, by itself or as a part of another."""
    kinds = {kind for path in MINIATURES.glob("*/config.json")
             for kind in re.findall(r'"model_type": "(\w+)"', path.read_text())}
    missing = {kind if part == "-" else part for _, kind, part, _ in listed if " " not in part}
    missing -= {part for _, kind, part, _ in listed if kind in kinds} | kinds
    assert missing - {"kimi_k2", "AXK1"} == ELSEWHERE  # other names of DeepSeek-V3 and A.X-K1


def test_only_the_table_of_architectures_knows_their_names():
    """The transformer and the CPU's operations go by what the table says of a model."""
    table = (ROOT / "src" / "model" / "config" / "architectures.c").read_text()
    names = re.findall(r'^  { (?:NULL|"\w+"), "(\w+?)(?:_text)?",', table, re.MULTILINE)
    assert len(names) == 117 and "llama" in names
    names.remove("gemma")  # the later ones' comments say "Gemma 4"
    for path in [*(ROOT / "src" / "engine").rglob("*.[ch]"), *(ROOT / "src" / "cpu").rglob("*.[ch]")]:
        assert not re.search(rf"\b({'|'.join(names)})(?![a-z])", path.read_text(), re.IGNORECASE), path
