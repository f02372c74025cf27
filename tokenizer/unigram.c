/* unigram.c - cuts a text into the pieces with the largest sum of scores; see unigram.h.
 *
 * Each offset keeps the best way to cut the text before it (Viterbi). A character that is no piece counts as
 * unknown. As in the reference, scores are added from the left, and of equal sums the cut with the longest
 * last piece wins: the order of additions and comparisons decides ids. Takes time linear in the text plus the
 * number of pieces that occur in it.
 *
 *   text      a   b   c            pieces   a -1   b -2   ab -2.5   unknown -12.5
 *   score   0   -1 -2.5 -15
 *   pieces  |---ab--| c |          "ab" is better than "a" "b" */
#include "tokenizer/unigram.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/split.h"
#include "tokenizer/stop.h"

void unigram_scratch_release(UnigramScratch *scratch) {
  buffer_release(&scratch->text);
  match_list_release(&scratch->matches);
  free(scratch->places);
  *scratch = (UnigramScratch){0};
}

/* Offers a piece that ends at the offset of `place`. Returns whether it is the best so far. */
static bool offer(UnigramPlace *place, double score, size_t start, int32_t id) {
  if (place->id >= 0 && score <= place->score) return false;
  *place = (UnigramPlace){score, (uint32_t)start, 0, id};
  return true;
}

static Status find_best(const Unigram *u, UnigramScratch *s, const char *text, size_t size, Error *err) {
  UnigramPlace *places = s->places;
  size_t left = s->matches.count, rounds = 0;
  places[0].score = 0;
  for (size_t at = 0; at < size;) {
    uint32_t code;
    const size_t n = (size_t)utf8_decode(text + at, size - at, &code);
    const double score = places[at].score;
    bool known = false;
    int32_t id = left > 0 && s->matches.items[left - 1].at == at ? s->matches.items[--left].number : -1;
    for (; id >= 0; id = u->shorter[id]) {
      const size_t length = u->vocab->tokens[id].size;
      if (++rounds % STOP_EACH == 0) TRY(stop_check(s->interrupted, err));
      offer(&places[at + length], score + u->scores[id], at, id);
      known |= length == n;
    }
    const int32_t unk = u->unk_id < 0 ? 0 : u->unk_id;
    if (!known && offer(&places[at + n], score + u->unk_score, at, unk) && u->unk_id < 0)
      return error_set(err, STATUS_MODEL, "%s: unk_id is needed for \"%.*s\" but missing", u->where, (int)n,
                       text + at);
    at += n;
  }
  return STATUS_OK;
}

/* Appends the ids of a run of unknown characters, which together may be a piece of the vocabulary. */
static Status put_unknown(const Unigram *u, const char *run, size_t size, IdList *ids, Error *err) {
  const int32_t id = vocab_find(u->vocab, run, size);
  bool all = id < 0;
  for (size_t i = 0; i < size && all; i++) all = u->fallback_ids[(unsigned char)run[i]] >= 0;
  if (!all) return id_list_append(ids, id < 0 ? u->unk_id : id, err);
  for (size_t i = 0; i < size; i++) TRY(id_list_append(ids, u->fallback_ids[(unsigned char)run[i]], err));
  return STATUS_OK;
}

static Status put_best(const Unigram *u, UnigramPlace *places, const char *text, size_t size, IdList *ids,
                       Error *err) {
  for (size_t end = size; end > 0; end = places[end].start) places[places[end].start].next = (uint32_t)end;
  for (size_t at = 0, end; at < size; at = end) {
    end = places[at].next;
    if (places[end].id != u->unk_id) {
      TRY(id_list_append(ids, places[end].id, err));
      continue;
    }
    while (end < size && places[places[end].next].id == u->unk_id) end = places[end].next;
    TRY(put_unknown(u, text + at, end - at, ids, err));
  }
  return STATUS_OK;
}

Status unigram_encode(const Unigram *u, UnigramScratch *s, const char *text, size_t size, IdList *ids,
                      Error *err) {
  TRY(stop_check(s->interrupted, err));
  if (u->bytes) {
    TRY(byte_level_map(text, size, &s->text, err));
    text = s->text.data;
    size = s->text.size;
  }
  s->matches.count = 0;
  TRY(matcher_find(&u->matcher, text, size, s->interrupted, &s->matches, err));
  TRY(mem_grow(&s->places, &s->capacity, size + 1, sizeof *s->places, "places of a text", err));
  for (size_t i = 0; i <= size; i++) s->places[i].id = -1;
  TRY(find_best(u, s, text, size, err));
  return put_best(u, s->places, text, size, ids, err);
}
