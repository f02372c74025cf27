"""miniature_parts.py - miniatures of the text parts that only multimodal models have. Used by: make_miniatures.py."""

from miniature_configs import (AWQ32, LLAMA3, awq, cohere2, ernie, glm, granite, hunyuan, llama, nemotron_h, qwen2,
                               qwen3, with_vision)
from miniature_experts import moe

MROPE = {"type": "mrope", "mrope_section": [4, 2, 2]}
MROPE_INTERLEAVED = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
QWEN_VISION = {"depth": 1, "hidden_size": 16, "embed_dim": 16, "intermediate_size": 16, "num_heads": 2,
               "out_hidden_size": 32, "patch_size": 14}
GLM_VISION = {**QWEN_VISION, "image_size": 28}
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def flat(architecture, model_type, text, vision=None):
    """Qwen2-VL as it was published: the text part's members stand beside the vision tower's config."""
    return {**text, "architectures": [architecture], "model_type": model_type,
            "vision_config": vision or {**QWEN_VISION, "model_type": model_type}}


def qwen2_vl(**config):
    return qwen2(**{**SMALL, "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1,
                    "rope_scaling": MROPE, **config})


def qwen3_vl(**config):
    return qwen3(**{**SMALL, "model_type": "qwen3_vl_text", "head_dim": 16, "rope_theta": 1000.0,
                    "rope_scaling": MROPE_INTERLEAVED, **config})


def qwen3_vl_moe(**config):
    return qwen3_vl(**moe(config, model_type="qwen3_vl_moe_text", decoder_sparse_step=1, mlp_only_layers=[],
                          moe_intermediate_size=24, num_experts=6, num_hidden_layers=1))


def qwen3_omni_moe(**config):
    return qwen3_vl(**moe(config, model_type="qwen3_omni_moe_text", decoder_sparse_step=1, mlp_only_layers=[],
                          norm_topk_prob=True, num_experts=4,
                          rope_scaling={**MROPE_INTERLEAVED, "interleaved": True}))


def glm4v(**config):
    return without(glm(**{**SMALL, "model_type": "glm4v_text", "rope_theta": 1000.0, "rope_scaling": {
        "rope_type": "default", "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}, **config}), "head_dim")


def glm4v_moe(**config):
    config = llama(**moe(config, model_type="glm4v_moe_text", n_routed_experts=8, n_shared_experts=1,
                         first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
                         routed_scaling_factor=2.5, attention_bias=True, partial_rotary_factor=0.5, rope_theta=1000.0,
                         rope_scaling={"rope_type": "default", "mrope_section": [2, 1, 1]}))
    return without(config, "num_experts")


def thinker(architecture, model_type, text):
    """Qwen's Omni models: the text part is that of one of their parts."""
    whole = with_vision(architecture, model_type, text, QWEN_VISION)
    inner = {key: whole.pop(key) for key in ("text_config", "vision_config")}
    return {**whole, "thinker_config": {**inner, "model_type": model_type + "_thinker"}}


def hunyuan_vl(**config):
    return hunyuan(**{**SMALL, "model_type": "hunyuan_vl_text", "rope_scaling": XDROPE, **config})


def paddleocr_vl(**config):
    return ernie(**{**SMALL, "model_type": "paddleocr_vl_text", "use_bias": True, "rope_theta": 1000.0,
                    "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [4, 2, 2]}, **config})


def glm_ocr(**config):
    return glm(**{**SMALL, "model_type": "glm_ocr_text", "num_attention_heads": 4, "num_key_value_heads": 2,
                  "rope_theta": 1000.0, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1],
                                                         "partial_rotary_factor": 0.5}, **config})


def granite_docling(**config):
    """The residual multiplier is the one that the config class has where it is absent."""
    config = granite(**{**SMALL, "model_type": "granite_docling_text", "pad_token_id": 96, "logits_scaling": 1.5,
                        "residual_multiplier": None, **config})
    return {key: value for key, value in config.items() if value is not None}


def ernie_vl(**config):
    """Experts of images beside those of text, which are wider."""
    return without(ernie(**{**SMALL, "model_type": "ernie4_5_vl_moe_text", "hidden_size": 16, "rope_theta": 1000.0,
                            "intermediate_size": 24, "moe_num_experts": 6, "moe_k": 3, "moe_num_shared_experts": 2,
                            "moe_intermediate_size": [8, 4], "mlp_layer_types": ["dense", "sparse"],
                            "tie_word_embeddings": False, "torch_dtype": "bfloat16", **config}), "head_dim")


def step(**config):
    """A dense layer, then experts; ropes, heads and limits by layer, with an entry for a layer that drafts tokens."""
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    return without(llama(**{
        "model_type": "step3p5", "hidden_size": 16, "num_hidden_layers": 4, "num_nextn_predict_layers": 1,
        "num_attention_heads": 2, "num_attention_groups": 1, "head_dim": 8, "intermediate_size": 24,
        "layer_types": types, "sliding_window": 8,
        "rope_theta": [1000.0, 50.0, 50.0, 1000.0, 50.0], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5, 1.0],
        "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}, "yarn_only_types": ["full_attention"],
        "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 3,
                                    "num_attention_groups": 1, "head_dim": 8},
        "use_head_wise_attn_gate": True, "moe_layers_enum": "1,2,3", "moe_num_experts": 4, "moe_top_k": 2,
        "moe_intermediate_size": 16, "share_expert_dim": 24, "moe_router_scaling_factor": 1.5,
        "moe_router_activation": "sigmoid", "use_moe_router_bias": True, "norm_expert_weight": True,
        "zero_centered": True, "swiglu_limits": [0.0, 0.0, 0.7, None, 0.0],
        "swiglu_limits_shared": [0.9, 0.0, 0.0, 1.2, 0.0], "torch_dtype": "bfloat16", **config}), "num_key_value_heads")


def molmo2(**config):
    return qwen3(**{**SMALL, "model_type": "molmo2_text", "head_dim": 16, "rope_theta": 1000.0, "intermediate_size": 48,
                    "additional_vocab_size": 8, "qk_norm_type": "qwen3", "norm_after": False,
                    "rope_scaling_layers": None, "layer_norm_eps": 1e-5, "torch_dtype": "bfloat16", **config})


def omni(**config):
    """A Mamba-2 layer and one with attention, and an MLP, in llm_config, as published."""
    radio = {"model_type": "radio", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2, "patch_size": 16, "video_temporal_patch_size": 2}
    text = nemotron_h(hybrid_override_pattern="M*-", num_hidden_layers=3, intermediate_size=64, mamba_num_heads=8,
                      mamba_head_dim=8, **config)
    whole = with_vision("NemotronH_Omni_Reasoning_V3", "nemotron_h_omni", text, radio, vision_hidden_size=16,
                        projector_hidden_size=16)
    return {"llm_config": whole.pop("text_config"), **whole}


XDROPE = {"type": "xdrope", "alpha": 4.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
          "mscale_all_dim": 1.0, "xdrope_section": [2, 2, 2, 2]}
LATER_NAMES = ("model.language_model.", "lm_head")
THINKER_NAMES = ("thinker.model.", "thinker.lm_head")
NO_ROUTER = awq(32, modules_to_not_convert=["mlp.gate.", "visual"])
QWEN2_VL = with_vision("Qwen2VLForConditionalGeneration", "qwen2_vl", qwen2_vl(
    model_type="qwen2_vl_text", use_sliding_window=True, torch_dtype="bfloat16", rope_theta=100.0), QWEN_VISION)
OMNI = omni(quantization_config=AWQ32)
ERNIE_VL = with_vision("Ernie4_5_VLMoeForConditionalGeneration", "ernie4_5_vl_moe", ernie_vl(rope_scaling={
    "rope_type": "default", "mrope_section": [1, 1, 2]}), {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2})
STEP = with_vision("Step3p7ForConditionalGeneration", "step3p7", step(), {
    "width": 16, "layers": 1, "heads": 2, "image_size": 28, "patch_size": 14, "mlp_ratio": 1.0})
MOLMO2_PART = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
               "head_dim": 8}
MOLMO2 = with_vision(
    "Molmo2ForConditionalGeneration", "molmo2", without(molmo2(), "rms_norm_eps"),
    {**MOLMO2_PART, "num_hidden_layers": 1, "image_size": [28, 28], "patch_size": 14}, tie_word_embeddings=False,
    adapter_config={**MOLMO2_PART, "text_hidden_size": 32, "vision_feature_layer": [0]})
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
COHERE2 = without(cohere2(), "pad_token_id")
PART_MINIATURES = {
    "cohere2-vision-text-part": dict(tokens=24, config=with_vision(
        "Cohere2VisionForConditionalGeneration", "cohere2_vision", COHERE2, SIGLIP), names=LATER_NAMES, matters=[
            {"text_config": {**COHERE2, "sliding_window": 7}}]),
    "aya-vision-text-part": dict(tokens=24, config=with_vision(
        "AyaVisionForConditionalGeneration", "aya_vision", {**without(COHERE2, "layer_types", "sliding_window"),
                                                            "model_type": "cohere"}, SIGLIP),
        names=("language_model.model.", "language_model.lm_head"), matters=[]),
    "qwen2-vl-text-part": dict(tokens=32, config=QWEN2_VL, names=LATER_NAMES, bias="qkv", matters=[
        {"text_config": {**QWEN2_VL["text_config"], **change}} for change in (
            {"sliding_window": 17}, {"max_window_layers": 0}, {"rope_theta": 1000.0})]),
    "qwen2_5-vl-awq": dict(tokens=32, config=flat("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", qwen2_vl(
        quantization_config=awq(32, modules_to_not_convert=["visual"]))), bias="qkv", matters=[
            {"rope_theta": 100.0}]),
    "qwen2_5-omni-awq": dict(tokens=32, config=thinker("Qwen2_5OmniModel", "qwen2_5_omni", qwen2_vl(
        model_type="qwen2_5_omni_text", rope_scaling={**MROPE, "type": "default", "rope_type": "default"},
        quantization_config=AWQ32)), names=THINKER_NAMES, bias="qkv", matters=[]),
    "hunyuan-vl-awq": dict(tokens=32, config=flat("HunYuanVLForConditionalGeneration", "hunyuan_vl", hunyuan_vl(
        quantization_config=AWQ32), {**SMALL, "model_type": "hunyuan_vl_vision", "num_hidden_layers": 1}), matters=[
            {"rope_scaling": {**XDROPE, "alpha": 2.0}}, {"rms_norm_eps": 0.1}]),
    "paddleocr-vl-awq": dict(tokens=32, config=flat("PaddleOCRVLForConditionalGeneration", "paddleocr_vl", paddleocr_vl(
        quantization_config=AWQ32), {**SMALL, "model_type": "paddleocr_vl", "num_hidden_layers": 1}),
        bias="qkvogud", matters=[{"rope_theta": 100.0}]),
    "ernie-vl-bf16": dict(tokens=24, config=ERNIE_VL, matters=[
        {"text_config": {**ERNIE_VL["text_config"], **change}} for change in ({"rope_theta": 100.0}, {"moe_k": 2})]),
    "step-bf16": dict(config=STEP, tokens=24, experts="apart", matters=[
        {"text_config": {**STEP["text_config"], **change}} for change in (
            {"rope_theta": [1000.0, 10.0, 10.0, 1000.0, 50.0]}, {"partial_rotary_factors": [1.0] * 5},
            {"partial_rotary_factors": [0.5] * 5}, {"rope_scaling": None}, {"sliding_window": 7}, {"sliding_window": 9},
            {"swiglu_limits": None}, {"swiglu_limits_shared": [0.0, 0.0, 0.0, 1.2, 0.0]},
            {"swiglu_limits_shared": [0.9] + [0.0] * 4}, {"moe_top_k": 1}, {"moe_router_scaling_factor": 1.0},
            {"rms_norm_eps": 0.1})]),
    "molmo2-bf16": dict(tokens=24, config=MOLMO2, matters=[
        {"text_config": {**MOLMO2["text_config"], **change}} for change in (
            {"rope_theta": 100.0}, {"layer_norm_eps": 0.1}, {"hidden_act": "gelu_pytorch_tanh"})]),
    "glm-ocr-awq": dict(tokens=32, config=with_vision("GlmOcrForConditionalGeneration", "glm_ocr", glm_ocr(
        quantization_config=AWQ32), GLM_VISION), names=LATER_NAMES, matters=[
            {"text_config": glm_ocr(rope_scaling={"rope_type": "default", "mrope_section": [4, 2, 2]})}]),
    "granite-docling-awq": dict(tokens=32, config=with_vision(
        "GraniteDoclingForConditionalGeneration", "granite_docling", granite_docling(quantization_config=AWQ32),
        {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "image_size": 32, "patch_size": 16, "out_hidden_size": 32, "scale_factor": 2, "use_fine_route": False,
         "deepstack_visual_indexes": [0]}, tie_word_embeddings=False, pad_token_id=96),
        names=("model.text_model.", "lm_head"), matters=[{"text_config": granite_docling(**change)} for change in (
            {"residual_multiplier": 0.5}, {"attention_multiplier": 0.25}, {"logits_scaling": 1.0},
            {"embedding_multiplier": 12.0})]),
    "nemotron-h-omni-awq": dict(config=OMNI, names=(
        "language_model.backbone.", "language_model.lm_head"), matters=[
            {"llm_config": {**OMNI["llm_config"], "layer_norm_epsilon": 0.1}}]),
    "qwen3-vl-awq": dict(tokens=32, config=with_vision("Qwen3VLForConditionalGeneration", "qwen3_vl", qwen3_vl(
        quantization_config=AWQ32), QWEN_VISION), names=LATER_NAMES, matters=[
            {"text_config": qwen3_vl(rope_theta=100000.0)}]),
    "qwen3-vl-moe-bf16": dict(config=with_vision("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", qwen3_vl_moe(
        torch_dtype="bfloat16"), QWEN_VISION), names=LATER_NAMES, experts="inputs-first", matters=[
            {"text_config": qwen3_vl_moe(num_experts_per_tok=2)}]),
    "qwen3-omni-moe-awq": dict(config=thinker("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", qwen3_omni_moe(
        quantization_config=NO_ROUTER)), names=THINKER_NAMES, matters=[]),
    "glm4v-awq": dict(tokens=32, config=with_vision("Glm4vForConditionalGeneration", "glm4v", glm4v(
        quantization_config=AWQ32), GLM_VISION), names=LATER_NAMES, bias="qkv", matters=[
            {"text_config": glm4v(rope_scaling={"rope_type": "default", "mrope_section": [4, 2, 2]})}]),
    "glm4v-moe-awq": dict(config=with_vision("Glm4vMoeForConditionalGeneration", "glm4v_moe", glm4v_moe(
        quantization_config=NO_ROUTER), GLM_VISION), names=LATER_NAMES, bias="qkv", matters=[
            {"text_config": glm4v_moe(routed_scaling_factor=1.0)}]),
}
