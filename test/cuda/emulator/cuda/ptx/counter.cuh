/* counter.cuh - the emulated form of cuda/ptx/counter.cuh. */
#pragma once

inline void count_release(unsigned *counter) {
  __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
}

inline unsigned load_acquire(const unsigned *counter) {
  return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}
