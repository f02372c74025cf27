/* hash64.h - 64 bits that tell contents apart and damaged bytes from whole ones, at the speed of memory.
 *
 * XXH64 as its specification has it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), so that others can
 * check what is stored. Not against somebody who makes two contents of one hash on purpose. */
#ifndef AUK_BASE_HASH64_H
#define AUK_BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *bytes, size_t size, uint64_t seed);

#endif
