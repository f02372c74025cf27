/* charset.c - sets of code points; see charset.h. */
#include "tokenizer/regex/charset.h"

#include <stdlib.h>
#include <string.h>

void charset_release(CharSet *set) {
  free(set->ranges);
  *set = (CharSet){0};
}

static int by_first(const void *a, const void *b) {
  const CharRange *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

void charset_tidy(CharSet *set) {
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

/* A full set is tidied first, and grows only if tidying freed less than half. So repeated members take no
 * memory, and sorting takes n log n in all, in any order of insertion. */
Status charset_add(CharSet *set, uint32_t first, uint32_t last, Error *err) {
  if (set->count == set->capacity) {
    charset_tidy(set);
    size_t need = set->count > set->capacity / 2 ? set->capacity + 1 : set->count + 1;
    TRY(mem_grow(&set->ranges, &set->capacity, need, sizeof *set->ranges, "a set of characters", err));
  }
  set->ranges[set->count++] = (CharRange){first, last};
  return STATUS_OK;
}

Status charset_unite(CharSet *set, const CharSet *other, Error *err) {
  for (size_t i = 0; i < other->count; i++)
    TRY(charset_add(set, other->ranges[i].first, other->ranges[i].last, err));
  return STATUS_OK;
}

/* Adds the runs whose value v has (v & mask) != 0 or, if mask is 0, equals `exact`. */
static Status add_runs(CharSet *set, const RunTable *table, uint32_t mask, uint32_t exact, Error *err) {
  for (size_t i = 0; i < table->count; i++) {
    uint32_t value = RUN_VALUE(table->runs[i]);
    if (mask ? !(value & mask) : value != exact) continue;
    uint32_t end = i + 1 < table->count ? RUN_START(table->runs[i + 1]) : UNICODE_END;
    TRY(charset_add(set, RUN_START(table->runs[i]), end - 1, err));
  }
  charset_tidy(set);
  return STATUS_OK;
}

Status charset_add_flags(CharSet *set, const RunTable *table, uint32_t mask, Error *err) {
  return add_runs(set, table, mask, 0, err);
}

Status charset_add_value(CharSet *set, const RunTable *table, uint32_t value, Error *err) {
  return add_runs(set, table, 0, value, err);
}

Status charset_complement(CharSet *set, Error *err) {
  charset_tidy(set);
  OWNED(charset_release) CharSet before = TAKE(*set);
  uint32_t next = 0;
  for (size_t i = 0; i < before.count; i++) {
    if (before.ranges[i].first > next) TRY(charset_add(set, next, before.ranges[i].first - 1, err));
    next = before.ranges[i].last + 1;
  }
  return next < UNICODE_END ? charset_add(set, next, UNICODE_END - 1, err) : STATUS_OK;
}

Status charset_take(CharSet *set, CharSet *part, bool negated, Error *err) {
  if (negated) TRY(charset_complement(part, err));
  return charset_unite(set, part, err);
}

Status charset_intersect(CharSet *set, const CharSet *other, Error *err) {
  charset_tidy(set);
  OWNED(charset_release) CharSet before = TAKE(*set);
  for (size_t i = 0, j = 0; i < before.count && j < other->count;) {
    CharRange a = before.ranges[i], b = other->ranges[j];
    uint32_t first = a.first > b.first ? a.first : b.first, last = a.last < b.last ? a.last : b.last;
    if (first <= last) TRY(charset_add(set, first, last, err));
    if (a.last < b.last) {
      i++;
    } else {
      j++;
    }
  }
  return STATUS_OK;
}

/* Walks all of unicode_fold, which maps few code points, twice. */
Status charset_fold(CharSet *set, Error *err) {
  OWNED(charset_release) CharSet stand_ins = {0}; /* representatives of classes with a member in `set` */
  OWNED(charset_release) CharSet more = {0};
  charset_tidy(set);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < unicode_fold.count; i++) {
      const CaseSeries *s = &unicode_fold.series[i];
      for (uint32_t code = s->first; code <= s->last; code += (uint32_t)s->stride) {
        uint32_t stand_in = (uint32_t)((int32_t)code + s->delta);
        if (pass == 0) {
          if (charset_contains(set, code) || charset_contains(set, stand_in))
            TRY(charset_add(&stand_ins, stand_in, stand_in, err));
        } else if (charset_contains(&stand_ins, stand_in)) {
          TRY(charset_add(&more, code, code, err));
        }
      }
    }
    charset_tidy(&stand_ins);
  }
  TRY(charset_unite(set, &stand_ins, err));
  TRY(charset_unite(set, &more, err));
  charset_tidy(set);
  return STATUS_OK;
}

bool charset_contains(const CharSet *set, uint32_t code) {
  size_t low = 0, high = set->count; /* ranges[0 .. low) begin at or before code */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->ranges[middle].first <= code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low > 0 && code <= set->ranges[low - 1].last;
}

bool charset_equal(const CharSet *a, const CharSet *b) {
  return a->count == b->count &&
         (a->count == 0 || memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges) == 0);
}
