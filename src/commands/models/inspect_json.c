/* inspect_json.c - `auk inspect --json`: the report as one object, with the names of config.json where they
 * exist. Called by: inspect.c. */
#include "base/json.h"
#include "commands/models/decimal.h"
#include "commands/models/inspect.h"
#include "cuda/one/table.h"
#include "engine/step_cost.h"

static Status put_double(JsonWriter w, const char *name, double value) {
  return json_put_raw(w, name, decimal(value).text);
}

/* Writes null for what is unknown or absent. */
static Status put_if(bool known, JsonWriter w, const char *name, double value) {
  return known ? put_double(w, name, value) : json_put_raw(w, name, "null");
}

/* --- parts of the report */

static Status put_sizes(JsonWriter w, const Inspection *inspection) {
  const ModelConfig *config = &inspection->model->config;
  TRY(json_put_string(w, "path", inspection->path));
  TRY(json_put_string(w, "layout", inspection->model->layout == LAYOUT_AK48 ? "ak48" : "huggingface"));
  TRY(json_put_string(w, "architecture", config->architecture));
  TRY(json_put_int(w, "hidden_size", config->hidden));
  TRY(json_put_int(w, "intermediate_size", config->intermediate));
  TRY(json_put_int(w, "num_hidden_layers", config->n_layers));
  TRY(json_put_int(w, "num_attention_heads", config->n_heads));
  TRY(json_put_int(w, "num_key_value_heads", config->n_kv_heads));
  TRY(json_put_int(w, "head_dim", config->head_dim));
  TRY(json_put_int(w, "vocab_size", config->vocab_size));
  TRY(json_put_int(w, "max_position_embeddings", config->max_position));
  TRY(json_put_bool(w, "tie_word_embeddings", config->tied_embeddings));
  TRY(put_if(inspection->model->eps_source, w, "rms_norm_eps", config->norm_eps));
  return json_put_string(w, "rms_norm_eps_source", inspection->model->eps_source);
}

/* Writes the fields that differ between architectures (src/model/config/config.h), then the devices that run
 * the model. */
static Status put_arithmetic(JsonWriter w, const Model *model) {
  static const char *const placements[] = {
      [NORM_BEFORE] = "before", [NORM_AROUND] = "around", [NORM_AFTER] = "after"};
  static const char *const qk_norms[] = {[QK_NORM_NONE] = NULL,
                                         [QK_NORM_PLAIN] = "heads",
                                         [QK_NORM_HEADS] = "heads",
                                         [QK_NORM_WHOLE] = "whole",
                                         [QK_NORM_CENTRED] = "heads, centred"};
  static const char *const attn_gates[] = {[ATTN_GATE_NONE] = NULL,
                                           [ATTN_GATE_NUMBERS] = "numbers",
                                           [ATTN_GATE_HEADS] = "heads",
                                           [ATTN_GATE_IN_Q] = "in q"};
  const ModelConfig *config = &model->config;
  TRY(json_put_string(w, "norms", placements[config->norms]));
  TRY(json_put_bool(w, "norms_before_delta", inspect_has_norms_before(config)));
  TRY(json_put_bool(w, "norms_centred", norms_are_centred(config)));
  TRY(json_put_bool(w, "norm_bias", norms_have_biases(config)));
  TRY(json_put_bool(w, "norms_plain", config->norms_plain));
  TRY(put_double(w, "clip_qkv", config->qkv_clip));
  TRY(json_put_bool(w, "lm_head_bias", config->head_bias));
  TRY(json_put_bool(w, "parallel_mlp", config->parallel));
  TRY(json_put_bool(w, "parallel_norms", config->parallel == PARALLEL_TWO_NORMS));
  TRY(json_put_bool(w, "norm_plus_one", norms_plus_one(config)));
  TRY(json_put_bool(w, "v_norm", config->v_norm));
  TRY(json_put_int(w, "v_head_dim", config->value_dim));
  TRY(put_double(w, "value_scale", config->value_dim ? config->value_scale : 1));
  TRY(json_put_bool(w, "layer_scalar", config->layer_scalar));
  TRY(json_put_int(w, "hidden_size_per_layer_input", config->per_layer_width));
  TRY(json_put_string(w, "qk_norm", qk_norms[config->qk_norm]));
  TRY(json_put_bool(w, "embedding_norm", config->embedding_norm));
  TRY(json_put_bool(w, "qk_norm_plain", config->qk_norm == QK_NORM_PLAIN));
  TRY(json_put_bool(w, "final_norm_plain", config->norm == NORM_PLUS_ONE_INSIDE));
  TRY(put_double(w, "post_norm_eps", config->post_norm_eps));
  TRY(json_put_bool(w, "qk_norm_after_rope", config->qk_norm_after_rope));
  TRY(json_put_string(w, "attn_gate", attn_gates[config->attn_gate]));
  TRY(json_put_bool(w, "attn_gate_softplus", config->attn_gate_softplus));
  TRY(json_put_string(w, "activation", activation_name(config->activation)));
  TRY(json_put_bool(w, "mlp_gate", !is_ungated(config->activation)));
  TRY(put_double(w, "embedding_scale", config->embedding_scale));
  TRY(put_double(w, "attention_scale", config->attention_scale));
  TRY(put_double(w, "query_scale_beta", config->query_scale_beta));
  TRY(put_double(w, "query_scale_step", config->query_scale_step));
  TRY(json_put_bool(w, "query_scale_nope", config->query_scale_nope));
  TRY(put_double(w, "residual_scale", config->residual_scale));
  TRY(put_double(w, "gate_scale", config->gate_scale));
  TRY(put_double(w, "mlp_scale", config->mlp_scale));
  TRY(put_double(w, "logit_divisor", config->logit_divisor));
  TRY(put_if(config->attention_cap != 0, w, "attention_cap", config->attention_cap));
  TRY(put_if(config->logit_cap != 0, w, "logit_cap", config->logit_cap));
  TRY(json_put_bool(w, "attn_sinks", config->attn_sinks));
  TRY(json_put_bool(w, "rope_neighbours", config->rope.neighbours));
  TRY(json_put_bool(w, "rope_backwards", config->rope.backwards));
  TRY(json_put_bool(w, "fused_gate_up", config->fused == FUSES_GATE_UP));
  TRY(json_put_bool(w, "fused", config->fused == FUSES_ALL));
  TRY(json_put_bool(w, "fused_qkv", config->fused == FUSES_QKV));
  TRY(json_put_bool(w, "fused_qkv_by_head", config->fused == FUSES_QKV_HEADS));
  TRY(json_put_bool(w, "fused_delta", config->fused == FUSES_DELTA));
  Error reason = {{0}};
  const bool known = model_check_known(model, &reason) == STATUS_OK;
  const bool cuda = known && cuda_check_model(model, &reason) == STATUS_OK;
  TRY(json_put_raw(w, "runs_on", cuda ? "[\"cpu\", \"cuda\"]" : known ? "[\"cpu\"]" : "[]"));
  return json_put_string(w, "cuda_refusal", cuda ? NULL : reason.text);
}

static Status put_factors(JsonWriter w, const char *name, const float *factors, int n) {
  TRY(json_put_raw(w, name, "["));
  for (int i = 0; i < n; i++) TRY(put_double(w, NULL, factors[i]));
  return json_end(w, "]");
}

static Status put_scaling(JsonWriter w, const char *name, const RopeConfig *rope) {
  TRY(json_put_raw(w, name, "{"));
  TRY(json_put_string(w, "rope_type", rope_kind_name(rope->kind)));
  if (rope->kind != ROPE_PLAIN) TRY(put_double(w, "factor", rope->factor));
  if (rope->kind == ROPE_PROPORTIONAL) TRY(json_put_int(w, "turned_pairs", rope->n_turned));
  if (rope->kind == ROPE_LLAMA3) {
    TRY(put_double(w, "low_freq_factor", rope->low_freq_factor));
    TRY(put_double(w, "high_freq_factor", rope->high_freq_factor));
  }
  if (rope->kind == ROPE_YARN) {
    TRY(put_double(w, "beta_fast", rope->beta_fast));
    TRY(put_double(w, "beta_slow", rope->beta_slow));
  }
  if (rope->kind == ROPE_LONGROPE) {
    TRY(put_factors(w, "short_factor", rope->short_factors, rope->rotary_dim / 2));
    TRY(put_factors(w, "long_factor", rope->long_factors, rope->rotary_dim / 2));
  }
  if (rope->kind == ROPE_LLAMA3 || rope->kind == ROPE_YARN || rope->kind == ROPE_LONGROPE)
    TRY(put_double(w, "original_max_position_embeddings", rope->original_max_position));
  return json_end(w, "}");
}

static Status put_layer_ropes(JsonWriter w, const ModelConfig *config) {
  static const char *const names[] = {[ROPE_GLOBAL] = "global", [ROPE_LOCAL] = "local", [ROPE_NONE] = "none"};
  bool local = false;
  TRY(json_put_raw(w, "layer_ropes", "["));
  for (int layer = 0; layer < config->n_layers; layer++) {
    TRY(json_put_string(w, NULL, names[config_layer(config, layer).rope]));
    local = local || config_layer(config, layer).rope == ROPE_LOCAL;
  }
  TRY(json_end(w, "]"));
  if (!local) return STATUS_OK;
  TRY(put_double(w, "local_rope_theta", config->local_rope.theta));
  return put_scaling(w, "local_rope_scaling", &config->local_rope);
}

static Status put_state_layers(JsonWriter w, const ModelConfig *config) {
  static const char *const kinds[N_LAYER_KINDS] = {"attention", "delta", "conv", "mlp"};
  const DeltaConfig *delta = &config->delta;
  TRY(json_put_raw(w, "layer_kinds", "["));
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    TRY(json_put_string(w, NULL, own.delta_beside ? "attention and delta" : kinds[own.kind]));
  }
  TRY(json_end(w, "]"));
  TRY(json_put_size(w, "recurrent_bytes", inspect_recurrent_bytes(config)));
  TRY(json_put_int(w, "short_conv", config->conv.taps));
  if (!delta->n_key_heads) return json_put_raw(w, "delta", "null");
  TRY(json_put_raw(w, "delta", "{"));
  TRY(json_put_string(w, "rule", delta->rule == RULE_MAMBA2 ? "mamba2" : "gated_delta"));
  TRY(json_put_int(w, "n_key_heads", delta->n_key_heads));
  TRY(json_put_int(w, "n_value_heads", delta->n_value_heads));
  TRY(json_put_int(w, "key_dim", delta->key_dim));
  TRY(json_put_int(w, "value_dim", delta->value_dim));
  TRY(json_put_int(w, "conv", delta->conv));
  TRY(json_put_bool(w, "normalised", !delta->no_norm));
  TRY(json_put_bool(w, "by_channel", delta->rule == RULE_CHANNELS));
  return json_end(w, "}");
}

static Status put_latent(JsonWriter w, const LatentConfig *latent) {
  if (!latent->kv_rank) return json_put_raw(w, "latent_attention", "null");
  TRY(json_put_raw(w, "latent_attention", "{"));
  TRY(json_put_int(w, "kv_lora_rank", latent->kv_rank));
  TRY(json_put_int(w, "q_lora_rank", latent->q_rank));
  TRY(json_put_int(w, "qk_nope_head_dim", latent->nope_dim));
  TRY(json_put_int(w, "qk_rope_head_dim", latent->rope_dim));
  TRY(json_put_int(w, "v_head_dim", latent->value_dim));
  return json_end(w, "}");
}

static Status put_streams(JsonWriter w, const ModelConfig *config) {
  const NgramConfig *ngrams = &config->ngrams;
  const IndexerConfig *indexer = &config->indexer;
  if (!config->streams.n) return json_put_raw(w, "streams", "null");
  TRY(json_put_raw(w, "streams", "{"));
  TRY(json_put_int(w, "hc_count", config->streams.n));
  TRY(json_put_int(w, "hc_lowrank", config->streams.rank));
  TRY(json_put_int(w, "ngram_size", ngrams->longest));
  TRY(json_put_int(w, "heads_per_ngram", ngrams->n_hashes));
  TRY(json_put_int(w, "ple_embed_dim", ngrams->width));
  TRY(json_put_raw(w, "ngram_rows", "["));
  for (int i = 0; i < config->n_layers; i++)
    TRY(json_put_size(w, NULL, config_layer(config, i).ngrams ? (size_t)ngram_rows(config, i) : 0));
  TRY(json_end(w, "]"));
  TRY(json_put_int(w, "indexer_budget", indexer->budget));
  TRY(json_put_int(w, "indexer_compress_ratio", indexer->block));
  TRY(json_put_int(w, "indexer_n_heads", indexer->n_heads));
  TRY(json_put_int(w, "indexer_head_dim", indexer->head_dim));
  return json_end(w, "}");
}

static Status put_altup(JsonWriter w, const ModelConfig *config) {
  if (!config->altup.n) return json_put_raw(w, "altup", "null");
  TRY(json_put_raw(w, "altup", "{"));
  TRY(json_put_int(w, "altup_num_inputs", config->altup.n));
  TRY(json_put_int(w, "laurel_rank", config->altup.laurel_rank));
  TRY(json_put_raw(w, "activation_sparsity", "["));
  for (int i = 0; i < config->n_layers; i++) TRY(put_double(w, NULL, config_layer(config, i).sparsity));
  TRY(json_end(w, "]"));
  return json_end(w, "}");
}

static Status put_experts(JsonWriter w, const Model *model) {
  static const char *const scores[] = {[SCORE_SOFTMAX] = "softmax",
                                       [SCORE_SIGMOID] = "sigmoid",
                                       [SCORE_CHOSEN] = "softmax_of_chosen",
                                       [SCORE_CHOSEN_SIGMOID] = "sigmoid_of_chosen",
                                       [SCORE_CHOSEN_NEAR] = "softmax_of_near"};
  const ExpertConfig *experts = &model->config.experts;
  if (!experts->n_experts) return json_put_raw(w, "experts", "null");
  TRY(json_put_raw(w, "experts", "{"));
  TRY(json_put_int(w, "n_experts", experts->n_experts));
  TRY(json_put_int(w, "n_chosen", experts->n_chosen));
  TRY(json_put_int(w, "intermediate_size", experts->width));
  TRY(json_put_int(w, "shared_intermediate_size", experts->shared_width));
  TRY(json_put_bool(w, "scales_input", experts->scales_input));
  TRY(json_put_bool(w, "shared_gate", experts->shared_output == SHARED_GATED));
  TRY(json_put_string(w, "score", scores[experts->score]));
  TRY(put_double(w, "near", experts->near));
  TRY(json_put_bool(w, "renormalise", experts->renormalise));
  TRY(put_double(w, "scale", experts->scale));
  TRY(json_put_bool(w, "halves_shared", experts->shared_output == SHARED_HALVED));
  TRY(json_put_bool(w, "post_norm", experts->norms == EXPERTS_POST_NORM));
  TRY(json_put_bool(w, "choice_bias", experts->choice_bias));
  TRY(json_put_int(w, "n_groups", experts->n_groups));
  TRY(json_put_int(w, "n_chosen_groups", experts->n_chosen_groups));
  TRY(json_put_size(w, "bytes_per_token", (size_t)step_cost(model, KV_F16, 0, 1, 1).bytes));
  return json_end(w, "}");
}

static Status put_layers(JsonWriter w, const ModelConfig *config) {
  TRY(json_put_raw(w, "layers", "["));
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig layer = config_layer(config, i);
    TRY(json_put_raw(w, NULL, "{"));
    TRY(json_put_int(w, "intermediate_size", layer.intermediate));
    TRY(json_put_int(w, "n_experts", layer.n_experts));
    TRY(json_put_int(w, "num_attention_heads", layer.n_heads));
    TRY(json_put_int(w, "num_key_value_heads", layer.n_kv_heads));
    TRY(json_put_int(w, "head_dim", layer.head_dim));
    TRY(json_put_bool(w, "k_as_v", layer.k_as_v));
    TRY(json_put_int(w, "kv_layer", layer.kv_layer));
    TRY(json_end(w, "}"));
  }
  return json_end(w, "]");
}

static Status put_positions(JsonWriter w, const Model *model) {
  const ModelConfig *config = &model->config;
  const char *theta_source = inspect_has_rope(config) ? model->theta_source : NULL;
  TRY(put_if(theta_source, w, "rope_theta", config->rope.theta));
  TRY(json_put_string(w, "rope_theta_source", theta_source));
  TRY(put_scaling(w, "rope_scaling", &config->rope));
  TRY(json_put_int(w, "rotary_dim", config->rope.rotary_dim));
  TRY(put_layer_ropes(w, config));
  TRY(json_put_raw(w, "sliding_windows", "["));
  for (int i = 0; i < config->n_layers; i++) TRY(json_put_int(w, NULL, config_layer(config, i).window));
  TRY(json_end(w, "]"));
  TRY(json_put_raw(w, "attention_chunks", "["));
  for (int i = 0; i < config->n_layers; i++) TRY(json_put_int(w, NULL, config_layer(config, i).chunk));
  return json_end(w, "]");
}

static Status put_quantisation(JsonWriter w, const Inspection *inspection) {
  const Model *model = inspection->model;
  TRY(json_put_string(w, "embedding_dtype", dtype_name(model->embedding.dtype)));
  const bool dense_head = model->head.kind == LINEAR_DENSE;
  TRY(json_put_string(w, "head_dtype", dense_head ? dtype_name(model->head.dtype) : NULL));
  TRY(put_if(!dense_head, w, "head_bits", model->head.bits));
  TRY(json_put_raw(w, "linear_layers", "{"));
  TRY(json_put_size(w, "quantised", inspection->n_quantised));
  TRY(json_put_size(w, "dense", inspection->n_dense));
  TRY(json_put_size(w, "with_bias", inspection->n_biases));
  if (inspection->n_quantised) {
    TRY(json_put_string(w, "layout", quant_method_name(model->config.quant.scheme.method)));
    TRY(json_put_size(w, "of_8_bits", inspection->n_8bit));
    TRY(json_put_size(w, "in_fp8", inspection->n_fp8));
    TRY(json_put_size(w, "in_fp4", inspection->n_fp4));
    TRY(json_put_bool(w, "repacked", model->replaced_bytes > 0));
    TRY(json_put_bool(w, "ordered", model->config.quant.ordered));
    TRY(json_put_int(w, "bits", model->config.quant.scheme.bits));
    TRY(json_put_int(w, "group_size", model->config.quant.scheme.group));
    TRY(json_put_int(w, "block_outputs", model->config.quant.scheme.block)); /* QuantScheme.block */
  }
  TRY(json_put_raw(w, "dense_layers", "{"));
  for (int i = 0; i < model->config.n_layers; i++) {
    for (int which = 0; which < layer_linear_count(&model->config, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      if (linear->kind == LINEAR_DENSE && layer_linear_is_first(&model->config, i, which))
        TRY(json_put_string(w, linear->name, dtype_name(linear->dtype)));
    }
  }
  TRY(json_end(w, "}"));
  return json_end(w, "}");
}

static Status put_generation(JsonWriter w, const ModelConfig *config) {
  const GenerationDefaults *generation = &config->generation;
  TRY(put_if(config->bos >= 0, w, "bos_token_id", config->bos));
  TRY(json_put_raw(w, "eos_token_id", "["));
  for (int i = 0; i < config->n_eos; i++) TRY(json_put_int(w, NULL, config->eos[i]));
  TRY(json_end(w, "]"));
  TRY(json_put_raw(w, "generation", "{"));
  TRY(json_put_bool(w, "do_sample", generation->do_sample));
  TRY(put_double(w, "temperature", generation->temperature));
  TRY(json_put_int(w, "top_k", generation->top_k));
  TRY(put_double(w, "top_p", generation->top_p));
  TRY(put_double(w, "min_p", generation->min_p));
  TRY(put_double(w, "repetition_penalty", generation->repetition_penalty));
  return json_end(w, "}");
}

static Status put_memory(JsonWriter w, const Inspection *inspection) {
  const Model *model = inspection->model;
  size_t n_ctx = (size_t)model->config.max_position;
  TRY(json_put_size(w, "weight_bytes", model->weight_bytes));
  TRY(json_put_size(w, "loaded_bytes", model_loaded_bytes(model)));
  TRY(json_put_raw(w, "kv_bytes_per_token", "{"));
  for (int kv = KV_F16; kv <= KV_Q8; kv++)
    TRY(json_put_size(w, kv_type_name((KvType)kv), inspect_kv_bytes(&model->config, (KvType)kv, 1)));
  TRY(json_end(w, "}"));
  TRY(json_put_raw(w, "kv_bytes_full_context", "{"));
  for (int kv = KV_F16; kv <= KV_Q8; kv++)
    TRY(json_put_size(w, kv_type_name((KvType)kv), inspect_kv_bytes(&model->config, (KvType)kv, n_ctx)));
  return json_end(w, "}");
}

static Status put_unused(JsonWriter w, const Model *model) {
  TRY(json_put_size(w, "n_tensors", model_tensor_count(model)));
  TRY(json_put_raw(w, "unused_tensors", "["));
  for (size_t i = 0; i < model_tensor_count(model); i++)
    if (!model_tensor(model, i)->used) TRY(json_put_string(w, NULL, model_tensor(model, i)->name));
  return json_end(w, "]");
}

static Status put_tensors(JsonWriter w, const Model *model) {
  TRY(json_put_raw(w, "tensors", "["));
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *tensor = model_tensor(model, i);
    TRY(json_put_raw(w, NULL, "\n  {"));
    TRY(json_put_string(w, "name", tensor->name));
    TRY(json_put_string(w, "dtype", tensor->dtype_name));
    TRY(json_put_raw(w, "shape", shape_text(tensor->rank, tensor->shape).text));
    TRY(json_put_size(w, "bytes", tensor->bytes));
    TRY(json_put_string(w, "file", tensor->file));
    TRY(json_put_bool(w, "used", tensor->used));
    TRY(json_end(w, "}"));
  }
  return json_end(w, "]");
}

/* Writes what --gpu-memory predicts, or null. */
static Status put_places(JsonWriter w, const Prediction *p) {
  if (p->limit == 0) return json_put_raw(w, "gpu_memory", "null");
  TRY(json_put_raw(w, "gpu_memory", "{"));
  TRY(json_put_size(w, "limit", p->limit));
  TRY(json_put_int(w, "context", p->context));
  TRY(json_put_size(w, "gpu_weight_bytes", p->memory.weights));
  TRY(json_put_size(w, "host_weight_bytes", p->memory.on_host));
  TRY(json_put_int(w, "layers_with_experts_on_host", p->memory.host_experts));
  TRY(json_put_int(w, "layers_on_host", p->memory.host_layers));
  TRY(put_double(w, "gpu_bytes_per_token", p->gpu_bytes));
  TRY(put_double(w, "host_bytes_per_token", p->host_bytes));
  TRY(put_if(p->rates.read_gbps > 0, w, "gpu_gbps", p->rates.read_gbps));
  TRY(put_double(w, "host_gbps", p->host_rates.read_gbps));
  TRY(put_double(w, "most_tokens_per_second", p->tokens_per_second));
  return json_end(w, "}");
}

/* Writes what --split predicts, or null. */
static Status put_shares(JsonWriter w, const DeviceShares *shares, const ModelConfig *whole) {
  const ModelConfig *part = &shares->part;
  const SplitGain *gain = inspect_split_gain(shares, whole);
  if (shares->n == 0) return json_put_raw(w, "split", "null");
  TRY(json_put_raw(w, "split", "{"));
  TRY(json_put_int(w, "num_attention_heads", part->n_heads));
  TRY(json_put_int(w, "num_key_value_heads", part->n_kv_heads));
  TRY(json_put_int(w, "intermediate_size", part->intermediate));
  TRY(put_if(part->experts.n_experts > 0, w, "expert_intermediate_size", part->experts.width));
  TRY(json_put_raw(w, "weight_bytes", "["));
  for (int i = 0; i < shares->n; i++) TRY(json_put_size(w, NULL, shares->weights[i]));
  TRY(json_end(w, "]"));
  TRY(json_put_raw(w, "kv_bytes_per_token", "{"));
  for (int kv = KV_F16; kv <= KV_F32; kv++)
    TRY(json_put_size(w, kv_type_name((KvType)kv), inspect_kv_bytes(part, (KvType)kv, 1)));
  TRY(json_end(w, "}"));
  TRY(json_put_size(w, "other_bytes", shares->other_bytes));
  TRY(put_if(gain, w, "decode_gain", gain ? gain->decode : 0));
  TRY(put_if(gain, w, "prefill_gain", gain ? gain->prefill : 0));
  return json_end(w, "}");
}

static Status put_pools(JsonWriter w, const Pools *pools) {
  TRY(json_put_raw(w, "pools", "{"));
  for (int i = 0; i < pools->n; i++) {
    const Pool *p = &pools->items[i];
    TRY(json_put_raw(w, p->backend->name, "{"));
    TRY(json_put_int(w, "sequences", p->n_sequences));
    TRY(put_if(p->n_pages > 0, w, "pages", p->n_pages));
    TRY(json_put_int(w, "page_tokens", p->backend->page_tokens));
    TRY(json_put_size(w, "page_bytes", p->page_bytes));
    TRY(json_put_size(w, "other_bytes", p->other_bytes));
    TRY(json_end(w, "}"));
  }
  return json_end(w, "}");
}

Status inspect_print_json(Buffer *out, const Inspection *inspection, const Prediction *prediction,
                          const Pools *pools, const DeviceShares *shares, bool tensors, Error *err) {
  const Model *model = inspection->model;
  const JsonWriter w = {out, err};
  TRY(buffer_append_string(out, "{", err));
  TRY(put_sizes(w, inspection));
  TRY(put_arithmetic(w, model));
  TRY(put_state_layers(w, &model->config));
  TRY(put_latent(w, &model->config.latent));
  TRY(put_streams(w, &model->config));
  TRY(put_altup(w, &model->config));
  TRY(put_experts(w, model));
  TRY(put_layers(w, &model->config));
  TRY(put_positions(w, model));
  TRY(put_quantisation(w, inspection));
  TRY(put_generation(w, &model->config));
  TRY(json_put_string(w, "tokenizer", model->tokenizer_path));
  TRY(put_memory(w, inspection));
  TRY(put_pools(w, pools));
  TRY(put_places(w, prediction));
  TRY(put_shares(w, shares, &inspection->model->config));
  TRY(put_unused(w, model));
  if (tensors) TRY(put_tensors(w, model));
  return buffer_append_string(out, "}\n", err);
}
