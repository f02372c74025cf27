/* models.c - `auk models [DIR...]`: lists the checkpoints on this machine and whether they will run.
 * Always true: of the weights only vectors are read; files are mapped and headers checked as for an answer.
 *              Facts of a refused checkpoint come from its config.json. Each line is written as soon as
 *              its checkpoint was examined. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/size_text.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/model_flags.h"
#include "commands/models/checkpoints.h"
#include "commands/models/drafts.h"
#include "commands/models/hub.h"
#include "commands/names.h"
#include "terminal/console.h"

typedef struct {
  bool json, names;
} Options;

/* The facts of a checkpoint; empty text and 0: unknown. */
typedef struct {
  char architecture[64], method[32], dtype[16];
  int64_t bits, group, context; /* group -1: one group for the whole input */
  uint64_t bytes;               /* bytes of the weights */
  Status status;                /* STATUS_OK: it runs */
  Error reason;
  bool is_drafter; /* `reason` then says what the drafter is for, or why its config is refused */
  Names targets;   /* checkpoints in the list that the drafter fits */
} Facts;

static void facts_release(Facts *facts) {
  names_release(&facts->targets);
}

/* --- facts from config.json */

static void copy_string(char *out, size_t size, const Json *value) {
  size_t length = 0;
  const char *text = json_is_string(value) ? json_string(value, &length) : "";
  if (length < size) memcpy(out, text, length);
  out[length < size ? length : 0] = 0;
}

/* Copies a number of at least -1 (the group's special value), unless one is set already. */
static void copy_number(int64_t *out, const Json *object, const char *key) {
  int64_t value;
  if (*out == 0 && json_int64(json_member(object, key), &value) && value >= -1) *out = value;
}

/* Reads ModelOpt's members, which hf_quant_config.json has in its member `quantization`. */
static void read_modelopt(const Json *quant, Facts *facts) {
  const Json *inner = json_member(quant, "quantization");
  char algorithm[64] = "";
  if (!json_is_object(inner)) inner = quant;
  copy_string(algorithm, sizeof algorithm, json_member(inner, "quant_algo"));
  copy_number(&facts->group, inner, "group_size");
  if (facts->bits == 0 && algorithm[0])
    facts->bits = strstr(algorithm, "FP4") ? 4 : strstr(algorithm, "FP8") ? 8 : 0;
}

/* Reads the spellings of quantization_config, AutoAWQ's quant_config.json and compressed-tensors' groups.
 * `method` is the default for files that do not name it, or NULL. */
static void read_quantisation(const Json *quant, const char *method, Facts *facts) {
  if (!json_is_object(quant)) return;
  copy_string(facts->method, sizeof facts->method, json_member(quant, "quant_method"));
  if (!facts->method[0] && json_member(quant, "w_bit")) method = "awq";
  if (!facts->method[0] && method) strcpy(facts->method, method);
  copy_number(&facts->bits, quant, "bits");
  copy_number(&facts->bits, quant, "w_bit");
  copy_number(&facts->group, quant, "group_size");
  copy_number(&facts->group, quant, "q_group_size");
  const Json *weights = json_member(json_first(json_member(quant, "config_groups")), "weights");
  copy_number(&facts->bits, weights, "num_bits");
  copy_number(&facts->group, weights, "group_size");
  read_modelopt(quant, facts);
}

static void read_config(const Json *config, Facts *facts) {
  const Json *text = json_member(config, "text_config"), *quant = json_member(config, "quantization_config");
  copy_string(facts->architecture, sizeof facts->architecture,
              json_first(json_member(config, "architectures")));
  if (!facts->architecture[0])
    copy_string(facts->architecture, sizeof facts->architecture, json_member(config, "model_type"));
  copy_number(&facts->context, config, "max_position_embeddings");
  copy_number(&facts->context, text, "max_position_embeddings");
  copy_number(&facts->context, config, "n_positions"); /* GPT-2 */
  read_quantisation(quant ? quant : json_member(text, "quantization_config"), NULL, facts);
  copy_string(facts->dtype, sizeof facts->dtype, json_member(config, "torch_dtype"));
  if (!facts->dtype[0]) copy_string(facts->dtype, sizeof facts->dtype, json_member(config, "dtype"));
}

/* Parses DIRECTORY/NAME; NULL if it is missing or invalid, which the loader reports. */
static Status read_json(const char *directory, const char *name, Json **tree, Error *err) {
  *tree = NULL;
  OWNED(mem_release) char *path = path_join(directory, name, err);
  if (!path) return STATUS_FAILED;
  OWNED(file_unmap) MappedFile file = {0};
  Status status = file_map(path, STATUS_MODEL, &file, err);
  if (status == STATUS_OK)
    status = json_parse_python(path, STATUS_MODEL, (const char *)file.data, file.size, tree, err);
  return status == STATUS_MODEL ? STATUS_OK : status;
}

static Status read_configs(const char *directory, Facts *facts, Error *err) {
  static const char *const older[][2] = {
      {"quant_config.json", "awq"}, {"quantize_config.json", "gptq"}, {"hf_quant_config.json", "modelopt"}};
  Json *json;
  Status status = read_json(directory, "config.json", &json, err);
  read_config(json, facts);
  json_free(json);
  for (size_t i = 0; i < sizeof older / sizeof *older && status == STATUS_OK && !facts->method[0]; i++) {
    status = read_json(directory, older[i][0], &json, err);
    read_quantisation(json, older[i][1], facts);
    json_free(json);
  }
  return status;
}

static Status weight_bytes(const char *directory, uint64_t *sum, Error *err) {
  uint64_t bytes[CHECKPOINTS_WEIGHT_RANKS] = {0};
  OWNED(names_release) Names names = {0};
  TRY(names_read(directory, &names, err));
  for (size_t i = 0; i < names.count; i++) {
    struct stat info;
    int rank = checkpoints_weight_rank(names.items[i]);
    if (rank < 0) continue;
    OWNED(mem_release) char *path = path_join(directory, names.items[i], err);
    if (!path) return STATUS_FAILED;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) bytes[rank] += (uint64_t)info.st_size;
  }
  int rank = 0;
  while (rank < CHECKPOINTS_WEIGHT_RANKS - 1 && bytes[rank] == 0) rank++;
  *sum = bytes[rank];
  return STATUS_OK;
}

/* --- one checkpoint */

/* Opens everything that an answer needs except the weights. */
static Status open_all(const Checkpoint *checkpoint, Model **model, Error *err) {
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  if (checkpoint->from_hub) TRY(hub_check(checkpoint->name, checkpoint->path, err));
  TRY(model_open(checkpoint->path, NULL, model, err));
  TRY(model_check_known(*model, err));
  return model_tokenizer_open(*model, checkpoint->path, &tokenizer, err);
}

static Status look_into(const Checkpoint *checkpoint, const Model *model, Facts *facts, Error *err) {
  if (facts->status == STATUS_FAILED) return error_set(err, STATUS_FAILED, "%s", facts->reason.text);
  if (file_is_directory(checkpoint->path)) {
    TRY(read_configs(checkpoint->path, facts, err));
    TRY(weight_bytes(checkpoint->path, &facts->bytes, err));
  } else if (facts->status == STATUS_OK) {
    snprintf(facts->architecture, sizeof facts->architecture, "%s", model->config.architecture);
    strcpy(facts->method, "awq");
    facts->bits = model->config.quant.scheme.bits;
    facts->group = model->config.quant.scheme.group;
  }
  if (facts->status != STATUS_OK) return STATUS_OK;
  facts->context = model->config.max_position;
  facts->bytes = model->weight_bytes;
  return STATUS_OK;
}

/* Collects the facts of a drafter, whose status is a refusal: it does not run by itself. */
static Status look_at_drafter(const Checkpoint *checkpoint, const Checkpoints *list, Facts *facts,
                              Error *err) {
  OWNED(config_release) ModelConfig config = {0};
  OWNED(buffer_release) Buffer what = {0};
  facts->is_drafter = true;
  facts->status = drafts_read(checkpoint->path, &config, &facts->reason);
  if (facts->status != STATUS_OK) return STATUS_OK;
  TRY(drafts_describe(&config, &what, err));
  TRY(drafts_targets(checkpoint->path, list, &facts->targets, err));
  facts->status = error_set(&facts->reason, STATUS_MODEL, "a drafter (--draft) for %.*s", (int)what.size,
                            what.data ? what.data : "");
  return STATUS_OK;
}

/* Collects the facts. A refusal of the checkpoint is a fact; other failures (memory) end the command. */
static Status look_at(const Checkpoint *checkpoint, const Checkpoints *list, Facts *facts, Error *err) {
  *facts = (Facts){0};
  OWNED(model_release) Model *model = NULL;
  if (drafts_is_drafter(checkpoint->path)) {
    TRY(look_at_drafter(checkpoint, list, facts, err));
    return look_into(checkpoint, NULL, facts, err);
  }
  facts->status = open_all(checkpoint, &model, &facts->reason);
  return look_into(checkpoint, model, facts, err);
}

/* --- as lines */

typedef struct {
  char text[96];
} Words;

static Words size_words(uint64_t bytes) {
  const char *unit;
  const double value = size_in_unit(bytes, &unit);
  const bool scaled = bytes >= 1024;
  Words out = {"-"};
  if (bytes)
    snprintf(out.text, sizeof out.text, "%.*f %s", scaled && value < 10 ? 1 : 0, value, scaled ? unit : "B");
  return out;
}

static Words quantisation_words(const Facts *facts) {
  Words out;
  int n = snprintf(out.text, sizeof out.text, "%s", facts->method[0] ? facts->method : facts->dtype);
  if (facts->method[0] && facts->bits > 0)
    n += snprintf(out.text + n, sizeof out.text - (size_t)n, ", %lld bits", (long long)facts->bits);
  if (facts->method[0] && facts->group > 0)
    snprintf(out.text + n, sizeof out.text - (size_t)n, ", groups of %lld", (long long)facts->group);
  return out;
}

/* Appends a checkpoint's lines. narrow: without the architecture, and with `origin` on a line of its own. */
static Status put_line(Buffer *out, int width, bool narrow, const Checkpoint *checkpoint, const Facts *facts,
                       const char *origin, Error *err) {
  size_t start = out->size;
  TRY(append_escaped(out, checkpoint->name, err));
  int padding = width - (int)(out->size - start);
  TRY(buffer_printf(out, err, "%*s  %-4s  %8s  ", padding > 0 ? padding : 0, "",
                    facts->status == STATUS_OK ? "yes" : "no", size_words(facts->bytes).text));
  if (facts->context > 0)
    TRY(buffer_printf(out, err, "%7lld  ", (long long)facts->context));
  else
    TRY(buffer_printf(out, err, "%7s  ", "-"));
  if (!narrow) {
    start = out->size;
    TRY(append_escaped(out, facts->architecture[0] ? facts->architecture : "-", err));
    padding = 22 - (int)(out->size - start);
    TRY(buffer_printf(out, err, "%*s  ", padding > 0 ? padding : 0, ""));
  }
  TRY(append_escaped(out, quantisation_words(facts).text, err));
  if (checkpoint->is_default)
    TRY(buffer_printf(out, err, "%s(default: %s)", narrow ? "\n    " : "  ", origin));
  TRY(buffer_append_string(out, "\n", err));
  if (facts->status != STATUS_OK) TRY(buffer_printf(out, err, "    %s\n", facts->reason.text));
  for (size_t i = 0; i < facts->targets.count; i++) {
    TRY(buffer_append_string(out, i ? ", " : "    fits ", err));
    TRY(append_escaped(out, facts->targets.items[i], err));
  }
  return facts->targets.count ? buffer_append_string(out, "\n", err) : STATUS_OK;
}

/* --- as JSON */

static Status put_text(JsonWriter w, const char *key, const char *text) {
  return json_put_string(w, key, *text ? text : NULL);
}

static Status put_number(JsonWriter w, const char *key, int64_t value) {
  return value ? json_put_int(w, key, value) : json_put_raw(w, key, "null");
}

static Status put_object(JsonWriter w, const Checkpoint *checkpoint, const Facts *facts) {
  TRY(buffer_append(w.out, "{", 1, w.err));
  TRY(json_put_string(w, "name", checkpoint->name));
  TRY(put_text(w, "path", checkpoint->path));
  TRY(json_put_bool(w, "from_hub", checkpoint->from_hub));
  TRY(json_put_bool(w, "default", checkpoint->is_default));
  TRY(json_put_bool(w, "runs", facts->status == STATUS_OK));
  TRY(put_text(w, "reason", facts->status == STATUS_OK ? "" : facts->reason.text));
  TRY(put_text(w, "architecture", facts->architecture));
  TRY(put_text(w, "quantisation", facts->method));
  TRY(put_number(w, "bits", facts->method[0] ? facts->bits : 0));
  TRY(put_number(w, "group", facts->method[0] ? facts->group : 0));
  TRY(put_text(w, "dtype", facts->dtype));
  TRY(put_number(w, "context", facts->context));
  TRY(put_number(w, "bytes", (int64_t)facts->bytes));
  TRY(json_put_bool(w, "drafter", facts->is_drafter));
  TRY(json_put_raw(w, "drafts_for", "["));
  for (size_t i = 0; i < facts->targets.count; i++) TRY(json_put_string(w, NULL, facts->targets.items[i]));
  return json_end(w, "]}");
}

/* --- the list */

static Status write_out(Buffer *out, Error *err) {
  Status status = output_write(out->data, out->size, err);
  out->size = 0;
  return status;
}

static Status write_json(const Checkpoints *list, Buffer *out, Error *err) {
  for (size_t i = 0; i < list->count; i++) {
    OWNED(facts_release) Facts facts = {0};
    TRY(look_at(&list->items[i], list, &facts, err));
    TRY(buffer_append_string(out, i ? ",\n " : "[", err));
    TRY(put_object((JsonWriter){out, err}, &list->items[i], &facts));
    TRY(write_out(out, err));
  }
  return output_printf(err, list->count ? "]\n" : "[]\n");
}

/* `origin` says what made a model the default. */
static Status write_lines(const Checkpoints *list, const char *origin, Buffer *out, Error *err) {
  enum { WIDE = 98 }; /* columns after the names, for the longest quantisation and origin */
  int width = 4;
  for (size_t i = 0; i < list->count; i++) {
    size_t length = strlen(list->items[i].name);
    if (length < 60 && (int)length > width) width = (int)length;
  }
  const int columns = output_is_terminal() ? terminal_columns(STDOUT_FILENO) : 0; /* 0: unknown */
  const bool narrow = columns > 0 && columns < width + WIDE;
  TRY(buffer_printf(out, err, "%-*s  %-4s  %8s  %7s  %s%s\n", width, "NAME", "RUNS", "SIZE", "CONTEXT",
                    narrow ? "" : "ARCHITECTURE            ", "QUANTISATION"));
  for (size_t i = 0; i < list->count; i++) {
    OWNED(facts_release) Facts facts = {0};
    TRY(look_at(&list->items[i], list, &facts, err));
    TRY(put_line(out, width, narrow, &list->items[i], &facts, origin, err));
    TRY(write_out(out, err));
  }
  return STATUS_OK;
}

static const Flag flags[] = {
    FLAG_SWITCH("--json", Options, json, "one JSON list of objects in place of lines"),
    FLAG_SWITCH("--names", Options, names, "only what -m takes, one a line; no checkpoint is opened"),
};
static const FlagGroup groups[] = {FLAG_GROUP("List", flags)};

static const FlagRule rules[] = {{"--names", EXCLUDES, "--json", NULL}};

/* Marks the default model: that of the settings, else of AUK_MODEL. If it is not found, reports why, as -m
 * would. */
static Status mark_default(Checkpoints *list, const char *usual, Error *err) {
  const ModelFlags values = {.usual = usual};
  const char *name = usual ? usual : getenv("AUK_MODEL");
  OWNED(model_place_release) ModelPlace place = {0};
  Error reason;
  if (!name || !*name) return STATUS_OK;
  Status status = model_place_find(&values, &place, &reason);
  if (status == STATUS_OK) status = model_place_check(&place, &reason);
  if (status == STATUS_OK) return checkpoints_mark_default(list, place.given, place.path, err);
  if (status == STATUS_FAILED) /* memory, for example, which says nothing about the model */
    return error_set(err, status, "%s", reason.text);
  print_note("%s: %s", usual ? "the settings' model" : "AUK_MODEL", reason.text);
  return STATUS_OK;
}

static Status find(const CommandCall *call, Checkpoints *list, Error *err) {
  const char *const *directories = call->operands;
  const size_t count = call->n_operands;
  if (count == 0)
    TRY(checkpoints_add_known(list, err));
  else
    TRY(checkpoints_add_hub(list, err));
  for (size_t i = 0; i < count; i++) TRY(checkpoints_add_below(list, directories[i], err));
  return mark_default(list, call->usual_model, err);
}

static Status report_none(const char *const *directories, size_t count, Error *err) {
  OWNED(mem_release) char *hub = NULL;
  OWNED(buffer_release) Buffer places = {0};
  TRY(hub_directory(&hub, err));
  if (hub) TRY(buffer_printf(&places, err, "in the Hugging Face cache %s", hub));
  if (count == 0) TRY(buffer_printf(&places, err, "%sbelow ./" CHECKPOINTS_HERE, hub ? ", " : ""));
  for (size_t i = 0; i < count; i++)
    TRY(buffer_printf(&places, err, "%sbelow %s", places.size ? ", " : "", directories[i]));
  print_note("no checkpoint found: looked %.*s; fetch one with:  auk get " HUB_EXAMPLE, (int)places.size,
             places.data);
  return STATUS_OK;
}

static Status write_names(const CommandCall *call, const Checkpoints *list, Buffer *out, Error *err) {
  for (size_t i = 0; i < list->count; i++) TRY(buffer_printf(out, err, "%s\n", list->items[i].name));
  for (size_t i = 0; i < call->n_aliases; i++) TRY(buffer_printf(out, err, "%s\n", call->aliases[i]));
  return write_out(out, err);
}

static Status list_all(const CommandCall *call, Checkpoints *list, Buffer *out, Error *err) {
  const Options *options = call->options;
  TRY(find(call, list, err));
  if (list->cut)
    fprintf(stderr, "auk: the search stopped at %d levels or %d directories: there may be more\n",
            CHECKPOINTS_MAX_DEPTH, CHECKPOINTS_MAX_DIRECTORIES);
  enum { SHOWN = 8 };
  const Names *unreadable = &list->unreadable; /* unreadable directories may hold more checkpoints */
  for (size_t i = 0; i < unreadable->count && i < SHOWN; i++) print_note("%s", unreadable->items[i]);
  if (unreadable->count > SHOWN)
    print_note("... and %zu more that cannot be looked into", unreadable->count - SHOWN);
  if (options->names) return write_names(call, list, out, err);
  if (options->json) return write_json(list, out, err);
  const char *origin = call->usual_model ? "settings" : "AUK_MODEL";
  return list->count ? write_lines(list, origin, out, err)
                     : report_none(call->operands, call->n_operands, err);
}

static Status run(CommandCall *call, Error *err) {
  OWNED(checkpoints_release) Checkpoints list = {0};
  return list_all(call, &list, &call->out, err);
}

const Interface models_interface = {
    .usage = "auk models [DIR...] [FLAGS]",
    .about =
        "Lists the checkpoints in the Hugging Face cache and below the directories (where none is given:\n"
        "below ./models), each with what -m takes as its name, whether it will run, the size of its\n"
        "weights, the longest context, architecture and quantisation. Under one that will not run stands\n"
        "why; under a drafter (for --draft), which of these models it fits. Of the weights\n"
        "only vectors are read, such as those of norms.\n"
        "A directory is a checkpoint where it holds a config.json and a file of\n"
        "weights; what lies below it, and names beginning with a dot, are passed over. The model of\n"
        "the file of settings, or else of AUK_MODEL, is listed too, and marked as the default.",
    .examples = "auk models                            # what is here\n"
                "auk models ~/checkpoints /data/llms   # and there\n"
                "auk models --json | jq -r '.[] | select(.runs) | .name'",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .max_operands = 64,
    .operands = VALUE_DIRECTORY,
    .lists_models = true,
    .options_size = sizeof(Options),
    .run = run,
};
