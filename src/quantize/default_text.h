/* default_text.h - the calibration text that is part of the program: test/data/ORIGIN.md names its sources.
 * */
#pragma once

extern const char default_text[], default_text_end[]; /* valid UTF-8, without a final NUL */
