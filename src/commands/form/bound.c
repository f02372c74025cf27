/* bound.c - see bound.h. Called by: filters.c, calls.c, channels.c.
 * Always true: an end token is in a mask only where the answer may end. */
#include "commands/form/bound.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

Status bound_begin(Bound *b, AnswerForm *form, const IdList *ends, Error *err) {
  if (!form->given) return STATUS_OK;
  const size_t n_model = ((size_t)form->vocab_size + 63) / 64, n = form->vocabulary->n_words;
  *b = (Bound){.form = form, .ends = ends, .n_words = n > n_model ? n : n_model};
  TRY(NEW(b->mask, b->n_words, "a mask", err));
  return form_begin(form, err);
}

void bound_release(Bound *b) {
  free(b->mask);
  buffer_release(&b->held);
  id_list_release(&b->forced);
  *b = (Bound){.form = NULL};
}

Status bound_check(const Bound *b, Status status, const Error *inner, Error *err) {
  if (status == STATUS_OK) return status;
  return error_set(err, status == STATUS_USAGE ? STATUS_CUT_SHORT : status,
                   status == STATUS_USAGE ? "%s: the answer is at a point from which its form is too hard: %s"
                                          : "%s: %s",
                   b->form->flag, inner->text);
}

/* --- masks */

static void set_bit(Bound *b, int32_t id, bool on) {
  const uint64_t bit = UINT64_C(1) << (id & 63);
  if (id < 0 || (size_t)id / 64 >= b->n_words) return;
  b->mask[id / 64] = on ? b->mask[id / 64] | bit : b->mask[id / 64] & ~bit;
}

static void set_ends(Bound *b, bool on) {
  for (size_t i = 0; i < b->ends->count; i++) set_bit(b, b->ends->ids[i], on);
}

/* Removes from the mask the ids that the model does not have; false if the mask is then empty. */
static bool drop_unknown(Bound *b) {
  const size_t n = (size_t)b->form->vocab_size;
  uint64_t any = 0;
  for (size_t word = 0; word < b->n_words; word++) {
    if (word * 64 >= n) b->mask[word] = 0;
    if (word == n / 64) b->mask[word] &= (UINT64_C(1) << n % 64) - 1;
    any |= b->mask[word];
  }
  return any;
}

static Status no_way_on(const Bound *b, Error *err) {
  return error_set(err, STATUS_CUT_SHORT,
                   "%s: the answer is at a point from which no token of this model leads to its form",
                   b->form->flag);
}

Status bound_mask(Bound *b, int32_t also, bool space, const uint64_t **mask, Error *err) {
  Constraint *c = &b->form->constraint;
  const Vocabulary *v = b->form->vocabulary;
  *mask = b->mask;
  memset(b->mask + v->n_words, 0, (b->n_words - v->n_words) * sizeof *b->mask);
  Error inner;
  TRY(bound_check(b, constraint_mask(c, b->mask, &inner), &inner, err));
  for (uint32_t word = 0; space && word < v->n_words; word++) b->mask[word] |= v->space[word];
  set_ends(b, constraint_may_end(c) && !b->form->is_calls);
  set_bit(b, also, true);
  return drop_unknown(b) ? STATUS_OK : no_way_on(b, err);
}

void bound_mask_thought(Bound *b, const uint64_t **mask) {
  memset(b->mask, 0xff, b->n_words * sizeof *b->mask);
  set_ends(b, false);
  drop_unknown(b);
  *mask = b->mask;
}

void bound_mask_few(Bound *b, int32_t also, bool space, bool ends, const uint64_t **mask) {
  const Vocabulary *v = b->form->vocabulary;
  memset(b->mask, 0, b->n_words * sizeof *b->mask);
  for (uint32_t word = 0; space && word < v->n_words; word++) b->mask[word] = v->space[word];
  set_ends(b, ends);
  set_bit(b, also, true);
  drop_unknown(b);
  *mask = b->mask;
}

void bound_allow(Bound *b, int32_t id) {
  if (id < b->form->vocab_size) set_bit(b, id, true);
}

Status bound_mask_or_text(Bound *b, char first, const uint64_t **mask, Error *err) {
  const Vocabulary *v = b->form->vocabulary;
  TRY(bound_mask(b, -1, false, mask, err));
  for (int32_t id = 0; (size_t)id < b->n_words * 64; id++) {
    size_t size = 0, at = 0;
    const char *bytes = id < v->n_ids ? vocabulary_bytes(v, id, &size) : "";
    while (at < size && strchr(" \t\r\n", bytes[at])) at++;
    if (at == size || bytes[at] != first) set_bit(b, id, true);
  }
  drop_unknown(b);
  return STATUS_OK;
}

/* --- tokens */

Status bound_restart(Bound *b, Error *err) {
  b->begun = b->ended = false;
  b->n_last = 0;
  b->n_forced = b->forced.count = b->held.size = 0;
  return constraint_begin(&b->form->constraint, err);
}

bool bound_is_space(const Bound *b, int32_t id) {
  return id < b->form->vocabulary->n_ids && mask_has(b->form->vocabulary->space, id);
}

Status bound_take(Bound *b, int32_t id, Buffer *text, Error *err) {
  bool allowed;
  size_t size;
  Constraint *c = &b->form->constraint;
  Error inner;
  TRY(bound_check(b, constraint_take(c, id, &allowed, &inner), &inner, err));
  if (!allowed) return no_way_on(b, err); /* masks also allow tokens that the limited search left undecided */
  const char *bytes = vocabulary_bytes(b->form->vocabulary, id, &size);
  TRY(buffer_append(&b->held, bytes, size, err));
  const size_t whole = b->held.size ? utf8_valid_prefix(b->held.data, b->held.size) : 0;
  if (whole > 0) {
    TRY(buffer_append(text, b->held.data, whole, err));
    b->held.size -= whole;
    memmove(b->held.data, b->held.data + whole, b->held.size);
  }
  memmove(b->last, b->last + 1, (BOUND_LAST - 1) * sizeof *b->last);
  b->last[BOUND_LAST - 1] = id;
  b->n_last += b->n_last < BOUND_LAST;
  if (b->n_forced > 0) b->n_forced--;
  b->begun = true;
  b->ended = constraint_must_end(c) || (b->ends->count == 0 && constraint_may_end(c));
  /* White space that completes a number is no part of the answer. */
  while (b->ended && b->form->is_json && text->size && strchr(" \t\r\n", text->data[text->size - 1]))
    text->size--;
  return STATUS_OK;
}

/* --- what follows by force */

/* Sets b->forced to the tokens that must follow the text of the last n tokens. */
static Status force_after(Bound *b, int n, Error *err) {
  OWNED(buffer_release) Buffer before = {0};
  for (int i = BOUND_LAST - n; i < BOUND_LAST; i++) {
    size_t size;
    const char *bytes = vocabulary_bytes(b->form->vocabulary, b->last[i], &size);
    TRY(buffer_append(&before, bytes, size, err));
  }
  if (utf8_valid_prefix(before.data, before.size) != before.size) return STATUS_OK;
  Error inner;
  return bound_check(b,
                     constraint_forced_tokens(&b->form->constraint, b->form->tokenizer, before.data,
                                              before.size, &b->forced, &inner),
                     &inner, err);
}

Status bound_forced(Bound *b, TokenReply *reply, Error *err) {
  if (b->n_forced > 0 || b->ended || b->n_last == 0 || b->held.size > 0) return STATUS_OK;
  const bool were_forced = b->forced.count > 0;
  b->forced.count = 0;
  if (were_forced) return STATUS_OK; /* after forced tokens there is a choice */
  TRY(force_after(b, b->n_last, err));
  if (b->forced.count == 0) return STATUS_OK;
  b->n_forced = b->forced.count;
  reply->forced = b->forced.ids;
  reply->n_forced = (int)b->forced.count;
  return STATUS_OK;
}
