"""miniature_shapes.py - names and shapes of the linears and norms of a layer, by its config.json. Used by:
make_miniatures.py."""

import numpy as np

from miniature_streams import stream_norms, streams_width


DELTA_KINDS = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text", "olmo_hybrid",
               "kimi_linear", "bailing_hybrid", "lara_mini")
# Kinds with experts whose MLP beside them has a name of its own.
SHARED = {"qwen2_moe": "mlp.shared_expert", "qwen3_5_moe_text": "mlp.shared_expert", "qwen3_next": "mlp.shared_expert",
          "glm4_moe": "mlp.shared_experts", "ernie4_5_moe": "mlp.shared_experts",
          "ernie4_5_vl_moe_text": "mlp.shared_experts", "dots1": "mlp.shared_experts",
          "exaone_moe": "mlp.shared_experts", "solar_open": "mlp.shared_experts", "afmoe": "mlp.shared_experts",
          "kolibri1": "mlp.shared_experts", "flint": "mlp.shared_expert", "laguna": "mlp.shared_expert",
          "hunyuan_v1_moe": "mlp.shared_mlp", "deepseek_v2": "mlp.shared_experts", "deepseek_v3": "mlp.shared_experts",
          "glm4_moe_lite": "mlp.shared_experts", "mistral4": "mlp.shared_experts", "hy_v3": "mlp.shared_mlp",
          "glm4v_moe_text": "mlp.shared_experts", "llama4_text": "feed_forward.shared_expert",
          "qwen4_exp_text": "mlp.shared_expert", "cohere2_moe": "mlp.shared_experts", "axk1": "mlp.shared_experts",
          "sarvam_moe": "mlp.shared_experts", "sarvam_mla": "mlp.shared_experts", "lara_mini": "mlp.shared_expert",
          "kimi_linear": "block_sparse_moe.shared_experts", "bailing_hybrid": "mlp.shared_experts",
          "step3p5": "share_expert", "aria_text": "mlp.shared_experts"}
EXPERT_KINDS = ("qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "qwen3_next", "mixtral", "gpt_oss", "glm4_moe",
                "granitemoe", "olmoe", "ernie4_5_moe", "lfm2_moe", "minimax_m2", "mellum", "dots1", "hunyuan_v1_moe",
                "exaone_moe", "solar_open", "hy_v3", "granitemoeshared", "granitemoe_swa", "afmoe", "flex_olmo",
                "kolibri1", "flint", "laguna", "glm4v_moe_text", "deepseek_v2", "deepseek_v3", "glm4_moe_lite",
                "mistral4", "llama4_text", "mimo_v2_flash", "qwen3_vl_moe_text", "qwen3_omni_moe_text",
                "qwen4_exp_text", "phimoe", "cohere2_moe", "axk1", "kimi_linear", "bailing_hybrid",
                "sarvam_moe", "sarvam_mla", "lara_mini", "ernie4_5_vl_moe_text", "step3p5", "aria_text")
# Kinds whose norms subtract the mean and have a bias.
BIASED_NORMS = ("phimoe", "starcoder2", "stablelm", "phi", "jais2", "gpt_neox", "falcon", "nemotron",
                "gpt2", "gpt_bigcode")
# Kinds whose norms have no weights.
PLAIN_NORMS = ("olmo", "nanochat", "dory")
# Kinds whose MLP has no gate.
UNGATED = ("arcee", "apertus", "apertus1p5_text", "starcoder2", "phi", "jais2", "nanochat",
           "gpt_neox", "falcon", "nemotron", "gpt2", "gpt_bigcode")
# Members of the config that GPT-2 calls otherwise.
GPT2_MEMBERS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                "max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}
# Kinds with a norm over each head of q and k, and with one over all heads together.
HEAD_NORMS = ("gemma3_text", "exaone4", "mellum", "dots1", "exaone_moe", "hy_v3", "afmoe", "kolibri1", "flint",
              "laguna", "apertus", "apertus1p5_text", "sarvam_moe", "lara_mini", "molmo2_text",
              "step3p5")
WHOLE_NORMS = ("olmo2", "olmo3", "olmoe", "minimax_m2", "flex_olmo")


PATTERN = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe", "mamba": "linear_attention",
           "attention": "full_attention"}


def block_of(config, layer):
    """The block that a layer of Nemotron-H or Dory has; None in other models."""
    if config["model_type"] == "dory":
        return config["layer_types"][layer].replace("sliding", "full")
    if config["model_type"] != "nemotron_h":
        return None
    name = (config.get("layers_block_type") or config["hybrid_override_pattern"])[layer]
    return PATTERN.get(name, name)


def has_experts(config, layer):
    """True if a layer has experts."""
    if block_of(config, layer):
        return block_of(config, layer) == "moe"
    if config["model_type"] == "granitemoehybrid":
        return config["num_local_experts"] > 0
    if config["model_type"] not in EXPERT_KINDS:
        return bool(config.get("enable_moe_block"))
    if "mlp_layer_types" in config:
        return config["mlp_layer_types"][layer] == "sparse"
    if config["model_type"] == "laguna":
        return layer > 0
    if "moe_layers_enum" in config:
        return str(layer) in config["moe_layers_enum"].split(",")
    if config["model_type"] == "llama4_text":
        return (layer + 1) % config["interleave_moe_layer_step"] == 0
    first = [config[key] for key in ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
             if key in config]
    return layer >= first[0] if first else layer not in config.get("mlp_only_layers", [])


def shared_width(config):
    """The width of the MLP beside experts, which gemma4 has under the usual name; 0: there is none."""
    for key in ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts"):
        if key in config and config["model_type"] != "nemotron_h":
            width = config.get("moe_intermediate_size", config["intermediate_size"])
            return config[key] * (width[0] if isinstance(width, list) else width)
    if config["model_type"] in ("hunyuan_v1_moe", "llama4_text"):
        return config["intermediate_size"]
    return next((config[key] for key in ("shared_expert_intermediate_size", "shared_intermediate_size",
                                         "share_expert_dim") if key in config), 0)


def is_lfm(config):
    return config["model_type"] in ("lfm2", "lfm2_moe", "lfm3")


def is_conv(config, layer):
    """True if a layer has a short convolution."""
    if not is_lfm(config):
        return False
    if config.get("layer_types"):
        return config["layer_types"][layer] == "conv"
    return layer == 0 or layer % 2 == 1 if config["model_type"] == "lfm3" else layer not in config["full_attn_idxs"]


def has_parts(config):
    """True for multimodal models."""
    return "vision_config" in config or "thinker_config" in config


def text_of(config):
    """The config of the text part: the whole where there are no others, or (Qwen2-VL) where it lies among them."""
    if config["model_type"] in ("gpt2", "gpt_bigcode"):
        return {**{usual: config[own] for usual, own in GPT2_MEMBERS.items()}, **config}
    if not has_parts(config):
        return {"num_hidden_layers": config.get("num_layers"), **config}
    if "llm_config" in config:
        config = {"text_config": config["llm_config"], **config}
    if "text_config" not in config.get("thinker_config", config):
        return {**config, "model_type": config["model_type"] + "_text"}
    beside = {key: config[key] for key in ("torch_dtype", "quantization_config") if key in config}
    return {**beside, **config.get("thinker_config", config)["text_config"]}


def is_gemma4(config):
    return config["model_type"].startswith("gemma4")


def is_altup(config):
    return config["model_type"] == "gemma3n_text"


def is_full(config, layer):
    """True if a layer of Gemma 4 has no window."""
    types = config.get("layer_types")
    return layer + 1 == config["num_hidden_layers"] or (
        types[layer] == "full_attention" if types else (layer + 1) % 6 == 0)


def shares_kv(config, layer):
    """True if a layer uses the keys and values of one before it."""
    shares = is_gemma4(config) or is_altup(config)
    return shares and layer >= config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)


def head_sizes(config, layer):
    """head_dim and number of KV heads of a layer"""
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", config.get(
        "num_kv_heads", config.get("num_attention_groups", config["num_attention_heads"])))
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        kv_heads = 1
    if "per_layer_config" in config:
        own = config["per_layer_config"].get(str(layer), {})
        return own.get("head_dim", head), own.get("num_key_value_heads", kv_heads)
    if config["model_type"] == "mimo_v2_flash" and has_sinks(config, layer):
        kv_heads *= 2
    if is_gemma4(config) and is_full(config, layer):
        head = config["global_head_dim"]
        kv_heads = config["num_global_key_value_heads"] if config["attention_k_eq_v"] else kv_heads
    return head, kv_heads


def is_delta(config, layer):
    """True if a layer has the gated delta rule."""
    if config["model_type"] not in DELTA_KINDS:
        return False
    if "layer_types" in config:
        return config["layer_types"][layer] == "linear_attention"
    if "linear_attn_config" in config:
        return layer + 1 in config["linear_attn_config"]["kda_layers"]
    return (layer + 1) % config.get("layer_group_size", config.get("full_attention_interval", 4)) != 0


def delta_block(config):
    """The module that holds the delta rule's tensors, and a dot."""
    return {"kimi_linear": "self_attn.", "bailing_hybrid": "attention."}.get(config["model_type"], "linear_attn.")


def delta_sizes(config):
    """numbers of all keys, of all values, heads of values"""
    if own := config.get("linear_attn_config"):
        return own["num_heads"] * own["head_dim"], own["num_heads"] * own["head_dim"], own["num_heads"]
    if config["model_type"] == "bailing_hybrid":
        heads = config["num_attention_heads"]
        return heads * config["head_dim"], heads * config["head_dim"], heads
    n_values = config["linear_num_value_heads"]
    return (config["linear_num_key_heads"] * config["linear_key_head_dim"], n_values * config["linear_value_head_dim"],
            n_values)


def is_mamba(config, layer):
    """True if a layer has Mamba-2."""
    if block_of(config, layer):
        return block_of(config, layer) == "linear_attention"
    if config["model_type"] == "bamba":
        return layer not in config["attn_layer_indices"]
    if config["model_type"] == "falcon_h1":  # beside attention
        return True
    return config["model_type"] == "granitemoehybrid" and config["layer_types"][layer] == "mamba"


def mamba_sizes(config):
    """heads, numbers of all heads, channels of the convolution"""
    if config["model_type"] == "nemotron_h":
        heads, values = config["mamba_num_heads"], config["mamba_num_heads"] * config["mamba_head_dim"]
        return heads, values, values + 2 * config["n_groups"] * config["ssm_state_size"]
    values = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
    return config["mamba_n_heads"], values, values + 2 * config["mamba_n_groups"] * config["mamba_d_state"]


def nemotron_shapes(config, layer):
    """The linears of a layer of Nemotron-H, which is attention, Mamba-2, an MLP, or experts and an MLP; or of Dory."""
    hidden, block = config["hidden_size"], block_of(config, layer)
    q, kv = (config[heads] * config["head_dim"] for heads in ("num_attention_heads", "num_key_value_heads"))
    if block == "linear_attention":
        heads, values, channels = mamba_sizes(config)
        return {"mixer.in_proj": ("m", values + channels + heads, hidden), "mixer.out_proj": ("m", hidden, values)}
    if block == "full_attention":
        gates = {"mixer.g_proj": ("", q, hidden)} if config["model_type"] == "dory" else {}
        return {"mixer.q_proj": ("q", q, hidden), "mixer.k_proj": ("k", kv, hidden),
                "mixer.v_proj": ("v", kv, hidden), "mixer.o_proj": ("o", hidden, q), **gates}
    if config["model_type"] == "dory":
        inner = config["intermediate_size"]
        return {"mixer.gate_proj": ("g", inner, hidden), "mixer.up_proj": ("u", inner, hidden),
                "mixer.down_proj": ("d", hidden, inner)}
    moe, latent = block == "moe", config.get("moe_latent_size") if block == "moe" else None
    inner = config["moe_shared_expert_intermediate_size" if moe else "intermediate_size"]
    name = "mixer.shared_experts" if moe else "mixer"
    shapes = {name + ".up_proj": ("u", inner, hidden), name + ".down_proj": ("d", hidden, inner)}
    if latent:
        shapes.update({"mixer.fc1_latent_proj": ("l", latent, hidden), "mixer.fc2_latent_proj": ("l", hidden, latent)})
    return shapes


def mlp_shapes(config, layer):
    """The same for the part of a layer that follows attention."""
    kind, hidden, inner = config["model_type"], config["hidden_size"], config.get("intermediate_size")
    if kind in ("falcon", "gpt_bigcode"):
        inner = inner or config.get("ffn_hidden_size", 4 * hidden)
    if has_experts(config, layer) and not is_gemma4(config):
        inner, name = shared_width(config), SHARED.get(kind)
        if not inner:
            return {}
        if kind in ("granitemoeshared", "granitemoe_swa", "granitemoehybrid"):
            return {"shared_mlp.input_linear": ("g", 2 * inner, hidden),
                    "shared_mlp.output_linear": ("d", hidden, inner)}
        return {name + ".gate_proj": ("g", inner, hidden), name + ".up_proj": ("u", inner, hidden),
                name + ".down_proj": ("d", hidden, inner)}
    if kind == "granitemoehybrid":
        return {"shared_mlp.input_linear": ("g", 2 * inner, hidden),
                "shared_mlp.output_linear": ("d", hidden, inner)}
    if kind in ("phi3", "glm", "glm4", "glm4v_text", "glm_ocr_text"):
        return {"mlp.gate_up_proj": ("g", 2 * inner, hidden), "mlp.down_proj": ("d", hidden, inner)}
    if config.get("block_auto_adjust_ff_dim"):
        inner, multiple = int(2 * config["block_ff_dim"] / 3), config["block_multiple_of"]
        inner = (inner + multiple - 1) // multiple * multiple
    elif "block_ff_dim" in config:
        inner = config["block_ff_dim"]
    if is_lfm(config):
        return {"feed_forward.w1": ("g", inner, hidden), "feed_forward.w3": ("u", inner, hidden),
                "feed_forward.w2": ("d", hidden, inner)}
    if kind in UNGATED:
        return {"mlp.up_proj": ("u", inner, hidden), "mlp.down_proj": ("d", hidden, inner)}
    if isinstance(inner, list):
        inner = inner[layer]
    inner *= 2 if shares_kv(config, layer) and config.get("use_double_wide_mlp") else 1
    if kind == "llama4_text":
        inner = config["intermediate_size_mlp"]
    inner = config.get("prefix_dense_intermediate_size", inner)
    if kind in ("bamba", "falcon_h1", "llama4_text"):
        return {"feed_forward.gate_proj": ("g", inner, hidden), "feed_forward.up_proj": ("u", inner, hidden),
                "feed_forward.down_proj": ("d", hidden, inner)}
    return {"mlp.gate_proj": ("g", inner, hidden), "mlp.up_proj": ("u", inner, hidden),
            "mlp.down_proj": ("d", hidden, inner)}


def linear_shapes(config, layer):
    """name -> (letter, n_out, n_in) of a layer's linears"""
    if block_of(config, layer):
        return nemotron_shapes(config, layer)
    kind, hidden = config["model_type"], config["hidden_size"]
    heads = config.get("num_attention_heads_per_layer", [config["num_attention_heads"]] * (layer + 1))[layer]
    if "attention_other_setting" in config and config["layer_types"][layer] == "sliding_attention":
        heads = config["attention_other_setting"]["num_attention_heads"]
    head, kv_heads = head_sizes(config, layer)
    q, kv = heads * head, kv_heads * head
    if is_delta(config, layer):
        keys, values, n_values = delta_sizes(config)
        shapes = {"in_proj_qkv": (2 * keys + values, hidden), "in_proj_z": (values, hidden),
                  "in_proj_b": (n_values, hidden), "in_proj_a": (n_values, hidden), "out_proj": (hidden, values)}
        if kind == "qwen3_next":
            shapes = {"in_proj_qkvz": (2 * keys + 2 * values, hidden), "in_proj_ba": (2 * n_values, hidden),
                      "out_proj": (hidden, values)}
        if kind == "olmo_hybrid":
            shapes = {"q_proj": (keys, hidden), "k_proj": (keys, hidden), "v_proj": (values, hidden),
                      "g_proj": (values, hidden), "b_proj": (n_values, hidden), "a_proj": (n_values, hidden),
                      "o_proj": (hidden, values)}
        if kind == "kimi_linear":
            rank = config["linear_attn_config"]["head_dim"]
            shapes = {"q_proj": (keys, hidden), "k_proj": (keys, hidden), "v_proj": (values, hidden),
                      "f_a_proj": (rank, hidden), "f_b_proj": (keys, rank), "g_a_proj": (rank, hidden),
                      "g_b_proj": (values, rank), "b_proj": (n_values, hidden), "o_proj": (hidden, values)}
        if kind == "bailing_hybrid":
            shapes = {"q_proj": (keys, hidden), "k_proj": (keys, hidden), "v_proj": (values, hidden),
                      "f_proj": (keys, hidden), "g_proj": (values, hidden), "b_proj": (n_values, hidden),
                      "dense": (hidden, values)}
        shapes = {delta_block(config) + name: ("", *shape) for name, shape in shapes.items()}
    elif is_mamba(config, layer) and kind != "falcon_h1":
        heads, values, channels = mamba_sizes(config)
        shapes = {"mamba.in_proj": ("m", values + channels + heads, hidden),
                  "mamba.out_proj": ("m", hidden, values)}
    elif is_conv(config, layer):
        shapes = {"conv.in_proj": ("c", 3 * hidden, hidden), "conv.out_proj": ("c", hidden, hidden)}
    elif kind in ("gpt_neox", "falcon", "gpt2", "gpt_bigcode"):
        shapes = {"self_attn.query_key_value": ("q", q + 2 * kv, hidden), "self_attn.o_proj": ("o", hidden, q)}
    elif kind == "phi3":
        shapes = {"self_attn.qkv_proj": ("q", q + 2 * kv, hidden), "self_attn.o_proj": ("o", hidden, q)}
    elif config.get("kv_lora_rank"):
        rank, rope, nope = (config[key] for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
        value = config.get("v_head_dim") or hidden // heads
        inputs = config.get("q_lora_rank") or hidden
        shapes = {"self_attn.q_b_proj" if config.get("q_lora_rank") else "self_attn.q_proj":
                  ("q", heads * (nope + rope), inputs), "self_attn.kv_a_proj_with_mqa": ("k", rank + rope, hidden),
                  "self_attn.kv_b_proj": ("b", heads * (nope + value), rank),
                  "self_attn.o_proj": ("o", hidden, heads * value)}
        if kind == "bailing_hybrid":
            shapes = {name.replace("self_attn.", "attention.").replace("o_proj", "dense"): shape
                      for name, shape in shapes.items()}
            shapes["attention.g_proj"] = ("a", heads, hidden)
        if config.get("q_lora_rank"):
            shapes["self_attn.q_a_proj"] = ("x", config["q_lora_rank"], hidden)
    else:
        with_gate = 2 if kind in DELTA_KINDS and kind not in ("olmo_hybrid", "lara_mini") else 1
        shapes = {"self_attn.q_proj": ("q", with_gate * q, hidden), "self_attn.k_proj": ("k", kv, hidden),
                  "self_attn.v_proj": ("v", kv, hidden), "self_attn.o_proj": ("o", hidden, q)}
    if kind == "falcon_h1":
        heads, values, channels = mamba_sizes(config)
        shapes.update({"mamba.in_proj": ("m", values + channels + heads, hidden),
                       "mamba.out_proj": ("m", hidden, values)})
    if kind in ("muse_glimmer_text", "afmoe"):
        shapes["self_attn.gate_proj"] = ("a", q, hidden)
    if kind in ("laguna", "step3p5"):
        shapes["self_attn.g_proj"] = ("a", q if config.get("gating") == "per-element" else heads, hidden)
    if config.get("use_attention_gate") and not is_conv(config, layer):
        shapes["self_attn.gate_proj"] = ("a", heads, hidden)
    if kind == "mimo_v2_flash":
        shapes["self_attn.v_proj"] = ("v", kv_heads * config["v_head_dim"], hidden)
        shapes["self_attn.o_proj"] = ("o", hidden, heads * config["v_head_dim"])
    if kind in ("lfm2", "lfm2_moe") and not is_conv(config, layer):
        shapes["self_attn.out_proj"] = shapes.pop("self_attn.o_proj")
    if is_gemma4(config) and config["attention_k_eq_v"] and is_full(config, layer):
        del shapes["self_attn.v_proj"]
    if shares_kv(config, layer):
        del shapes["self_attn.k_proj"], shapes["self_attn.v_proj"]
    shapes.update(mlp_shapes(config, layer))
    if width := config.get("hidden_size_per_layer_input"):
        shapes["per_layer_input_gate"] = ("i", width, hidden)
        shapes["per_layer_projection"] = ("p", hidden, width)
    if is_altup(config):
        rank = config["laurel_rank"]
        shapes.update({"laurel.linear_left": ("", rank, hidden), "laurel.linear_right": ("", hidden, rank)})
    return shapes


# Kinds with attention sinks, and what those are called.
SINKS = {"granite_swa": "self_attn.sinks", "gpt_oss": "self_attn.sinks", "granitemoe_swa": "self_attn.sinks",
         "flint": "self_attn.softmax_offset", "mimo_v2_flash": "self_attn.attention_sink_bias"}


def has_sinks(config, layer):
    return config["model_type"] in SINKS and (
        config["model_type"] != "mimo_v2_flash" or config["layer_types"][layer] == "sliding_attention")


# Norms of Gemma that multiply by 2 and not by 1, or its scores would be flat and its embedding, which is scaled up,
# all there is to it.
LARGER = ["self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm", "post_feedforward_layernorm"]


# Kinds whose norms all come after attention and the gated product.
AFTER = ("olmo2", "olmo3", "exaone4", "flex_olmo")


def norm_widths(config, layer):
    """name -> width of a layer's norms"""
    if block_of(config, layer):
        return {} if config["model_type"] == "dory" else {"norm": config["hidden_size"]}
    kind, hidden, heads = config["model_type"], config["hidden_size"], config["num_attention_heads"]
    head, _ = head_sizes(config, layer)
    if streams_width(config):
        return stream_norms(config, layer, is_delta(config, layer))
    if is_lfm(config):
        norms = ["operator_norm", "ffn_norm"]
        norms += ["post_operator_norm", "post_ffn_norm"] if config.get("use_sandwich_norm") else []
        q_and_k = ["q_layernorm", "k_layernorm"] if kind in ("lfm2", "lfm2_moe") else ["q_norm", "k_norm"]
        heads = {} if is_conv(config, layer) else {"self_attn." + norm: head for norm in q_and_k}
        return {**{norm: hidden for norm in norms}, **heads}
    if kind == "olmo_hybrid":
        return {"input_layernorm": hidden, "post_attention_layernorm": hidden} if is_delta(config, layer) else {
            "post_attention_layernorm": hidden, "post_feedforward_layernorm": hidden,
            "self_attn.q_norm": heads * head, "self_attn.k_norm": config["num_key_value_heads"] * head}
    if kind == "falcon" and config["new_decoder_architecture"]:
        return {"ln_attn": hidden, "ln_mlp": hidden}
    if kind == "cohere" and config.get("use_qk_norm"):
        return {"input_layernorm": hidden, "self_attn.q_norm": (heads, head),
                "self_attn.k_norm": (config["num_key_value_heads"], head)}
    if kind in ("cohere", "cohere2", "cohere2_moe", "phi", "falcon"):
        return {"input_layernorm": hidden}
    if kind in PLAIN_NORMS:
        return {}
    norms = ["post_attention_layernorm"] if kind in AFTER else ["input_layernorm", "post_attention_layernorm"]
    if kind in ("bamba", "falcon_h1"):
        norms = ["input_layernorm", "pre_ff_layernorm"]
    if kind in ("apertus", "apertus1p5_text"):
        norms = ["attention_layernorm", "feedforward_layernorm"]
    if kind == "vaultgemma":
        norms = ["input_layernorm", "pre_feedforward_layernorm"]
    if kind == "hyperclovax":
        norms += ["post_norm1", "post_norm2"]
    around = "gemma" in kind and kind not in ("gemma", "vaultgemma") or kind == "muse_glimmer_text"
    if around:
        norms.append("pre_feedforward_layernorm")
    if around or kind in AFTER:
        norms.append("post_feedforward_layernorm")
    if kind in ("glm4", "glm4v_text", "glm_ocr_text"):
        norms += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    if kind == "axk1" and has_experts(config, layer):
        norms += ["post_mlp_layernorm"]
    if kind == "afmoe":
        norms += ["pre_mlp_layernorm", "post_mlp_layernorm"]
    if kind == "kolibri1":
        norms += ["post_attn_norm", "post_ffn_norm"]
    if config.get("use_parallel_residual") and kind == "stablelm":
        norms = ["input_layernorm"]
    widths = {norm: hidden for norm in norms}
    if config.get("qk_layernorm"):
        widths.update({f"self_attn.{part}_layernorm.norms.{i}": head for part, n in (
            ("q", heads), ("k", config["num_key_value_heads"])) for i in range(n)})
    if config.get("kv_lora_rank") and not is_delta(config, layer):
        block = "attention" if kind == "bailing_hybrid" else "self_attn"
        widths[block + ".kv_a_layernorm"] = config["kv_lora_rank"]
        if config.get("q_lora_rank"):
            widths["self_attn.q_a_layernorm"] = config["q_lora_rank"]
    q_and_k = kind.startswith("qwen3") or kind in HEAD_NORMS or is_gemma4(config) or is_altup(config)
    q_and_k = q_and_k or bool(kind == "glm4_moe" and config.get("use_qk_norm"))
    if q_and_k and not is_delta(config, layer):
        widths.update({"self_attn.q_norm": head, "self_attn.k_norm": head})
    if config.get("hidden_size_per_layer_input"):
        widths["post_per_layer_input_norm"] = hidden
    if shares_kv(config, layer):
        del widths["self_attn.k_norm"]
    if is_altup(config):
        widths.update({"altup.router_norm": hidden, "laurel.post_laurel_norm": hidden})
    if kind in ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text"):
        widths.update({"self_attn.query_layernorm": head, "self_attn.key_layernorm": head})
    if config.get("enable_moe_block"):
        widths.update({norm: hidden for norm in ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1",
                                                 "post_feedforward_layernorm_2")})
    if kind in WHOLE_NORMS:
        widths.update({"self_attn.q_norm": heads * head, "self_attn.k_norm": config["num_key_value_heads"] * head})
    return widths


def fused_parts(config):
    """Matrices that checkpoints hold as one, though transformers does not: the name of the block and of that matrix,
    then the name and the outputs of each."""
    kind, inner = config["model_type"], config.get("intermediate_size")
    if kind in ("sarvam_moe", "molmo2_text"):
        head, kv_heads = head_sizes(config, 0)
        q, kv = config["num_attention_heads"] * head, kv_heads * head
        parts = {"q_proj": q, "k_proj": kv, "v_proj": kv}
        if kind == "sarvam_moe":
            return [("self_attn.", "query_key_value", parts)]
        return [("self_attn.", "att_proj", parts), ("mlp.", "ff_proj", {"up_proj": inner, "gate_proj": inner})]
    if kind == "lara_mini":
        keys, values, n_values = delta_sizes(config)
        return [("linear_attn.", "in_proj", {"in_proj_qkv": 2 * keys + values, "in_proj_z": values,
                                             "in_proj_b": n_values, "in_proj_a": n_values})]
    return []


def fused(tensors, config):
    out = dict(tensors)
    for block, whole, parts in fused_parts(config):
        for name in [name for name in tensors if name.endswith(block + next(iter(parts)) + ".weight")]:
            before = name.rpartition(block)[0] + block
            rows = [out.pop(f"{before}{part}.weight") for part in parts]
            out[before + whole + ".weight"] = np.concatenate(rows).view(type(rows[0]))
    return out


def split(tensors, config):
    """The way back."""
    out = dict(tensors)
    for block, whole, parts in fused_parts(config):
        for name in [name for name in tensors if name.endswith(block + whole + ".weight")]:
            before = name.rpartition(block)[0] + block
            rows = np.split(out.pop(name), np.cumsum(list(parts.values()))[:-1])
            out.update({f"{before}{part}.weight": some for part, some in zip(parts, rows)})
    return out
