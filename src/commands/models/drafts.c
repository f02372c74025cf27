/* drafts.c - see drafts.h.   Called by: models.c, inspect.c.
 * A drafter fits every model with the sizes of its target: hidden_size, tokens, layers. Several models may
 * have these sizes, so the target's name is shown, too, if the drafter's config has one. */
#include "commands/models/drafts.h"

#include "base/json.h"
#include "commands/common.h"

bool drafts_is_drafter(const char *path) {
  Error ignored;
  bool is_draft = false;
  return file_is_directory(path) && config_is_draft(path, &is_draft, &ignored) == STATUS_OK && is_draft;
}

Status drafts_read(const char *path, ModelConfig *config, Error *err) {
  return config_load_draft(path, NULL, config, err);
}

/* True if the drafter fits the model; *status is STATUS_FAILED for lack of memory. */
static bool fits(const char *path, const char *model_path, Status *status, Error *err) {
  OWNED(config_release) ModelConfig target = {0}, config = {0};
  Error reason;
  if (!file_is_directory(model_path)) return false;
  *status = config_load(model_path, &target, &reason);
  if (*status == STATUS_OK) *status = config_load_draft(path, &target, &config, &reason);
  const bool fit = *status == STATUS_OK;
  if (*status == STATUS_FAILED)
    error_set(err, STATUS_FAILED, "%s", reason.text);
  else
    *status = STATUS_OK;
  return fit;
}

Status drafts_targets(const char *path, const Checkpoints *list, Names *names, Error *err) {
  for (size_t i = 0; i < list->count; i++) {
    Status status = STATUS_OK;
    const Checkpoint *one = &list->items[i];
    if (drafts_is_drafter(one->path)) continue;
    const bool fit = fits(path, one->path, &status, err);
    TRY(status);
    if (fit) TRY(names_add(names, one->name, err));
  }
  return STATUS_OK;
}

Status drafts_describe(const ModelConfig *config, Buffer *out, Error *err) {
  const DraftConfig *draft = &config->draft;
  TRY(buffer_printf(out, err, "models of hidden_size %d with %d tokens", draft->target_hidden,
                    draft->target_vocab));
  if (draft->target_layers) TRY(buffer_printf(out, err, " and %d layers", draft->target_layers));
  if (!draft->target[0]) return STATUS_OK;
  TRY(buffer_append_string(out, "; trained for ", err));
  return append_escaped(out, draft->target, err);
}

/* --- auk inspect */

static Status put_states(const DraftConfig *draft, Buffer *out, Error *err) {
  if (draft->kind == DRAFT_ASSISTANT) return buffer_append_string(out, "after the final norm", err);
  if (draft->n_states == 0) return buffer_append_string(out, "after 2, L / 2 and L - 3 of its L layers", err);
  TRY(buffer_append_string(out, "after", err));
  for (int i = 0; i < draft->n_states; i++)
    TRY(buffer_printf(out, err, "%s %d", i ? "," : "", draft->states[i]));
  return buffer_append_string(out, " layers", err);
}

static Status put_lines(const ModelConfig *config, Buffer *out, Error *err) {
  const DraftConfig *draft = &config->draft;
  TRY(buffer_printf(out, err, "drafter        %s\nfor            ", draft_kind_name(draft->kind)));
  TRY(drafts_describe(config, out, err));
  TRY(buffer_append_string(out, "\nreads          the target's hidden states ", err));
  TRY(put_states(draft, out, err));
  if (draft->kind == DRAFT_ASSISTANT) TRY(buffer_append_string(out, ", its keys and values", err));
  TRY(buffer_printf(out, err, "\nlayers         %d, hidden_size %d, %d heads of %d\n", config->n_layers,
                    config->hidden, config->n_heads, config->head_dim));
  TRY(buffer_printf(out, err, "guesses        %d of %d tokens, ", config->vocab_size, draft->target_vocab));
  if (draft->block)
    TRY(buffer_printf(out, err, "up to %d at once\n", draft->block - 1));
  else
    TRY(buffer_append_string(out, "one after another\n", err));
  return buffer_append_string(out, "runs on        CPUs and GPUs\n", err);
}

static Status put_json(const ModelConfig *config, Buffer *out, Error *err) {
  const DraftConfig *draft = &config->draft;
  const JsonWriter w = {out, err};
  TRY(buffer_append(out, "{", 1, err));
  TRY(json_put_string(w, "drafter", draft_kind_name(draft->kind)));
  TRY(json_put_string(w, "target", draft->target));
  TRY(json_put_int(w, "target_hidden_size", draft->target_hidden));
  TRY(json_put_int(w, "target_vocab_size", draft->target_vocab));
  TRY(json_put_int(w, "target_layers", draft->target_layers));
  TRY(json_put_raw(w, "states", "["));
  for (int i = 0; i < draft->n_states && draft->states[i]; i++) TRY(json_put_int(w, NULL, draft->states[i]));
  TRY(json_end(w, "]"));
  TRY(json_put_int(w, "num_hidden_layers", config->n_layers));
  TRY(json_put_int(w, "hidden_size", config->hidden));
  TRY(json_put_int(w, "vocab_size", config->vocab_size));
  TRY(json_put_int(w, "block_size", draft->block));
  TRY(json_put_bool(w, "gpu", true));
  return json_end(w, "}\n");
}

Status drafts_inspect(const char *path, bool json, Buffer *out, Error *err) {
  OWNED(config_release) ModelConfig config = {0};
  TRY(drafts_read(path, &config, err));
  return (json ? put_json : put_lines)(&config, out, err);
}
