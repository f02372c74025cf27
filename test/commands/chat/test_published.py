"""Checkpoints as popular repositories publish them: the names of tensors, the layout and the structure of the config
are theirs; sizes are those of a miniature, and weights are random. Each is loaded and answers, and chats for two
turns. Their logits are compared elsewhere (test/commands/measure/test_logits.py: miniatures and layouts)."""
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
import layouts  # noqa: E402

MINIATURES = ROOT / "test" / "data" / "miniatures"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
VISION = {"hidden_size": 16, "depth": 1}


def int4(*ignore):
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group", "dynamic": False,
               "actorder": None, "block_structure": None, "observer": "mse", "observer_kwargs": {}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None,
                                          "output_activations": None, "format": "pack-quantized"}},
            "ignore": ["lm_head", *ignore], "kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}}


def nvfp4(*ignore):
    numbers = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 16, "strategy": "tensor_group",
               "block_structure": None, "observer": "minmax"}
    group = {"targets": ["Linear"], "weights": {**numbers, "dynamic": False},
             "input_activations": {**numbers, "dynamic": "local"}, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": group}, "ignore": ["lm_head", *ignore], "kv_cache_scheme": None}


def mixed(n_layers, prefix):
    """nvidia's mixtures: the MLP in NVFP4, everything before it in FP8."""
    parts = {"linear_attn.in_proj_qkv": "FP8", "linear_attn.in_proj_z": "FP8", "linear_attn.out_proj": "FP8",
             "self_attn.q_proj": "FP8", "self_attn.k_proj": "FP8", "self_attn.v_proj": "FP8", "self_attn.o_proj": "FP8",
             "mlp.gate_proj": "NVFP4", "mlp.up_proj": "NVFP4", "mlp.down_proj": "NVFP4"}
    layers = {f"{prefix}layers.{layer}.{part}": {"quant_algo": how, **({"group_size": 16} if how == "NVFP4" else {})}
              for layer in range(n_layers) for part, how in parts.items()}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
            "producer": {"name": "modelopt", "version": "0.40.0"}, "ignore": ["lm_head", "model.visual*", "mtp*"]}


SMALL = ("in_proj_a", "in_proj_b")  # of hybrids: always dense
FP8 = {"quant_method": "fp8", "activation_scheme": "static", "modules_to_not_convert": ["lm_head", "vision_tower"]}

# repository: the miniature whose sizes it has; config of the outer model (None: it is of text alone); how linear layers
# are stored, and its quantization_config
PUBLISHED = {
    "Qwen/Qwen3.8-27B": ("qwen3_5", None, None, None),
    "cyankiwi/Qwen3.8-27B-AWQ-INT4": (
        "qwen3_5-awq", ("Qwen3_5ForConditionalGeneration", "qwen3_5"), "int4",
        int4("re:.*in_proj_[ab]$", "re:.*visual.*", "re:^mtp.*")),
    "unsloth/Qwen3.8-27B-NVFP4": (
        "qwen3_5-awq", ("Qwen3_5ForConditionalGeneration", "qwen3_5"), "nvfp4",
        nvfp4("re:.*in_proj_[ab]$", "re:.*visual.*", "re:^mtp.*")),
    "nvidia/Qwen3.6-27B-NVFP4": (
        "qwen3_5-awq", ("Qwen3_5ForConditionalGeneration", "qwen3_5"), "mixed", mixed(2, "model.language_model.")),
    "google/gemma-3n-E2B-it": (
        "gemma3n-bf16", ("Gemma3nForConditionalGeneration", "gemma3n"), "dense", None),
    "google/gemma-4-31B-it": ("gemma4-text-part", None, None, None),
    "google/gemma-4-31B-it-qat-w4a16-ct": (
        "gemma4-unified-text-part", ("Gemma4ForConditionalGeneration", "gemma4"), "int4", int4("re:.*vision.*")),
    "google/gemma-4-E4B-it": ("gemma4-e-text-part", None, "dense", None),
    "google/gemma-4-12B-it": ("gemma4-unified-text-part", None, "dense", None),
    "mistralai/Ministral-3-8B-Instruct-2512": ("ministral3-text-part", None, "fp8", FP8),
    "allenai/Olmo-3-7B-Instruct": ("olmo3-layer-types", None, None, None),
    "ibm-granite/granite-4.0-micro": ("granite4-awq", None, "dense", None),
    "ibm-granite/granite-4.0-h-tiny": ("granite4-h-moe-bf16", None, None, None),
    "LiquidAI/LFM2-1.2B": ("lfm2-bf16", None, None, None),
    "LiquidAI/LFM3-1.7B": ("lfm3-bf16", None, None, None),
}


def is_linear(name, values):
    return (name.endswith(("proj.weight", "in_proj_qkv.weight", "in_proj_z.weight")) and ".layers." in name
            and values.ndim == 2 and not any(f".{small}." in name for small in SMALL))


def stored(name, values, how):
    """The tensors of a linear layer."""
    module = name.removesuffix(".weight")
    if how == "mixed":
        how = "nvfp4-modelopt" if ".mlp." in name else "fp8"
    if how == "int4":
        zeros, scales, group = layouts.quantise(values, 4, 32, True)
        scales = checkpoint.to_bf16(scales)
        return layouts.packed_tensors(module, layouts.levels(values, 4, zeros, scales, group), zeros, scales, 4, True)
    layout = {"nvfp4": "nvfp4-packed"}.get(how, how)
    return layouts.float_tensors(module, values, layout, "tensor", checkpoint.to_bf16)[0]


def make(folder, miniature, outer, how, quantisation):
    config = checkpoint.read_json(str(MINIATURES / miniature / "config.json"))
    tensors = checkpoint.read_checkpoint(str(MINIATURES / miniature))
    if how:
        tensors = {name: checkpoint.to_f32(values) for name, values in checkpoint.dequantised(tensors).items()}
    text = config.get("text_config", config)
    config.pop("quantization_config", None)
    if outer:
        for member in ("architectures", "quantization_config"):
            text.pop(member, None)
        tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", True))
        if outer[1] == "gemma4":
            text["model_type"] = "gemma4_text"
            text["hidden_size_per_layer_input"] = 0
        config = {"architectures": [outer[0]], "model_type": outer[1], "text_config": text, "vision_config": VISION,
                  "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}
        tensors = {name if name.startswith(("lm_head", "model.language_model.")) else
                   name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    if quantisation:
        config["quantization_config"] = quantisation
    folder.mkdir()
    made = {}
    for name, values in tensors.items():
        if how and how != "dense" and is_linear(name, values):
            made.update(stored(name, values, how))
        else:
            made[name] = checkpoint.to_bf16(values) if how else values
    checkpoint.write_safetensors(str(folder / "model.safetensors"), made)
    checkpoint.write_json(str(folder / "config.json"), config)
    (folder / "tokenizer.json").write_bytes((MINIATURES / miniature / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_published_is_loaded_answers_and_chats(name, run, tmp_path):
    folder = make(tmp_path / "model", *PUBLISHED[name])
    flags = ("-m", folder, "--device", "cpu", "-n", 4, "-t", 1, "--temp", 0)
    inspected = run("inspect", folder, "--json")
    assert inspected.returncode == 0, inspected.stderr
    linear, quantisation = json.loads(inspected.stdout)["linear_layers"], PUBLISHED[name][3]
    assert bool(linear["quantised"]) == bool(quantisation)
    assert not quantisation or all(layer.endswith(SMALL) for layer in linear["dense_layers"])
    answer = run(*flags, "-p", "One two")
    assert answer.returncode == 0 and answer.stdout, answer.stderr
    chat = run("chat", *flags, input=b"One two\nAnd more\n")
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout.startswith(answer.stdout.rstrip(b"\n")) and len(chat.stdout) > len(answer.stdout)
