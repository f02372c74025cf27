"""miniature_dense.py - miniatures of dense families that differ little from those of make_miniatures.py. Used by:
make_miniatures.py."""

from miniature_configs import AWQ32, LLAMA3, YARN, gemma, granite, llama
from miniature_shapes import GPT2_MEMBERS

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
         "quantization_config": AWQ32}


def gemma1(**config):
    config = gemma(**{"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "num_hidden_layers": 2,
                      "hidden_act": "gelu", "hidden_activation": None, "quantization_config": AWQ32, **config})
    return {key: value for key, value in config.items() if key not in ("query_pre_attn_scalar", "sliding_window")}


def vaultgemma(**config):
    return gemma(**{"architectures": ["VaultGemmaForCausalLM"], "model_type": "vaultgemma", "num_hidden_layers": 2,
                    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0, "quantization_config": AWQ32,
                    **config})


def hyperclovax(**config):
    return granite(**{**SMALL, "architectures": ["HyperCLOVAXForCausalLM"], "model_type": "hyperclovax",
                      "logits_scaling": 0.8, **config})


def internlm3(**config):
    return llama(**{**SMALL, "architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "pad_token_id": 96,
                    "qkv_bias": False, "bias": False, "rope_scaling": {"rope_type": "dynamic", "factor": 6.0},
                    **config})


def iquestcoder(**config):
    return llama(**{**SMALL, "architectures": ["IQuestCoderForCausalLM"], "model_type": "iquestcoder",
                    "use_sliding_window": False, "clip_qkv": None, **config})


def helium(**config):
    return llama(**{**SMALL, "architectures": ["HeliumForCausalLM"], "model_type": "helium", "pad_token_id": 96,
                    "attention_bias": False, "mlp_bias": False, **config})


def cwm(**config):
    return llama(**{**SMALL, "architectures": ["CwmForCausalLM"], "model_type": "cwm", "num_hidden_layers": 2,
                    "sliding_window": 16, "rope_scaling": LLAMA3, **config})


def ministral(**config):
    return llama(**{**SMALL, "architectures": ["MinistralForCausalLM"], "model_type": "ministral",
                      "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"], **config})


def arcee(**config):
    return llama(**{**SMALL, "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2",
                    "attention_bias": False, "mlp_bias": False, **config})


def apertus(**config):
    return llama(**{**SMALL, "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "xielu",
                    "intermediate_size": 32, "pad_token_id": 96, "attention_bias": False, "rope_scaling": LLAMA3,
                    **config})


def tiny(**config):
    """A dense model of 16 numbers a row: the size of what is committed."""
    return llama(**{"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
                    "torch_dtype": "bfloat16", "rope_theta": 1000.0, **config})


def exaone(**config):
    """As published, with names of its own for three members."""
    config = tiny(**{"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "pad_token_id": 0,
                     "rope_scaling": LLAMA3, **config})
    for old, new in (("num_hidden_layers", "num_layers"), ("rms_norm_eps", "layer_norm_epsilon"),
                     ("hidden_act", "activation_function")):
        config[new] = config.pop(old)
    return config


def centred(eps_key="layer_norm_eps", **config):
    config = tiny(**config)
    config[eps_key] = config.pop("rms_norm_eps")
    return config


def starcoder2(**config):
    return centred(**{"architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "use_bias": True,
                      "hidden_act": "gelu_pytorch_tanh", "sliding_window": 8, "eps_key": "norm_epsilon", **config})


def stablelm(**config):
    return centred(**{"architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "use_qkv_bias": True,
                      "use_parallel_residual": False, "qk_layernorm": False, "partial_rotary_factor": 0.5, **config})


def gpt_neox(**config):
    config = centred(**{"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu",
                        "rotary_pct": 0.5, "use_parallel_residual": True, "tie_word_embeddings": False, **config})
    config["rotary_emb_base"] = config.pop("rope_theta")
    del config["num_key_value_heads"]
    return config


def falcon(**config):
    """As published: of the 7B, or of the 40B with new_decoder_architecture."""
    config = centred(**{"architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": False, "bias": False,
                        "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
                        "eps_key": "layer_norm_epsilon", **config})
    for key in ("num_key_value_heads", "intermediate_size", "hidden_act", "tie_word_embeddings"):
        config.pop(key, None)
    return config


def gpt2(**config):
    config = centred(**{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "hidden_act": "gelu_new",
                        "eps_key": "layer_norm_epsilon", **config})
    for old, new in {**GPT2_MEMBERS, "hidden_act": "activation_function"}.items():
        config[new] = config.pop(old)
    return {key: value for key, value in config.items() if key not in (
        "num_key_value_heads", "rope_theta", "tie_word_embeddings")}


def gpt_bigcode(**config):
    return gpt2(**{"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "multi_query": True,
                   "hidden_act": "gelu", "intermediate_size": None, **config})


def command_r_plus(**config):
    return centred(**{"architectures": ["CohereForCausalLM"], "model_type": "cohere", "use_qk_norm": True,
                      "logit_scale": 0.8, "attention_bias": False, **config})


def phi(**config):
    return centred(**{"architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_act": "gelu_new",
                      "num_key_value_heads": 2, "qk_layernorm": False, "partial_rotary_factor": 0.75,
                      "tie_word_embeddings": False, **config})


def olmo(**config):
    config = tiny(**{"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "attention_bias": False,
                     "clip_qkv": 1.5, **config})
    del config["rms_norm_eps"]
    return config


def jais2(**config):
    return centred(**{"architectures": ["Jais2ForCausalLM"], "model_type": "jais2", "hidden_act": "relu2", **config})


def nanochat(**config):
    return tiny(**{"architectures": ["NanoChatForCausalLM"], "model_type": "nanochat", "hidden_act": "relu2",
                   "attention_bias": False, "final_logit_softcapping": 4.0, "num_attention_heads": 2,
                   "tie_word_embeddings": False, **config})


def dory(**config):
    """A pair of blocks, two pairs that run three times, and a pair."""
    return tiny(**{"architectures": ["DoryForCausalLM"], "model_type": "dory", "num_hidden_layers": 8,
                   "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 2, "sliding_window": 8,
                   "n_input_layers": 2, "n_recurrent_layers": 4, "n_output_layers": 2, "n_recurrent_loops": 3,
                   "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.05,
                   "ngpt_alpha_init": 0.15, "rms_norm_eps": 0.1, "tie_word_embeddings": False,
                   "rope_parameters": DORY_ROPES, **config})


DORY_ROPES = {"full_attention": {"rope_type": "default", "rope_theta": 1000.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
DENSE_MINIATURES = {
    "dory-bf16": dict(tokens=24, config=dory(), names=("backbone.", "lm_head"), matters=[
        {"sliding_window": 9}, {"n_recurrent_loops": 2}, {"initializer_range": 0.06}, {"ngpt_alpha_init": 0.12},
        {"rope_parameters": {**DORY_ROPES, "full_attention": {"rope_type": "default", "rope_theta": 100.0}}},
        {"rope_parameters": {**DORY_ROPES, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}},
        {"layer_types": ["full_attention", "mlp"] * 4}]),
    "apertus1p5-bf16": dict(tokens=24, config=tiny(
        architectures=["Apertus1p5TextForCausalLM"], model_type="apertus1p5_text", hidden_act="xielu",
        attention_bias=False, pad_token_id=96, rope_scaling=LLAMA3, output_vocab_size=100,
        tie_word_embeddings=False), matters=[{"rope_scaling": {**LLAMA3, "factor": 4.0}}, {"rms_norm_eps": 0.1}]),
    "exaone-bf16": dict(tokens=24, config=exaone(), matters=[
        {"rope_theta": 100.0}, {"layer_norm_epsilon": 0.1}, {"activation_function": "gelu"}, {"rope_scaling": None}]),
    "starcoder2-bf16": dict(tokens=24, config=starcoder2(), bias="qkvoud", matters=[
        {"norm_epsilon": 0.1}, {"sliding_window": 9}, {"sliding_window": None}, {"hidden_act": "relu2"},
        {"rope_theta": 100.0}]),
    "stablelm-bf16": dict(tokens=24, config=stablelm(), bias="qkv", matters=[
        {"partial_rotary_factor": 0.25}, {"layer_norm_eps": 0.1}, {"rope_theta": 100.0}]),
    "command-r-plus-bf16": dict(tokens=24, config=command_r_plus(), matters=[
        {"rope_theta": 100.0}, {"layer_norm_eps": 0.1}, {"logit_scale": 0.5}]),
    "stablelm-12b-bf16": dict(tokens=24, config=stablelm(
        qk_layernorm=True, use_qkv_bias=False, use_parallel_residual=True, partial_rotary_factor=0.25), matters=[
            {"partial_rotary_factor": 0.5}, {"layer_norm_eps": 0.1}]),
    "gpt-neox-bf16": dict(tokens=16, config=gpt_neox(), bias="qoud", matters=[
        {"rotary_pct": 0.25}, {"rotary_emb_base": 100.0}, {"layer_norm_eps": 0.1}, {"hidden_act": "relu"},
        {"use_parallel_residual": False}]),
    "falcon-bf16": dict(tokens=16, config=falcon(), matters=[
        {"rope_theta": 100.0}, {"layer_norm_epsilon": 0.1}, {"activation": "relu"}]),
    "falcon-new-bf16": dict(tokens=16, config=falcon(
        num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, ffn_hidden_size=24, bias=True),
        bias="qoud", matters=[{"rope_theta": 100.0}, {"layer_norm_epsilon": 0.1}]),
    "gpt2-bf16": dict(tokens=16, config=gpt2(), bias="qoud", matters=[
        {"layer_norm_epsilon": 0.1}, {"activation_function": "relu"}]),
    "gpt-bigcode-bf16": dict(tokens=16, config=gpt_bigcode(), bias="qoud", matters=[
        {"layer_norm_epsilon": 0.1}, {"activation_function": "relu"}]),
    "gpt-bigcode-heads-bf16": dict(tokens=16, config=gpt_bigcode(
        multi_query=False, num_hidden_layers=1), bias="qoud", matters=[
        {"layer_norm_epsilon": 0.1}]),
    "phi-bf16": dict(tokens=24, config=phi(), bias="qkvoud", matters=[
        {"partial_rotary_factor": 0.5}, {"layer_norm_eps": 0.1}, {"hidden_act": "relu2"}]),
    "olmo-bf16": dict(tokens=24, config=olmo(), matters=[
        {"clip_qkv": None}, {"clip_qkv": 1.4}, {"rope_theta": 100.0}]),
    "jais2-bf16": dict(tokens=24, config=jais2(), bias="qkvoud", matters=[
        {"layer_norm_eps": 0.1}, {"rope_theta": 100.0}]),
    "nemotron-bf16": dict(tokens=24, config={key: value for key, value in tiny(
        architectures=["NemotronForCausalLM"], model_type="nemotron", hidden_act="relu2", norm_eps=1e-5, head_dim=16,
        partial_rotary_factor=0.25, tie_word_embeddings=False).items() if key != "rms_norm_eps"}, matters=[
            {"norm_eps": 0.1}, {"rope_theta": 100.0}, {"partial_rotary_factor": 0.5}]),
    "nanochat-bf16": dict(tokens=24, config=nanochat(), matters=[
        {"rms_norm_eps": 0.1}, {"final_logit_softcapping": 5.0}, {"rope_theta": 100.0}]),
    "apertus-awq": dict(config=apertus(), tokens=32, matters=[{"rope_scaling": {**LLAMA3, "factor": 4.0}}]),
    "arcee-awq": dict(tokens=32, config=arcee(rope_scaling=YARN), matters=[{"rope_scaling": None}]),
    "gemma-awq": dict(tokens=32, config=gemma1(), matters=[{"hidden_act": "silu"}, {"rope_theta": 100.0}]),
    "vaultgemma-awq": dict(config=vaultgemma(), matters=[
        {"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"query_pre_attn_scalar": 96},
        {"sliding_window": 17}, {"layer_types": ["full_attention", "sliding_attention"]}]),
    "hyperclovax-awq": dict(tokens=32, config=hyperclovax(), matters=[
        {"embedding_multiplier": 1.0}, {"attention_multiplier": 0.25}, {"residual_multiplier": 0.5},
        {"logits_scaling": 1.25}]),
    "internlm3-awq": dict(tokens=32, config=internlm3(), matters=[{"rope_theta": 100.0}]),
    "iquestcoder-awq": dict(tokens=32, config=iquestcoder(), matters=[{"rope_theta": 100.0}]),
    "helium-awq": dict(tokens=32, config=helium(), matters=[{"rope_theta": 100.0}]),
    "cwm-awq": dict(tokens=32, config=cwm(), matters=[
        {"sliding_window": 17}, {"rope_scaling": {**LLAMA3, "factor": 4.0}},
        {"layer_types": ["sliding_attention", "full_attention"]}]),
    "ministral-awq": dict(tokens=32, config=ministral(), matters=[{"sliding_window": 17}, {"layer_types": None}]),
}
