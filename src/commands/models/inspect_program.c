/* inspect_program.c - `auk inspect --program`: the operations of a step, what they read and write, and the
 * tensors that they take. Called by: inspect.c. */
#include <stdlib.h>
#include <string.h>

#include "commands/models/inspect.h"
#include "model/program.h"

/* Prints a matrix: its name, its sizes, how it is stored. */
static Status print_linear(Buffer *out, const char *name, const Linear *linear, Error *err) {
  TRY(buffer_printf(out, err, "\n    %-36s %d -> %d  ", name, linear->n_in, linear->n_out));
  if (linear->kind == LINEAR_DENSE) return buffer_append_string(out, dtype_name(linear->dtype), err);
  if (linear->kind == LINEAR_FP8) return buffer_append_string(out, "FP8", err);
  return buffer_printf(out, err, linear->kind == LINEAR_FP4 ? "FP%d" : "%d bits", linear->bits);
}

static Status print_vector(Buffer *out, const char *name, const Vector *vector, Error *err) {
  return buffer_printf(out, err, "\n    %-36s %d  %s", name, vector->n, dtype_name(vector->dtype));
}

static Status print_table(Buffer *out, const char *name, const Matrix *table, Error *err) {
  return buffer_printf(out, err, "\n    %-36s %d -> %d  %s", name, table->n_rows, table->n_columns,
                       dtype_name(table->dtype));
}

/* The name of a tensor within its layer: without "layers.0." or the like. */
static const char *name_in_layer(const ModelConfig *config, const char *part, const char *suffix,
                                 char whole[2 * LINEAR_NAME_SIZE]) {
  layer_full_name(config, "", 0, part, whole, LINEAR_NAME_SIZE);
  return strcat(whole, suffix) + strlen(layers_name(config)) + strlen(".0.");
}

/* Prints the tensors that the first or the last operation (OP_LOGITS) takes; they belong to no layer. */
static Status print_others(Buffer *out, const Model *model, OpKind kind, Error *err) {
  char name[LINEAR_NAME_SIZE];
  const bool logits = kind == OP_LOGITS;
  for (int i = 0; i < N_MODEL_TABLES; i++)
    if (!logits && model->table[i].n_rows > 0)
      TRY(print_table(out, model_table_stored(&model->config, i).name, &model->table[i], err));
  for (int i = 0; i < N_MODEL_VECTORS; i++) {
    if (!model->vector[i].data || logits == (model_vector_rows(i) == ROWS_OF_STEP)) continue;
    model_vector_name(&model->config, "", i, name);
    TRY(print_vector(out, name, &model->vector[i], err));
  }
  for (int i = 0; i < N_MODEL_LINEARS; i++) {
    if (!model->linear[i].n_out || logits != (model_linear_rows(i) == ROWS_OF_LOGITS)) continue;
    model_linear_name(&model->config, "", i, name);
    TRY(print_linear(out, name, &model->linear[i], err));
  }
  return STATUS_OK;
}

/* Prints the tensors of a layer that an operation takes; of experts, only the first expert's. */
static Status print_tensors(Buffer *out, const Model *model, const Op *op, Error *err) {
  const ModelConfig *config = &model->config;
  const ModelLayer *own = &model->layers[op->layer];
  char name[2 * LINEAR_NAME_SIZE];
  for (int i = 0; i < N_LAYER_VECTORS; i++) {
    const StoredVector stored = layer_vector_stored(config, op->layer, i);
    if (own->vector[i].data && layer_tensor_operation(config, op->layer, true, i) == op->kind)
      TRY(print_vector(out, name_in_layer(config, stored.name, stored.suffix, name), &own->vector[i], err));
  }
  for (int i = 0; i < expert_linear(1, 0); i++) {
    char part[LINEAR_NAME_SIZE];
    if (!layer_linear_exists(config, op->layer, i) ||
        layer_tensor_operation(config, op->layer, false, i) != op->kind)
      continue;
    layer_linear_part(config, op->layer, i, part);
    TRY(print_linear(out, name_in_layer(config, part, "", name), layer_linear(own, i), err));
  }
  return STATUS_OK;
}

/* Prints the numbers of an operation that are not sizes of its tensors. */
static Status print_numbers(Buffer *out, const ModelConfig *config, const Op *op, Error *err) {
  static const char *const ropes[] = {
      [ROPE_GLOBAL] = "rope", [ROPE_LOCAL] = "the windows' rope", [ROPE_NONE] = "no rope"};
  const DeltaConfig *delta = &config->delta;
  const LayerConfig own = config_layer(config, op->layer);
  switch (op->kind) {
  case OP_QKV: return buffer_printf(out, err, "  %s", ropes[own.rope]);
  case OP_ATTENTION:
    TRY(buffer_printf(out, err, "  %d heads of %d, %d of keys", own.n_heads, own.head_dim, own.n_kv_heads));
    if (own.window) TRY(buffer_printf(out, err, ", the last %d positions", own.window));
    if (own.chunk) TRY(buffer_printf(out, err, ", chunks of %d positions", own.chunk));
    return own.shares_kv ? buffer_printf(out, err, ", the cache of layer %d", own.kv_layer) : STATUS_OK;
  case OP_DELTA:
    return buffer_printf(out, err, "  %d heads of %d x %d, %d of keys", delta->n_value_heads, delta->key_dim,
                         delta->value_dim, delta->n_key_heads);
  case OP_EXPERTS:
    TRY(buffer_printf(out, err, "  %d of %d experts of %d units", config->experts.n_chosen, own.n_experts,
                      config->experts.width));
    if (own.expert_limit > 0) TRY(buffer_printf(out, err, ", g limited by %.6g", own.expert_limit));
    return own.mlp_limit > 0 ? buffer_printf(out, err, ", beside them by %.6g", own.mlp_limit) : STATUS_OK;
  case OP_GATE_UP:
    return own.mlp_limit > 0 ? buffer_printf(out, err, "  g limited by %.6g", own.mlp_limit) : STATUS_OK;
  default: return STATUS_OK;
  }
}

static Status print_operation(Buffer *out, const Model *model, const Op *op, Error *err) {
  OWNED(buffer_release) Buffer registers = {0};
  const bool of_layer = op_is_of_layer(op, &model->config);
  TRY(registers_print(op->reads, &registers, err));
  TRY(buffer_append_string(&registers, " -> ", err));
  TRY(registers_print(op->writes, &registers, err));
  TRY(buffer_printf(out, err, "%s  %-22s %-22.*s", out->size > 0 ? "\n" : "", operation_name(op->kind),
                    (int)registers.size, registers.data));
  const size_t before = out->size;
  if (of_layer) TRY(print_numbers(out, &model->config, op, err));
  for (int i = 0; i < N_DIFFERENCES; i++) {
    if (!(op->differences >> i & 1) || difference_place(i) == IN_NUMBERS) continue;
    TRY(buffer_append_string(out, out->size > before ? ", " : "  ", err));
    TRY(difference_print(&model->config, i, out, err));
  }
  while (out->data[out->size - 1] == ' ') out->size--;
  return of_layer ? print_tensors(out, model, op, err) : print_others(out, model, op->kind, err);
}

/* Prints *op and the following operations of its layer, and moves *op past them. */
static Status print_layer(Buffer *out, const Model *model, const Program *program, const Op **op,
                          Error *err) {
  const int layer = (*op)->layer;
  for (; *op < program->ops + program->n && (*op)->layer == layer; (*op)++)
    TRY(print_operation(out, model, *op, err));
  return STATUS_OK;
}

/* Layers with the same printed text; `layers` lists their runs of adjacent layers, except the last run. */
typedef struct {
  Buffer text, layers;
  int first, last; /* the last run */
} Alike;

/* Adds a layer to the group with the same text, or begins a group, which then owns the text. */
static Status add_layer(Alike *groups, int *n, Buffer *text, int layer, Error *err) {
  Alike *group = groups;
  while (group < groups + *n &&
         (group->text.size != text->size || memcmp(group->text.data, text->data, text->size) != 0))
    group++;
  if (group == groups + *n) {
    groups[(*n)++] = (Alike){.text = *text, .first = layer, .last = layer};
    *text = (Buffer){0};
    return STATUS_OK;
  }
  if (group->last != layer - 1) {
    TRY(buffer_printf(&group->layers, err, group->first == group->last ? "%d, " : "%d-%d, ", group->first,
                      group->last));
    group->first = layer;
  }
  group->last = layer;
  return STATUS_OK;
}

static Status print_layers(Buffer *out, const Model *model, const Program *program, Alike *groups, int *n,
                           Error *err) {
  const Op *op = program->ops + 1, *end = program->ops + program->n - 1;
  TRY(print_operation(out, model, program->ops, err));
  while (op < end) {
    OWNED(buffer_release) Buffer text = {0};
    const int layer = op->layer;
    TRY(print_layer(&text, model, program, &op, err));
    TRY(add_layer(groups, n, &text, layer, err));
  }
  for (int i = 0; i < *n; i++) {
    const Alike *group = &groups[i];
    TRY(buffer_printf(out, err, "\nlayer%s %.*s",
                      group->layers.size > 0 || group->last > group->first ? "s" : "",
                      (int)group->layers.size, group->layers.data ? group->layers.data : ""));
    TRY(buffer_printf(out, err, group->first == group->last ? "%d\n" : "%d-%d\n", group->first, group->last));
    TRY(buffer_append(out, group->text.data, group->text.size, err));
  }
  return print_operation(out, model, end, err);
}

static Status print_forms(Buffer *out, const ModelConfig *config, Error *err) {
  TRY(buffer_append_string(out, "\nforms, as far as arithmetic goes", err));
  for (int form = 0; form < N_FORMS; form++) {
    char words[FORM_WORDS];
    TRY(form_refusal(form, config, words, err));
    TRY(buffer_printf(out, err, "\n  %-33s%s%s", form_name(form), *words ? "no: " : "yes", words));
  }
  return STATUS_OK;
}

Status inspect_print_program(Buffer *out, const Model *model, Error *err) {
  OWNED(program_release) Program program = {0};
  OWNED(mem_release) Alike *groups = NULL;
  int n = 0;
  TRY(program_make(&model->config, &program, err));
  TRY(NEW(groups, (size_t)model->config.n_layers, "program", err));
  const Status status = print_layers(out, model, &program, groups, &n, err);
  for (int i = 0; i < n; i++) {
    buffer_release(&groups[i].text);
    buffer_release(&groups[i].layers);
  }
  return status ? status : print_forms(out, &model->config, err);
}
