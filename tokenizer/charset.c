/* charset.c - sets of code points; see charset.h.
 *
 * Called by: regex_parse.c, split.c, load.c, at load time only. */
#include "tokenizer/charset.h"

#include <stdlib.h>
#include <string.h>

void charset_release(CharSet *set) {
  free(set->ranges);
  *set = (CharSet){0};
}

static Status push(CharSet *set, uint32_t first, uint32_t last, Error *err) {
  void *ranges = set->ranges;
  TRY(mem_grow(&ranges, &set->capacity, set->count + 1, sizeof *set->ranges, "a set of characters", err));
  set->ranges = ranges;
  set->ranges[set->count++] = (CharRange){first, last};
  return STATUS_OK;
}

static int by_first(const void *a, const void *b) {
  const CharRange *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

/* Makes it sorted, disjoint and without touching ranges again. */
static void tidy(CharSet *set) {
  if (set->count < 2) return;
  qsort(set->ranges, set->count, sizeof *set->ranges, by_first);
  size_t kept = 0;
  for (size_t i = 1; i < set->count; i++) {
    CharRange *last = &set->ranges[kept], next = set->ranges[i];
    if (next.first > last->last + 1) {
      set->ranges[++kept] = next;
    } else if (next.last > last->last) {
      last->last = next.last;
    }
  }
  set->count = kept + 1;
}

/* How many ranges begin at or before `code`. */
static size_t ranges_up_to(const CharSet *set, uint32_t code) {
  size_t low = 0, high = set->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->ranges[middle].first <= code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Members of a class often come in order, or again: neither sorts anything. */
Status charset_add(CharSet *set, uint32_t first, uint32_t last, Error *err) {
  size_t before = ranges_up_to(set, first);
  if (before > 0 && set->ranges[before - 1].last >= last) return STATUS_OK;
  bool behind_all = before == set->count && (before == 0 || set->ranges[before - 1].last + 1 < first);
  TRY(push(set, first, last, err));
  if (!behind_all) tidy(set);
  return STATUS_OK;
}

Status charset_unite(CharSet *set, const CharSet *other, Error *err) {
  for (size_t i = 0; i < other->count; i++)
    TRY(push(set, other->ranges[i].first, other->ranges[i].last, err));
  tidy(set);
  return STATUS_OK;
}

/* set = set or the runs whose value v has (v & mask) != 0, or equals `exact` where mask is 0. */
static Status add_runs(CharSet *set, const RunTable *table, uint32_t mask, uint32_t exact, Error *err) {
  for (size_t i = 0; i < table->count; i++) {
    uint32_t value = RUN_VALUE(table->runs[i]);
    if (mask ? !(value & mask) : value != exact) continue;
    uint32_t end = i + 1 < table->count ? RUN_START(table->runs[i + 1]) : UNICODE_END;
    TRY(push(set, RUN_START(table->runs[i]), end - 1, err));
  }
  tidy(set);
  return STATUS_OK;
}

Status charset_add_flags(CharSet *set, const RunTable *table, uint32_t mask, Error *err) {
  return add_runs(set, table, mask, 0, err);
}

Status charset_add_value(CharSet *set, const RunTable *table, uint32_t value, Error *err) {
  return add_runs(set, table, 0, value, err);
}

Status charset_complement(CharSet *set, Error *err) {
  CharSet out = {0};
  uint32_t next = 0;
  Status status = STATUS_OK;
  for (size_t i = 0; i < set->count && status == STATUS_OK; i++) {
    if (set->ranges[i].first > next) status = push(&out, next, set->ranges[i].first - 1, err);
    next = set->ranges[i].last + 1;
  }
  if (status == STATUS_OK && next < UNICODE_END) status = push(&out, next, UNICODE_END - 1, err);
  charset_release(set);
  *set = out;
  return status;
}

Status charset_intersect(CharSet *set, const CharSet *other, Error *err) {
  CharSet out = {0};
  Status status = STATUS_OK;
  for (size_t i = 0, j = 0; i < set->count && j < other->count && status == STATUS_OK;) {
    CharRange a = set->ranges[i], b = other->ranges[j];
    uint32_t first = a.first > b.first ? a.first : b.first, last = a.last < b.last ? a.last : b.last;
    if (first <= last) status = push(&out, first, last, err);
    if (a.last < b.last) {
      i++;
    } else {
      j++;
    }
  }
  charset_release(set);
  *set = out;
  return status;
}

/* The code points that unicode_fold maps to something are few; all classes are found from them. */
Status charset_fold(CharSet *set, Error *err) {
  CharSet stand_ins = {0}, more = {0}; /* those that stand for a class with a member in `set` */
  Status status = STATUS_OK;
  for (int pass = 0; pass < 2 && status == STATUS_OK; pass++) {
    for (size_t i = 0; i < unicode_fold.count && status == STATUS_OK; i++) {
      const CaseSeries *s = &unicode_fold.series[i];
      for (uint32_t code = s->first; code <= s->last && status == STATUS_OK; code += (uint32_t)s->stride) {
        uint32_t stand_in = (uint32_t)((int32_t)code + s->delta);
        if (pass == 0) {
          if (charset_contains(set, code) || charset_contains(set, stand_in))
            status = push(&stand_ins, stand_in, stand_in, err);
        } else if (charset_contains(&stand_ins, stand_in)) {
          status = push(&more, code, code, err);
        }
      }
    }
    tidy(&stand_ins);
  }
  tidy(&more);
  if (status == STATUS_OK) status = charset_unite(set, &stand_ins, err);
  if (status == STATUS_OK) status = charset_unite(set, &more, err);
  charset_release(&stand_ins);
  charset_release(&more);
  return status;
}

bool charset_contains(const CharSet *set, uint32_t code) {
  size_t before = ranges_up_to(set, code);
  return before > 0 && code <= set->ranges[before - 1].last;
}

bool charset_equal(const CharSet *a, const CharSet *b) {
  return a->count == b->count &&
         (a->count == 0 || memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges) == 0);
}
