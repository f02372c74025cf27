/* unit.h - cmocka, the headers that it needs before it, and those of C that nearly every test uses. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* With sanitizers a program takes ten times as long. There it takes one in eight of the cases that differ by
 * chance or by size; the form without sanitizers takes all, and judges how many of them there are. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#define SAMPLE(n)  (SANITIZED ? ((n) + 7) / 8 : (n))
#define SAMPLED(i) (!SANITIZED || (i) % 8 == 0)
