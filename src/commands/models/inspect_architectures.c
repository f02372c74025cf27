/* inspect_architectures.c - `auk inspect --architectures`: the models that auk knows, a line for each name
 * that config.json may give. Called by: inspect.c.
 * scripts/models_page.py makes a table of the lines: models.md, "Architectures". */
#include "commands/models/inspect.h"
#include "model/config/architectures.h"

static Status print_line(Buffer *out, const char *name, const char *model_type, const char *text,
                         const char *models, Error *err) {
  return buffer_printf(out, err, "%-44s  %-32s  %-20s  %s\n", name, model_type, text, models);
}

/* Prints in columns: the class in `architectures`; the model_type; for a multimodal model the model_type of
 * its text part ("any text model" if it may be any); published models. */
Status inspect_print_architectures(Buffer *out, Error *err) {
  TRY(print_line(out, "architecture", "model_type", "text part", "models", err));
  for (size_t i = 0; i < n_architectures; i++) {
    const Architecture *row = &architectures[i];
    if (!row->architecture) continue;
    TRY(print_line(out, row->architecture, row->model_type, "-", row->models, err));
    if (row->other_name) TRY(print_line(out, row->other_name, row->model_type, "-", row->models, err));
    if (row->other_type) TRY(print_line(out, row->architecture, row->other_type, "-", row->models, err));
  }
  for (size_t i = 0; i < n_multimodals; i++) {
    const Multimodal *row = &multimodals[i];
    TRY(print_line(out, row->architecture, row->model_type,
                   row->is == ANY_TEXT ? "any text model" : row->text, row->models, err));
  }
  return STATUS_OK;
}
