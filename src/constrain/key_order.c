/* key_order.c - finds the order of an object's keys and which of them may come next; see key_order.h.
 *
 * The order makes no schema unsatisfiable, because any object can be written in it. A key that is passed over
 * cannot come later. So a required key is not passed over. */
#include "constrain/key_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/closing.h"

/* --- the order */

static Status add_schema(Machine *m, uint32_t schema, KeyOrder *order, KeyTable *visited, Error *err) {
  if (schema <= SCHEMA_TRUE || schema == SCHEMA_NONE) return STATUS_OK;
  if (!langs_work(&m->set->langs, 4)) return langs_check(&m->set->langs, err);
  if (key_table_find(visited, schema)) return STATUS_OK;
  if (!langs_work(&m->set->langs, 16)) return langs_check(&m->set->langs, err);
  if (!key_table_add(visited, (KeyEntry){schema, {.number = 0}}))
    return error_set(err, STATUS_FAILED, "out of memory");
  const Schema *s = &m->set->schemas[schema];
  for (size_t i = 0; i < s->order.count; i++) {
    if (key_table_find(&order->ranks, s->order.items[i] + UINT64_C(1))) continue;
    TRY(number_list_add(&order->keys, s->order.items[i], err));
    const KeyEntry ranked = {s->order.items[i] + UINT64_C(1), {.number = (uint32_t)order->keys.count}};
    if (!key_table_add(&order->ranks, ranked)) return error_set(err, STATUS_FAILED, "out of memory");
  }
  const uint32_t *part;
  for (size_t i = 0; (part = schema_part(s, PART_ORDERS, i)); i++)
    TRY(add_schema(m, *part, order, visited, err));
  return STATUS_OK;
}

static void order_free(KeyOrder *order) {
  if (!order) return;
  free(order->schemas);
  free(order->keys.items);
  key_table_release(&order->ranks);
  free(order);
}

static Status make_words(Machine *m, KeyOrder *order, Error *err) {
  LangWord *words;
  TRY(NEW(words, order->keys.count + 1, "a constraint", err));
  for (size_t i = 0; i < order->keys.count; i++) {
    const Key *key = &m->set->keys[order->keys.items[i]];
    words[i] = (LangWord){key->bytes, key->size, LANG_EMPTY};
  }
  order->words = lang_words(&m->set->langs, words, order->keys.count);
  free(words);
  return STATUS_OK;
}

static Status make_order(Machine *m, const uint32_t *schemas, uint32_t n, KeyOrder *order, Error *err) {
  OWNED(key_table_release) KeyTable visited = {0};
  TRY(NEW(order->schemas, (size_t)n + 1, "a constraint", err));
  if (n > 0) memcpy(order->schemas, schemas, n * sizeof *schemas);
  order->n_schemas = n;
  for (uint32_t i = 0; i < n; i++) TRY(add_schema(m, schemas[i], order, &visited, err));
  return make_words(m, order, err);
}

static bool is_of(const KeyOrder *order, const uint32_t *schemas, uint32_t n) {
  return order->n_schemas == n && (n == 0 || memcmp(order->schemas, schemas, n * sizeof *schemas) == 0);
}

const KeyOrder *key_order_of(Machine *m, const uint32_t *schemas, uint32_t n) {
  const uint64_t hash = hash64(n > 0 ? (const void *)schemas : "", n * sizeof *schemas, 0);
  const KeyTable *known = &m->orders;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (is_of(e->value.pointer, schemas, n)) return e->value.pointer;
  Error err = {{0}};
  KeyOrder *made = mem_alloc(1, sizeof *made, "a constraint", &err);
  Status status = made ? make_order(m, schemas, n, made, &err) : STATUS_FAILED;
  if (status == STATUS_OK && !key_table_add(&m->orders, (KeyEntry){hash, {made}}))
    status = error_set(&err, STATUS_FAILED, "out of memory");
  if (status != STATUS_OK) {
    order_free(made);
    if (langs_check(&m->set->langs, NULL) == STATUS_OK) machine_fail(m, err.text);
    return NULL;
  }
  return made;
}

void key_orders_close(Machine *m) {
  for (size_t i = 0; i < m->orders.n_slots; i++) order_free((KeyOrder *)m->orders.slots[i].value.pointer);
  key_table_release(&m->orders);
}

uint32_t key_order_rank(const KeyOrder *order, uint32_t key) {
  const KeyEntry *ranked = key_table_find(&order->ranks, key + UINT64_C(1));
  return ranked ? ranked->value.number : (uint32_t)order->keys.count + 1;
}

/* --- the next key */

/* True if a member with the key may begin. */
static bool may_begin(Machine *m, const Frame *frame, const Key *key) {
  const ArenaMark mark = machine_mark(m);
  const bool may = frame_next_member(m, frame, key->bytes, key->size) != NULL;
  machine_release(m, mark);
  return may;
}

/* The rank of the first key that must come; the number of keys + 1 if none must. */
static uint32_t first_needed(Machine *m, const Frame *frame) {
  uint32_t low = frame->rank + 1, high = (uint32_t)frame->order->keys.count + 1;
  if (low >= high || frame_may_skip(m, frame, high - 1)) return high;
  for (high--; low < high;) { /* the keys up to `high` cannot all be left out */
    const uint32_t middle = low + (high - low) / 2;
    if (frame_may_skip(m, frame, middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static Lang next_keys(Machine *m, const Frame *frame, Lang keys) {
  Langs *l = &m->set->langs;
  const NumberList *order = &frame->order->keys;
  const uint32_t needed = first_needed(m, frame);
  Lang others = keys;
  bool may_skip = needed > order->count;
  if (may_skip && closing_is_searched(m, frame)) {
    others = closing_keys(m, frame, frame->order, keys);
    may_skip = others != LANG_NONE;
  }
  for (size_t i = 0; i < order->count && may_skip; i++) {
    const Key *key = &m->set->keys[order->items[i]];
    others = lang_without(l, others, key->bytes, key->size);
  }
  /* lang_without() leaves endless languages as they are. The order is then kept by refusing a key where it
   * ends. */
  if (may_skip && others == keys) return frame_keys_unseen(m, keys, frame->seen);
  LangWord *words = malloc((order->count + 1) * sizeof *words);
  if (!words) return machine_fail(m, "out of memory"), LANG_NONE;
  size_t n_words = 0;
  for (size_t i = frame->rank; i < order->count && i < needed; i++) {
    const Key *key = &m->set->keys[order->items[i]];
    if (lang_contains(l, keys, key->bytes, key->size) && may_begin(m, frame, key))
      words[n_words++] = (LangWord){key->bytes, key->size, LANG_EMPTY};
  }
  const Lang made = lang_words(l, words, n_words);
  free(words);
  return may_skip ? lang_or(l, made, frame_keys_unseen(m, others, frame->seen)) : made;
}

Lang key_order_next(Machine *m, const Frame *frame, Lang keys) {
  const uint64_t print = frame_print(m, frame);
  KnownKeys *known = &m->known_keys[print % N_KNOWN_KEYS];
  if (known->print != print) *known = (KnownKeys){print, next_keys(m, frame, keys)};
  return known->keys;
}
