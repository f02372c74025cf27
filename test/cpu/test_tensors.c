/* test_tensors.c - every tensor of every model in test/data, as each part of the program has it:
 *
 *   opened     after model_open(): names, forms, shapes, types, and where the numbers lie
 *   prepared   after model_prepare(): the same, with a hash of each tensor's numbers
 *   slice N    the parts of the prepared model for N GPUs (model/slice.h)
 *   ak48       written as an ak48 file, and opened again
 *   cpu        the vectors of the CPU's form: their places and numbers (cpu/load.c)
 *   rounded    a drafter, prepared and rounded to 4 bits
 *   dummy      made and filled from the config alone; of test/data/configs, which are too large to be filled,
 *              and of their slices only names, forms, shapes and places
 *
 * test/data/transcripts/dumps/host.txt has for each model and stage the number of lines of the dump and their
 * hash; a stage that the model does not have is left out, as are slices for more GPUs than can share it. A
 * failure names a model and a stage. Two trees are then compared by the full dumps:
 *
 *   DUMP=miniatures/qwen3-awq build/test/cpu/test_tensors >/tmp/one      in both trees
 *
 * A number's place is its offset in a file of weights or in a dummy's memory; other memory is "made". The
 * dumps are the same on every processor: the CPU's matrices are read in place, and its vectors are exact, but
 * for the decay rates -exp(a), whose double precision leaves one rounding to fp32. Ropes and the numbers of
 * xIELU are left out: they are no tensors. test/cuda/test_tensors.cu dumps the GPU's layout. */
#include "cpu/cpu.h"
#include "model/layers.h"
#include "model/loaders.h"
#include "model/slice.h"
#include "test/directory.h"
#include "test/model/tensor_dump.h"
#include "test/transcript.h"

#define DATA "test/data/"

/* The model of a dump, a drafter's target or NULL, and whether the numbers are hashed. */
typedef struct {
  Dump *dump;
  const Model *model, *target;
  bool numbers;
} Subject;

typedef struct {
  char text[40];
} Text;

/* --- where numbers lie */

static bool find_place(const Model *model, const char *of, const unsigned char *data, Text *place) {
  const MappedFile *file;
  for (size_t i = 0; (file = model_file(model, i)); i++)
    if (data >= file->data && data < file->data + file->size) {
      snprintf(place->text, sizeof place->text, "%s%zu+%td", of, i, data - file->data);
      return true;
    }
  const unsigned char *reserved = model->files->reserved;
  if (!reserved || data < reserved || data >= reserved + model->files->reserved_bytes) return false;
  snprintf(place->text, sizeof place->text, "%sdummy+%td", of, data - reserved);
  return true;
}

static Text place_of(const Subject *s, const void *data) {
  Text place = {"none"};
  if (data && !find_place(s->model, "", data, &place) &&
      (!s->target || !find_place(s->target, "target's ", data, &place)))
    snprintf(place.text, sizeof place.text, "made");
  return place;
}

/* A place, and the hash of rows of numbers that are `step` bytes apart. */
static Text numbers_of(const Subject *s, const void *data, size_t n_rows, size_t row, size_t step) {
  Text text = place_of(s, data);
  if (!data || !s->numbers) return text;
  uint64_t hash = 0;
  if (row == step) row *= n_rows, n_rows = row > 0;
  for (size_t i = 0; i < n_rows; i++) hash = hash64((const char *)data + i * step, row, hash);
  const size_t at = strlen(text.text);
  snprintf(text.text + at, sizeof text.text - at, " %016" PRIx64, hash);
  return text;
}

/* --- tensors */

static void dump_vector(const Subject *s, const char *name, const Vector *v) {
  if (!v->data) return;
  const size_t bytes = (size_t)v->n * dtype_bytes(v->dtype);
  dump_line(s->dump, "%s: %s %d, %s", name, dtype_name(v->dtype), v->n,
            numbers_of(s, v->data, 1, bytes, bytes).text);
}

static void dump_matrix(const Subject *s, const char *name, const Matrix *m) {
  if (!m->data) return;
  const size_t bytes = (size_t)m->n_rows * (size_t)m->n_columns * dtype_bytes(m->dtype);
  dump_line(s->dump, "%s: %s %d x %d, %s", name, dtype_name(m->dtype), m->n_rows, m->n_columns,
            numbers_of(s, m->data, 1, bytes, bytes).text);
}

static void dump_linear(const Subject *s, const char *name, const Linear *l) {
  static const char *const kinds[] = {"dense", "AWQ", "grouped", "INT8", "FP8", "FP4"};
  if (l->n_out == 0) return;
  Text arrays[N_LINEAR_ARRAYS];
  for (int i = 0; i < N_LINEAR_ARRAYS; i++) {
    const LinearArray a = linear_array(l, i);
    arrays[i] = numbers_of(s, a.n_rows > 0 ? *a.data : NULL, a.n_rows, a.row, a.step);
  }
  const size_t order = (size_t)l->n_in * sizeof *l->order,
               bias = (size_t)l->bias.n * dtype_bytes(l->bias.dtype),
               values = l->scale_values ? FP4_SCALE_VALUES * sizeof(float) : 0;
  dump_line(s->dump,
            "%s, %s: %s %s, %d bits, groups of %d, %d -> %d, blocks of %d from %d, skips %d %d %d %d, "
            "weights %s, zeros %s, scales %s, values %s, order %s, bias %s %d %s",
            name, l->name, kinds[l->kind], dtype_name(l->dtype), l->bits, l->group, l->n_in, l->n_out,
            l->block, l->block_first, l->skip, l->row_skip, l->input_skip, l->scale_skip,
            arrays[LINEAR_WEIGHTS].text, arrays[LINEAR_ZEROS].text, arrays[LINEAR_SCALES].text,
            numbers_of(s, l->scale_values, 1, values, values).text,
            numbers_of(s, l->order, 1, order, order).text, dtype_name(l->bias.dtype), l->bias.n,
            numbers_of(s, l->bias.data, 1, bias, bias).text);
}

/* The names that the program's own code has for the tensors. */
static const char *const layer_linears[] = {
#define LINEAR(SLOT, member, ...) #member,
#include "model/tensors.def"
};
static const char *const expert_linears[] = {
#define EXPERT_LINEAR(SLOT, member, ...) #member,
#include "model/tensors.def"
};
static const char *const layer_vectors[] = {
#define VECTOR(SLOT, member, ...) #member,
#include "model/tensors.def"
};
static const char *const model_linears[N_MODEL_LINEARS] = {
#define MODEL_LINEAR(SLOT, member, ...) [MODEL_##SLOT] = #member,
#include "model/tensors.def"
};
static const char *const model_vectors[N_MODEL_VECTORS] = {
#define MODEL_VECTOR(SLOT, member, ...) [MODEL_##SLOT] = #member,
#include "model/tensors.def"
};

/* Elements of an array share the name of the first. */
static const char *member(const char *const *names, int which) {
  while (!names[which]) which--;
  return names[which];
}

static void dump_layer(const Subject *s, int i) {
  const ModelConfig *c = &s->model->config;
  const ModelLayer *layer = &s->model->layers[i];
  const LayerConfig own = config_layer(c, i);
  char name[60];
  dump_line(s->dump, "layer %d: %d, %d heads, %d and %d KV heads of %d, %d units, %d experts, n-grams %d", i,
            (int)own.kind, own.n_heads, own.n_kv_heads, own.n_cache_heads, own.head_dim, own.intermediate,
            own.n_experts, own.ngrams);
  for (int which = 0; which < layer_linear_count(c, i); which++) {
    const int expert = which - N_LAYER_LINEARS;
    if (expert < 0)
      snprintf(name, sizeof name, "%d %s", i, layer_linears[which]);
    else
      snprintf(name, sizeof name, "%d expert %d %s", i, expert / N_EXPERT_LINEARS,
               expert_linears[expert % N_EXPERT_LINEARS]);
    dump_linear(s, name, layer_linear(layer, which));
  }
  for (int k = 0; k < 2; k++) dump_linear(s, "more", &layer->more[k]);
  for (int h = 0; layer->key_heads && h < c->n_heads; h++) {
    dump_linear(s, "key head", &layer->key_heads[h]);
    dump_linear(s, "value head", &layer->value_heads[h]);
  }
  for (int which = 0; which < N_LAYER_VECTORS; which++) {
    snprintf(name, sizeof name, "%d %s", i, layer_vectors[which]);
    dump_vector(s, name, &layer->vector[which]);
  }
  for (int k = 0; k < layer->n_shards; k++) {
    dump_matrix(s, "n-grams", &layer->shards[k].rows);
    dump_vector(s, "scales of n-grams", &layer->shards[k].scales);
  }
}

static void dump_model(const Subject *s) {
  const Model *m = s->model;
  const ModelConfig *c = &m->config;
  dump_line(s->dump, "%d: %d heads, %d KV heads, %d and %d units, experts of %d", c->hidden, c->n_heads,
            c->n_kv_heads, c->intermediate, c->experts.shared_width, c->experts.width);
  dump_line(s->dump, "%d and %d heads of the delta rule, %d channels, split %d", c->delta.n_key_heads,
            c->delta.n_value_heads, c->conv.channels, c->split);
  dump_line(s->dump,
            "bytes: weights %zu, tables %zu, made %zu, replaced %zu; %zu of %zu tensors are not used",
            m->weight_bytes, m->table_bytes, m->made_bytes, m->replaced_bytes, m->unused_tensors,
            model_tensor_count(m));
  dump_matrix(s, "embedding", &m->embedding);
  dump_matrix(s, "input table", &m->input_table);
  for (int i = 0; i < c->n_layers; i++) dump_layer(s, i);
  for (int which = 0; which < N_MODEL_LINEARS; which++)
    if (m->linear[which].n_out > 0) dump_linear(s, member(model_linears, which), &m->linear[which]);
  for (int which = 0; which < N_MODEL_VECTORS; which++)
    dump_vector(s, member(model_vectors, which), &m->vector[which]);
  if (!m->draft.target_ids) return;
  const size_t ids = (size_t)c->vocab_size * sizeof *m->draft.target_ids;
  dump_line(s->dump, "target ids %s", numbers_of(s, m->draft.target_ids, 1, ids, ids).text);
}

/* --- the CPU's vectors, which lie one after another in the order in which they are visited */

typedef struct {
  const Subject *subject;
  const BackendModel *loaded;
  char name[60];   /* the last vector that was visited, which ends where the next one begins */
  const float *at; /* NULL: none yet */
} CpuVectors;

static void dump_last(const CpuVectors *v, const float *end) {
  if (!v->at) return;
  const size_t bytes = end > v->at ? (size_t)(end - v->at) * sizeof *end : 0;
  dump_line(v->subject->dump, "%s: %td, %zu bytes, %s", v->name, v->at - v->loaded->vectors, bytes,
            numbers_of(v->subject, v->at, 1, bytes, bytes).text);
}

static void visit(CpuVectors *v, const float *at, int layer, const char *name) {
  if (!at) return;
  dump_last(v, at);
  snprintf(v->name, sizeof v->name, "%d %s", layer, name);
  v->at = at;
}

static void visit_linear(CpuVectors *v, const CpuLinear *l, const Linear *of, int layer, const char *name) {
  if (l->linear && l->linear != of) dump_line(v->subject->dump, "%d %s is another matrix", layer, name);
  visit(v, l->bias, layer, name);
}

static void dump_cpu(const Subject *s, const BackendModel *loaded) {
  const Model *m = s->model;
  CpuVectors v = {.subject = s, .loaded = loaded};
  visit(&v, loaded->ones, -1, "ones");
  visit(&v, loaded->q_scales, -1, "q scales");
  visit(&v, loaded->k_scales, -1, "k scales");
  for (int i = 0; i < m->config.n_layers; i++) {
    const CpuLayer *to = &loaded->layers[i];
    const ModelLayer *from = &m->layers[i];
    for (int which = 0; which < N_LAYER_VECTORS; which++)
      if (!loaded->ones || to->vector[which] != loaded->ones)
        visit(&v, to->vector[which], i, layer_vectors[which]);
      else
        dump_line(s->dump, "%d %s: ones", i, layer_vectors[which]);
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      visit_linear(&v, &to->linear[which], &from->linear[which], i, layer_linears[which]);
    for (int k = 0; k < config_layer(&m->config, i).n_experts * N_EXPERT_LINEARS; k++) {
      const int e = k / N_EXPERT_LINEARS, part = k % N_EXPERT_LINEARS;
      char name[40];
      snprintf(name, sizeof name, "%s of an expert", expert_linears[part]);
      visit_linear(&v, &to->experts[e].linear[part], &from->experts[e].linear[part], i, name);
    }
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++)
    visit_linear(&v, &loaded->linear[which], &m->linear[which], -1, member(model_linears, which));
  int last = 0;
  for (int which = 0; which < N_MODEL_VECTORS; which++) {
    visit(&v, loaded->vector[which], -1, member(model_vectors, which));
    if (loaded->vector[which]) last = which;
  }
  dump_last(&v, v.at + m->vector[last].n); /* every model has a norm after its last layer */
}

/* --- stages */

static const char *golden; /* the transcript */

static void dump_stage(const Subject *s, const char *stage) {
  dump_begin(s->dump, stage);
  dump_model(s);
  dump_end(s->dump, stage);
}

static void dump_slices(const Subject *whole) {
  for (int n = 2; n <= MAX_SPLIT; n *= 2) {
    Error err = {{0}};
    char stage[20];
    snprintf(stage, sizeof stage, "slice %d", n);
    if (model_check_split(whole->model, n, &err) != STATUS_OK) continue;
    dump_begin(whole->dump, stage);
    for (int i = 0; i < n; i++) {
      Model *part;
      assert_int_equal(model_part(whole->model, i, n, &part, &err), STATUS_OK);
      Subject s = *whole;
      s.model = part;
      const ModelConfig *c = &whole->model->config;
      dump_line(s.dump, "part %d: from row %d of the head and KV head %d", i,
                model_part_head(c->vocab_size, i, n), model_part_kv_head(c->n_kv_heads, i, n));
      dump_model(&s);
      model_part_free(part);
    }
    dump_end(whole->dump, stage);
  }
}

static void dump_cpu_stage(const Subject *s) {
  static const BackendOptions one_thread = {.n_threads = 1};
  BackendModel *loaded;
  Error err = {{0}};
  if (cpu_load(s->model, &one_thread, &loaded, &err) != STATUS_OK) fail_msg("%s", err.text);
  dump_begin(s->dump, "cpu");
  dump_cpu(s, loaded);
  dump_end(s->dump, "cpu");
  cpu_unload(loaded);
}

static void dump_ak48(Dump *dump, const Model *model) {
  const char *path = in_directory(own_directory, "model.ak48");
  Error err = {{0}};
  AtomicFile file;
  Model *packed;
  if (ak48_check_fits(model, NULL, &err) != STATUS_OK) return;
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  file.fleeting = true;
  assert_int_equal(ak48_write(model, &file, NULL, &err), STATUS_OK);
  assert_int_equal(atomic_file_commit(&file, &err), STATUS_OK);
  if (model_open(path, NULL, &packed, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(model_prepare(packed, 1, &err), STATUS_OK);
  dump_stage(&(Subject){.dump = dump, .model = packed, .numbers = true}, "ak48");
  model_close(packed);
}

static void dump_dummy(Dump *dump, const char *path, bool filled) {
  Model *dummy;
  Error err = {{0}};
  if (model_open_dummy(path, &dummy, &err) != STATUS_OK) fail_msg("%s", err.text);
  const Subject s = {.dump = dump, .model = dummy, .numbers = filled};
  if (filled) assert_int_equal(model_fill_dummy(dummy, &err), STATUS_OK);
  dump_stage(&s, "dummy");
  if (!filled) dump_slices(&s);
  model_close(dummy);
}

/* Opens and prepares a model, or the drafter of a target. NULL: it is refused. */
static Model *dump_opened(Dump *dump, const char *path, const Model *target) {
  Model *model;
  Error err = {{0}};
  const Status status =
      target ? model_open_draft(path, target, &model, &err) : model_open(path, NULL, &model, &err);
  if (status != STATUS_OK) fail_msg("%s", err.text);
  Subject s = {.dump = dump, .model = model, .target = target};
  dump_stage(&s, "opened");
  if (model_prepare(model, 1, &err) != STATUS_OK) fail_msg("%s", err.text);
  s.numbers = true;
  dump_stage(&s, "prepared");
  dump_cpu_stage(&s);
  return model;
}

/* The drafter at `path`; of its target's own checkpoint if that is the same. */
static void dump_draft(Dump *dump, const char *path, const Model *target) {
  fprintf(dump->out, "%s\n", dump->model);
  Model *draft = dump_opened(dump, path, target);
  Error err = {{0}};
  if (model_round_draft(draft, 1, &err) != STATUS_OK) fail_msg("%s", err.text);
  dump_stage(&(Subject){.dump = dump, .model = draft, .target = target, .numbers = true}, "rounded");
  model_close(draft);
}

/* True if this form of the program leaves the model out; its lines are then those of the transcript. */
static bool is_left_out(FILE *out, const char *name) {
  static int n;
  char line[TRANSCRIPT_LINE];
  bool of_model = false;
  if (SAMPLED(n++)) return false;
  for (const char *next = golden; transcript_next_line(&next, line);) {
    const size_t size = strlen(name);
    if (*line != ' ') of_model = strncmp(line, name, size) == 0 && (!line[size] || line[size] == ',');
    if (of_model) fprintf(out, "%s\n", line);
  }
  return true;
}

static void dump_checkpoint(FILE *out, const char *name) {
  char path[200], draft[220];
  snprintf(path, sizeof path, DATA "%s", name);
  snprintf(draft, sizeof draft, "%s, its drafter", name);
  if ((!dump_wants(name) && !dump_wants(draft)) || is_left_out(out, name)) return;
  Dump dump = {.model = name, .out = out}, own = {.model = draft, .out = out};
  fprintf(out, "%s\n", name);
  Model *model = dump_opened(&dump, path, NULL);
  dump_slices(&(Subject){.dump = &dump, .model = model, .numbers = true});
  dump_ak48(&dump, model);
  dump_dummy(&dump, path, true);
  if (model_predicts_several(model)) dump_draft(&own, path, model);
  model_close(model);
}

static void dump_config(FILE *out, const char *name) {
  char path[220];
  snprintf(path, sizeof path, DATA "%s/config.json", name);
  if (!dump_wants(name)) return;
  fprintf(out, "%s\n", name);
  dump_dummy(&(Dump){.model = name, .out = out}, path, false);
}

static void dump_drafter(FILE *out, const char *name, const char *target) {
  char path[200], of[200];
  snprintf(path, sizeof path, DATA "%s", name);
  snprintf(of, sizeof of, DATA "%s", target);
  if (!dump_wants(name)) return;
  Model *model;
  Error err = {{0}};
  if (model_open(of, NULL, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(model_prepare(model, 1, &err), STATUS_OK);
  dump_draft(&(Dump){.model = name, .out = out}, path, model);
  model_close(model);
}

static int is_model(const struct dirent *entry) {
  return *entry->d_name != '.';
}

static void dump_folder(FILE *out, const char *folder, void (*dump)(FILE *out, const char *name)) {
  struct dirent **entries;
  char path[300];
  snprintf(path, sizeof path, DATA "%s", folder);
  const int n = scandir(path, &entries, is_model, alphasort);
  if (n <= 0) fail_msg("no models in %s (tests run from the repository's root)", path);
  for (int i = 0; i < n; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    dump(out, path);
    free(entries[i]);
  }
  free(entries);
}

static void write_dumps(const char *old, FILE *out) {
  golden = old;
  dump_checkpoint(out, "stories260K-awq");
  dump_checkpoint(out, "stories260K-f32");
  dump_folder(out, "miniatures", dump_checkpoint);
  dump_folder(out, "layouts", dump_checkpoint);
  dump_checkpoint(out, "drafters/target");
  dump_checkpoint(out, "drafters/qwen3_5-mtp");
  for (int i = 0; i < N_DUMP_DRAFTERS; i++) dump_drafter(out, dump_drafters[i].name, dump_drafters[i].target);
  dump_folder(out, "configs", dump_config);
}

TEST_IN_DIRECTORY(tensors_are_as_their_dumps_say) {
  if (dump_printed())
    write_dumps("", fopen("/dev/null", "w"));
  else
    check_transcript(DATA "transcripts/dumps/host.txt", write_dumps);
}
