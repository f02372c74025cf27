/* peer.cuh - loads and stores in the memory of other GPUs, as PTX; a name after PTX is an instruction.
 *
 * A packet carries two numbers, each with a tag beside it, in one store of 16 bytes. The reader takes a
 * packet when both tags have the expected value, so no fence is needed: a number and its tag are 8
 * aligned bytes, which arrive together. */
#pragma once

#include <stdint.h>

struct Packet {
  float a;
  uint32_t tag_a;
  float b;
  uint32_t tag_b;
};

/* PTX "st", "ld" with .relaxed.sys: bypass L1, and are seen by all GPUs. */
__device__ __forceinline__ void store_packet(Packet *to, float a, float b, uint32_t tag) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(__float_as_uint(a)),
               "r"(tag), "r"(__float_as_uint(b))
               : "memory");
}

__device__ __forceinline__ Packet load_packet(const Packet *from) {
  uint32_t a, b, tag_a, tag_b;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(tag_a), "=r"(b), "=r"(tag_b)
               : "l"(from)
               : "memory");
  return {__uint_as_float(a), tag_a, __uint_as_float(b), tag_b};
}

/* Loads four floats, or one, that another GPU wrote. */
__device__ __forceinline__ float4 load_peer(const float4 *from) {
  float4 v;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ float load_peer(const float *from) {
  float v;
  asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
  return v;
}

/* Stores or loads a word that is its own flag: its value shows that it has come. */
__device__ __forceinline__ void store_peer(uint64_t *to, uint64_t v) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}

__device__ __forceinline__ uint64_t load_peer(const uint64_t *from) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}

/* Stores or loads a flag: a thread that loads the stored value sees all that was stored before the flag. */
__device__ __forceinline__ void store_flag(uint32_t *to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t load_flag(const uint32_t *from) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}

/* PTX's global counter of nanoseconds, %globaltimer. */
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
