/* default_text.h - the calibration text of the program itself. test/data/ORIGIN.md names its sources. */
#pragma once

#include <stdint.h>

extern const char default_text[]; /* [default_text_size] valid UTF-8, without a final NUL */
extern const uint64_t default_text_size;
