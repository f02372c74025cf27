"""miniature_configs.py - configs of the miniatures' families, small and complete. Used by: make_miniatures.py,
miniature_experts.py."""

VOCAB = 104  # the alphabet, three special tokens, five rows that no token has: real checkpoints pad theirs, too
AWQ32 = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True,
         "modules_to_not_convert": None}


def awq(group, **more):
    return {**AWQ32, "group_size": group, **more}


def llama(**config):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 128, "vocab_size": VOCAB, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
            "tie_word_embeddings": True, "bos_token_id": 97, "eos_token_id": 98, "torch_dtype": "float16", **config}


def mistral(**config):
    return llama(architectures=["MistralForCausalLM"], model_type="mistral", **config)


def qwen2(**config):
    return llama(**{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-06, **config})


def qwen3(**config):
    return llama(**{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-06,
                    "attention_bias": False, **config})


def qwen3_5(**config):
    """Three of four layers have the gated delta rule. Heads of values are more than those of keys, and of another
    size, so that none can be taken for the other."""
    return llama(**{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "rms_norm_eps": 1e-06,
                    "attention_bias": False, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "linear_num_key_heads": 2,
                    "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
                    "linear_conv_kernel_dim": 4, "torch_dtype": "bfloat16", **config})


def smollm3(**config):
    return llama(**{"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "pad_token_id": 96,
                    "attention_bias": False, "mlp_bias": False, "num_hidden_layers": 4, **config})


def phi3(**config):
    return llama(**{"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 96,
                    "tie_word_embeddings": False, **config})


def gemma(**config):
    """The members that Gemma 2 and 3 share. Neither hidden / heads nor head_dim is the scale of scores."""
    return llama(**{"hidden_activation": "gelu_pytorch_tanh", "head_dim": 32, "query_pre_attn_scalar": 24,
                    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
                    "num_hidden_layers": 4, "sliding_window": 16, "attention_bias": False, **config})


def gemma2(**config):
    return gemma(**{"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attn_logit_softcapping": 5.0,
                    "final_logit_softcapping": 6.0, **config})


def gemma3(**config):
    return gemma(**{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attn_logit_softcapping": None,
                    "final_logit_softcapping": None, **config})


def gemma3n(**config):
    """The last two of four layers use the keys and values of the two before them, of either kind. Sizes all differ;
    some of the alphabet has no row in the table of the layers' own inputs."""
    config = gemma(**{"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text", "hidden_size": 16,
                      "intermediate_size": [12, 16, 20, 12], "head_dim": 8,
                      "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2,
                      "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.75, 0.0, 0.25, 0.95],
                      "altup_active_idx": 0, "altup_coef_clip": 120.0, "altup_correct_scale": True,
                      "altup_num_inputs": 3, "laurel_rank": 6, "hidden_size_per_layer_input": 4,
                      "vocab_size_per_layer_input": VOCAB - 16, "final_logit_softcapping": 6.0, "rope_theta": 1000.0,
                      "rope_local_base_freq": 50.0, "torch_dtype": "bfloat16", **config})
    return {key: value for key, value in config.items() if key not in ("query_pre_attn_scalar", "hidden_act")}


GEMMA4_ROPES = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}


def gemma4(**config):
    """Five layers with a window and one without, whose heads are twice as long and whose values are its keys."""
    config = gemma(**{"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "num_hidden_layers": 6,
                      "head_dim": 16, "global_head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                      "num_global_key_value_heads": 1, "attention_k_eq_v": True, "final_logit_softcapping": 6.0,
                      "hidden_size_per_layer_input": 0, "rope_parameters": GEMMA4_ROPES, **config})
    return {key: value for key, value in config.items() if key not in ("rope_theta", "query_pre_attn_scalar")}


def gemma4_e(**config):
    """The last three of five layers use the keys and values of the two before them, and each has inputs of its own."""
    return gemma4(**{"num_hidden_layers": 5, "attention_k_eq_v": False, "num_kv_shared_layers": 3,
                     "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 20,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                     "full_attention"],
                     "hidden_size_per_layer_input": 20, "vocab_size_per_layer_input": VOCAB + 2, **config})


def granite(**config):
    return llama(**{"architectures": ["GraniteForCausalLM"], "model_type": "granite", "attention_bias": False,
                    "mlp_bias": False, "embedding_multiplier": 2.0, "attention_multiplier": 0.375,
                    "residual_multiplier": 0.6, "logits_scaling": 2.0, **config})


def olmo2(**config):
    return llama(**{"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": False,
                    "pad_token_id": 96, **config})


def olmo3(**config):
    """Layers of both kinds; the window cuts, and YaRN changes both frequencies and sharpness."""
    return olmo2(**{"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "num_hidden_layers": 4,
                    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
                    "sliding_window": 16, **config})


def seed_oss(**config):
    return llama(**{"architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "attention_bias": True,
                    "attention_out_bias": False, "mlp_bias": False, "head_dim": 16, "hidden_size": 32,
                    "intermediate_size": 64, "num_attention_heads": 4, "pad_token_id": 96,
                    "tie_word_embeddings": False, **config})


def ministral3(**config):
    return llama(**{"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", "head_dim": 16,
                    "hidden_size": 32, "intermediate_size": 64, "pad_token_id": 96, "sliding_window": None,
                    "rope_parameters": MINISTRAL3, **config})


def hunyuan(**config):
    return llama(**{"architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense", "head_dim": 16,
                    "hidden_size": 32, "intermediate_size": 64, "attention_bias": False, "pad_token_id": 96,
                    "rope_scaling": ALPHA, "use_qk_norm": True, **config})


def glm(**config):
    return llama(**{"architectures": ["GlmForCausalLM"], "model_type": "glm", "head_dim": 16, "hidden_size": 32,
                    "intermediate_size": 64, "attention_bias": True, "pad_token_id": 96,
                    "tie_word_embeddings": False, **config})


def glm4(**config):
    return glm(**{"architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "partial_rotary_factor": 0.5, **config})


def ernie(**config):
    return llama(**{"architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "head_dim": 16,
                    "hidden_size": 32, "intermediate_size": 64, "use_bias": False, "pad_token_id": 0, **config})


def exaone4(**config):
    return llama(**{"architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "head_dim": 16,
                    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "pad_token_id": 0,
                    "sliding_window": 16, "sliding_window_pattern": 4, **config})


def granite4(**config):
    return granite(**{"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
                      "hidden_size": 32, "intermediate_size": 64, "shared_intermediate_size": 64,
                      "layer_types": ["attention", "attention"], "num_local_experts": 0, "num_experts_per_tok": 0,
                      "position_embedding_type": "rope", "mamba_n_heads": 4, "mamba_d_head": 16, "pad_token_id": 96,
                      **config})


def granite4_h(**config):
    """A Mamba-2 layer, whose sizes all differ, and one with attention, without a rope."""
    return granite4(**{"layer_types": ["mamba", "attention"], "position_embedding_type": "nope", "mamba_n_heads": 4,
                       "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_d_conv": 4,
                       "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False, **config})


def bamba(**config):
    """A Mamba-2 layer and one with attention, as Granite 4.0 H; half of each head is rotated."""
    return llama(**{"architectures": ["BambaForCausalLM"], "model_type": "bamba", "hidden_size": 32,
                    "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1,
                    "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
                    "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16,
                    "mamba_conv_bias": True, "mamba_proj_bias": False, "attention_bias": False, "mlp_bias": False,
                    "rope_theta": 1000.0, "tie_word_embeddings": False, "pad_token_id": 96, **config})


def falcon_h1(**config):
    """Mamba-2 beside attention in each layer; no factor is 1, and no two of the same list are equal."""
    return llama(**{"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 16,
                    "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "mamba_d_ssm": 16,
                    "mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 4, "mamba_n_groups": 2, "mamba_d_conv": 4,
                    "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_conv_bias": True, "mamba_proj_bias": False,
                    "mamba_rms_norm": False, "mamba_norm_before_gate": False, "projectors_bias": False,
                    "attention_bias": False, "mlp_bias": False, "embedding_multiplier": 1.5,
                    "lm_head_multiplier": 0.75, "attention_in_multiplier": 1.25, "attention_out_multiplier": 0.75,
                    "key_multiplier": 0.625, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.5,
                    "ssm_multipliers": [0.75, 1.5, 1.25, 2.0, 0.5], "mlp_multipliers": [1.75, 0.625],
                    "rope_theta": 1000.0, "pad_token_id": 96, "torch_dtype": "bfloat16", **config})


def cohere2(**config):
    """A layer with a window and a rope, and one with neither."""
    config = llama(**{"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "hidden_size": 16,
                      "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
                      "attention_bias": False, "layer_types": ["sliding_attention", "full_attention"],
                      "sliding_window": 8, "layer_norm_eps": 1e-05, "logit_scale": 0.75, "rope_theta": 1000.0,
                      "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    del config["rms_norm_eps"]
    return config


def olmo_hybrid(**config):
    """A layer with the gated delta rule and one with attention."""
    config = llama(**{"architectures": ["OlmoHybridForCausalLM"], "model_type": "olmo_hybrid", "hidden_size": 16,
                      "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2,
                      "attention_bias": False, "layer_types": ["linear_attention", "full_attention"],
                      "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 6,
                      "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True,
                      "rms_norm_eps": 1e-06, "rope_parameters": {"rope_type": "default", "rope_theta": None},
                      "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    del config["rope_theta"]
    return config


def kimi_linear(**config):
    """A layer with a decay for each number of a key and one with latent attention, as published: sizes and layers
    of the former have an object of their own."""
    config = llama(**{"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 16,
                      "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 10,
                      "q_lora_rank": None, "kv_lora_rank": 16,
                      "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 16, "mla_use_nope": True,
                      "model_max_length": 128, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                      "moe_intermediate_size": 8, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
                      "num_expert_group": 2, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 2,
                      "routed_scaling_factor": 2.446, "topk_group": 1, "tie_word_embeddings": False,
                      "linear_attn_config": {"full_attn_layers": [2], "head_dim": 6, "kda_layers": [1],
                                             "num_heads": 3, "short_conv_kernel_size": 3},
                      "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    del config["max_position_embeddings"]
    return config


def bailing_hybrid(**config):
    """A layer with a bounded decay for each number of a key and one with latent attention, whose heads have gates."""
    return llama(**{"architectures": ["BailingHybridForCausalLM"], "model_type": "bailing_hybrid", "hidden_size": 16,
                    "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 6,
                    "kv_lora_rank": 16, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 16,
                    "first_k_dense_replace": 1, "moe_intermediate_size": 8, "norm_topk_prob": True, "n_group": 2,
                    "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "routed_scaling_factor": 2.5,
                    "topk_group": 1, "tie_word_embeddings": False, "layer_group_size": 2, "short_conv_kernel_size": 3,
                    "kda_safe_gate": True, "kda_lower_bound": -4.0, "rope_theta": 1000.0, "pad_token_id": 96,
                    "torch_dtype": "bfloat16", **config})


def nemotron_h(**config):
    """Sizes that all differ; Mamba-2's heads are not expand * hidden_size numbers."""
    config = llama(**{"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 32,
                      "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                      "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2,
                      "conv_kernel": 4, "expand": 2, "chunk_size": 16, "use_conv_bias": True, "use_bias": False,
                      "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "mlp_bias": False,
                      "attention_bias": False, "layer_norm_epsilon": 1e-05, "time_step_min": 1e-30,
                      "time_step_limit": [0.0, float("inf")], "n_routed_experts": 8, "num_experts_per_tok": 3,
                      "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 64, "n_shared_experts": 1,
                      "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                      "residual_in_fp32": False, "tie_word_embeddings": False, **config})
    return {key: value for key, value in config.items() if key not in ("rms_norm_eps", "hidden_act", "rope_theta")}


def latent(**config):
    """Latent attention whose sizes all differ; three experts of eight, and an MLP beside them from layer 1 on."""
    config = llama(**{"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
                      "q_lora_rank": 24, "kv_lora_rank": 48, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                      "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
                      "moe_intermediate_size": 32, "first_k_dense_replace": 1, "norm_topk_prob": True,
                      "routed_scaling_factor": 1.5, "n_group": 1, "topk_group": 1, "attention_bias": False,
                      "rope_interleave": True, "rope_theta": 1000.0, "tie_word_embeddings": False,
                      "pad_token_id": 96, **config})
    if config["model_type"] == "glm4_moe_lite":
        del config["first_k_dense_replace"]
        config["mlp_layer_types"] = ["dense", "sparse"]
    return config


def minicpm3(**config):
    """Latent attention without experts; no value width, as published, and a text that is long for longrope."""
    config = latent(**{"architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "q_lora_rank": 32,
                       "kv_lora_rank": 32, "scale_emb": 2, "scale_depth": 1.4, "dim_model_base": 16,
                       "tie_word_embeddings": True, "max_position_embeddings": 512, "rope_scaling": {
                           "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6],
                           "long_factor": [1.0, 1.5, 3.0, 6.0], "original_max_position_embeddings": 32}, **config})
    experts = ("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "n_group",
               "first_k_dense_replace", "norm_topk_prob", "routed_scaling_factor", "topk_group")
    return {key: value for key, value in config.items() if key not in (*experts, "rope_interleave", "v_head_dim")}


def granite_swa(**config):
    return granite(**{"architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa", "hidden_size": 32,
                      "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
                      "num_hidden_layers": 4, "sliding_window": 16, "pad_token_id": 96, **config})


def lfm(**config):
    """The members that LFM2 and LFM3 share: short convolutions beside attention."""
    config = llama(**{"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
                      "norm_eps": 1e-05, "pad_token_id": 96, "torch_dtype": "bfloat16", **config})
    return {key: value for key, value in config.items() if key not in ("rms_norm_eps", "hidden_act")}


def lfm2(**config):
    """Two of four layers have attention; the MLP is 48 wide."""
    return lfm(**{"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "conv_L_cache": 3, "conv_bias": False,
                  "block_ff_dim": 60, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.0,
                  "block_auto_adjust_ff_dim": True, "full_attn_idxs": [1, 3], **config})


LFM3_ROPES = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
LFM3_TYPES = ["conv", "sliding_attention", "conv", "full_attention"]


def lfm3(**config):
    config = lfm(**{"architectures": ["Lfm3ForCausalLM"], "model_type": "lfm3", "conv_L_cache": 7, "conv_bias": False,
                    "intermediate_size": 48, "head_dim": 16, "sliding_window": 16, "use_sandwich_norm": True,
                    "use_attention_gate": True, "attention_bias": False, "layer_types": LFM3_TYPES,
                    "rope_parameters": LFM3_ROPES, **config})
    return {key: value for key, value in config.items() if key != "rope_theta"}


def muse_glimmer(**config):
    return llama(**{"model_type": "muse_glimmer_text", "hidden_activation": "silu", "head_dim": 16, "hidden_size": 32,
                    "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 16,
                    "num_hidden_layers": 4, "qk_scale_factor": 3.0, "output_multiplier": 0.6, "post_norm_eps": 0.05,
                    "final_logit_softcapping": 8.0, "attention_bias": False, **config})


def with_vision(architecture, model_type, text, vision, **config):
    """A model of several parts. One is `text`; the others have a config and no weights but one tensor."""
    moved = ("quantization_config", "torch_dtype", "bos_token_id", "eos_token_id")
    text = {key: value for key, value in text.items() if key not in ("architectures", "tie_word_embeddings")}
    outer = {key: text.pop(key) for key in moved if key in text}
    return {"architectures": [architecture], "model_type": model_type, "text_config": text, "vision_config": vision,
            **outer, **config}


def longrope(**config):
    """Factors for the 6 pairs of three quarters of 16 numbers."""
    return phi3(**{"partial_rotary_factor": 0.75, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
        "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 20.0]}, "max_position_embeddings": 512, **config})


def new_names(config):
    """The spellings of transformers 5: dtype, and rope_parameters that hold rope_theta."""
    config = dict(config)
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {**(config.pop("rope_scaling", None) or {"rope_type": "default"}),
                                 "rope_theta": config.pop("rope_theta")}
    return config


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
YARN_MSCALE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 2.0,
               "beta_slow": 0.5, "mscale": 3.0, "mscale_all_dim": 0.5, "truncate": False}
MINISTRAL3 = {"rope_type": "yarn", "type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 32.0,
              "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
              "llama_4_scaling_beta": 0.5}
ALPHA = {"type": "dynamic", "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
         "mscale_all_dim": 0.0}
PLAIN = {"rope_type": "default"}
