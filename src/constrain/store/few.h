/* few.h - the order of numbers, and sets of few of them in arrays. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* For qsort() and bsearch(). */
static inline int number_order(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Adds a number to set[0..*n) unless it is there. False if the set is full: it has `max` other numbers. */
static inline bool few_add(uint32_t *set, uint32_t *n, uint32_t max, uint32_t number) {
  for (uint32_t i = 0; i < *n; i++)
    if (set[i] == number) return true;
  if (*n == max) return false;
  set[(*n)++] = number;
  return true;
}
