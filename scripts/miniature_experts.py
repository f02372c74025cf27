"""miniature_experts.py - miniatures with experts: their configs, and the experts' tensors. Used by:
make_miniatures.py."""

import numpy as np

import checkpoint
from miniature_configs import ALPHA, AWQ32, awq, gemma4, granite, lfm, llama, qwen2, qwen3, qwen3_5, with_vision
from miniature_names import PUBLISHED

# kind -> (number of experts, their width, name of the router, of an expert's matrices, of the tensors of all)
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
QWEN = ("mlp.gate", "mlp.experts", PROJECTIONS, "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
NAMES = {
    "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"), None, None),
    "lfm2_moe": ("feed_forward.gate", "feed_forward.experts", ("w1", "w3", "w2"), None, None),
    "granitemoe": ("block_sparse_moe.router.layer", None, None, "block_sparse_moe.input_linear.weight",
                   "block_sparse_moe.output_linear.weight"),
    "gpt_oss": ("mlp.router", "mlp.experts", PROJECTIONS, "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    "llama4_text": ("feed_forward.router", "feed_forward.experts", PROJECTIONS, "feed_forward.experts.gate_up_proj",
                    "feed_forward.experts.down_proj"),
    "gemma4_text": ("router.proj", "experts", PROJECTIONS, "experts.gate_up_proj", "experts.down_proj"),
    "kimi_linear": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"), None, None),
    "minimax_m2": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"), None, None),
    "phimoe": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"), None, None),
    "hunyuan_v1_moe": ("mlp.gate.wg", *QWEN[1:]),
    "hy_v3": ("mlp.router.gate", *QWEN[1:]),
    "afmoe": ("mlp.router.gate", *QWEN[1:]),
    "granitemoe_swa": ("block_sparse_moe.router", None, None, "block_sparse_moe.experts.gate_up_proj",
                       "block_sparse_moe.experts.down_proj"),
    "aria_text": ("mlp.router", None, None, "mlp.experts.fc1.weight", "mlp.experts.fc2.weight"),
    "step3p5": ("moe.gate", None, None, None, None),
    "nemotron_h": ("mixer.gate", "mixer.experts", PROJECTIONS[1:], "mixer.experts.up_proj", "mixer.experts.down_proj"),
}
NAMES["granitemoeshared"] = NAMES["granitemoehybrid"] = NAMES["granitemoe"]
# Kinds with a bias that chooses: its name, and how far its numbers are from 0.
BIASES = {"glm4_moe": ("mlp.gate.e_score_correction_bias", 0.3),
          "glm4v_moe_text": ("mlp.gate.e_score_correction_bias", 0.3), "lfm2_moe": ("feed_forward.expert_bias", 0.3),
          "minimax_m2": ("block_sparse_moe.e_score_correction_bias", 0.3),
          "dots1": ("mlp.gate.e_score_correction_bias", 0.3), "solar_open": ("mlp.gate.e_score_correction_bias", 0.3),
          "exaone_moe": ("mlp.e_score_correction_bias", 0.3), "hy_v3": ("mlp.expert_bias", 0.3),
          "deepseek_v3": ("mlp.gate.e_score_correction_bias", 0.3),
          "glm4_moe_lite": ("mlp.gate.e_score_correction_bias", 0.3),
          "nemotron_h": ("mixer.gate.e_score_correction_bias", 0.3), "afmoe": ("mlp.expert_bias", 0.3),
          "axk1": ("mlp.gate.e_score_correction_bias", 0.3),
          "mimo_v2_flash": ("mlp.gate.e_score_correction_bias", 0.3), "kolibri1": ("moe.router.expert_bias", 1.0),
          "laguna": ("mlp.experts.e_score_correction_bias", 0.3), "step3p5": ("moe.router_bias", 0.3),
          "bailing_hybrid": ("mlp.gate.expert_bias", 0.3),
          "sarvam_moe": ("mlp.gate.e_score_correction_bias", 0.3),
          "sarvam_mla": ("mlp.gate.e_score_correction_bias", 0.3),
          "kimi_linear": ("block_sparse_moe.gate.e_score_correction_bias", 0.3)}


def sizes(config):
    """number of experts, their width"""
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return (next(config[key] for key in keys if config.get(key)),
            config.get("moe_intermediate_size") or config["intermediate_size"])


def mxfp4(weight):
    """fp32 [..., n_out][n_in] -> blocks U8 [..., n_out][n_in / 32][16], scales U8 [..., n_out][n_in / 32]"""
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    groups = weight.reshape(*weight.shape[:-1], -1, 32)
    exponents = np.ceil(np.log2(np.abs(groups).max(axis=-1) / 6)).astype(np.int32)
    scaled = groups / np.exp2(exponents)[..., None]
    codes = np.searchsorted((numbers[1:] + numbers[:-1]) / 2, np.abs(scaled)) | np.signbit(scaled) * 8
    codes = codes.astype(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8)


def quantised(config, name):
    """The quantization_config for a matrix, None: it is dense."""
    quant = config.get("quantization_config")
    if not quant or any(part in name for part in quant.get("modules_to_not_convert") or []):
        return None
    return quant


def expert_tensors(config, prefix, stored, put, normal, tensors):
    """Adds the router and the experts of a layer. stored: "each"; "all"; for gpt-oss "mxfp4"; "inputs-first"; "apart":
    in three tensors."""
    kind, hidden = config["model_type"], config["hidden_size"]
    n, width = sizes(config)
    outer = config.get("moe_latent_size") or hidden
    router, each, names, all_gate_up, all_down = NAMES.get(kind, QWEN)
    # Outputs of a standard deviation near 2: the chosen experts differ in weight.
    put(prefix + router + ".weight", normal(n, hidden, std=(40 if kind == "gemma4_text" else 2) / hidden**0.5))
    if kind == "gpt_oss":
        put(prefix + router + ".bias", normal(n, std=0.5))
    if kind == "gemma4_text":
        put(prefix + "router.scale", 0.3 + normal(hidden, std=0.1))
        put(prefix + "router.per_expert_scale", 1 + normal(n, std=0.25))
    if kind in BIASES:
        name, std = BIASES[kind]
        tensors[prefix + name] = normal(n, std=std)
    if kind == "ernie4_5_vl_moe_text":
        two_kinds(config, prefix, put, normal, tensors)
        return
    if kind == "ernie4_5_moe":
        tensors[prefix + "mlp.moe_statics.e_score_correction_bias"] = normal(1, n, std=0.1)
    if kind in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text"):
        put(prefix + "mlp.shared_expert_gate.weight", normal(1, hidden, std=1 / hidden**0.5))
    gate_up = normal(n, (len(names or PROJECTIONS) - 1) * width, outer, std=1.5 / outer**0.5)
    down = normal(n, outer, width, std=1.5 / width**0.5)
    if kind == "gpt_oss":
        put(prefix + all_gate_up + "_bias", normal(n, 2 * width, std=0.5))
        put(prefix + all_down + "_bias", normal(n, hidden, std=0.5))
        gate_up *= 3  # so that the clamp cuts
    if stored == "mxfp4":
        for name, weight in ((all_gate_up, gate_up), (all_down, down)):
            blocks, scales = mxfp4(weight)
            tensors.update({prefix + name + "_blocks": blocks, prefix + name + "_scales": scales})
    elif stored == "inputs-first":
        put(prefix + all_gate_up, np.ascontiguousarray(gate_up.transpose(0, 2, 1)))
        put(prefix + all_down, np.ascontiguousarray(down.transpose(0, 2, 1)))
    elif stored == "apart":
        for name, weight in zip(PROJECTIONS, (*np.split(gate_up, 2, axis=1), down)):
            put(f"{prefix}moe.{name}.weight", np.ascontiguousarray(weight))
    elif stored == "all":
        put(prefix + all_gate_up, gate_up)
        put(prefix + all_down, down)
    else:
        for e in range(n):
            parts = (*np.split(gate_up[e], len(gate_up[e]) // width), down[e])
            for name, weight in zip(names, parts):
                whole = f"{prefix}{each}.{e}.{name}"
                quant = quantised(config, whole)
                if quant:
                    tensors.update(expert_layout(quant, whole, weight))
                else:
                    put(whole + ".weight", weight)


def two_kinds(config, prefix, put, normal, tensors):
    """The experts of text, then as many of images, which are narrower; routers with the inputs first."""
    hidden, n = config["hidden_size"], config["moe_num_experts"]
    tensors[prefix + "mlp.moe_statics.e_score_correction_bias"] = normal(2, n, std=0.1)
    for kind, width in enumerate(config["moe_intermediate_size"]):
        put(prefix + "mlp.gate.weight" + ("_1" if kind else ""), normal(hidden, n, std=2 / hidden**0.5))
        for e in range(kind * n, (kind + 1) * n):
            for name, n_out, n_in in zip(PROJECTIONS, (width, width, hidden), (hidden, hidden, width)):
                put(f"{prefix}mlp.experts.{e}.{name}.weight", normal(n_out, n_in, std=1.5 / n_in**0.5))


def of_text(tensors, n):
    """The tensors of two_kinds() without those of images, as transformers has text's experts."""
    out = {}
    for name, array in tensors.items():
        expert = name.partition(".experts.")[2].partition(".")[0]
        if name.endswith("mlp.gate.weight_1") or (expert.isdigit() and int(expert) >= n):
            continue
        turned = array.T if name.endswith("mlp.gate.weight") else array
        bias = name.endswith("mlp.moe_statics.e_score_correction_bias")
        name = name.replace("mlp.experts.", "mlp.text_moe.experts.").replace("mlp.gate.", "mlp.text_moe.gate.")
        out[name.replace("mlp.moe_statics.", "mlp.text_moe.gate.moe_statics.")] = array[:1] if bias else turned
    return out


def expert_layout(quant, name, weight):
    """The tensors of one quantised matrix."""
    return checkpoint.awq_tensors(name, *checkpoint.awq_quantise(weight, quant["group_size"]))


# --- the names that transformers 5 gives them


MIXTRAL_NAMES = (("block_sparse_moe.", "mlp."),)
GRANITE_NAMES = (("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"),
                 ("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
                 ("block_sparse_moe.router.layer.", "block_sparse_moe.router."))
RENAMED = {"mixtral": MIXTRAL_NAMES, "minimax_m2": MIXTRAL_NAMES,
           "phimoe": (("block_sparse_moe.gate.", "mlp.router."), *MIXTRAL_NAMES),
           "granitemoe": GRANITE_NAMES, "granitemoeshared": GRANITE_NAMES, "granitemoehybrid": GRANITE_NAMES,
           "ernie4_5_moe": (("mlp.moe_statics.", "mlp.gate.moe_statics."),),
           "exaone_moe": (("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"),),
           "hy_v3": (("mlp.router.gate.", "mlp.gate."), ("mlp.expert_bias", "mlp.e_score_correction_bias"),
                     ("mlp.shared_mlp.", "mlp.shared_experts.")),
           "kolibri1": (("moe.router.expert_bias", "mlp.gate.e_score_correction_bias"),
                        ("post_attn_norm", "post_self_attn_layernorm"), ("post_ffn_norm", "post_mlp_layernorm")),
           "axk1": (("post_mlp_layernorm", "mlp.post_mlp_layernorm"),),
           "flint": (("self_attn.softmax_offset", "self_attn.sinks"),),
           "mimo_v2_flash": (("self_attn.attention_sink_bias", "self_attn.sinks"),),
           "kimi_linear": (*MIXTRAL_NAMES, *(("self_attn." + name, "self_attn.forget_gate." + name) for name in (
               "f_a_proj", "f_b_proj", "dt_bias", "A_log"))),
           "bailing_hybrid": (("word_embeddings", "embed_tokens"), (".attention.", ".self_attn."),
                              *(("self_attn." + name, "self_attn.forget_gate." + name) for name in (
                                  "f_proj", "dt_bias", "A_log")),
                              ("self_attn.dense", "self_attn.o_proj"),
                              ("mlp.gate.expert_bias", "mlp.gate.e_score_correction_bias")),
           "aria_text": (("fc1.weight", "gate_up_proj"), ("fc2.weight", "down_proj")),
           "step3p5": ((".moe.gate.", ".mlp.gate."), (".moe.router_bias", ".mlp.gate.e_score_correction_bias"),
                       (".share_expert.", ".mlp.shared_experts."),
                       (".moe.down_proj.weight", ".mlp.experts.down_proj")),
           "laguna": (("mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"),
                      ("mlp.shared_expert.", "mlp.shared_experts."))}

RENAMED.update({kind: tuple((new, old) for old, new in reversed(names.items())) for kind, names in PUBLISHED.items()})


def merged(tensors, kind):
    """fp32 tensors of a checkpoint with experts as transformers has them: those of a layer in two tensors."""
    out, parts = {}, {}
    for name, array in tensors.items():
        for old, new in RENAMED.get(kind, ()):
            name = name.replace(old, new)
        before, found, rest = name.partition(".experts.")
        if found and rest[0].isdigit():
            expert, matrix = rest.split(".")[:2]
            parts.setdefault(before + ".experts.", {})[int(expert), matrix] = array
        elif found and rest.endswith("_blocks"):
            scales = tensors[name.replace("_blocks", "_scales")]
            out[name[:-len("_blocks")]] = mxfp4_values(array, scales).transpose(0, 2, 1)
        elif not (found and rest.endswith("_scales")):
            out[name] = array
    for first in [name for name in out if name.endswith(".q_conv1d.weight")]:
        convolutions = [out.pop(first.replace(".q_conv1d.", f".{part}_conv1d.")) for part in "qkv"]
        out[first.replace(".q_conv1d.", ".conv1d.")] = np.concatenate(convolutions)
    for gate in [name for name in out if name.endswith(".moe.gate_proj.weight")]:
        both = [out.pop(gate), out.pop(gate.replace("gate_proj", "up_proj"))]
        out[gate.replace(".moe.gate_proj.weight", ".mlp.experts.gate_up_proj")] = np.concatenate(both, axis=1)
    for prefix, experts in parts.items():
        n = 1 + max(expert for expert, _ in experts)
        if (0, "gate_proj") not in experts and (0, "up_proj") in experts:
            out.update({prefix + name: np.stack([experts[e, name] for e in range(n)]) for name in PROJECTIONS[1:]})
            continue
        gate, up, down = PROJECTIONS if (0, "gate_proj") in experts else ("w1", "w3", "w2")
        out[prefix + "gate_up_proj"] = np.stack([
            np.concatenate([experts[e, gate], experts[e, up]]) for e in range(n)])
        out[prefix + "down_proj"] = np.stack([experts[e, down] for e in range(n)])
    return out


def mxfp4_values(blocks, scales):
    """[..., n_out][n_in / 32][16], [..., n_out][n_in / 32] as numbers -> fp32 [..., n_out][n_in]"""
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    blocks = np.asarray(blocks).astype(np.uint8)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    values = numbers[codes] * np.exp2(np.asarray(scales, np.float32) - 127)[..., None]
    return values.reshape(*values.shape[:-2], -1)


# --- configs


def moe(config, **family):
    """A family's members, which `config` replaces."""
    return {"num_experts": 8, "num_experts_per_tok": 3, "hidden_size": 32, "intermediate_size": 64,
            "moe_intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
            **family, **config}


def qwen3_moe(**config):
    return qwen3(**moe(config, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", decoder_sparse_step=1,
                       norm_topk_prob=True, mlp_only_layers=[], pad_token_id=96))


def qwen2_moe(**config):
    return qwen2(**moe(config, architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", decoder_sparse_step=1,
                       norm_topk_prob=False, shared_expert_intermediate_size=64, use_sliding_window=False,
                       pad_token_id=96))


def qwen3_5_moe(**config):
    return qwen3_5(**{"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "num_experts": 8,
                      "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
                      "num_hidden_layers": 2, "full_attention_interval": 2, "pad_token_id": 96, **config})


def qwen3_next(**config):
    return qwen3_5_moe(**{"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
                          "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                          "intermediate_size": 64, **config})


def mixtral(**config):
    config = llama(**moe(config, architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=4,
                         num_experts_per_tok=2, intermediate_size=32, sliding_window=None))
    return {key: value for key, value in config.items() if key not in ("num_experts", "moe_intermediate_size")}


GPT_OSS_YARN = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 16}


def gpt_oss(**config):
    """Hidden and inner sizes are no multiples of 64, as in the published ones."""
    config = llama(**moe(config, architectures=["GptOssForCausalLM"], model_type="gpt_oss", num_local_experts=6,
                         num_experts_per_tok=3, hidden_size=96, intermediate_size=32, num_attention_heads=4,
                         attention_bias=True, sliding_window=16, rope_scaling=GPT_OSS_YARN, rope_theta=1000.0,
                         layer_types=["sliding_attention", "full_attention"], pad_token_id=96, swiglu_limit=7.0,
                         torch_dtype="bfloat16", tie_word_embeddings=False))
    return {key: value for key, value in config.items() if key not in ("num_experts", "moe_intermediate_size")}


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": [
    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}


def gemma4_moe(**config):
    return gemma4(**{"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32,
                     "intermediate_size": 32, "num_hidden_layers": 3,
                     "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], **config})


def glm4_moe(**config):
    config = llama(**moe(config, architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", n_routed_experts=8,
                         n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True,
                         routed_scaling_factor=2.5, attention_bias=True, partial_rotary_factor=0.5, use_qk_norm=False,
                         pad_token_id=96, tie_word_embeddings=False, rope_theta=1000.0))
    return {key: value for key, value in config.items() if key != "num_experts"}


def granite_moe(**config):
    config = granite(**moe(config, architectures=["GraniteMoeForCausalLM"], model_type="granitemoe",
                           num_local_experts=8, intermediate_size=32, pad_token_id=96, torch_dtype="bfloat16"))
    return {key: value for key, value in config.items() if key not in ("num_experts", "moe_intermediate_size")}


def olmoe(**config):
    config = llama(**moe(config, architectures=["OlmoeForCausalLM"], model_type="olmoe", intermediate_size=32,
                         norm_topk_prob=False, clip_qkv=None, pad_token_id=96))
    return {key: value for key, value in config.items() if key != "moe_intermediate_size"}


def aria(**config):
    config = llama(**moe(config, architectures=["AriaTextForCausalLM"], model_type="aria_text", hidden_size=16,
                         intermediate_size=8, head_dim=8, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=3,
                         rope_theta=1000.0, torch_dtype="bfloat16"))
    return {key: value for key, value in config.items() if key not in (
        "num_experts", "num_experts_per_tok", "moe_intermediate_size")}


def ernie_moe(**config):
    config = llama(**moe(config, architectures=["Ernie4_5_MoeForCausalLM"], model_type="ernie4_5_moe",
                         moe_num_experts=8, moe_k=3,
                         moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
                         moe_layer_interval=1, use_bias=False, pad_token_id=0))
    return {key: value for key, value in config.items() if key not in ("num_experts", "num_experts_per_tok")}


def lfm2_moe(**config):
    return lfm(**moe(config, architectures=["Lfm2MoeForCausalLM"], model_type="lfm2_moe", conv_L_cache=3,
                     conv_bias=False,
                     num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.5,
                     num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"]))


def minimax_m2(**config):
    config = llama(**moe(config, architectures=["MiniMaxM2ForCausalLM"], model_type="minimax_m2", num_local_experts=6,
                         intermediate_size=32, rotary_dim=8, rope_theta=1000.0, tie_word_embeddings=False))
    return {key: value for key, value in config.items() if key not in ("num_experts", "moe_intermediate_size")}


FULL_FIRST = ["full_attention", "sliding_attention", "full_attention"]


def cohere2_moe(**config):
    """A layer without experts and a window; one with experts, a window and a rope; one with experts alone."""
    config = llama(**{"architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "hidden_size": 16,
                      "intermediate_size": 8, "prefix_dense_intermediate_size": 24, "num_attention_heads": 2,
                      "num_key_value_heads": 1, "head_dim": 8, "num_hidden_layers": 3, "first_k_dense_replace": 1,
                      "prefix_dense_sliding_window_pattern": 1, "sliding_window_pattern": 2, "sliding_window": 8,
                      "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 2,
                      "expert_selection_fn": "sigmoid", "norm_topk_prob": True, "attention_bias": False,
                      "shared_expert_combination_strategy": "average", "layer_norm_eps": 1e-05, "logit_scale": 0.75,
                      "rope_theta": 1000.0, "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    del config["rms_norm_eps"]
    return config


PHIMOE_ROPE = {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 4.0], "long_factor": [2.0, 3.0, 5.0, 9.0],
               "short_mscale": 1.25, "long_mscale": 0.75, "original_max_position_embeddings": 64}


def phimoe(**config):
    """The bound of the router is so wide that most tokens have some experts within it and some outside."""
    return llama(**{"architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "hidden_size": 16,
                    "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4,
                    "num_experts_per_tok": 2, "router_jitter_noise": 0.25, "input_jitter_noise": 0.01,
                    "attention_bias": True, "lm_head_bias": True, "tie_word_embeddings": False,
                    "sliding_window": 8, "rope_scaling": PHIMOE_ROPE, "rope_theta": 1000.0,
                    "pad_token_id": 96, "torch_dtype": "bfloat16", **config})


MELLUM_ROPES = {"full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 32.0,
                                   "beta_slow": 1.0, "original_max_position_embeddings": 16},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}


def mellum(**config):
    config = llama(**moe(config, architectures=["MellumForCausalLM"], model_type="mellum", norm_topk_prob=True,
                         attention_bias=False, sliding_window=16, rope_parameters=MELLUM_ROPES,
                         layer_types=["sliding_attention", "full_attention"], pad_token_id=96))
    return {key: value for key, value in config.items() if key != "rope_theta"}


def dots1(**config):
    config = llama(**moe(config, architectures=["Dots1ForCausalLM"], model_type="dots1", n_routed_experts=8,
                         n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
                         routed_scaling_factor=2.5, attention_bias=False, pad_token_id=96, rope_theta=1000.0))
    return {key: value for key, value in config.items() if key != "num_experts"}


def hunyuan_moe(**config):
    config = llama(**moe(config, architectures=["HunYuanMoEV1ForCausalLM"], model_type="hunyuan_v1_moe",
                         moe_topk=[3, 3], num_experts=6, intermediate_size=32, attention_bias=False, pad_token_id=96,
                         rope_scaling=ALPHA))
    return {key: value for key, value in config.items() if key not in ("num_experts_per_tok", "moe_intermediate_size")}


def exaone_moe(**config):
    return llama(**moe(config, architectures=["ExaoneMoeForCausalLM"], model_type="exaone_moe", num_shared_experts=1,
                       norm_topk_prob=True, routed_scaling_factor=1.5, n_group=1, topk_group=1, sliding_window=16,
                       sliding_window_pattern="LG", num_hidden_layers=3, pad_token_id=0,
                       layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                       mlp_layer_types=["dense", "sparse", "sparse"]))


def solar_open(**config):
    config = llama(**moe(config, architectures=["SolarOpenForCausalLM"], model_type="solar_open", n_routed_experts=6,
                         n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                         attention_bias=False, pad_token_id=96, tie_word_embeddings=False, rope_theta=1000.0))
    return {key: value for key, value in config.items() if key not in ("num_experts", "intermediate_size")}


def hy_v3(**config):
    return llama(**moe(config, architectures=["HYV3ForCausalLM"], model_type="hy_v3", num_shared_experts=1,
                       router_scaling_factor=1.5, attention_bias=False, mlp_bias=False, pad_token_id=96,
                       mlp_layer_types=["dense", "sparse"], rope_theta=1000.0))


def granite_moe_shared(**config):
    return granite_moe(**{"architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared",
                          "shared_intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2,
                          "intermediate_size": 16, **config})


def granite_moe_swa(**config):
    return granite_moe(**{"architectures": ["GraniteMoeSWAForCausalLM"], "model_type": "granitemoe_swa",
                          "shared_intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2,
                          "intermediate_size": 16, "sliding_window": 16, **config})


def afmoe(**config):
    return llama(**moe(config, architectures=["AfmoeForCausalLM"], model_type="afmoe", num_dense_layers=1,
                       num_shared_experts=1, route_scale=1.5, attention_bias=False, sliding_window=16,
                       global_attn_every_n_layers=3, mup_enabled=True, num_hidden_layers=3, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=8, pad_token_id=96, tie_word_embeddings=False))


def flex_olmo(**config):
    config = llama(**moe(config, architectures=["FlexOlmoForCausalLM"], model_type="flex_olmo", num_experts=7,
                         num_experts_per_tok=4, intermediate_size=32, norm_topk_prob=False, pad_token_id=96,
                         attention_bias=False, rope_theta=1000.0))
    return {key: value for key, value in config.items() if key not in ("moe_intermediate_size", "head_dim")}


def kolibri(**config):
    config = llama(**moe(config, architectures=["Kolibri1ForCausalLM"], model_type="kolibri1", norm_topk_prob=False,
                         shared_expert_intermediate_size=32, sliding_window=16, num_hidden_layers=2,
                         layer_types=["sliding_attention", "full_attention"]))
    return {key: value for key, value in config.items() if key != "intermediate_size"}


def flint(**config):
    return llama(**moe(config, architectures=["FlintForCausalLM"], model_type="flint", decoder_sparse_step=1,
                       norm_topk_prob=True, mlp_only_layers=[0], shared_expert_intermediate_size=48,
                       sliding_window=16, attention_bias=False, num_hidden_layers=3,
                       layer_types=["full_attention", "sliding_attention", "full_attention"]))


LAGUNA_ROPES = {"full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 32.0,
                                   "beta_slow": 1.0, "original_max_position_embeddings": 16,
                                   "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}


def laguna(**config):
    """Layers with a window have more heads than the others, as in the published ones."""
    config = llama(**moe(config, architectures=["LagunaForCausalLM"], model_type="laguna", gating=True,
                         moe_routed_scaling_factor=2.5, shared_expert_intermediate_size=32, sliding_window=16,
                         attention_bias=False, num_attention_heads=2, num_key_value_heads=2,
                         num_attention_heads_per_layer=[2, 4, 6],
                         num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "sparse"],
                         layer_types=["full_attention", "sliding_attention", "full_attention"],
                         rope_parameters=LAGUNA_ROPES, tie_word_embeddings=False))
    return {key: value for key, value in config.items() if key != "rope_theta"}


MIMO_ROPES = {"full_attention": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.334},
              "sliding_attention": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.334}}


def mimo(**config):
    """A layer with all positions, and one with a window, sinks and twice as many KV heads; values of 8 numbers."""
    config = llama(**{"architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_size": 16,
                      "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 2,
                      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12, "v_head_dim": 8,
                      "sliding_window_size": 6, "layer_types": ["full_attention", "sliding_attention"],
                      "rope_parameters": MIMO_ROPES, "attention_value_scale": 0.5, "n_routed_experts": 4,
                      "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
                      "routed_scaling_factor": 1.5, "mlp_layer_types": ["dense", "sparse"], "attention_bias": False,
                      "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    return {key: value for key, value in config.items() if key != "rope_theta"}


LLAMA4_ROPE = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
               "original_max_position_embeddings": 32}


def sarvam_moe(**config):
    """As published, with names of its own for numbers of experts."""
    return llama(**moe(config, architectures=["SarvamMoEForCausalLM"], model_type="sarvam_moe", hidden_size=16,
                       intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, head_dim=8, num_experts=4,
                       num_experts_per_tok=2, num_shared_experts=1, moe_intermediate_size=8, first_k_dense_replace=1,
                       n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=True,
                       use_qkv_bias=False, rope_theta=1000.0, torch_dtype="bfloat16"))


def lara_mini(**config):
    """A layer of each kind."""
    return llama(**moe(config, architectures=["LaraMiniForCausalLM"], model_type="lara_mini", num_hidden_layers=3,
                       layer_types=["linear_attention", "sliding_attention", "full_attention"], sliding_window=8,
                       hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, num_experts=4,
                       num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12,
                       norm_topk_prob=True, attention_bias=False, linear_num_key_heads=1, linear_num_value_heads=2,
                       linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4, rope_theta=1000.0,
                       torch_dtype="bfloat16"))


def llama4(**config):
    """Two layers with chunks of 16 positions around one without a rope, whose queries grow; experts in the second.
    The two factors of frequencies are equal, as in the published ones."""
    return llama(**{"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_size": 16,
                    "intermediate_size": 8, "intermediate_size_mlp": 16, "num_hidden_layers": 3,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "rope_theta": 1000.0,
                    "rope_scaling": LLAMA4_ROPE, "attention_chunk_size": 16, "no_rope_layers": [1, 0, 1],
                    "interleave_moe_layer_step": 2, "num_local_experts": 4, "num_experts_per_tok": 1,
                    "use_qk_norm": True, "attn_scale": 1.0, "floor_scale": 5, "attn_temperature_tuning": True,
                    "attention_bias": False, "pad_token_id": 96, "torch_dtype": "bfloat16", **config})


QWEN3_5_MOE_ROPE = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.25,
                    "mrope_interleaved": True, "mrope_section": [2, 1, 1]}
QWEN3_5_MOE_VISION = {"model_type": "qwen3_5_moe", "depth": 1, "hidden_size": 16, "intermediate_size": 16,
                      "num_heads": 2, "out_hidden_size": 32, "num_position_embeddings": 4, "patch_size": 14}
DELTA_AWQ = awq(32, modules_to_not_convert=["mlp.gate.", "shared_expert_gate", "in_proj", "linear_attn.out_proj"])

EXPERT_MINIATURES = {
    "qwen3-moe-awq": dict(config=qwen3_moe(quantization_config=AWQ32), matters=[
        {"norm_topk_prob": False}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}]),
    "qwen3-moe-uneven": dict(config=qwen3_moe(
        num_experts=6, mlp_only_layers=[0], norm_topk_prob=False, torch_dtype="bfloat16", attention_bias=True),
        bias="qkvo", experts="all", matters=[{"norm_topk_prob": True}]),
    "qwen2-moe-awq": dict(config=qwen2_moe(quantization_config=awq(32, modules_to_not_convert=["shared_expert_gate"])),
                          bias="qkv", matters=[{"norm_topk_prob": True}, {"num_experts_per_tok": 4}]),
    "qwen3_5-moe": dict(config=qwen3_5_moe(num_experts=6, moe_intermediate_size=24), experts="all",
                        matters=[{"num_experts_per_tok": 2}]),
    "qwen3_5-moe-text-part": dict(config=with_vision(
        "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", {key: value for key, value in qwen3_5_moe(
            rope_parameters=QWEN3_5_MOE_ROPE, torch_dtype="float16", quantization_config=DELTA_AWQ).items()
            if key != "rope_theta"}, QWEN3_5_MOE_VISION, image_token_id=100, tie_word_embeddings=False),
        names=("model.language_model.", "lm_head"), matters=[]),
    "qwen3-next-awq": dict(config=qwen3_next(
        torch_dtype="float16", num_hidden_layers=3, full_attention_interval=3, mlp_only_layers=[1],
        quantization_config=DELTA_AWQ), matters=[{"norm_topk_prob": False}, {"num_experts_per_tok": 2}]),
    "mixtral-awq": dict(
        tokens=32, config=mixtral(quantization_config=awq(32, modules_to_not_convert=["gate"])), matters=[
        {"num_experts_per_tok": 3}, {"sliding_window": 16}]),
    "gpt-oss-mxfp4": dict(config=gpt_oss(quantization_config=MXFP4), bias="qkvo", experts="mxfp4", matters=[
        {"num_experts_per_tok": 2}, {"sliding_window": 15}, {"rope_scaling": {**GPT_OSS_YARN, "truncate": True}},
        {"layer_types": ["full_attention"] * 2}, {"swiglu_limit": 3.0}]),
    "gpt-oss-bf16": dict(config=gpt_oss(hidden_size=48, intermediate_size=40, num_local_experts=4), bias="qkvo",
                         experts="inputs-first", matters=[{"num_experts_per_tok": 2}]),
    "gemma4-moe": dict(config=gemma4_moe(
        torch_dtype="bfloat16", num_experts=6, moe_intermediate_size=24, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"]), experts="all", matters=[
        {"top_k_experts": 2}, {"sliding_window": 15}]),
    "gemma4-moe-text-part": dict(config=with_vision(
        "Gemma4ForConditionalGeneration", "gemma4", gemma4_moe(quantization_config=awq(
            32, modules_to_not_convert=["router"])), None, audio_config=None),
        names=("model.language_model.", "lm_head"), matters=[]),
    "glm4-moe-awq": dict(tokens=32, bias="qkv",
                         config=glm4_moe(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])),
                         matters=[{"routed_scaling_factor": 1.0}, {"topk_group": 4}, {"norm_topk_prob": False},
                                  {"partial_rotary_factor": 1.0}, {"num_experts_per_tok": 2}]),
    "glm4-moe-qk": dict(tokens=32, config=glm4_moe(use_qk_norm=True, n_shared_experts=2, n_group=1, topk_group=1,
                                        attention_bias=False, torch_dtype="bfloat16"), matters=[
                                            {"num_experts_per_tok": 2}]),
    "granite-moe-bf16": dict(tokens=32, config=granite_moe(num_local_experts=6), experts="all", matters=[
        {"num_experts_per_tok": 2}, {"residual_multiplier": 0.5}]),
    "olmoe-awq": dict(
        tokens=32, config=olmoe(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])), matters=[
        {"norm_topk_prob": True}, {"num_experts_per_tok": 2}]),
    "ernie-moe-awq": dict(tokens=32,
                          config=ernie_moe(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])),
                          matters=[{"moe_k": 2}, {"rope_theta": 100.0}]),
    "lfm2-moe-bf16": dict(tokens=32, config=lfm2_moe(num_experts=6, moe_intermediate_size=24), matters=[
        {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"num_experts_per_tok": 2}]),
    "minimax-m2-awq": dict(tokens=32, config=minimax_m2(quantization_config=awq(
        32, modules_to_not_convert=["block_sparse_moe.gate."])), matters=[
            {"rotary_dim": 16}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}]),
    "mellum-awq": dict(config=mellum(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."]), num_experts=6),
                       matters=[
        {"norm_topk_prob": False}, {"num_experts_per_tok": 2}, {"sliding_window": 17},
        {"layer_types": ["full_attention"] * 2},
        {"rope_parameters": {**MELLUM_ROPES, "sliding_attention": MELLUM_ROPES["full_attention"]}},
        {"rope_parameters": {**MELLUM_ROPES, "full_attention": MELLUM_ROPES["sliding_attention"]}}]),
    "dots1-awq": dict(config=dots1(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])), matters=[
        {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"num_experts_per_tok": 2},
        {"max_window_layers": 1, "sliding_window": 16}]),
    "hunyuan-a13b-awq": dict(tokens=32,
                             config=hunyuan_moe(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])),
                            matters=[{"moe_topk": [2, 2]}, {"rope_scaling": None}]),
    "exaone-moe-awq": dict(tokens=32, config=exaone_moe(num_experts=6, quantization_config=awq(
        32, modules_to_not_convert=["mlp.gate."])), matters=[
            {"routed_scaling_factor": 2.5}, {"norm_topk_prob": False}, {"num_experts_per_tok": 2},
            {"sliding_window": 17}, {"layer_types": ["sliding_attention"] * 3}]),
    "solar-open-awq": dict(config=solar_open(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])),
                           matters=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": False},
                                    {"num_experts_per_tok": 2}, {"rope_theta": 100.0}]),
    "hy-v3-awq": dict(config=hy_v3(quantization_config=awq(32, modules_to_not_convert=["router.gate"])), matters=[
        {"router_scaling_factor": 2.826}, {"num_experts_per_tok": 2}, {"rope_theta": 100.0}]),
    "granite-moe-shared-bf16": dict(tokens=32, config=granite_moe_shared(), experts="all", matters=[
        {"num_experts_per_tok": 1}, {"residual_multiplier": 0.5}]),
    "granite-moe-swa-bf16": dict(config=granite_moe_swa(layer_rope_theta=[100.0, 0.0]), experts="all", matters=[
        {"num_experts_per_tok": 1}, {"sliding_window": 17}, {"layer_rope_theta": None}]),
    "afmoe-awq": dict(config=afmoe(num_experts=4, num_experts_per_tok=2, quantization_config=awq(
        32, modules_to_not_convert=["router.gate"])), matters=[
            {"route_scale": 1.0}, {"num_experts_per_tok": 1}, {"sliding_window": 17}, {"mup_enabled": False},
            {"global_attn_every_n_layers": 2}]),
    "flex-olmo-awq": dict(
        tokens=32, config=flex_olmo(quantization_config=awq(32, modules_to_not_convert=["mlp.gate."])),
        matters=[{"num_experts_per_tok": 2}, {"rope_theta": 100.0}]),
    "kolibri1-awq": dict(config=kolibri(num_experts=6, quantization_config=awq(
        32, modules_to_not_convert=["mlp.gate."])), matters=[
            {"norm_topk_prob": True}, {"num_experts_per_tok": 2}, {"sliding_window": 17},
            {"layer_types": ["sliding_attention"] * 2}]),
    "flint-awq": dict(config=flint(num_experts=4, num_experts_per_tok=2, quantization_config=awq(
        16, modules_to_not_convert=["mlp.gate."])), matters=[
            {"norm_topk_prob": False}, {"num_experts_per_tok": 3}, {"sliding_window": 17},
            {"layer_types": ["full_attention"] * 3}]),
    "mimo-bf16": dict(config=mimo(), tokens=32, matters=[
        {"sliding_window_size": 7}, {"attention_value_scale": None}, {"routed_scaling_factor": 1.0},
        {"num_experts_per_tok": 3}, {"norm_topk_prob": False},
        {"rope_parameters": {**MIMO_ROPES, "full_attention": MIMO_ROPES["sliding_attention"]}},
        {"rope_parameters": {**MIMO_ROPES, "sliding_attention": MIMO_ROPES["full_attention"]}}]),
    "sarvam-moe-bf16": dict(config=sarvam_moe(), tokens=24, matters=[
        {"num_experts_per_tok": 1}, {"routed_scaling_factor": 1.0}, {"topk_group": 2}, {"norm_topk_prob": False},
        {"rope_theta": 100.0}, {"partial_rotary_factor": 0.5}]),
    "lara-mini-bf16": dict(config=lara_mini(), experts="all", tokens=24, matters=[
        {"sliding_window": 7}, {"num_experts_per_tok": 1}, {"norm_topk_prob": False}, {"rope_theta": 100.0},
        {"layer_types": ["linear_attention", "full_attention", "sliding_attention"]}]),
    "llama4-bf16": dict(config=llama4(), experts="inputs-first", tokens=48, matters=[
        {"attention_chunk_size": 17}, {"attention_chunk_size": 8}, {"layer_types": ["full_attention"] * 3},
        {"no_rope_layers": [1, 1, 1]},
        {"use_qk_norm": False}, {"rope_scaling": None}, {"attn_scale": 0.5}, {"floor_scale": 6},
        {"attn_temperature_tuning": False}, {"num_experts_per_tok": 2}]),
    "cohere2-moe-bf16": dict(config=cohere2_moe(), experts="all", tokens=16, matters=[
        {"sliding_window": 7}, {"sliding_window": 9}, {"sliding_window_pattern": 3}, {"rope_theta": 100.0},
        {"prefix_dense_sliding_window_pattern": 2},
        {"prefix_dense_sliding_window_pattern": 2, "layer_types": FULL_FIRST},
        {"layer_norm_eps": 0.1}, {"logit_scale": 0.5}, {"expert_selection_fn": "softmax"}, {"norm_topk_prob": False},
        {"num_experts_per_tok": 3}, {"shared_expert_combination_strategy": "sum"}, {"rms_norm_eps": 1e-5}]),
    # With this salt no output of a router is near its bound.
    "phimoe-bf16": dict(config=phimoe(), bias="qkvo", tokens=16, salt=75, matters=[
        {"router_jitter_noise": 0.2}, {"router_jitter_noise": 0.0}, {"sliding_window": 9}, {"rms_norm_eps": 0.1},
        {"rope_scaling": {**PHIMOE_ROPE, "short_mscale": 1.0}}, {"rope_theta": 100.0},
        {"rope_scaling": {**PHIMOE_ROPE, "short_factor": PHIMOE_ROPE["long_factor"]}}]),
    "aria-bf16": dict(config=aria(), tokens=24, experts="inputs-first", matters=[
        {"moe_topk": 1}, {"rope_theta": 100.0}, {"rms_norm_eps": 0.1}]),
    "laguna-awq": dict(config=laguna(num_experts=6, quantization_config=awq(
        32, modules_to_not_convert=["mlp.gate.", "g_proj"])), matters=[
            {"moe_routed_scaling_factor": 1.0}, {"num_experts_per_tok": 2}, {"sliding_window": 17},
            {"layer_types": ["full_attention"] * 3},
            {"rope_parameters": {**LAGUNA_ROPES, "full_attention": LAGUNA_ROPES["sliding_attention"]}},
            {"rope_parameters": {**LAGUNA_ROPES, "full_attention": {
                **LAGUNA_ROPES["full_attention"], "partial_rotary_factor": 1.0}}},
            {"rope_parameters": {**LAGUNA_ROPES, "sliding_attention": {
                **LAGUNA_ROPES["sliding_attention"], "partial_rotary_factor": 0.5}}}]),
    # Ropes are the default ones. All layers have the model's own number of heads and no window.
    "laguna-elements-bf16": dict(config={key: value for key, value in laguna(
        gating="per-element", num_experts=4, num_experts_per_tok=2, num_hidden_layers=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, intermediate_size=32, torch_dtype="bfloat16").items() if key not in (
            "rope_parameters", "layer_types", "num_attention_heads_per_layer", "mlp_layer_types")}, matters=[
                {"moe_routed_scaling_factor": 1.0}, {"num_experts_per_tok": 1}]),
}
