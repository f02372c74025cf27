/* drafts.c - see drafts.h.   Called by: models.c, inspect.c.
 * A drafter fits every model with the sizes of its target: hidden_size, tokens, layers. Several models may
 * have these sizes, so the target's name is shown, too, if the drafter's config has one. */
#include "commands/models/drafts.h"

#include <string.h>

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
  if (draft->usual_states) return buffer_append_string(out, "after 2, L / 2 and L - 3 of its L layers", err);
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
  TRY(buffer_append(out, "{", 1, err));
  TRY(append_json_member(out, "drafter", draft_kind_name(draft->kind), strlen(draft_kind_name(draft->kind)),
                         err));
  TRY(buffer_append_string(out, ", ", err));
  TRY(append_json_member(out, "target", draft->target, strlen(draft->target), err));
  TRY(buffer_printf(out, err,
                    ", \"target_hidden_size\": %d, \"target_vocab_size\": %d, \"target_layers\": %d, "
                    "\"states\": [",
                    draft->target_hidden, draft->target_vocab, draft->target_layers));
  for (int i = 0; i < draft->n_states && draft->states[i]; i++)
    TRY(buffer_printf(out, err, "%s%d", i ? ", " : "", draft->states[i]));
  return buffer_printf(
      out, err,
      "], \"num_hidden_layers\": %d, \"hidden_size\": %d, \"vocab_size\": %d, \"block_size\": "
      "%d, \"gpu\": true}\n",
      config->n_layers, config->hidden, config->vocab_size, draft->block);
}

Status drafts_inspect(const char *path, bool json, Buffer *out, Error *err) {
  OWNED(config_release) ModelConfig config = {0};
  TRY(drafts_read(path, &config, err));
  return (json ? put_json : put_lines)(&config, out, err);
}
