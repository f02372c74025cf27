/* multimodal.c - the table of models of several parts: their text part is computed.
 *
 * Called by: config.c.   Calls: architectures.c.
 * Always true: a model stands here only if its text part alone, given no images and no sound, is the
 * ordinary model of architectures.c that its text_config names; transformers 5.23, models/NAME. */
#include <string.h>

#include "model/config/architectures.h"

static const Multimodal multimodals[] = {
    /* clang-format off */
  /* architecture, model_type, the text part's model_type */
  { "Apertus1p5ForConditionalGeneration", "apertus1p5", "apertus1p5_text", .is = ONE_TEXT },
  { "Gemma3ForConditionalGeneration", "gemma3", "gemma3_text", .is = ONE_TEXT }, /* 4B to 27B */
  { "Gemma3nForConditionalGeneration", "gemma3n", "gemma3n_text", .is = ONE_TEXT }, /* E2B, E4B */
  { "Gemma4ForConditionalGeneration", "gemma4", "gemma4_text", .is = ONE_TEXT }, /* E2B to 31B */
  { "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", "gemma4_unified_text", .is = ONE_TEXT },
  { "Llama4ForConditionalGeneration", "llama4", "llama4_text", .is = ONE_TEXT }, /* Scout, Maverick */
  { "Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text", .is = FLAT_TEXT },
  { "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", .is = FLAT_TEXT },
  { "Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", .is = ONE_TEXT },
  { "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text", .is = ONE_TEXT },
  { "Qwen3_5ForConditionalGeneration", "qwen3_5", "qwen3_5_text", .is = ONE_TEXT },
  { "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "qwen3_5_moe_text", .is = ONE_TEXT },
  { "Qwen4ExpForConditionalGeneration", "qwen4_exp", "qwen4_exp_text", .is = ONE_TEXT },
  { "Qwen3_8FlashNextForConditionalGeneration", "qwen3_8_flash_next", "qwen4_exp_text", .is = ONE_TEXT,
    .old_text = "qwen3_8_flash_next_text" },
  { "Qwen2_5OmniModel", "qwen2_5_omni", "qwen2_5_omni_text", .is = THINKER_TEXT },
  { "Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni", "qwen2_5_omni_text", .is = THINKER_TEXT },
  { "Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker", "qwen2_5_omni_text",
    .is = ONE_TEXT },
  { "Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", "qwen3_omni_moe_text", .is = THINKER_TEXT },
  { "Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_thinker", "qwen3_omni_moe_text",
    .is = ONE_TEXT },
  { "Glm4vForConditionalGeneration", "glm4v", "glm4v_text", .is = ONE_TEXT }, /* GLM-4.1V */
  { "Glm4vMoeForConditionalGeneration", "glm4v_moe", "glm4v_moe_text", .is = ONE_TEXT }, /* GLM-4.5V */
  { "GlmOcrForConditionalGeneration", "glm_ocr", "glm_ocr_text", .is = ONE_TEXT }, /* GLM-OCR */
  { "HunYuanVLForConditionalGeneration", "hunyuan_vl", "hunyuan_vl_text", .is = FLAT_TEXT }, /* HunyuanOCR */
  { "PaddleOCRVLForConditionalGeneration", "paddleocr_vl", "paddleocr_vl_text", .is = FLAT_TEXT },
  /* These heads divide or multiply logits as the text model does. */
  { "Granite4VisionForConditionalGeneration", "granite4_vision", "granite4_vision_text", .is = ONE_TEXT,
    .old_text = "granite" },
  { "GraniteDoclingForConditionalGeneration", "granite_docling", "granite_docling_text", .is = ONE_TEXT },
  { "HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax_vision_v2", "hyperclovax", .is = ONE_TEXT },
  { "HCXVisionV2ForCausalLM", "vlm", "hyperclovax", .is = ONE_TEXT }, /* the same, as published */
  { "MuseGlimmerForConditionalGeneration", "muse_glimmer", "muse_glimmer_text", .is = ONE_TEXT },
  { "AyaVisionForConditionalGeneration", "aya_vision", "cohere2", .is = ANY_TEXT },
  { "AudioFlamingo3ForConditionalGeneration", "audioflamingo3", "qwen2", .is = ANY_TEXT },
  { "Cohere2VisionForConditionalGeneration", "cohere2_vision", "cohere2", .is = ANY_TEXT },
  { "DeepseekVLForConditionalGeneration", "deepseek_vl", "llama", .is = ANY_TEXT },
  { "DeepseekVLHybridForConditionalGeneration", "deepseek_vl_hybrid", "llama", .is = ANY_TEXT },
  { "Exaone4_5_ForConditionalGeneration", "exaone4_5", "exaone4", .is = ANY_TEXT,
    .old_text = "exaone4_5_text" },
  { "FastVlmForConditionalGeneration", "fast_vlm", "qwen2", .is = ANY_TEXT },
  { "Glm46VForConditionalGeneration", "glm46v", "glm4v_text", .is = ANY_TEXT }, /* GLM-4.6V and Flash */
  { "GotOcr2ForConditionalGeneration", "got_ocr2", "qwen2", .is = ANY_TEXT },
  { "Idefics3ForConditionalGeneration", "idefics3", "llama", .is = ANY_TEXT },
  { "InternVLForConditionalGeneration", "internvl", "qwen2", .is = ANY_TEXT },
  { "InternVLChatModel", "internvl_chat", "qwen2", .is = ANY_TEXT, .text_key = "llm_config" },
  { "JanusForConditionalGeneration", "janus", "llama", .is = ANY_TEXT },
  { "Kimi_K25ForConditionalGeneration", "kimi_k25", "deepseek_v3", .is = ANY_TEXT, .old_text = "kimi_k2" },
  { "KimiK25ForConditionalGeneration", "kimi_k25", "deepseek_v3", .is = ANY_TEXT, /* as published */
    .old_text = "kimi_k2" },
  { "Lfm2VlForConditionalGeneration", "lfm2_vl", "lfm2", .is = ANY_TEXT },
  { "Lfm3VlForConditionalGeneration", "lfm3_vl", "lfm3", .is = ANY_TEXT },
  { "LightOnOcrForConditionalGeneration", "lighton_ocr", "qwen3", .is = ANY_TEXT },
  { "LlavaForConditionalGeneration", "llava", "llama", .is = ANY_TEXT }, /* 1.5, Pixtral 12B */
  { "LlavaNextForConditionalGeneration", "llava_next", "llama", .is = ANY_TEXT }, /* 1.6 */
  { "LlavaNextVideoForConditionalGeneration", "llava_next_video", "llama", .is = ANY_TEXT },
  { "LlavaOnevisionForConditionalGeneration", "llava_onevision", "qwen2", .is = ANY_TEXT },
  { "MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6", "qwen3_5_text", .is = ANY_TEXT },
  { "MiniCPMV4_7ForConditionalGeneration", "minicpmv4_7", "qwen3_5_text", .is = ANY_TEXT },
  { "Mistral3ForConditionalGeneration", "mistral3", "mistral", .is = ANY_TEXT },
  { "NemotronH_Omni_Reasoning_V3", "nemotron_h_omni", "nemotron_h", .is = ANY_TEXT,
    .old_text_key = "llm_config" },
  { "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_Omni_Reasoning_V3", "nemotron_h", .is = ANY_TEXT,
    .old_text_key = "llm_config" }, /* as published */
  { "Ovis2ForConditionalGeneration", "ovis2", "qwen2", .is = ANY_TEXT },
  { "PerceptionLMForConditionalGeneration", "perception_lm", "llama", .is = ANY_TEXT },
  { "QianfanOCRForConditionalGeneration", "qianfan_ocr", "qwen3", .is = ANY_TEXT },
  { "Qwen2AudioForConditionalGeneration", "qwen2_audio", "qwen2", .is = ANY_TEXT },
  { "SmolVLMForConditionalGeneration", "smolvlm", "llama", .is = ANY_TEXT },
  { "VideoLlama3ForConditionalGeneration", "video_llama_3", "qwen2", .is = ANY_TEXT },
  { "VipLlavaForConditionalGeneration", "vipllava", "llama", .is = ANY_TEXT },
  { "VoxtralForConditionalGeneration", "voxtral", "llama", .is = ANY_TEXT },
    /* clang-format on */
};

const Multimodal *multimodal_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < sizeof multimodals / sizeof *multimodals; i++) {
    const Multimodal *row = &multimodals[i];
    if ((architecture ? strcmp(architecture, row->architecture) : strcmp(model_type, row->model_type)) == 0)
      return row;
  }
  return NULL;
}

const Architecture *multimodal_text(const Multimodal *whole, const char *model_type) {
  if (!model_type || (whole->old_text && strcmp(model_type, whole->old_text) == 0)) model_type = whole->text;
  if (whole->is != ANY_TEXT && strcmp(model_type, whole->text) != 0) return NULL;
  const Architecture *text = architecture_of_type(model_type);
  /* The wrappers of any model have a head of their own, without what these do to logits. */
  if (text && whole->is == ANY_TEXT &&
      (has(text, MULTIPLIERS) || has(text, LOGIT_CAP) || has(text, QK_FACTOR)))
    return NULL;
  return text;
}
