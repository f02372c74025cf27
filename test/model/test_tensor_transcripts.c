/* test_tensor_transcripts.c - test/data/transcripts/tensors: tiny checkpoints whose tensors are changed,
 * and what opening them gives.
 *
 *   awq is dense: add .qweight I32 32x4; ...   a checkpoint that later lines name
 *   awq: remove .scales; ...                   one that is opened
 *
 * A line begins with llama, qwen2, qwen3 (tiny_checkpoint.h), bare (a llama without tensors), dense (a llama
 * whose first q_proj is missing, tiny_layer.h) or a name of its own. A tensor whose name begins with a point
 * belongs to that q_proj. The changes:
 *
 *   add NAME DTYPE SHAPE, replace NAME DTYPE SHAPE, remove NAME
 *   put NAME OFFSET HEX    these bytes; fill NAME HEX repeats them
 *   steps NAME N           int32 i / N; count NAME: bytes 1, 2, 3 ...
 *   group N                in the AutoAWQ config, 0: none; sizes HIDDEN HEADS HEAD_DIM; type phi3
 *   config JSON            of the quantisation, last in the line; empty: none
 *
 * Below it are the message, with DIR for its directory, or the layout of the first q_proj. `make goldens`
 * writes the files anew. */
#include "test/tests.h"
#include "test/transcript.h"
#include "tiny_layer.h"

#include "model/loaders.h"

enum { MOST_NAMES = 20 };

static struct { char name[20], line[1000]; } named[MOST_NAMES];
static int n_named;
static char config[1000];

/* DTYPE as a text that stays. */
static const char *lasting(const char *dtype) {
  static const char *const dtypes[] = {"F32",     "F16",     "BF16",    "I32", "I64",
                                       "F8_E4M3", "F8_E8M0", "F8_E5M2", "U8",  "I8"};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i], dtype) == 0) return dtypes[i];
  fail_msg("no dtype %s", dtype);
  return NULL;
}

static size_t read_hex(const char *hex, unsigned char *bytes) {
  size_t n = 0;
  for (unsigned byte; sscanf(hex + 2 * n, "%2x", &byte) == 1; n++) bytes[n] = (unsigned char)byte;
  return n;
}

static void change_bytes(TinyTensor *t, const char *how, const char *rest) {
  unsigned char bytes[64];
  size_t at = 0;
  int32_t n = 0;
  if (strcmp(how, "put") == 0) {
    char hex[130];
    assert_int_equal(sscanf(rest, "%zu %129s", &at, hex), 2);
    const size_t size = read_hex(hex, bytes);
    assert_true(at + size <= t->bytes);
    memcpy(t->data + at, bytes, size);
  } else if (strcmp(how, "fill") == 0) {
    const size_t size = read_hex(rest, bytes);
    for (; at < t->bytes; at++) t->data[at] = bytes[at % size];
  } else if (strcmp(how, "count") == 0) {
    for (; at < t->bytes; at++) t->data[at] = (unsigned char)(at + 1);
  } else if (strcmp(how, "steps") == 0 && sscanf(rest, "%d", &n) == 1) {
    for (int32_t i = 0; (size_t)i < t->bytes / 4; i++) memcpy(t->data + i * 4, &(int32_t){i / n}, 4);
  } else {
    fail_msg("%s %s", how, rest);
  }
}

static void add_tensor(Tiny *tiny, const char *name, const char *rest) {
  char dtype[12];
  long long a = 1, b = 1;
  int n = 0;
  assert_int_equal(sscanf(rest, "%11s %n", dtype, &n), 1);
  const int rank = sscanf(rest + n, "%lldx%lld", &a, &b);
  tiny_add(tiny, name, lasting(dtype), rank < 0 ? 0 : rank, a, b);
}

static void change(Tiny *tiny, const char *op) {
  char how[12], name[90], *rest;
  int n = 0;
  if (sscanf(op, "sizes %d %d %d", &tiny->hidden, &tiny->n_heads, &tiny->head_dim) == 3) return;
  if (sscanf(op, "group %d", &tiny->group) == 1) return;
  if (strcmp(op, "type phi3") == 0) {
    tiny->architecture = "Phi3ForCausalLM", tiny->model_type = "phi3";
    return;
  }
  assert_int_equal(sscanf(op, "%11s %79s %n", how, name, &n), 2);
  rest = strdup(op + n);
  if (*name == '.') {
    char suffix[40];
    snprintf(suffix, sizeof suffix, "%.39s", name);
    snprintf(name, sizeof name, Q "%s", suffix);
  }
  if (strcmp(how, "remove") == 0 || strcmp(how, "replace") == 0) tiny_remove(tiny, name);
  if (strcmp(how, "add") == 0 || strcmp(how, "replace") == 0)
    add_tensor(tiny, name, rest);
  else if (strcmp(how, "remove") != 0)
    change_bytes(tiny_find(tiny, name), how, rest);
  free(rest);
}

static void build(Tiny *tiny, const char *line) {
  char name[20], op[1000];
  const size_t n = strcspn(line, ":");
  snprintf(name, sizeof name, "%.*s", (int)n, line);
  if (!strcmp(name, "qwen3")) tiny_qwen3(tiny);
  if (!strcmp(name, "qwen2")) tiny_qwen2(tiny);
  if (!strcmp(name, "llama") || !strcmp(name, "bare")) tiny_llama(tiny);
  if (!strcmp(name, "bare")) tiny_free(tiny), tiny->group = 0;
  if (!strcmp(name, "dense")) make_dense(tiny, "");
  for (int i = 0; i < n_named; i++)
    if (strcmp(named[i].name, name) == 0) build(tiny, named[i].line);
  for (line += n + 1; *line == ' ';) {
    if (strncmp(++line, "config", 6) == 0) {
      snprintf(config, sizeof config, line[6] ? ", \"quantization_config\": %s" : "", line + 7);
      tiny->extra_config = config;
      return;
    }
    const size_t size = strcspn(line, ";");
    snprintf(op, sizeof op, "%.*s", (int)size, line);
    change(tiny, op);
    line += size + (line[size] == ';');
  }
}

static void open_checkpoint(const char *line, FILE *out) {
  static const char *const kinds[] = {"dense", "AWQ", "grouped", "INT8", "FP8", "FP4"};
  Tiny tiny;
  Model *model;
  Error err = {{0}};
  build(&tiny, line);
  char *directory = write_tiny(&tiny);
  Status status = model_open(directory, NULL, &model, &err);
  const bool is_open = status == STATUS_OK;
  if (is_open) status = model_prepare(model, 2, &err);
  if (status != STATUS_OK) {
    fprintf(out, "    %sstatus %d: ", is_open ? "opens; " : "", status);
    print_refusal(out, err.text, directory);
  } else {
    const Linear *q = &model->layers[0].q;
    fprintf(out, "    %s, %d bits, groups of %d; %zu tensors are not used\n", kinds[q->kind], q->bits,
            q->group, model->unused_tensors);
  }
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

static void write_checkpoints(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  n_named = 0;
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    const char *is = strstr(line, " is "), *colon = strchr(line, ':');
    if (*line == '#' || !colon) continue;
    if (is && is < colon) {
      assert_true(n_named < MOST_NAMES);
      snprintf(named[n_named].name, sizeof named->name, "%.*s", (int)(is - line), line);
      snprintf(named[n_named++].line, sizeof named->line, "%s", is + 4);
    } else {
      open_checkpoint(line, out);
    }
  }
}

TEST(tensors_are_taken_or_refused_as_their_transcripts_say) {
  check_transcripts("test/data/transcripts/tensors", write_checkpoints);
}
