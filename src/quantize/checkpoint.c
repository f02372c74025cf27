/* checkpoint.c - see checkpoint.h. Called by: quantize.c.
 *
 * Always true: config.json is written last, so a directory with a config.json is complete. The __metadata__
 * of a layer's file has the run that made it (Checkpoint.run) and the losses of its matrices. */
#include "quantize/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "model/identity.h"
#include "model/layers.h"

#define LARGEST_COMPANION ((off_t)256 << 20)

/* --- names */

/* The path of shard `index`: shards 0 .. n_layers - 1 have a layer each, shard n_layers all other tensors. */
static char *shard_path(const Checkpoint *c, int index, Error *err) {
  char name[48];
  const int n = c->model->config.n_layers + 1;
  snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", index + 1, n);
  return path_join(c->options->output, name, err);
}

static Status name_run(Checkpoint *c, Error *err) {
  const QuantizeOptions *o = c->options;
  const Recipe *r = &o->recipe;
  ContentHash hash;
  OWNED(buffer_release) Buffer text = {0};
  TRY(model_sample(c->model, &hash, err));
  content_add(&hash, c->model->config.content);
  TRY(buffer_printf(&text, err, "6 %s %016" PRIx64 " %d %d %d %d %d %d %g %g %d %d %s ", o->quantizer->name,
                    hash.a, (int)o->layout, o->group, o->length, r->scales, r->compensates, r->refinements,
                    r->drift, r->damp, r->search.n_shifts, r->search.n_shrinks,
                    o->keeps_text ? o->keeps_text : ""));
  TRY(buffer_append(&text, o->ids, (size_t)o->n_samples * (size_t)o->length * sizeof *o->ids, err));
  TRY(content_of_bytes(text.data, text.size, 1, NULL, &hash, err));
  snprintf(c->run, sizeof c->run, "%016" PRIx64 "%016" PRIx64, hash.a, hash.b);
  return STATUS_OK;
}

/* True for the name of a shard of this checkpoint. */
static bool is_shard(const Checkpoint *c, const char *name) {
  int index, n, end = 0;
  return sscanf(name, "model-%5d-of-%5d.safetensors%n", &index, &n, &end) == 2 && end > 0 && !name[end] &&
         n == c->model->config.n_layers + 1 && index >= 1 && index <= n;
}

/* Refuses a directory that has weights other than shards of this checkpoint, or other files but no such
 * shard: the checkpoint would be mixed with them. Refuses a directory that cannot be written, too. */
static Status check_empty(const Checkpoint *c, Error *err) {
  const char *directory = c->options->output;
  OWNED(listing_release) DIR *listing = opendir(directory);
  char other[256] = "";
  bool begun = false, mixed = false;
  if (!listing)
    return error_set(err, errno == ENOTDIR ? STATUS_USAGE : STATUS_FAILED,
                     "-o %s: cannot open this directory: %s", directory, strerror(errno));
  for (struct dirent *entry; (entry = readdir(listing));) {
    const char *name = entry->d_name;
    if (name[0] == '.') continue; /* ".", "..", and temporary files of an earlier call */
    begun |= is_shard(c, name);
    mixed |= name_ends_with(name, ".safetensors") && !is_shard(c, name);
    if (!is_shard(c, name) && (!other[0] || name_ends_with(name, ".safetensors")))
      snprintf(other, sizeof other, "%s", name);
  }
  if (mixed || (other[0] && !begun))
    return error_set(err, STATUS_USAGE, "-o %s has other files already, as %s: name another directory",
                     directory, other);
  if (access(directory, W_OK | X_OK) != 0)
    return error_set(err, STATUS_FAILED, "-o %s: cannot write to this directory: %s", directory,
                     strerror(errno));
  return STATUS_OK;
}

static Status make_directory(const char *path, Error *err) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: cannot make this directory: %s", path, strerror(errno));
}

/* The lock ends with checkpoint_end() or the process. If a file system cannot lock a directory (some of NFS),
 * there is no lock. */
static Status lock_directory(Checkpoint *c, Error *err) {
  c->lock = open(c->options->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (c->lock < 0 || flock(c->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "-o %s: another auk quantize is writing there", c->options->output);
}

Status checkpoint_begin(const Model *model, const QuantizeOptions *options, Checkpoint *c, Error *err) {
  *c = (Checkpoint){.model = model, .options = options, .lock = -1};
  OWNED(mem_release) char *config = path_join(options->output, "config.json", err);
  if (!config) return STATUS_FAILED;
  TRY(make_directory(options->output, err));
  TRY(lock_directory(c, err));
  if (file_exists(config))
    return error_set(err, STATUS_USAGE, "-o %s has a config.json already: name another directory",
                     options->output);
  TRY(check_empty(c, err));
  return name_run(c, err);
}

void checkpoint_end(Checkpoint *c) {
  if (c->options && c->lock >= 0) close(c->lock);
  *c = (Checkpoint){0};
}

/* --- a layer's file */

/* Appends the string `key` of a file's __metadata__ to `text`; nothing if there is none. */
static Status read_metadata(const Safetensors *file, const char *key, Buffer *text, Error *err) {
  uint64_t size;
  bool is_string;
  memcpy(&size, file->file.data, sizeof size);
  const JsonSpan header = {(const char *)file->file.data + sizeof size, size},
                 metadata = json_span_member(header, "__metadata__"),
                 value = metadata.text ? json_span_member(metadata, key) : metadata;
  if (!value.text) return STATUS_OK;
  JsonCursor cursor = json_cursor(value);
  return json_cursor_string(&cursor, text, &is_string, err);
}

Status checkpoint_shard_open(const Checkpoint *c, int index, Safetensors *file, bool *there, Error *err) {
  OWNED(mem_release) char *path = shard_path(c, index, err);
  OWNED(buffer_release) Buffer run = {0};
  *file = (Safetensors){0};
  *there = path && file_exists(path);
  if (!*there) return path ? STATUS_OK : STATUS_FAILED;
  TRY(safetensors_open(path, file, err));
  TRY(read_metadata(file, "auk_run", &run, err));
  if (run.size == strlen(c->run) && memcmp(run.data, c->run, run.size) == 0) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "%s is of another run (another model, or other options): name another directory", path);
}

/* Writes a matrix that is not quantised: in its own type, FP8 as bf16. */
static Status write_dense(const LayerMatrix *m, Tensors *out, Error *err) {
  const Linear *linear = m->views[0];
  const Dtype dtype = linear->kind == LINEAR_DENSE ? linear->dtype : DTYPE_BF16;
  OWNED(mem_release) float *row = NULL;
  TRY(NEW(row, (size_t)linear->n_in, "a row", err));
  void *to = tensors_make(out, m->name, ".weight", dtype, m->n_out, linear->n_in, err);
  for (size_t o = 0; to && o < (size_t)m->n_out; o++) {
    matrix_read_row(m, m->order ? m->order[o] : (int)o, row);
    for (size_t i = 0; i < (size_t)linear->n_in; i++)
      number_write(to, dtype, o * (size_t)linear->n_in + i, row[i]);
  }
  return to ? STATUS_OK : STATUS_FAILED;
}

static Status write_bias(const LayerMatrix *m, Tensors *out, Error *err) {
  const Vector *bias = &m->views[0]->bias;
  char name[TENSOR_NAME];
  snprintf(name, sizeof name, "%s.bias", m->name);
  if (!bias->data || tensors_find(out, name)) return STATUS_OK;
  void *to = tensors_make(out, name, "", bias->dtype, bias->n, 0, err);
  if (!to) return STATUS_FAILED;
  memcpy(to, bias->data, (size_t)bias->n * dtype_bytes(bias->dtype));
  return STATUS_OK;
}

/* True if the model has a tensor whose name is `base` followed by `suffix`. */
static bool has_tensor(const Model *model, const char *base, const char *suffix) {
  const size_t n = strlen(base);
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const char *name = model_tensor(model, i)->name;
    if (strncmp(name, base, n) == 0 && strcmp(name + n, suffix) == 0) return true;
  }
  return false;
}

/* True if the model that is read stores the layer's experts stacked: one tensor has a matrix of every expert.
 * The checkpoint that is written has them one by one. */
static bool experts_are_together(const LayerWork *work) {
  return config_layer(&work->model->config, work->index).n_experts > 0 &&
         !has_tensor(work->model, work->model->layers[work->index].experts[0].down.name, ".weight");
}

static bool is_expert(const LayerWork *work, const LayerMatrix *m) {
  const Expert *experts = work->model->layers[work->index].experts;
  const int n = config_layer(&work->model->config, work->index).n_experts;
  return n > 0 && (uintptr_t)m->views[0] >= (uintptr_t)experts &&
         (uintptr_t)m->views[0] < (uintptr_t)(experts + n);
}

static Status write_losses(const LayerWork *work, Buffer *out, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  for (int i = 0; i < work->n_matrices; i++)
    if (!work->matrices[i].kept)
      TRY(buffer_printf(&text, err, "%s %.6g %.6g\n", work->matrices[i].name, work->matrices[i].before,
                        work->matrices[i].after));
  return json_write_string(out, text.data ? text.data : "", text.size, err);
}

Status checkpoint_layer_write(const Checkpoint *c, LayerWork *work, Error *err) {
  const bool together = experts_are_together(work);
  for (int i = 0; i < work->n_matrices; i++) {
    const LayerMatrix *m = &work->matrices[i];
    const bool apart = together && is_expert(work, m);
    if (!m->kept) TRY(layout_write(c->options->layout, m, work->group, &work->out, err));
    if (m->kept && apart) TRY(write_dense(m, &work->out, err));
    if (apart) TRY(write_bias(m, &work->out, err));
  }
  OWNED(buffer_release) Buffer metadata = {0};
  TRY(buffer_printf(&metadata, err, "\"format\":\"pt\",\"auk_run\":\"%s\",\"auk_losses\":", c->run));
  TRY(write_losses(work, &metadata, err));
  TRY(buffer_append(&metadata, "", 1, err));
  OWNED(mem_release) char *path = shard_path(c, work->index, err);
  return path ? tensors_write(&work->out, path, metadata.data, err) : STATUS_FAILED;
}

Status checkpoint_losses(const Safetensors *file, LayerWork *work, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  TRY(read_metadata(file, "auk_losses", &text, err));
  TRY(buffer_append(&text, "", 1, err));
  for (char *line = text.data; *line;) {
    char *end = strchr(line, '\n'), name[TENSOR_NAME];
    double before, after;
    if (sscanf(line, "%159s %lf %lf", name, &before, &after) == 3)
      for (int i = 0; i < work->n_matrices; i++)
        if (strcmp(work->matrices[i].name, name) == 0)
          work->matrices[i].before = before, work->matrices[i].after = after;
    if (!end) break;
    line = end + 1;
  }
  return STATUS_OK;
}

/* --- the rest */

/* The treatment of a tensor of the model. */
typedef enum { COPIED, LEFT_OUT, WIDENED } Fate;

typedef struct {
  const Checkpoint *c;
  Fate *fates;                      /* [model_tensor_count()] */
  LayerWork *works;                 /* [n_layers] lists of matrices */
  LayerMatrix own[N_MODEL_LINEARS]; /* matrices outside the layers */
  const LayerMatrix **widened;      /* [model_tensor_count()] the FP8 matrix of a WIDENED tensor */
  Buffer kept, head; /* layout_name()'s lists. kept: unquantised modules; head: lm_head in 8 bits */
  bool has_head;     /* `kept` has "lm_head" */
} Rest;

static void rest_release(Rest *rest) {
  for (int i = 0; rest->works && i < rest->c->model->config.n_layers; i++) layer_release(&rest->works[i]);
  free(rest->works);
  free(rest->fates);
  free(rest->widened);
  buffer_release(&rest->kept);
  buffer_release(&rest->head);
}

/* True if `name` is `base`, a dot, and a part other than a bias. */
static bool is_part_of(const char *name, const char *base) {
  const size_t n = strlen(base);
  return strncmp(name, base, n) == 0 && name[n] == '.' && strcmp(name + n, ".bias") != 0;
}

/* Does nothing unless m is in FP8 and tensor i is a part of m. Weights are then written as bf16, and other
 * parts are left out. PRECOND this run does not round m */
static void widen(Rest *rest, size_t i, const LayerMatrix *m) {
  const char *name = model_tensor(rest->c->model, i)->name;
  if (m->views[0]->kind != LINEAR_FP8 || !is_part_of(name, m->name)) return;
  const bool weights = strcmp(name + strlen(m->name), ".weight") == 0;
  rest->fates[i] = weights ? WIDENED : LEFT_OUT;
  rest->widened[i] = m;
}

/* True if `part`, a tensor's name without the layer's prefix, is that of a tensor of stacked experts. */
static bool is_of_all(const ExpertNames *names, const char *part) {
  for (int i = 0; i < N_EXPERT_LINEARS; i++)
    if (names->all[i] && strncmp(part, names->all[i], strlen(names->all[i])) == 0) return true;
  return false;
}

static Status decide_layer(Rest *rest, int layer, Tensors *shard, Error *err) {
  const Checkpoint *c = rest->c;
  LayerWork *work = &rest->works[layer];
  TRY(layer_begin((Model *)(uintptr_t)c->model, layer, c->options->group, c->options->keeps,
                  c->options->keeps_user, work, err));
  const size_t prefix = work->n_matrices ? tensor_layer_prefix(work->matrices[0].name) : 0;
  const bool together = experts_are_together(work);
  for (size_t i = 0; prefix > 0 && i < model_tensor_count(c->model); i++) {
    const char *name = model_tensor(c->model, i)->name;
    if (strncmp(name, work->matrices[0].name, prefix) != 0) continue;
    if (tensors_find(shard, name)) rest->fates[i] = LEFT_OUT;
    if (together && is_of_all(c->model->config.expert_names, name + prefix)) rest->fates[i] = LEFT_OUT;
    for (int m = 0; m < work->n_matrices; m++) {
      const LayerMatrix *matrix = &work->matrices[m];
      const bool apart = together && is_expert(work, matrix);
      if (!matrix->kept && is_part_of(name, matrix->name)) rest->fates[i] = LEFT_OUT;
      if (matrix->kept && !apart) widen(rest, i, matrix);
    }
  }
  return STATUS_OK;
}

/* The names of a shard's tensors, as tensors without data. */
static Status list_shard(const Checkpoint *c, int index, Tensors *list, Error *err) {
  OWNED(safetensors_close) Safetensors file = {0};
  bool there;
  TRY(checkpoint_shard_open(c, index, &file, &there, err));
  if (!there) return error_set(err, STATUS_FAILED, "-o %s: shard %d is gone", c->options->output, index + 1);
  for (size_t i = 0; i < file.n_tensors; i++) TRY(tensors_add(list, &file.tensors[i], err));
  for (size_t i = 0; i < list->n; i++) list->items[i].data = NULL;
  return STATUS_OK;
}

/* True if other programs begin the names of modules differently, but agree from "layers." on: in a multimodal
 * model's text part, and in Gemma 3n. (vLLM puts Gemma 3n's projections into a "self_decoder".) */
static bool names_differ(const Rest *rest) {
  return rest->c->model->config.text_part || rest->c->model->config.altup.n > 0;
}

/* Adds name[0..n), a PyTorch module that is not quantised, to rest->kept. Where names_differ(), the name
 * loses the text part's prefix or, outside the text part, "model." (vLLM's "visual.blocks.0" is a
 * checkpoint's "model.visual.blocks.0"). */
static Status note_module(Rest *rest, const char *name, size_t n, Error *err) {
  const LayerWork *first = &rest->works[0];
  const char *text = first->n_matrices ? first->matrices[0].name : "",
             *layers = strstr(text, layers_name(&rest->c->model->config));
  const bool ending = names_differ(rest);
  const size_t begin = layers ? (size_t)(layers - text) : 0;
  size_t cut = 0;
  if (ending && n > begin && strncmp(name, text, begin) == 0)
    cut = begin;
  else if (ending && strncmp(name, "model.", 6) == 0)
    cut = 6;
  rest->has_head |= n - cut == 7 && memcmp(name + cut, "lm_head", 7) == 0;
  return layout_name(rest->c->options->layout, name + cut, n - cut, ending, &rest->kept, err);
}

/* note_module() for the module of a tensor, if the tensor is a matrix's weights. */
static Status note_kept(Rest *rest, const StoredTensor *tensor, Error *err) {
  const size_t n = strlen(tensor->name);
  if (tensor->rank < 2 || n < 8 || strcmp(tensor->name + n - 7, ".weight") != 0) return STATUS_OK;
  return note_module(rest, tensor->name, n - 7, err);
}

/* note_module() for each expert that stays unquantised, if the model that is read has its experts in one
 * tensor. The checkpoint that is written has them one by one. */
static Status note_experts(Rest *rest, const LayerWork *work, Error *err) {
  if (!experts_are_together(work)) return STATUS_OK;
  for (const LayerMatrix *m = work->matrices; m < work->matrices + work->n_matrices; m++)
    if (m->kept && is_expert(work, m)) TRY(note_module(rest, m->name, strlen(m->name), err));
  return STATUS_OK;
}

/* The name of an lm_head that gets 8 bits, or NULL. */
static const char *head_name(const Rest *rest) {
  return rest->c->options->head_bits == 8 ? rest->c->model->head.name : NULL;
}

/* Adds lm_head to rest->head if it gets 8 bits, else to rest->kept. Loaders have a module lm_head even if the
 * checkpoint has no tensor for it (tied embeddings), or one of another name. */
static Status note_head(Rest *rest, Error *err) {
  const QuantLayout layout = rest->c->options->layout;
  const bool ending = names_differ(rest);
  const char *name = head_name(rest);
  if (name && ending) name = "lm_head";
  if (name) return layout_name(layout, name, strlen(name), ending, &rest->head, err);
  return rest->has_head ? STATUS_OK : layout_name(layout, "lm_head", 7, ending, &rest->kept, err);
}

static Status decide(Rest *rest, Error *err) {
  const Model *model = rest->c->model;
  for (int layer = 0; layer < model->config.n_layers; layer++) {
    OWNED(tensors_release) Tensors shard = {0};
    TRY(list_shard(rest->c, layer, &shard, err));
    TRY(decide_layer(rest, layer, &shard, err));
    TRY(note_experts(rest, &rest->works[layer], err));
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++) {
    const Linear *linear = &model->linear[which];
    rest->own[which] = (LayerMatrix){.name = linear->name,
                                     .views = {(Linear *)(uintptr_t)linear},
                                     .n_views = 1,
                                     .n_in = linear->n_in,
                                     .n_out = linear->n_out};
  }
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    for (int which = 0; which < N_MODEL_LINEARS; which++)
      if (model->linear[which].n_out > 0) widen(rest, i, &rest->own[which]);
    if (head_name(rest) && is_part_of(model_tensor(model, i)->name, head_name(rest)))
      rest->fates[i] = LEFT_OUT;
    if (rest->fates[i] != LEFT_OUT) TRY(note_kept(rest, model_tensor(model, i), err));
  }
  return note_head(rest, err);
}

static Status write_rest(const Rest *rest, Error *err) {
  const Model *model = rest->c->model;
  OWNED(tensors_release) Tensors out = {0};
  OWNED(buffer_release) Buffer metadata = {0};
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    if (rest->fates[i] == COPIED) TRY(tensors_add(&out, model_tensor(model, i), err));
    if (rest->fates[i] == WIDENED) TRY(write_dense(rest->widened[i], &out, err));
  }
  if (head_name(rest)) TRY(layout_write_head(&model->head, rest->c->options->group, &out, err));
  OWNED(mem_release) char *path = shard_path(rest->c, model->config.n_layers, err);
  TRY(buffer_printf(&metadata, err, "\"format\":\"pt\",\"auk_run\":\"%s\"", rest->c->run));
  return path ? tensors_write(&out, path, metadata.data, err) : STATUS_FAILED;
}

/* Writes a text as a file of a directory. */
static Status write_file(const char *directory, const char *name, const void *bytes, size_t size,
                         Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  OWNED(mem_release) char *path = path_join(directory, name, err);
  if (!path) return STATUS_FAILED;
  TRY(atomic_file_open(path, &file, err));
  TRY(atomic_file_write(&file, bytes, size, err));
  return atomic_file_commit(&file, err);
}

static Status write_index(const Checkpoint *c, QuantizeReport *report, Error *err) {
  OWNED(buffer_release) Buffer text = {0}, whole = {0};
  TRY(buffer_append_string(&text, "\"weight_map\": {", err));
  const char *before = "\n    ";
  for (int shard = 0; shard <= c->model->config.n_layers; shard++) {
    OWNED(tensors_release) Tensors list = {0};
    OWNED(mem_release) char *path = shard_path(c, shard, err);
    if (!path) return STATUS_FAILED;
    TRY(list_shard(c, shard, &list, err));
    for (size_t i = 0; i < list.n; i++) {
      report->bytes += list.items[i].bytes;
      TRY(buffer_append_string(&text, before, err));
      before = ",\n    ";
      TRY(json_write_string(&text, list.items[i].name, strlen(list.items[i].name), err));
      TRY(buffer_printf(&text, err, ": \"%s\"", strrchr(path, '/') + 1));
    }
  }
  TRY(buffer_printf(&whole, err, "{\n  \"metadata\": {\"total_size\": %zu},\n  %.*s\n  }\n}\n", report->bytes,
                    (int)text.size, text.data));
  return write_file(c->options->output, "model.safetensors.index.json", whole.data, whole.size, err);
}

/* Copies an object's members except quantization_config and its older name compression_config. These are left
 * out at any depth: config.c also reads text_config's. */
static Status copy_members(JsonSpan from, int depth, Buffer *to, Error *err) {
  OWNED(buffer_release) Buffer key = {0};
  bool first = true, is_string;
  const char *before = "";
  JsonCursor cursor = json_cursor(from);
  if (!json_cursor_enter(&cursor, '{')) return STATUS_FAILED;
  while (json_cursor_next(&cursor, &first)) {
    key.size = 0;
    TRY(json_cursor_string(&cursor, &key, &is_string, err));
    TRY(buffer_append(&key, "", 1, err));
    const JsonSpan value = json_cursor_value(&cursor);
    if (strcmp(key.data, "quantization_config") == 0 || strcmp(key.data, "compression_config") == 0) continue;
    TRY(buffer_printf(to, err, "%s\n%*s", before, 2 * depth, ""));
    before = ",";
    TRY(json_write_string(to, key.data, key.size - 1, err));
    TRY(buffer_append_string(to, *value.text == '{' ? ": {" : ": ", err));
    TRY(*value.text == '{' ? copy_members(value, depth + 1, to, err)
                           : buffer_append(to, value.text, value.size, err));
    if (*value.text == '{') TRY(buffer_append_string(to, "}", err));
  }
  return STATUS_OK;
}

static Status write_config(const Rest *rest, const char *directory, Error *err) {
  OWNED(buffer_release) Buffer from = {0}, to = {0};
  OWNED(mem_release) char *path = path_join(directory, "config.json", err);
  if (!path) return STATUS_FAILED;
  TRY(file_read(path, (size_t)64 << 20, &from, err));
  const QuantizeOptions *o = rest->c->options;
  TRY(buffer_append_string(&to, "{", err));
  TRY(copy_members((JsonSpan){from.data, from.size}, 1, &to, err));
  TRY(buffer_append_string(&to, ",\n  \"quantization_config\": ", err));
  TRY(layout_config(o->layout, o->group, &rest->head, &rest->kept, &to, err));
  TRY(buffer_append_string(&to, "\n}\n", err));
  return write_file(o->output, "config.json", to.data, to.size, err);
}

/* True for files that are copied: those beside a checkpoint's weights that also fit the quantised model. */
static bool is_companion(const char *name) {
  static const char *const others[] = {".safetensors", ".bin",     ".pt",   ".pth",       ".gguf",
                                       ".h5",          ".msgpack", ".onnx", ".index.json"};
  static const char *const replaced[] = {"config.json", "quant_config.json", "quantize_config.json",
                                         "hf_quant_config.json", "README.md"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (name_ends_with(name, others[i])) return false;
  for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
    if (strcmp(name, replaced[i]) == 0) return false;
  return name[0] != '.';
}

static Status copy_companions(const char *from, const char *to, Error *err) {
  OWNED(listing_release) DIR *listing = opendir(from);
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    struct stat info;
    OWNED(buffer_release) Buffer bytes = {0};
    if (!is_companion(entry->d_name)) continue;
    OWNED(mem_release) char *path = path_join(from, entry->d_name, err);
    if (!path) return STATUS_FAILED;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > LARGEST_COMPANION) continue;
    TRY(file_read(path, (size_t)LARGEST_COMPANION, &bytes, err));
    TRY(write_file(to, entry->d_name, bytes.data, bytes.size, err));
  }
  return STATUS_OK;
}

/* Copies the one folder of a checkpoint that belongs to its tokenizer. */
static Status copy_templates(const Checkpoint *c, const char *directory, Error *err) {
  static const char folder[] = "additional_chat_templates";
  OWNED(mem_release) char *from = path_join(directory, folder, err);
  OWNED(mem_release) char *to = path_join(c->options->output, folder, err);
  if (!from || !to) return STATUS_FAILED;
  if (!file_is_directory(from)) return STATUS_OK;
  TRY(make_directory(to, err));
  return copy_companions(from, to, err);
}

Status checkpoint_finish(const Checkpoint *c, QuantizeReport *report, Error *err) {
  const size_t n = model_tensor_count(c->model);
  OWNED(rest_release) Rest rest = {.c = c};
  OWNED(mem_release) char *directory = model_directory(c->model, err);
  if (!directory) return STATUS_FAILED;
  TRY(NEW(rest.fates, n, "tensors", err));
  TRY(NEW(rest.widened, n, "tensors", err));
  TRY(NEW(rest.works, (size_t)c->model->config.n_layers, "layers", err));
  TRY(decide(&rest, err));
  for (size_t i = 0; i < n; i++) report->source_bytes += model_tensor(c->model, i)->bytes;
  TRY(write_rest(&rest, err));
  TRY(model_check_weights(c->model, err));
  TRY(copy_companions(directory, c->options->output, err));
  TRY(copy_templates(c, directory, err));
  TRY(write_index(c, report, err));
  return write_config(&rest, directory, err);
}
