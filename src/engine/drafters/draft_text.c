/* draft_text.c - see draft_text.h.
 *
 * Called by: commands/answer/guess.c; drafter_pool.c and batch_memory.c through drafter.h.
 * Always true: position p of the text, p >= SHORTEST - 1, is in the chain of the hash of the SHORTEST tokens
 *              that end there; a chain goes from later to earlier positions:
 *                heads[hash] -> p -> before[p] -> ... -> 0      (positions plus one; 0: none)
 *              so that cutting the text removes the first positions of chains. */
#include "engine/drafters/draft_text.h"

#include <stdlib.h>

enum {
  SHORTEST = 3,  /* tokens of the shortest passage that counts */
  LONGEST = 32,  /* most tokens of a passage that are compared */
  MOST_SEEN = 64 /* most positions of a chain that are compared */
};

typedef struct {
  int n_ctx, n;
  unsigned mask;   /* the number of heads less one */
  int32_t *ids;    /* [n_ctx] n of them in use */
  int32_t *before; /* [n_ctx] */
  int32_t *heads;  /* [mask + 1] */
} TextDrafter;

static int32_t *head_of(const TextDrafter *d, int end) {
  uint64_t hash = 0;
  for (int i = end - SHORTEST; i < end; i++)
    hash = (hash ^ (uint32_t)d->ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
  return &d->heads[hash >> 32 & d->mask];
}

static void push(TextDrafter *d, int32_t id) {
  d->ids[d->n++] = id;
  if (d->n < SHORTEST) return;
  int32_t *head = head_of(d, d->n);
  d->before[d->n - 1] = *head;
  *head = d->n;
}

static void pop(TextDrafter *d) {
  if (d->n >= SHORTEST) *head_of(d, d->n) = d->before[d->n - 1];
  d->n--;
}

/* How many tokens before `end` equal those at the text's end; at most LONGEST. */
static int match(const TextDrafter *d, int end) {
  int n = 0;
  while (n < LONGEST && n < end && d->ids[end - 1 - n] == d->ids[d->n - 1 - n]) n++;
  return n;
}

/* The end of the longest earlier passage that equals the text's end (the latest of equally long ones); 0:
 * none. Only the latest MOST_SEEN candidates are compared. */
static int find(const TextDrafter *d, int *length) {
  int best = 0, seen = 0;
  *length = SHORTEST - 1;
  if (d->n < SHORTEST) return 0;
  for (int end = d->before[d->n - 1]; end > 0 && seen < MOST_SEEN; end = d->before[end - 1], seen++) {
    const int n = match(d, end);
    if (n <= *length) continue;
    *length = n;
    best = end;
    if (n == LONGEST) break;
  }
  return best;
}

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  TextDrafter *d = self;
  while (d->n > text->n_unchanged) pop(d);
  while (d->n < text->n && d->n < d->n_ctx) push(d, text->ids[d->n]);
  if (d->n < text->n) return STATUS_OK;
  int length;
  const int end = find(d, &length);
  if (end == 0) return STATUS_OK;
  guesses->rank = length < 5 ? 0 : length < 8 ? 1 : length < 16 ? 2 : 3;
  /* The tokens after the passage may reach into the guesses: then the text repeats itself. */
  for (; guesses->n < most; guesses->n++) {
    const int at = end + guesses->n;
    guesses->ids[guesses->n] = at < d->n ? d->ids[at] : guesses->ids[at - d->n];
  }
  return STATUS_OK;
}

static void close_text(void *self) {
  TextDrafter *d = self;
  free(d->ids);
  free(d->before);
  free(d->heads);
  free(d);
}

static unsigned heads_for(int n_ctx) {
  unsigned n_heads = 256;
  while (n_heads < (unsigned)n_ctx && n_heads < 1u << 24) n_heads *= 2;
  return n_heads;
}

static size_t text_bytes(const void *user, int n_ctx) {
  const TextDrafter *d = NULL;
  return sizeof *d + (size_t)n_ctx * (sizeof *d->ids + sizeof *d->before) +
         heads_for(n_ctx) * sizeof *d->heads;
}

RELEASE_BY(text_release, TextDrafter, close_text)

Status draft_text_open(int n_ctx, Drafter *drafter, Error *err) {
  *drafter = (Drafter){.name = NULL};
  OWNED(text_release) TextDrafter *d = NULL;
  TRY(NEW(d, 1, "guesses", err));
  const unsigned n_heads = heads_for(n_ctx);
  d->n_ctx = n_ctx;
  d->mask = n_heads - 1;
  TRY(NEW(d->ids, (size_t)n_ctx, "guesses", err));
  TRY(NEW(d->before, (size_t)n_ctx, "guesses", err));
  TRY(NEW(d->heads, n_heads, "guesses", err));
  *drafter = (Drafter){.name = "text", .self = TAKE(d), .propose = propose, .close = close_text};
  return STATUS_OK;
}

static Status open_for_any(void *user, int n_ctx, Drafter *drafter, Error *err) {
  return draft_text_open(n_ctx, drafter, err);
}

const DraftSource draft_text_source = {.open = open_for_any, .bytes = text_bytes};
