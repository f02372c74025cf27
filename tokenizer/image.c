/* image.c - a loaded tokenizer for other processes of this program: the tables that take long to load, as
 * they are in memory, and the rest of tokenizer.json as text.
 *
 *   ImageHeader | contents, tokens, slots, token_of | merges | code_ids | joints | strings
 *               | scores, shorter, the matcher's arrays | JSON without tables | declared tokens
 *
 * Always true: an image is read by the build that wrote it, in a process of the same user, through a
 *              descriptor that came from the writer. So its bytes are trusted as memory is. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tokenizer/internal.h"

static const char MAGIC[8] = "auktok02";

enum { N_TABLES = 17, JSON = N_TABLES, DECLARED, N_PARTS };

typedef struct {
  char magic[8];
  uint64_t at[N_PARTS], size[N_PARTS]; /* in bytes; at: from the image's start; size 0: part is absent */
  Model model;                         /* pointers in it are meaningless */
} ImageHeader;

/* A table of the model. */
typedef struct {
  /* Address of the model's pointer to the table; the pointer is NULL if the model has no such table. */
  void *pointer;
  size_t size; /* in bytes, if there is a table */
} Table;

static void tables_of(Model *model, Table tables[N_TABLES]) {
  Vocab *v = &model->vocab;
  Bpe *bpe = &model->bpe;
  Joints *j = &bpe->joints;
  Unigram *u = &model->unigram;
  Matcher *m = &u->matcher;
  const Table all[] = {
      {&v->bytes.data, v->bytes.size},
      {&v->tokens, v->count * sizeof *v->tokens},
      {&v->slots, (v->mask + 1) * sizeof *v->slots},
      {&v->token_of, (size_t)v->n_ids * sizeof *v->token_of},
      {&bpe->merges, (bpe->merge_mask + 1) * sizeof *bpe->merges},
      {&bpe->code_ids, 0x10000 * sizeof *bpe->code_ids},
      {&j->near, 256 * 256 / 8},
      {&j->far, (j->far_mask + 1) * sizeof *j->far},
      {&bpe->prefix, bpe->prefix_size + 1},
      {&bpe->suffix, bpe->suffix_size + 1},
      {&bpe->unk, bpe->unk_size + 1},
      {&u->scores, v->count * sizeof *u->scores},
      {&u->shorter, v->count * sizeof *u->shorter},
      {&m->byte, m->n_nodes * sizeof *m->byte},
      {&m->first, (m->n_nodes + 1) * sizeof *m->first},
      {&m->fail, m->n_nodes * sizeof *m->fail},
      {&m->longest, m->n_nodes * sizeof *m->longest},
  };
  _Static_assert(sizeof all == N_TABLES * sizeof *all, "N_TABLES is the number of tables");
  memcpy(tables, all, sizeof all);
}

/* --- making */

static Status add(Buffer *image, ImageHeader *header, int part, const void *bytes, size_t size, Error *err) {
  static const char zeros[64];
  TRY(buffer_append(image, zeros, (64 - image->size % 64) % 64, err)); /* aligned for any type */
  header->at[part] = image->size;
  header->size[part] = size;
  return size ? buffer_append(image, bytes, size, err) : STATUS_OK;
}

static Status add_tables(Buffer *image, ImageHeader *header, Model *model, Error *err) {
  Table tables[N_TABLES];
  tables_of(model, tables);
  for (int i = 0; i < N_TABLES; i++) {
    const void *bytes;
    memcpy(&bytes, tables[i].pointer, sizeof bytes); /* the model's pointer is of any type */
    TRY(add(image, header, i, bytes, bytes ? tables[i].size : 0, err));
  }
  return STATUS_OK;
}

/* Appends the JSON text with null in place of the two tables. */
static Status add_rest(Buffer *image, ImageHeader *header, const char *text, size_t size,
                       const JsonSkip skips[2], Error *err) {
  OWNED(buffer_release) Buffer rest = {0};
  const bool in_order = skips[0].span.text < skips[1].span.text;
  const char *at = text;
  for (int i = 0; i < 2; i++) {
    const JsonSpan span = skips[in_order ? i : 1 - i].span;
    if (!span.text) continue;
    TRY(buffer_append(&rest, at, (size_t)(span.text - at), err));
    TRY(buffer_append(&rest, "null", 4, err));
    at = span.text + span.size;
  }
  TRY(buffer_append(&rest, at, (size_t)(text + size - at), err));
  return add(image, header, JSON, rest.data, rest.size, err);
}

static Status make(const char *path, const char *text, size_t size, Buffer *image, Error *err) {
  JsonSkip skips[2] = {TOKENIZER_SKIPS};
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  ImageHeader header;
  memset(&header, 0, sizeof header);
  TRY(tokenizer_open(path, &tokenizer, err));
  TRY(json_parse(path, STATUS_MODEL, text, size, skips, 2, NULL, err));
  TRY(buffer_append(image, &header, sizeof header, err));
  TRY(add_tables(image, &header, &tokenizer->model, err));
  TRY(add_rest(image, &header, text, size, skips, err));
  TRY(add(image, &header, DECLARED, tokenizer->declared.data, tokenizer->declared.size, err));
  memcpy(header.magic, MAGIC, sizeof MAGIC);
  header.model = tokenizer->model;
  memcpy(image->data, &header, sizeof header);
  return STATUS_OK;
}

Status tokenizer_image_make(const char *path, int *descriptor, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  OWNED(buffer_release) Buffer image = {0};
  *descriptor = -1;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(make(path, (const char *)file.data, file.size, &image, err));
  const int made = memfd_create("auk tokenizer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) return error_set(err, STATUS_FAILED, "no memory for a copy of %s", path);
  const Status status = descriptor_write(made, path, image.data, image.size, err);
  if (status) {
    close(made);
    return status;
  }
  fcntl(made, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  *descriptor = made;
  return STATUS_OK;
}

/* --- opening */

static void *part(const ImageHeader *header, int which) {
  return header->size[which] ? (void *)((uintptr_t)header + header->at[which]) : NULL;
}

static Status check(const char *name, const ImageHeader *header, size_t size, Error *err) {
  bool good = memcmp(header->magic, MAGIC, sizeof MAGIC) == 0;
  for (int i = 0; i < N_PARTS && good; i++)
    good = header->at[i] <= size && header->size[i] <= size - header->at[i];
  return good ? STATUS_OK
              : error_set(err, STATUS_FAILED, "%s: the copy in memory is not of this build", name);
}

/* Sets *model to the model of its image. */
static void set_tables(Model *model) {
  const ImageHeader *image = model->image;
  const size_t size = model->image_bytes;
  *model = image->model;
  model->image = image;
  model->image_bytes = size;
  Table tables[N_TABLES];
  tables_of(model, tables);
  for (int i = 0; i < N_TABLES; i++) {
    void *const table = part(image, i);
    memcpy(tables[i].pointer, &table, sizeof table);
  }
  model->bpe.where = model->unigram.where = model->where.text;
  model->bpe.vocab = model->unigram.vocab = &model->vocab;
}

Status tokenizer_image_open(const char *name, int descriptor, Tokenizer **out, Error *err) {
  struct stat state;
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  *out = NULL;
  TRY(NEW(tokenizer, 1, "a tokenizer", err));
  if (fstat(descriptor, &state) != 0 || state.st_size < (off_t)sizeof(ImageHeader))
    return error_set(err, STATUS_FAILED, "%s: the copy in memory is not of this build", name);
  const size_t size = (size_t)state.st_size;
  const ImageHeader *header = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (header == MAP_FAILED) return error_set(err, STATUS_FAILED, "%s: cannot map the copy in memory", name);
  tokenizer->model.image = header;
  tokenizer->model.image_bytes = size;
  TRY(check(name, header, size, err));
  set_tables(&tokenizer->model);
  if (header->size[DECLARED])
    TRY(buffer_append(&tokenizer->declared, part(header, DECLARED), header->size[DECLARED], err));
  TRY(tokenizer_load(name, part(header, JSON), header->size[JSON], tokenizer, err));
  *out = TAKE(tokenizer);
  return STATUS_OK;
}
