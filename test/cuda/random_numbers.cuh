/* random_numbers.cuh - the same pseudo-random numbers in each run of a test, between two bounds. */
#pragma once

#include <vector>

typedef std::vector<float> Floats;

static unsigned random_state = 1;

static float random_number(float low, float high) {
  random_state = random_state * 1664525u + 1013904223u;
  return low + (high - low) * (float)(random_state >> 8) / (1 << 24);
}

static Floats random_numbers(size_t n, float low, float high) {
  Floats out(n);
  for (float &v : out) v = random_number(low, high);
  return out;
}
