/* latent.c - multi-head latent attention in config.json (DeepSeek-V2 and V3, GLM-4.7-Flash and others).
 *
 * Source: transformers 5.23, configuration_NAME.py and modeling_NAME.py of models/deepseek_v2, deepseek_v3,
 * glm4_moe_lite, minicpm3, mistral4 and youtu. */
#include <math.h>

#include "model/config/architectures.h"

Status config_parse_latent(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  LatentConfig *latent = &config->latent;
  const LatentConfig *usual = &arch->latent;
  const bool direct = reader_is_null(r, "q_lora_rank"); /* queries come from the layer's input */
  int n_kv_heads;
  TRY(reader_int(r, "num_attention_heads", 1, MAX_HEADS, arch->n_heads, &config->n_heads));
  TRY(reader_int(r, "num_key_value_heads", 1, MAX_HEADS, config->n_heads, &n_kv_heads));
  if (n_kv_heads != config->n_heads)
    return reader_refuse(r, "num_key_value_heads is %d, expected num_attention_heads, %d", n_kv_heads,
                         config->n_heads);
  TRY(reader_int(r, "q_lora_rank", 1, MAX_HIDDEN, direct ? 0 : usual->q_rank, &latent->q_rank));
  TRY(reader_int(r, "kv_lora_rank", 1, MAX_HEAD_DIM, usual->kv_rank, &latent->kv_rank));
  TRY(reader_int(r, "qk_nope_head_dim", 1, MAX_HEAD_DIM, usual->nope_dim, &latent->nope_dim));
  TRY(reader_int(r, "qk_rope_head_dim", 2, MAX_HEAD_DIM, usual->rope_dim, &latent->rope_dim));
  const int value_dim = usual->value_dim > 0 ? usual->value_dim : config->hidden / config->n_heads;
  TRY(reader_int(r, "v_head_dim", 1, MAX_HEAD_DIM, value_dim, &latent->value_dim));
  if (latent->value_dim < 1)
    return reader_refuse(r,
                         "hidden_size is %d, expected at least num_attention_heads %d where v_head_dim is "
                         "not given",
                         config->hidden, config->n_heads);
  if (latent->rope_dim % 2 != 0 || latent->kv_rank % 2 != 0)
    return reader_refuse(r, "qk_rope_head_dim is %d and kv_lora_rank %d, expected even numbers",
                         latent->rope_dim, latent->kv_rank);
  config->n_kv_heads = 1;
  config->head_dim = latent->rope_dim + latent->kv_rank;
  if (latent->value_dim > config->head_dim)
    return reader_refuse(r, "v_head_dim is %d, expected at most kv_lora_rank + qk_rope_head_dim, %d",
                         latent->value_dim, config->head_dim);
  if (config->head_dim <= MAX_HEAD_ROW) return STATUS_OK;
  return reader_refuse(r, "kv_lora_rank and qk_rope_head_dim are %d and %d together, expected at most %d",
                       latent->kv_rank, latent->rope_dim, MAX_HEAD_ROW);
}

/* attention_scale = 1 / sqrt(nope_dim + rope_dim). With YaRN and a factor > 1 it is multiplied by mscale^2;
 * mscale = 0.1 mscale_all_dim ln(factor) + 1. */
void config_scale_latent(ModelConfig *config) {
  const LatentConfig *latent = &config->latent;
  const RopeConfig *rope = &config->rope;
  config->attention_scale = 1 / sqrt(latent->nope_dim + latent->rope_dim);
  if (rope->kind == ROPE_PLAIN || rope->mscale_all_dim == 0 || rope->factor <= 1) return;
  const double mscale = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1;
  config->attention_scale *= mscale * mscale;
}
