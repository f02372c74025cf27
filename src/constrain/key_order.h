/* key_order.h - objects whose keys come in the order of `properties`. */
#pragma once

#include "constrain/frames.h"

/* The order of the keys of an object that n schemas judge; the machine owns it. NULL on failure. */
const KeyOrder *key_order_of(Machine *m, const uint32_t *schemas, uint32_t n);
void key_orders_close(Machine *m);
/* The rank of a key in the order, from 1 on; order->keys.count + 1 for other keys. */
uint32_t key_order_rank(const KeyOrder *order, uint32_t key);
/* The keys of `keys` that may come next, in order. Keys after the first one that must come are left out, and
 * so are keys that make the rest of the object impossible. If `keys` is endless (lang_is_endless()), such
 * keys may stay; they are refused where they end. */
Lang key_order_next(Machine *m, const Frame *frame, Lang keys);
