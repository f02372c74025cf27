/* pairs.cuh - how many copies pairs of blocks have shared so far (copy_box_to_pair()). Only the emulated GPU
 * counts them, so checks of the number belong under `few`. */
#pragma once

#ifdef EMULATED_ARCH
namespace emulator {
long copies_to_pairs();
}
using emulator::copies_to_pairs;
#else
inline long copies_to_pairs() {
  return 0;
}
#endif
