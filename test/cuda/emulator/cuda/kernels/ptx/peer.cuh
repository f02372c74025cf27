/* peer.cuh - the emulator's form of cuda/kernels/ptx/peer.cuh. */
#pragma once

#include <stdint.h>
#include <string.h>
#include <time.h>

struct Packet {
  float a;
  uint32_t tag_a;
  float b;
  uint32_t tag_b;
};

inline void store_packet(Packet *to, float a, float b, uint32_t tag) {
  const Packet packet = {a, tag, b, tag};
  uint64_t halves[2];
  memcpy(halves, &packet, sizeof halves);
  for (int i = 0; i < 2; i++) __atomic_store_n((uint64_t *)to + i, halves[i], __ATOMIC_RELAXED);
}

inline Packet load_packet(const Packet *from) {
  Packet packet;
  emulator::poll_elsewhere(from, &packet, sizeof packet);
  return packet;
}

inline float4 load_peer(const float4 *from) {
  return *from;
}

inline float load_peer(const float *from) {
  return *from;
}

inline void store_peer(uint64_t *to, uint64_t v) {
  __atomic_store_n(to, v, __ATOMIC_RELAXED);
}

inline uint64_t load_peer(const uint64_t *from) {
  uint64_t v;
  emulator::poll_elsewhere(from, &v, sizeof v);
  return v;
}

inline void store_flag(uint32_t *to, uint32_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

inline uint32_t load_flag(const uint32_t *from) {
  uint32_t value;
  emulator::poll_elsewhere(from, &value, sizeof value);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return value;
}

inline uint64_t nanoseconds() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
