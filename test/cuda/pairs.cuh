/* pairs.cuh - how many copies pairs of blocks have shared so far (copy_box_to_pair()); -1 on a real GPU,
 * which does not count them. */
#pragma once

#ifdef EMULATED_ARCH
#include "test/cuda/emulator/emulator.h"
using emulator::copies_to_pairs;
#else
inline long copies_to_pairs() {
  return -1;
}
#endif
