#!/usr/bin/env python3
"""make_miniatures.py - tiny random checkpoints with Hugging Face's logits for them, for
test/commands/measure/test_logits.py.

    python3 scripts/make_miniatures.py test/data/miniatures [NAME...]

Each directory is a whole checkpoint (config, weights, a tokenizer of single characters) and reference.npz:
`ids` [64] (of some fewer) and `logits` fp32 [64][vocab], teacher-forced, by reference.py. Together they cover the
architectures, layouts, rope scalings, windows, head sizes and spellings of models.md. Weights are seeded and
scaled so that attention and logits are decided, not flat; and every miniature says which members of its
config it is there for (`matters`): reading one wrongly must move the logits, which is checked here, so that
no miniature passes by not testing anything. Needs numpy, torch, transformers 5.
"""

import os
import shutil
import sys
import zlib

import numpy as np

import checkpoint
import compare
import reference
from miniature_configs import (ALPHA, AWQ32, GEMMA4_ROPES, LFM3_ROPES, LLAMA3, MINISTRAL3, PLAIN, VOCAB, YARN,
                               YARN_MSCALE, awq, bailing_hybrid, bamba, cohere2, ernie, exaone4, falcon_h1, gemma,
                               gemma2, gemma3, gemma3n, gemma4, gemma4_e, glm, glm4, granite, granite4, granite4_h,
                               granite_swa, hunyuan, kimi_linear, latent, lfm2, lfm3, llama, longrope, minicpm3,
                               ministral3, mistral, muse_glimmer, nemotron_h, new_names, olmo2, olmo3, olmo_hybrid,
                               phi3, qwen2, qwen3, qwen3_5, seed_oss, smollm3, with_vision)
from miniature_dense import DENSE_MINIATURES
from miniature_experts import EXPERT_MINIATURES, expert_tensors
from miniature_names import published_names, renamed
from miniature_parts import PART_MINIATURES
from miniature_shapes import (BIASED_NORMS, LARGER, PLAIN_NORMS, SINKS, delta_block, delta_sizes, fused, has_experts,
                              has_parts, has_sinks, is_altup, is_conv, is_delta, is_gemma4, is_lfm, is_mamba,
                              linear_shapes, mamba_sizes, norm_widths, text_of)
from miniature_streams import STREAM_MINIATURES, put_mix, stream_tensors, streams_width

N_TOKENS = 64
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
OFTEN_AT = [2, 5, 6, 21, 40, 57]
MARGIN = 0.02  # by which the blocks of sparse attention are chosen: rounding must not choose others
FLOOR = 1e-3  # least mean KL that a wrongly read member must cause: ten times what a test allows
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
# name: config, and what else there is to it:
#   matters   members of config.json that, replaced so, must move the logits by FLOOR
#   quant     "config": quantization_config lies in config.json; "file": in a quant_config.json with its old names
#   bias      layers that have one
#   shards    number of safetensors files
#   names     what names of tensors begin with, and the output head's
#   salt      of the reference's ids
#   tokens    of the reference, if not N_TOKENS
#   often     a token id that stands at OFTEN_AT of the reference's ids
#   experts   "each": they lie one by one; else how tensors of all of them are stored (miniature_experts.py)
MINIATURES = {
    "llama-f16": dict(tokens=32, config=llama(**SMALL), matters=[{"rope_theta": 100.0}]),
    "llama-bf16": dict(tokens=32, config=llama(**{**SMALL, "num_key_value_heads": 2}, torch_dtype="bfloat16",
                                    tie_word_embeddings=False, head_dim=None), matters=[{"rms_norm_eps": 0.1}]),
    "llama-f32-biases": dict(tokens=32, config=llama(torch_dtype="float32", attention_bias=True, mlp_bias=True,
                                          hidden_size=24,
                                          num_attention_heads=2, num_key_value_heads=1, intermediate_size=40),
                             bias="qkvogud", matters=[]),
    "llama-head-34": dict(tokens=32, config=llama(**{**SMALL, "num_attention_heads": 4}, head_dim=34), matters=[]),
    "llama-head-80": dict(tokens=32, config=llama(head_dim=80, num_attention_heads=2, num_key_value_heads=1,
                                       quantization_config=awq(16)), matters=[]),
    "llama-head-256": dict(tokens=32, config=llama(**{**SMALL, "intermediate_size": 64}, head_dim=256,
                                                   quantization_config=AWQ32), matters=[]),
    "llama-sharded": dict(
        tokens=32, config=llama(num_hidden_layers=3, hidden_size=48, intermediate_size=64, num_attention_heads=6,
                                num_key_value_heads=1), shards=3, matters=[]),
    "llama-linear": dict(
        tokens=32, config=llama(rope_scaling={"type": "linear", "factor": 4.0}, quantization_config=AWQ32),
        quant="file", matters=[{"rope_scaling": None}]),
    "llama3-awq": dict(config=llama(rope_scaling=LLAMA3, num_attention_heads=8, head_dim=16, quantization_config=awq(
        32, modules_to_not_convert=["lm_head"])), matters=[
            {"rope_scaling": None}, {"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0}},
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 8.0}},
            {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}}]),
    "llama3-awq-whole": dict(tokens=32, config=new_names(llama(rope_scaling=LLAMA3, tie_word_embeddings=False,
                                                    quantization_config=awq(-1))),
                             matters=[{"rope_parameters": {**PLAIN, "rope_theta": 10000.0}}]),
    "llama-yarn-mscale": dict(tokens=32, config=new_names(llama(**{**SMALL, "num_key_value_heads": 2},
                                                     rope_scaling=YARN_MSCALE)), matters=[
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "truncate": True}},
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "mscale": 1.0}},
        {"rope_parameters": {**YARN_MSCALE, "rope_theta": 10000.0, "beta_fast": 32.0}}]),
    "llama-awq-partly": dict(tokens=32, config=llama(quantization_config=awq(
        32, modules_to_not_convert=["model.layers.0.mlp.down_proj", "self_attn.v_proj"])), matters=[]),
    "mistral-window": dict(tokens=32, config=mistral(**SMALL, sliding_window=16, head_dim=None), matters=[
        {"sliding_window": None}, {"sliding_window": 15}, {"sliding_window": 17}]),
    "mistral-awq-128": dict(tokens=32, config=mistral(sliding_window=None, hidden_size=128, intermediate_size=128,
                                           head_dim=32,
                                           quantization_config=awq(128)), matters=[{"rope_theta": 100.0}]),
    "qwen2-awq": dict(tokens=32, config=qwen2(quantization_config=AWQ32, use_sliding_window=False, sliding_window=16,
                                   max_window_layers=1), bias="qkv", matters=[
                                       {"use_sliding_window": True}]),
    "qwen2-window": dict(tokens=32, config=qwen2(
        **SMALL, use_sliding_window=True, sliding_window=16, max_window_layers=1,
                                      num_hidden_layers=3, torch_dtype="bfloat16"), bias="qkv", matters=[
                                          {"use_sliding_window": False}, {"max_window_layers": 0},
                                          {"max_window_layers": 2}]),
    "qwen2-yarn": dict(tokens=32, config=qwen2(rope_scaling=YARN, rope_theta=1000.0, num_attention_heads=2,
                                    num_key_value_heads=2, quantization_config=awq(64), intermediate_size=128,
                                    use_sliding_window=False, tie_word_embeddings=False), bias="qkv", matters=[
                                        {"rope_scaling": None}, {"rope_scaling": {**YARN, "factor": 2.0}},
                                        {"rope_scaling": {**YARN, "beta_slow": 0.25}},
                                        {"rope_scaling": {**YARN, "attention_factor": 1.0}},
                                        {"rope_scaling": {**YARN, "original_max_position_embeddings": 64}}]),
    "qwen3-awq": dict(tokens=32, config=qwen3(head_dim=32, quantization_config=AWQ32), matters=[{"rope_theta": 100.0}]),
    "qwen3-layer-types": dict(tokens=32, config=new_names(qwen3(
        **SMALL, num_hidden_layers=3, head_dim=24, use_sliding_window=True, sliding_window=16, max_window_layers=0,
        torch_dtype="bfloat16", tie_word_embeddings=False,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])), matters=[
            {"layer_types": ["full_attention"] * 3}, {"layer_types": ["sliding_attention"] * 3}]),
    "qwen3-yarn": dict(tokens=32, config=new_names(qwen3(head_dim=32, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.5},
        rope_theta=1000.0, quantization_config=awq(16))), matters=[
            {"rope_parameters": {**PLAIN, "rope_theta": 1000.0}}]),
}


def with_members(config, **members):
    return {"rope_scaling": {**config["rope_scaling"], **members}}


PHI4_MINI = longrope(original_max_position_embeddings=32, num_key_value_heads=1, tie_word_embeddings=True,
                     quantization_config=AWQ32)
GEMMA3_ROPES = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
OLMO3_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32,
              "beta_slow": 1, "attention_factor": 1.2079441541679836}
OLMO3_ROPES = {"full_attention": {**OLMO3_YARN, "rope_theta": 1000.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}
# Architectures that are not derived from Llama: rows of src/model/config/architectures.c.
MINIATURES.update({
    "llama-gelu": dict(tokens=32, config=llama(hidden_act="gelu_pytorch_tanh", quantization_config=AWQ32),
                                  matters=[{"hidden_act": "silu"}]),
    "mistral-nemo": dict(tokens=32, config=mistral(head_dim=32, sliding_window=None, tie_word_embeddings=False,
                                        quantization_config=AWQ32), matters=[{"rope_theta": 100.0}]),
    "qwen3-biases": dict(
        tokens=32, config=qwen3(attention_bias=True, head_dim=24, quantization_config=AWQ32), bias="qkvo",
        matters=[]),
    "smollm3-awq": dict(config=smollm3(quantization_config=AWQ32), matters=[
        {"no_rope_layer_interval": 5}, {"no_rope_layer_interval": 2}]),
    "smollm3-window": dict(tokens=32, config=smollm3(
        num_hidden_layers=3, no_rope_layers=[0, 1, 0, 1], use_sliding_window=True, sliding_window=16,
        torch_dtype="bfloat16", **SMALL), matters=[
            {"no_rope_layers": None}, {"no_rope_layers": [1, 1, 0]}, {"use_sliding_window": False}]),
    "phi3-awq": dict(config=phi3(sliding_window=16, quantization_config=AWQ32), matters=[
        {"sliding_window": None}, {"sliding_window": 17}]),
    "phi3-longrope": dict(config=longrope(original_max_position_embeddings=64, torch_dtype="bfloat16",
                                          hidden_size=32, intermediate_size=48, num_attention_heads=2), matters=[
        {"original_max_position_embeddings": 63}, {"partial_rotary_factor": 0.7501, "rope_scaling": None}]),
    "phi3-longrope-long": dict(config=PHI4_MINI, matters=[
        {"original_max_position_embeddings": 64}, {"max_position_embeddings": 64},
        with_members(PHI4_MINI, factor=1.0), with_members(PHI4_MINI, attention_factor=1.1)]),
    "gemma2-awq": dict(config=gemma2(quantization_config=AWQ32), matters=[
        {"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"query_pre_attn_scalar": 32},
        {"hidden_activation": "silu"}, {"sliding_window": 17}, {"sliding_window": 15},
        {"layer_types": ["full_attention", "sliding_attention"] * 2}]),
    "gemma3-awq": dict(config=gemma3(
        num_hidden_layers=6, sliding_window_pattern=3, rope_theta=1000.0, rope_local_base_freq=50.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0}, quantization_config=AWQ32), matters=[
            {"sliding_window_pattern": 6}, {"rope_theta": 10000.0}, {"rope_local_base_freq": 500.0},
            {"rope_scaling": None}, {"query_pre_attn_scalar": 32}, {"sliding_window": 17}]),
    "gemma3-layer-types": dict(config={key: value for key, value in gemma3(
        num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        torch_dtype="bfloat16", final_logit_softcapping=6.0, rope_parameters=GEMMA3_ROPES).items()
        if key != "rope_theta"}, matters=[
            {"layer_types": ["sliding_attention"] * 3}, {"final_logit_softcapping": None},
            {"rope_parameters": {**GEMMA3_ROPES, "full_attention": GEMMA3_ROPES["sliding_attention"]}},
            {"rope_parameters": {**GEMMA3_ROPES, "sliding_attention": GEMMA3_ROPES["full_attention"]}}]),
    "gemma3-text-part": dict(config=with_vision(
        "Gemma3ForConditionalGeneration", "gemma3", gemma3(
            num_hidden_layers=3, sliding_window_pattern=2, rope_theta=1000.0, rope_local_base_freq=50.0,
            quantization_config=awq(32, modules_to_not_convert=["vision_tower", "multi_modal_projector", "lm_head"])),
        {**VISION, "model_type": "siglip_vision_model"}, mm_tokens_per_image=4),
        names=("language_model.model.", "language_model.lm_head"), matters=[]),
    "gemma3n-bf16": dict(tokens=20, config=gemma3n(), matters=[
        {"final_logit_softcapping": 12.0}, {"sliding_window": 9}, {"sliding_window": 7}, {"rope_theta": 50.0},
        {"rope_local_base_freq": 1000.0}, {"hidden_activation": "silu"}, {"altup_correct_scale": False},
        {"activation_sparsity_pattern": [0.75, 0.0, 0.0, 0.95]},
        {"activation_sparsity_pattern": [0.7, 0.0, 0.25, 0.95]}]),
    "gemma4-bf16": dict(config=gemma4(torch_dtype="bfloat16", intermediate_size=20), matters=[
        {"final_logit_softcapping": None}, {"sliding_window": 15}, {"sliding_window": 17},
        {"rope_parameters": {**GEMMA4_ROPES, "full_attention": GEMMA4_ROPES["sliding_attention"]}},
        {"rope_parameters": {**GEMMA4_ROPES, "full_attention": {
            **GEMMA4_ROPES["full_attention"], "partial_rotary_factor": 0.5}}},
        {"rope_parameters": {**GEMMA4_ROPES, "full_attention": {**GEMMA4_ROPES["full_attention"], "factor": 4.0}}}]),
    "gemma4-e": dict(config=gemma4_e(torch_dtype="bfloat16", use_double_wide_mlp=True), matters=[
        {"sliding_window": 17}, {"hidden_activation": "silu"}]),
    "gemma4-e-text-part": dict(config=with_vision(
        "Gemma4ForConditionalGeneration", "gemma4", gemma4_e(
            num_hidden_layers=4, num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2,
            intermediate_size=32, hidden_size_per_layer_input=32, quantization_config=awq(
                32, modules_to_not_convert=["per_layer_model_projection"])), None, audio_config=None),
        names=("model.language_model.", "lm_head"), matters=[]),
    "gemma4-layer-types": dict(tokens=32, config=gemma4(
        num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        per_layer_config={layer: {"head_dim": 32, "num_key_value_heads": 4} for layer in "12"},
        attention_k_eq_v=False, intermediate_size=40), matters=[{"sliding_window": 17}]),
    "gemma4-text-part": dict(tokens=32, config=with_vision(
        "Gemma4ForConditionalGeneration", "gemma4", gemma4(
            num_hidden_layers=3, head_dim=8, attention_k_eq_v=False, num_global_key_value_heads=None,
            torch_dtype="bfloat16"), None, audio_config=None),
        names=("model.language_model.", "lm_head"), matters=[]),
    "gemma4-unified": dict(tokens=32, config={key: value for key, value in gemma4(
        architectures=["Gemma4UnifiedForCausalLM"], model_type="gemma4_unified_text", num_hidden_layers=3,
        quantization_config=AWQ32).items() if key != "hidden_size_per_layer_input"}, matters=[]),
    "gemma4-unified-text-part": dict(tokens=32, config=with_vision(
        "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", gemma4(
            model_type="gemma4_unified_text", num_hidden_layers=3, quantization_config=AWQ32), None,
        audio_config=None),
        names=("model.language_model.", "lm_head"), matters=[]),
    "granite-awq": dict(tokens=32, config=granite(quantization_config=AWQ32), matters=[
        {"embedding_multiplier": 1.0}, {"attention_multiplier": 0.25}, {"residual_multiplier": 0.5},
        {"logits_scaling": 1.0}]),
    "granite-biases": dict(tokens=32, config=granite(
        attention_bias=True, mlp_bias=True, torch_dtype="bfloat16", hidden_size=48, intermediate_size=64,
        tie_word_embeddings=False), bias="qkvogud", matters=[]),
    "olmo2-awq": dict(tokens=32, config=olmo2(quantization_config=AWQ32), matters=[{"rope_theta": 100.0}]),
    "olmo3-yarn": dict(config=olmo3(rope_theta=1000.0, rope_scaling=OLMO3_YARN, quantization_config=AWQ32), matters=[
        {"sliding_window": 17}, {"sliding_window": 15}, {"rope_scaling": None}, {"rope_theta": 10000.0},
        {"layer_types": ["full_attention"] * 4}, {"layer_types": ["full_attention"] + ["sliding_attention"] * 3}]),
    "olmo3-layer-types": dict(config={key: value for key, value in olmo3(
        num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"], torch_dtype="bfloat16",
        rope_parameters=OLMO3_ROPES).items() if key != "rope_theta"}, matters=[
            {"layer_types": ["sliding_attention"] * 2},
            {"rope_parameters": {**OLMO3_ROPES, "full_attention": OLMO3_ROPES["sliding_attention"]}},
            {"rope_parameters": {**OLMO3_ROPES, "sliding_attention": OLMO3_ROPES["full_attention"]}}]),
    "seed-oss-awq": dict(
        tokens=32, config=seed_oss(quantization_config=AWQ32), bias="qkv", matters=[{"rope_theta": 100.0}]),
    "ministral3-awq": dict(config={key: value for key, value in ministral3(
        quantization_config=AWQ32).items() if key != "rope_theta"}, matters=[
            {"rope_parameters": {**MINISTRAL3, "llama_4_scaling_beta": 0.0}},
            {"rope_parameters": {**MINISTRAL3, "llama_4_scaling_beta": 0.4}},
            {"rope_parameters": {**MINISTRAL3, "original_max_position_embeddings": 17}},
            {"rope_parameters": {**MINISTRAL3, "factor": 2.0}}]),
    "ministral3-text-part": dict(config=with_vision(
        "Mistral3ForConditionalGeneration", "mistral3", {key: value for key, value in ministral3(
            torch_dtype="bfloat16").items() if key != "rope_theta"},
        {**VISION, "head_dim": 8, "model_type": "pixtral"}, image_token_index=100),
        names=("language_model.model.", "language_model.lm_head"), matters=[]),
    "hunyuan-awq": dict(tokens=32, config=hunyuan(quantization_config=AWQ32), matters=[
        {"rope_scaling": None}, {"rope_scaling": {**ALPHA, "alpha": 40.0}}, {"rope_theta": 1000.0}]),
    "glm-awq": dict(tokens=32, config=glm(quantization_config=AWQ32), bias="qkv", matters=[
        {"rope_theta": 100.0}, {"partial_rotary_factor": 0.75}]),
    "glm4-awq": dict(tokens=32, config=glm4(quantization_config=AWQ32), bias="qkv", matters=[
        {"rope_theta": 100.0}, {"partial_rotary_factor": 0.75}]),
    "ernie-awq": dict(tokens=32, config=ernie(quantization_config=AWQ32), matters=[{"rope_theta": 100.0}]),
    "ernie-biases": dict(tokens=32, config=ernie(use_bias=True, torch_dtype="bfloat16"), bias="qkvogud", matters=[]),
    "exaone4-awq": dict(tokens=32, config=exaone4(rope_scaling=LLAMA3, quantization_config=AWQ32), matters=[
        {"sliding_window": 17}, {"sliding_window": 15}, {"rope_scaling": None}, {"sliding_window_pattern": 2},
        {"sliding_window": None, "layer_types": ["full_attention"] * 4}]),
    "exaone4-no-window": dict(tokens=32, config=exaone4(
        num_hidden_layers=2, sliding_window=None, sliding_window_pattern=None, torch_dtype="bfloat16",
        layer_types=["full_attention"] * 2), matters=[{"sliding_window": 16}, {"rope_theta": 100.0}]),
    "granite4-awq": dict(tokens=32, config=granite4(quantization_config=AWQ32), matters=[
        {"embedding_multiplier": 1.0}, {"attention_multiplier": 0.25}, {"residual_multiplier": 0.5},
        {"logits_scaling": 1.0}, {"position_embedding_type": None}, {"rope_theta": 100.0}]),
    "granite4-no-rope": dict(tokens=32, config=granite4(position_embedding_type="nope",
                                                        torch_dtype="bfloat16"), matters=[
        {"position_embedding_type": "rope"}]),
    "granite-swa-awq": dict(tokens=32, config=granite_swa(layer_rope_theta=[0, 50.0, 1000.0, 50.0],
                                               quantization_config=AWQ32), matters=[
        {"sliding_window": 17}, {"sliding_window": 15}, {"layer_rope_theta": None},
        {"layer_rope_theta": [0, 50.0, 50.0, 50.0]}, {"layer_rope_theta": [10000.0, 50.0, 1000.0, 50.0]},
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}]),
    "granite-swa-bf16": dict(tokens=32, config=granite_swa(
        num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], torch_dtype="bfloat16"), matters=[
            {"layer_types": None}, {"rope_theta": 100.0}]),
    "muse-glimmer-text-part": dict(tokens=32, config=with_vision(
        "MuseGlimmerForConditionalGeneration", "muse_glimmer", muse_glimmer(
            quantization_config=awq(32, modules_to_not_convert=["vision_tower", "lm_head"])),
        {**VISION, "model_type": "muse_glimmer_vision"}, out_hidden_size=64, projector_hidden_size=16),
        names=("model.language_model.", "lm_head"), matters=[
            {"text_config": {**TEXT, **change}} for TEXT in [muse_glimmer()] for change in (
                {"qk_scale_factor": 2.5}, {"output_multiplier": 0.5}, {"post_norm_eps": 1e-8}, {"sliding_window": 17},
                {"final_logit_softcapping": 20.0}, {"layer_rope_theta": [10000.0] * 4}, {"rms_norm_eps": 0.1},
                {"layer_types": ["sliding_attention"] * 4})]),
    "mistral3-text-part": dict(tokens=32, config=with_vision(
        "Mistral3ForConditionalGeneration", "mistral3", mistral(head_dim=32, sliding_window=None,
                                                                quantization_config=AWQ32),
        {**VISION, "head_dim": 8, "model_type": "pixtral"}, image_token_index=100),
        names=("model.language_model.", "lm_head"), matters=[]),
})


QWEN3_5_ROPE = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                "mrope_section": [2, 1, 1]}
QWEN3_5_VISION = {"model_type": "qwen3_5", "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                  "out_hidden_size": 32, "num_position_embeddings": 4, "patch_size": 14}
QWEN3_5_TYPES = ["linear_attention"] * 3 + ["full_attention"]
QWEN3_5 = with_vision("Qwen3_5ForConditionalGeneration", "qwen3_5", {
    key: value for key, value in qwen3_5(layer_types=QWEN3_5_TYPES, rope_parameters=QWEN3_5_ROPE).items()
    if key != "rope_theta"}, QWEN3_5_VISION, image_token_id=100, tie_word_embeddings=False)


def with_text(config, **changes):
    return {"text_config": {**config["text_config"], **changes}}


# Layers with the gated delta rule beside some with attention.
MINIATURES.update({
    "qwen3_5": dict(config=QWEN3_5, names=("model.language_model.", "lm_head"), matters=[
        with_text(QWEN3_5, rope_parameters={**QWEN3_5_ROPE, "rope_theta": 10000.0}),
        with_text(QWEN3_5, rope_parameters={**QWEN3_5_ROPE, "partial_rotary_factor": 0.5}),
        with_text(QWEN3_5, rms_norm_eps=0.1)]),
    "qwen3_5-tied": dict(config=new_names(qwen3_5(
        linear_num_value_heads=2, linear_value_head_dim=16, full_attention_interval=3, torch_dtype="float16")),
        matters=[{"rms_norm_eps": 0.1}]),
    "qwen3_5-awq": dict(config=qwen3_5(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, full_attention_interval=2, linear_num_key_heads=1,
        linear_num_value_heads=4, linear_value_head_dim=16, linear_conv_kernel_dim=3, torch_dtype="float16",
        tie_word_embeddings=False, quantization_config=awq(32, modules_to_not_convert=["in_proj_a", "in_proj_b"])),
        matters=[{"rope_theta": 100.0}]),
})


# Mamba-2 beside attention: heads as those of published models, in two groups; and with experts, biases and limits
# of the step size.
MINIATURES.update({
    "granite4-h-awq": dict(config=granite4_h(
        hidden_size=64, mamba_expand=8, mamba_n_heads=8, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=2,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, quantization_config=AWQ32), matters=[
            {"rms_norm_eps": 0.1}, {"residual_multiplier": 0.5}]),
    "granite4-h-moe-bf16": dict(config=granite4_h(
        num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], mamba_d_conv=3, mamba_proj_bias=True,
        mamba_d_head="auto", mamba_n_heads=8, mamba_d_state=12, num_local_experts=6, num_experts_per_tok=2,
        intermediate_size=16, shared_intermediate_size=24, time_step_limit=[0.125, 0.75], torch_dtype="bfloat16"),
        bias="m", experts="all", matters=[
            {"time_step_limit": [0.0, 0.75]}, {"time_step_limit": [0.125, 4.0]}, {"num_experts_per_tok": 3},
            {"position_embedding_type": "rope"}, {"rms_norm_eps": 0.1}]),
})


# The same without multipliers, in every MLP a gate of its own, and a rope over half of a head.
MINIATURES.update({
    "bamba-bf16": dict(tokens=32, config=bamba(torch_dtype="bfloat16"), matters=[
        {"rope_theta": 100.0}, {"rms_norm_eps": 0.1}, {"rope_parameters": {
            "rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 1.0}}]),
})


# Norms before the delta rule and after attention, without a rope, as published; theta is given there where it is null.
MINIATURES.update({
    "olmo-hybrid-bf16": dict(config=olmo_hybrid(), tokens=40, matters=[
        {"linear_allow_neg_eigval": False}, {"rms_norm_eps": 0.1},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}]),
})


# LayerNorm, and the MLP beside attention.
MINIATURES.update({
    "cohere2-bf16": dict(config=cohere2(), tokens=24, matters=[
        {"sliding_window": 7}, {"sliding_window": 9}, {"rope_theta": 100.0}, {"layer_norm_eps": 0.1},
        {"logit_scale": 0.5}, {"layer_types": ["full_attention", "sliding_attention"]}]),
})


# A decay for each number of a key; latent attention without a rope.
MINIATURES.update({
    "kimi-linear-bf16": dict(config=kimi_linear(), tokens=36, matters=[
        {"moe_renormalize": False}, {"num_experts_per_token": 1}, {"routed_scaling_factor": 1.0},
        {"num_expert_group": 1}, {"rms_norm_eps": 0.1}]),
    "ling-bf16": dict(config=bailing_hybrid(), tokens=36, matters=[
        {"kda_safe_gate": False}, {"kda_lower_bound": -2.0}, {"rope_theta": 100.0}, {"norm_topk_prob": False},
        {"num_experts_per_tok": 1}, {"routed_scaling_factor": 1.0}, {"n_group": 1}, {"rms_norm_eps": 0.1}]),
})


# Mamba-2 beside attention in the same layer, without a norm of its output; each factor counts.
FALCON_H1_FACTORS = [{key: 1.0} for key in (
    "embedding_multiplier", "lm_head_multiplier", "attention_in_multiplier", "attention_out_multiplier",
    "key_multiplier", "ssm_in_multiplier", "ssm_out_multiplier")]
FALCON_H1_FACTORS += [{"ssm_multipliers": [1.0 if part == i else factor for i, factor in enumerate(
    [0.75, 1.5, 1.25, 2.0, 0.5])]} for part in range(5)]
MINIATURES.update({
    "falcon-h1-bf16": dict(config=falcon_h1(), tokens=40, matters=FALCON_H1_FACTORS + [
        {"mlp_multipliers": [1.0, 0.625]}, {"mlp_multipliers": [1.75, 1.0]}, {"rope_theta": 100.0},
        {"rms_norm_eps": 0.1}]),
})


# Short convolutions beside attention.
MINIATURES.update({
    "lfm2-bf16": dict(tokens=32, config=lfm2(), matters=[{"rope_theta": 100.0}, {"norm_eps": 0.1}]),
    "lfm2-awq": dict(tokens=32, config=lfm2(
        layer_types=["conv", "full_attention", "conv", "conv"], full_attn_idxs=None, conv_bias=True, conv_L_cache=4,
        block_ff_dim=64, block_auto_adjust_ff_dim=False, tie_embedding=False, torch_dtype="float16",
        quantization_config=AWQ32), bias="c", matters=[{"rope_theta": 100.0}]),
    "lfm3-bf16": dict(config=lfm3(), matters=[
        {"sliding_window": 15}, {"sliding_window": 17}, {"norm_eps": 0.1},
        {"rope_parameters": {**LFM3_ROPES, "full_attention": LFM3_ROPES["sliding_attention"]}},
        {"rope_parameters": {**LFM3_ROPES, "sliding_attention": LFM3_ROPES["full_attention"]}},
        {"rope_parameters": {**LFM3_ROPES, "full_attention": {
            **LFM3_ROPES["full_attention"], "partial_rotary_factor": 1.0}}},
        {"layer_types": ["conv", "full_attention", "conv", "full_attention"]}]),
    "lfm3-awq": dict(config={key: value for key, value in lfm3(
        num_hidden_layers=5, use_sandwich_norm=False, use_attention_gate=False, intermediate_size=64, conv_L_cache=5,
        torch_dtype="float16", quantization_config=AWQ32).items() if key not in ("layer_types", "rope_parameters")},
        matters=[{"rope_parameters": LFM3_ROPES}]),
})


# Layers that mix tokens or are an MLP, without gates: as a pattern and as a list, under both prefixes, experts one by
# one and all together, with biases, groups, a limit of the step size, and a latent space.
MINIATURES.update({
    "nemotron-h-awq": dict(config=nemotron_h(
        hybrid_override_pattern="M*-", num_hidden_layers=3, hidden_size=64, mamba_num_heads=8, mamba_head_dim=64,
        ssm_state_size=128, n_groups=2, intermediate_size=96, quantization_config=AWQ32),
        names=("backbone.", "lm_head"), matters=[{"layer_norm_epsilon": 0.1}]),
    "nemotron-h-moe-bf16": dict(config=nemotron_h(
        layers_block_type=["mamba", "attention", "moe"], num_hidden_layers=3, mamba_num_heads=6, conv_kernel=3,
        n_groups=3, use_bias=True, mlp_bias=True, time_step_min=0.125, time_step_limit=[0.125, float("inf")],
        n_group=4, topk_group=2, moe_intermediate_size=16, torch_dtype="bfloat16"), bias="mudl",
        names=("backbone.", "lm_head"), matters=[
            {"time_step_min": 1e-30}, {"num_experts_per_tok": 2}, {"routed_scaling_factor": 1.0}, {"topk_group": 3},
            {"norm_topk_prob": False}, {"layer_norm_epsilon": 0.1}]),
    "nemotron-h-latent-awq": dict(config=nemotron_h(
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], num_hidden_layers=4,
        hidden_size=64, intermediate_size=64, moe_latent_size=16, use_conv_bias=False, mamba_num_heads=8,
        mamba_head_dim=8, quantization_config=awq(32, modules_to_not_convert=["latent_proj", ".experts."])),
        experts="all", matters=[{"layer_norm_epsilon": 0.1}, {"num_experts_per_tok": 2}]),
})


# Latent attention: with and without a latent of queries, with YaRN, whose factors scale scores as well, and in models
# with and without experts.
LATENT_YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
               "beta_slow": 0.5, "mscale": 0.5, "mscale_all_dim": 0.9}
MISTRAL4 = {"rope_type": "yarn", "type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
            "max_position_embeddings": 128, "llama_4_scaling_beta": 0.1}
MINIATURES.update({
    "glm4-moe-lite-awq": dict(config=latent(
        architectures=["Glm4MoeLiteForCausalLM"], model_type="glm4_moe_lite", hidden_size=64, kv_lora_rank=64,
        q_lora_rank=32, n_routed_experts=6, quantization_config=AWQ32), matters=[
            {"rope_theta": 100.0}, {"rope_interleave": False}, {"routed_scaling_factor": 1.0}]),
    "deepseek-v3-bf16": dict(config=latent(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", attention_bias=True, n_group=4, topk_group=2,
        moe_intermediate_size=16, rope_scaling=LATENT_YARN, torch_dtype="bfloat16"), bias="xko", matters=[
            {"rope_scaling": {**LATENT_YARN, "mscale_all_dim": 0.0}}, {"rope_scaling": None}, {"topk_group": 3},
            {"rope_scaling": {**LATENT_YARN, "mscale": 0.9}}]),
    "axk1-bf16": dict(config=latent(
        architectures=["AXK1ForCausalLM"], model_type="axk1", hidden_size=16, intermediate_size=16,
        kv_lora_rank=16, q_lora_rank=8, qk_nope_head_dim=8, v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2,
        n_group=2, topk_group=1, moe_intermediate_size=8, tie_word_embeddings=True, torch_dtype="bfloat16"),
        experts="all", tokens=16, matters=[
            {"rope_theta": 100.0}, {"routed_scaling_factor": 0.5}, {"topk_group": 2}, {"norm_topk_prob": False},
            {"rope_interleave": False}]),
    "deepseek-v2-awq": dict(config=latent(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", q_lora_rank=None, topk_method="greedy",
        n_shared_experts=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
        kv_lora_rank=32, v_head_dim=16, rope_scaling=LATENT_YARN,
        quantization_config=AWQ32), matters=[{"rope_scaling": None}, {"routed_scaling_factor": 1.0}]),
    "deepseek-v2-groups": dict(config=latent(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", q_lora_rank=16, kv_lora_rank=32,
        topk_method="group_limited_greedy", n_group=4, topk_group=2, num_hidden_layers=1, first_k_dense_replace=0,
        moe_intermediate_size=16, v_head_dim=16, torch_dtype="bfloat16"), matters=[
            {"topk_method": "greedy"}, {"topk_group": 3}, {"n_group": 2, "topk_group": 1},
            {"routed_scaling_factor": 1.0}]),
    "mistral4-text-part": dict(config=with_vision(
        "Mistral3ForConditionalGeneration", "mistral3", {key: value for key, value in latent(
            architectures=["Mistral4ForCausalLM"], model_type="mistral4", n_group=2, topk_group=1, v_head_dim=16,
            num_hidden_layers=1, first_k_dense_replace=0, rope_parameters=MISTRAL4,
            torch_dtype="bfloat16").items() if key != "rope_theta"},
        {**VISION, "head_dim": 8, "model_type": "pixtral"}, image_token_index=100),
        names=("model.language_model.", "lm_head"), matters=[]),
    "sarvam-mla-bf16": dict(config={key: value for key, value in latent(
        architectures=["SarvamMLAForCausalLM"], model_type="sarvam_mla", q_lora_rank=None, hidden_size=16,
        intermediate_size=24, kv_lora_rank=16, qk_nope_head_dim=8, v_head_dim=16, head_dim=24, num_experts=4,
        num_shared_experts=1, num_experts_per_tok=2, n_group=2, moe_intermediate_size=8,
        rope_scaling={**LATENT_YARN, "type": "deepseek_yarn"}, torch_dtype="bfloat16").items()
        if key not in ("n_routed_experts", "n_shared_experts")}, tokens=24, matters=[
            {"rope_scaling": None}, {"rope_scaling": {**LATENT_YARN, "type": "deepseek_yarn", "mscale_all_dim": 0.0}},
            {"topk_group": 2}, {"routed_scaling_factor": 1.0}, {"rope_interleave": False}]),
    "minicpm3-awq": dict(config=minicpm3(quantization_config=AWQ32), matters=[
        {"scale_emb": 1}, {"scale_depth": 1.0}, {"dim_model_base": 32}, {"rope_scaling": None},
        {"max_position_embeddings": 64}]),
    "youtu-f16": dict(tokens=32, config=latent(
        architectures=["YoutuForCausalLM"], model_type="youtu", tie_word_embeddings=True, qk_rope_head_dim=16,
        num_hidden_layers=1), matters=[
            {"rope_theta": 100.0}, {"rope_interleave": False}]),
})


MINIATURES.update(EXPERT_MINIATURES)
MINIATURES.update(PART_MINIATURES)
MINIATURES.update(DENSE_MINIATURES)
MINIATURES.update(STREAM_MINIATURES)


def put_altup(config, prefix, put, normal):
    """The coefficients of a layer's streams; the router's outputs, divided by hidden_size, are such that tanh bends."""
    n, hidden = config["altup_num_inputs"], config["hidden_size"]
    put(prefix + "altup.modality_router.weight", normal(n, hidden, std=hidden**0.5))
    put(prefix + "altup.prediction_coefs.weight", normal(n * n, n, std=0.3))
    put(prefix + "altup.correction_coefs.weight", normal(n, n, std=0.5))
    put(prefix + "altup.correct_output_scale", 1 + normal(hidden, std=0.5))


def put_dory(config, prefix, layer, put, normal):
    """Numbers of each channel around initializer_range; those of queries are larger, so that attention is sharp."""
    init, mlp = config["initializer_range"], config["layer_types"][layer] == "mlp"
    put(prefix + ("mlp_alpha" if mlp else "attn_alpha"), init * (1 + normal(config["hidden_size"], std=0.7)))
    n = config["intermediate_size"] if mlp else config["num_attention_heads"] * config["head_dim"]
    for name, middle in (("suv_gate", 1), ("suv_up", 1)) if mlp else (("sqk", 1.2 * init), ("s_gate", init)):
        put(f"{prefix}mixer.{name}", middle * (1 + normal(n, std=0.3)))


def make_tensors(name, config, bias="", names=("model.", "lm_head"), experts="each"):
    several, config = has_parts(config), text_of(config)
    body, head = names
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = config.get("torch_dtype") or config["dtype"]
    quant, hidden = config.get("quantization_config"), config["hidden_size"]
    dense = (quant or {}).get("modules_to_not_convert") or []
    plus_one = config["model_type"] == "nemotron" or not is_gemma4(config) and not is_altup(config) and any(
        name in config["model_type"] for name in ("gemma", "muse", "qwen3_5", "qwen3_next", "qwen4_exp", "step3p5"))
    middle = 0 if plus_one else 1  # these models' norms multiply by 1 + weight
    tensors = {}

    def put(tensor, values):
        stored = {"float16": np.float16, "float32": np.float32}.get(dtype)
        tensors[tensor] = values.astype(stored) if stored else checkpoint.to_bf16(values)

    def normal(*shape, std):
        return (rng.standard_normal(shape) * std).astype(np.float32)

    # Tied heads: rows of this length make logits of a standard deviation near 3.
    nemotron = config["model_type"] == "nemotron_h"
    dory = config.get("initializer_range") if config["model_type"] == "dory" else None
    embedding = {"nemotron_h": "embeddings", "dory": "embeddings", "bailing_hybrid": "word_embeddings"}.get(
        config["model_type"], "embed_tokens")
    put(body + embedding + ".weight",
        normal(config["vocab_size"], hidden, std=3 / hidden**0.5))
    if width := config.get("hidden_size_per_layer_input"):
        n_columns = config["num_hidden_layers"] * width
        put(body + "embed_tokens_per_layer.weight",
            normal(config["vocab_size_per_layer_input"], n_columns, std=1 / width**0.5))
        put(body + "per_layer_model_projection.weight", normal(n_columns, hidden, std=1))
        put(body + "per_layer_projection_norm.weight", 1 + normal(width, std=0.25))
    if "n_positions" in config:
        put(body + "wpe.weight", normal(config["n_positions"], hidden, std=3 / hidden**0.5))
    for i in range(config.get("altup_num_inputs", 1) - 1):
        put(f"{body}altup_projections.{i}.weight", normal(hidden, hidden, std=1))
        put(f"{body}altup_unembed_projections.{i}.weight", normal(hidden, hidden, std=1))
    for layer in range(config["num_hidden_layers"]):
        prefix = f"{body}layers.{layer}."
        for norm, width in norm_widths(config, layer).items():
            more = 1 if "gemma" in config["model_type"] and norm in LARGER else 0
            if is_gemma4(config) and norm.startswith("self_attn."):
                more = -0.3  # scores are not scaled
            if is_altup(config) and norm.startswith("self_attn."):
                more = 0
            put(prefix + norm + ".weight", middle + more + normal(*np.atleast_1d(width), std=0.25))
            if config["model_type"] in BIASED_NORMS and "self_attn" not in norm:
                put(prefix + norm + ".bias", normal(width, std=0.5))
        if has_sinks(config, layer):
            put(prefix + SINKS[config["model_type"]], normal(config["num_attention_heads"], std=2))
        for linear, (letter, n_out, n_in) in linear_shapes(config, layer).items():
            # Scores q k / sqrt(head_dim) of a standard deviation near 2.5: a few positions get the attention.
            sharp = 2.4 if config["model_type"] == "gemma2" else 1.6
            weight = normal(n_out, n_in, std=(sharp if letter and letter in "qk" else 1.0) / n_in**0.5)
            whole = prefix + linear
            if quant and quant["quant_method"] == "awq" and not any(module in whole for module in dense):
                tensors.update(checkpoint.awq_tensors(whole, *checkpoint.awq_quantise(weight, quant["group_size"])))
            else:
                put(whole + ".weight", weight.T if config["model_type"] == "gpt2" else weight)
            if letter and letter in bias:
                put(whole + ".bias", normal(n_out, std=0.5))
        if has_experts(config, layer):
            expert_tensors(config, prefix, experts, put, normal, tensors)
        if streams_width(config):
            sharded = config["split_ngram_parts"] > 1
            stream_tensors(config, prefix, layer, sharded, is_delta(config, layer), put, normal, tensors)
        if dory:
            put_dory(config, prefix, layer, put, normal)
        # Numbers of the activation, as published: two lists, two scalars.
        if config["model_type"] in ("apertus", "apertus1p5_text"):
            put(prefix + "mlp.act_fn.alpha_p", normal(1, std=0.5))
            put(prefix + "mlp.act_fn.alpha_n", normal(1, std=0.5))
            put(prefix + "mlp.act_fn.beta", np.float32(0.3 + 0.1 * layer))
            put(prefix + "mlp.act_fn.eps", np.float32(-1e-6))
        if is_altup(config):
            put_altup(config, prefix, put, normal)
        if is_gemma4(config):
            put(prefix + "layer_scalar", 0.7 + normal(1, std=0.1))
        if is_delta(config, layer):
            keys, values, n_values = delta_sizes(config)
            prefix += delta_block(config)
            channels = config["model_type"] in ("kimi_linear", "bailing_hybrid")
            if channels:
                taps = config.get("linear_attn_config", config)["short_conv_kernel_size"]
                for part, n in zip("qkv", (keys, keys, values)):
                    put(prefix + part + "_conv1d.weight", normal(n, 1, taps, std=0.7))
            else:
                put(prefix + "conv1d.weight", normal(2 * keys + values, 1, config["linear_conv_kernel_dim"], std=0.7))
            put(prefix + "dt_bias", normal(keys if channels else n_values, std=1.0) - 2)
            # These two are fp32 in checkpoints of bf16.
            shape = (1, 1, n_values, 1) if config["model_type"] == "kimi_linear" else (n_values,)
            tensors[prefix + "A_log"] = normal(*shape, std=0.7)
            norm = "o_norm" if channels or config["model_type"] == "olmo_hybrid" else "norm"
            tensors[prefix + norm + ".weight"] = 1 + normal(values // n_values, std=0.25)
        if is_mamba(config, layer):
            heads, values, channels = mamba_sizes(config)
            prefix += "mixer." if nemotron else "mamba."
            taps, conv_bias = ("conv_kernel", "use_conv_bias") if nemotron else ("mamba_d_conv", "mamba_conv_bias")
            put(prefix + "conv1d.weight", normal(channels, 1, config[taps], std=0.7))
            if config[conv_bias]:
                put(prefix + "conv1d.bias", normal(channels, std=0.5))
            put(prefix + "dt_bias", normal(heads, std=1.0) - 1)
            put(prefix + "A_log", normal(heads, std=0.7))
            put(prefix + "D", 1 + normal(heads, std=0.5))
            if config.get("mamba_rms_norm", True):
                put(prefix + "norm.weight", 1 + normal(values, std=0.25))
        if is_conv(config, layer):
            put(prefix + "conv.conv.weight", normal(hidden, 1, config["conv_L_cache"], std=0.7))
            if config["conv_bias"]:
                put(prefix + "conv.conv.bias", normal(hidden, std=0.5))
    last = 1 if "muse" in config["model_type"] else middle
    final_norm = {"nemotron_h": "norm_f", "bamba": "final_layernorm", "falcon_h1": "final_layernorm"}.get(
        config["model_type"], "embedding_norm" if is_lfm(config) else "norm")
    if streams_width(config):
        put(body + "hyper_connection_mixer.hc_norm.weight", normal(streams_width(config), std=0.25))
        put_mix(config, body + "hyper_connection_mixer", False, put, normal)
    else:
        if config["model_type"] not in PLAIN_NORMS:
            put(body + final_norm + ".weight", last + normal(hidden, std=0.25))
    ties = ("gemma", "cohere", "falcon", "gpt2", "gpt_bigcode")
    tied = config.get("tie_word_embeddings", any(name in config["model_type"] for name in ties))
    if not config.get("tie_embedding", tied):
        length = 6 if streams_width(config) else 3  # a mix of streams is about half as long as what a norm returns
        n_out = config.get("output_vocab_size", config["vocab_size"])
        put(head + ".weight", normal(n_out, hidden, std=length / hidden**0.5))
    if dory:
        put(head + ".logit_scale", 4 * dory * (1 + normal(config["vocab_size"], std=0.25)))
    if config.get("lm_head_bias") or config["model_type"] == "phi":
        put(head + ".bias", normal(config["vocab_size"], std=1))
    if config["model_type"] in BIASED_NORMS:
        put(body + final_norm + ".bias", normal(hidden, std=0.5))
    if config.get("additional_vocab_size"):
        put(body + "transformer.wte.new_embedding", normal(config["additional_vocab_size"], hidden, std=1))
    if several:  # what is no part of the text's
        put(tower_name(config, body) + ".bias", normal(16, std=1))
    if config["model_type"].startswith("qwen3_5") and several:  # a layer that drafts tokens
        put("mtp.fc.weight", normal(hidden, 2 * hidden, std=1))
    if streams_width(config) and several:
        put("mtp.norm.weight", normal(hidden, std=1))
    return renamed(fused(tensors, config), published_names(config["model_type"]))


def tower_name(config, body):
    """One of another part's tensors, as published."""
    if not config["model_type"].startswith(("qwen", "glm")):
        return "vision_tower.patch_embedding"
    return {"model.": "", "thinker.model.": "thinker."}.get(body, "model.") + "visual.patch_embed.proj"


def tokenizer():
    """A token for each character of the alphabet and three special ones: `auk eval` wants one beside a
    checkpoint."""
    byte_level_names = {"\n": "\u010a", " ": "\u0120"}  # as GPT-2's alphabet of bytes has them
    vocab = {byte_level_names.get(character, character): i for i, character in enumerate(ALPHABET)}
    special = [{"id": len(ALPHABET) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, content in enumerate(["<pad>", "<s>", "</s>"])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": []}}


def write_config(directory, config, quant):
    config = dict(config)
    if quant == "file":
        old = config.pop("quantization_config")
        checkpoint.write_json(os.path.join(directory, "quant_config.json"), {
            "zero_point": old["zero_point"], "q_group_size": old["group_size"], "w_bit": old["bits"],
            "version": old["version"].upper()})
    checkpoint.write_json(os.path.join(directory, "config.json"), config)


def make(out, name, config, matters, quant="config", bias="", shards=1, names=("model.", "lm_head"), experts="each",
         often=None, salt=1, tokens=N_TOKENS):
    directory = os.path.join(out, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    tensors = make_tensors(name, config, bias, names, experts)
    if shards > 1:
        checkpoint.write_shards(directory, tensors, shards)
    else:
        checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    write_config(directory, config, quant)
    checkpoint.write_json(os.path.join(directory, "tokenizer.json"), tokenizer(), indent=None)

    rng = np.random.default_rng(zlib.crc32(name.encode()) + salt)
    ids = rng.integers(0, config.get("output_vocab_size", VOCAB), tokens).astype(np.int32)
    if often is not None:
        ids[OFTEN_AT] = often
    model = reference.load(directory)
    logits = reference.logits(model, ids)
    if not (margin := reference.least_margin(model, ids)) >= MARGIN:
        sys.exit(f"{name}: a block is chosen by {margin:.2g}, expected at least {MARGIN}: take another salt")
    np.savez_compressed(os.path.join(directory, "reference.npz"), ids=ids, logits=logits)
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    print(f"{name}: {size // 1000} kB, logits of standard deviation {logits.std():.1f}")
    for change in matters:
        distance = compare.kl(logits, reference.logits(reference.load(directory, **change), ids)).mean()
        print(f"  {change}: mean KL {distance:.2g}")
        if not distance >= FLOOR:
            sys.exit(f"{name}: {change} moves the logits by a mean KL of {distance:.2g}, expected at least {FLOOR}")


def main(out, *names):
    for name, miniature in MINIATURES.items():
        if not names or name in names:
            make(out, name, **miniature)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
