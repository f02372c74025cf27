/* multimodal.c - the table of models of several parts: their text part is computed.
 *
 * Always true: without images and sound, the text part of a model here is an ordinary model: the row of
 * architectures.c that the text part's config names. Source: transformers 5.23, models/NAME. */
#include <string.h>

#include "model/config/architectures.h"

const Multimodal multimodals[] = {
    /* clang-format off */
  /* architecture, model_type, the text part's model_type, models, where the text part is */
  { "Apertus1p5ForConditionalGeneration", "apertus1p5", "apertus1p5_text",
    "Apertus 1.5 8B, 70B", .is = ONE_TEXT },
  { "Gemma3ForConditionalGeneration", "gemma3", "gemma3_text", "Gemma 3 4B, 12B, 27B", .is = ONE_TEXT },
  { "Gemma3nForConditionalGeneration", "gemma3n", "gemma3n_text", "Gemma 3n E2B, E4B", .is = ONE_TEXT },
  { "Gemma4ForConditionalGeneration", "gemma4", "gemma4_text",
    "Gemma 4 E2B, E4B, 26B-A4B, 31B", .is = ONE_TEXT },
  { "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", "gemma4_unified_text",
    "Gemma 4 12B", .is = ONE_TEXT },
  { "Llama4ForConditionalGeneration", "llama4", "llama4_text", "Llama 4 Scout, Maverick", .is = ONE_TEXT },
  { "Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text", "Qwen2-VL", .is = FLAT_TEXT },
  { "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", "Qwen2.5-VL", .is = FLAT_TEXT },
  { "Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", "Qwen3-VL 2B to 32B", .is = ONE_TEXT },
  { "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text",
    "Qwen3-VL 30B-A3B, 235B-A22B", .is = ONE_TEXT },
  { "Qwen3_5ForConditionalGeneration", "qwen3_5", "qwen3_5_text",
    "Qwen3.5 0.8B to 27B, Qwen3.6-27B, Qwen3.8-27B", .is = ONE_TEXT },
  { "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "qwen3_5_moe_text",
    "Qwen3.5 and 3.6 35B-A3B, Qwen3.5-122B-A10B", .is = ONE_TEXT },
  { "Qwen4ExpForConditionalGeneration", "qwen4_exp", "qwen4_exp_text", "Qwen3.8-Flash-Next", .is = ONE_TEXT },
  { "Qwen3_8FlashNextForConditionalGeneration", "qwen3_8_flash_next", "qwen4_exp_text",
    "Qwen3.8-Flash-Next, as published", .is = ONE_TEXT, .old_text = "qwen3_8_flash_next_text" },
  { "Qwen2_5OmniModel", "qwen2_5_omni", "qwen2_5_omni_text", "Qwen2.5-Omni", .is = THINKER_TEXT },
  { "Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni", "qwen2_5_omni_text",
    "Qwen2.5-Omni, under another name", .is = THINKER_TEXT },
  { "Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker", "qwen2_5_omni_text",
    "the thinker of Qwen2.5-Omni", .is = ONE_TEXT },
  { "Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", "qwen3_omni_moe_text",
    "Qwen3-Omni 30B-A3B", .is = THINKER_TEXT },
  { "Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_thinker", "qwen3_omni_moe_text",
    "the thinker of Qwen3-Omni", .is = ONE_TEXT },
  { "Ernie4_5_VLMoeForConditionalGeneration", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text",
    "ERNIE 4.5 VL 28B-A3B", .is = ONE_TEXT },
  { "Molmo2ForConditionalGeneration", "molmo2", "molmo2_text", "Molmo 2 4B, 8B", .is = ONE_TEXT },
  { "AriaForConditionalGeneration", "aria", "aria_text", "Aria 25B-A3.9B", .is = ONE_TEXT,
    .old_text = "aria_moe_lm" },
  { "Step3p7ForConditionalGeneration", "step3p7", "step3p5", "Step 3.7 Flash", .is = ONE_TEXT },
  { "Glm4vForConditionalGeneration", "glm4v", "glm4v_text", "GLM-4.1V", .is = ONE_TEXT },
  { "Glm4vMoeForConditionalGeneration", "glm4v_moe", "glm4v_moe_text", "GLM-4.5V", .is = ONE_TEXT },
  { "GlmOcrForConditionalGeneration", "glm_ocr", "glm_ocr_text", "GLM-OCR", .is = ONE_TEXT },
  { "HunYuanVLForConditionalGeneration", "hunyuan_vl", "hunyuan_vl_text", "HunyuanOCR", .is = FLAT_TEXT },
  { "PaddleOCRVLForConditionalGeneration", "paddleocr_vl", "paddleocr_vl_text",
    "PaddleOCR-VL 0.9B", .is = FLAT_TEXT },
  /* The lm_heads of the next five rows divide or multiply logits as the text model's does. */
  { "Granite4VisionForConditionalGeneration", "granite4_vision", "granite4_vision_text",
    "Granite 4 Vision", .is = ONE_TEXT, .old_text = "granite" },
  { "GraniteDoclingForConditionalGeneration", "granite_docling", "granite_docling_text",
    "Granite Docling 500M, 2B", .is = ONE_TEXT },
  { "HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax_vision_v2", "hyperclovax",
    "HyperCLOVA X SEED Think 32B", .is = ONE_TEXT },
  { "HCXVisionV2ForCausalLM", "vlm", "hyperclovax", "HyperCLOVA X SEED Think 32B, as published",
    .is = ONE_TEXT },
  { "MuseGlimmerForConditionalGeneration", "muse_glimmer", "muse_glimmer_text",
    "Muse Glimmer 30B", .is = ONE_TEXT },
  { "AyaVisionForConditionalGeneration", "aya_vision", "cohere2", "Aya Vision 8B, 32B", .is = ANY_TEXT },
  { "AudioFlamingo3ForConditionalGeneration", "audioflamingo3", "qwen2", "Audio Flamingo 3", .is = ANY_TEXT },
  { "Cohere2VisionForConditionalGeneration", "cohere2_vision", "cohere2",
    "Command A Vision", .is = ANY_TEXT },
  { "DeepseekVLForConditionalGeneration", "deepseek_vl", "llama", "DeepSeek-VL 1.3B", .is = ANY_TEXT },
  { "DeepseekVLHybridForConditionalGeneration", "deepseek_vl_hybrid", "llama",
    "DeepSeek-VL 7B", .is = ANY_TEXT },
  { "Exaone4_5_ForConditionalGeneration", "exaone4_5", "exaone4", "EXAONE 4.5", .is = ANY_TEXT,
    .old_text = "exaone4_5_text" },
  { "FastVlmForConditionalGeneration", "fast_vlm", "qwen2", "FastVLM", .is = ANY_TEXT },
  { "Glm46VForConditionalGeneration", "glm46v", "glm4v_text", "GLM-4.6V and 4.6V-Flash", .is = ANY_TEXT },
  { "GotOcr2ForConditionalGeneration", "got_ocr2", "qwen2", "GOT-OCR 2.0", .is = ANY_TEXT },
  { "Idefics3ForConditionalGeneration", "idefics3", "llama", "Idefics 3", .is = ANY_TEXT },
  { "InternVLForConditionalGeneration", "internvl", "qwen2", "InternVL", .is = ANY_TEXT },
  { "InternVLChatModel", "internvl_chat", "qwen2", "InternVL, as published with its own code", .is = ANY_TEXT,
    .text_key = "llm_config" },
  { "JanusForConditionalGeneration", "janus", "llama", "Janus", .is = ANY_TEXT },
  { "Kimi_K25ForConditionalGeneration", "kimi_k25", "deepseek_v3", "Kimi K2.5", .is = ANY_TEXT,
    .old_text = "kimi_k2" },
  { "KimiK25ForConditionalGeneration", "kimi_k25", "deepseek_v3", "Kimi K2.5, as published", .is = ANY_TEXT,
    .old_text = "kimi_k2" },
  { "Lfm2VlForConditionalGeneration", "lfm2_vl", "lfm2", "LFM2-VL", .is = ANY_TEXT },
  { "Lfm3VlForConditionalGeneration", "lfm3_vl", "lfm3", "LFM3-VL", .is = ANY_TEXT },
  { "LightOnOcrForConditionalGeneration", "lighton_ocr", "qwen3", "LightOnOCR", .is = ANY_TEXT },
  { "LlavaForConditionalGeneration", "llava", "llama", "LLaVA 1.5, Pixtral 12B", .is = ANY_TEXT },
  { "LlavaNextForConditionalGeneration", "llava_next", "llama", "LLaVA 1.6", .is = ANY_TEXT },
  { "LlavaNextVideoForConditionalGeneration", "llava_next_video", "llama",
    "LLaVA-NeXT-Video", .is = ANY_TEXT },
  { "LlavaOnevisionForConditionalGeneration", "llava_onevision", "qwen2", "LLaVA-OneVision", .is = ANY_TEXT },
  { "MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6", "qwen3_5_text", "MiniCPM-V 4.6", .is = ANY_TEXT },
  { "MiniCPMV4_7ForConditionalGeneration", "minicpmv4_7", "qwen3_5_text", "MiniCPM-V 4.7", .is = ANY_TEXT },
  { "Mistral3ForConditionalGeneration", "mistral3", "mistral",
    "Mistral Small 3.1 to 4, Ministral 3, Devstral Small 2", .is = ANY_TEXT },
  { "NemotronH_Omni_Reasoning_V3", "nemotron_h_omni", "nemotron_h",
    "Nemotron 3 Nano Omni 30B-A3B", .is = ANY_TEXT, .old_text_key = "llm_config" },
  { "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_Omni_Reasoning_V3", "nemotron_h",
    "Nemotron 3 Nano Omni, as published", .is = ANY_TEXT, .old_text_key = "llm_config" },
  { "Ovis2ForConditionalGeneration", "ovis2", "qwen2", "Ovis2", .is = ANY_TEXT },
  { "PerceptionLMForConditionalGeneration", "perception_lm", "llama", "PerceptionLM", .is = ANY_TEXT },
  { "QianfanOCRForConditionalGeneration", "qianfan_ocr", "qwen3", "Qianfan-OCR", .is = ANY_TEXT },
  { "Qwen2AudioForConditionalGeneration", "qwen2_audio", "qwen2", "Qwen2-Audio", .is = ANY_TEXT },
  { "SmolVLMForConditionalGeneration", "smolvlm", "llama", "SmolVLM", .is = ANY_TEXT },
  { "VideoLlama3ForConditionalGeneration", "video_llama_3", "qwen2", "VideoLLaMA 3", .is = ANY_TEXT },
  { "VipLlavaForConditionalGeneration", "vipllava", "llama", "ViP-LLaVA", .is = ANY_TEXT },
  { "VoxtralForConditionalGeneration", "voxtral", "llama", "Voxtral", .is = ANY_TEXT },
    /* clang-format on */
};
const size_t n_multimodals = sizeof multimodals / sizeof *multimodals;

const Multimodal *multimodal_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < n_multimodals; i++) {
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
  /* A class that wraps any text model has an lm_head of its own, without these traits' changes to logits. */
  if (text && whole->is == ANY_TEXT &&
      (has(text, MULTIPLIERS) || has(text, LOGIT_CAP) || has(text, QK_FACTOR)))
    return NULL;
  return text;
}
