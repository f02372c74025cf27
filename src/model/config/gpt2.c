/* gpt2.c - what members of GPT-2's and GPT-BigCode's configs say of attention. Called by: config.c through a
 * row of architectures.c. */
#include "model/config/architectures.h"

Status config_parse_gpt2(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool one_kv_head = false;
  TRY(reader_expect_bool(r, "scale_attn_weights", true));
  TRY(reader_expect_bool(r, "scale_attn_by_inverse_layer_idx", false));
  TRY(reader_expect_bool(r, "add_cross_attention", false));
  if (arch->fused == FUSES_QKV_HEADS) TRY(reader_bool(r, "multi_query", true, &one_kv_head));
  if (!one_kv_head) return STATUS_OK;
  config->n_kv_heads = 1;
  config->fused = FUSES_QKV; /* the order by KV head is then q, k, v */
  return STATUS_OK;
}
