/* parallel.c - layers of three forms in one family (Falcon): attention and MLP come one after another, or
 * beside each other with one norm (7B) or a norm each (40B, "new"). Called by: config.c through a row of
 * architectures.c. */
#include "model/config/architectures.h"

Status config_parse_parallel(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool is_new, parallel;
  int n_norms, n_kv_heads;
  TRY(reader_bool(r, "new_decoder_architecture", false, &is_new));
  TRY(reader_bool(r, "parallel_attn", true, &parallel));
  TRY(reader_bool(r, "bias", false, &config->o_bias));
  TRY(reader_int(r, "num_kv_heads", 1, MAX_HEADS, config->n_heads, &n_kv_heads));
  TRY(reader_int(r, "num_ln_in_parallel_attn", 1, 2, 2, &n_norms));
  config->qkv_bias = config->mlp_bias = config->o_bias;
  if (parallel || is_new) config->parallel = is_new && n_norms == 2 ? PARALLEL_TWO_NORMS : PARALLEL_ONE_NORM;
  if (config->parallel != PARALLEL_TWO_NORMS) { /* NULL: Llama's names */
    TensorNames *names = &config->names;
    names->attn_norm = names->mlp_norm = names->attn_norm_bias = names->mlp_norm_bias = NULL;
  }
  if (!is_new) return STATUS_OK; /* multi_query has decided (config.c) */
  if (config->n_heads % n_kv_heads != 0)
    return reader_refuse(r, "num_attention_heads is %d, expected a multiple of its %d kv heads",
                         config->n_heads, n_kv_heads);
  config->n_kv_heads = n_kv_heads;
  config->fused = n_kv_heads == 1 ? FUSES_QKV : FUSES_QKV_HEADS;
  return STATUS_OK;
}
