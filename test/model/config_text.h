/* config_text.h - configs as texts in a test. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/config/config.h"

/* The text with " for each ', in new memory: configs are written with ' in tests. */
static inline char *quoted(const char *text) {
  char *copy = strdup(text);
  for (char *p = copy; *p; p++)
    if (*p == '\'') *p = '"';
  return copy;
}

static inline Status parse(const char *text, ModelConfig *config, Error *err) {
  char *copy = quoted(text);
  Status status = config_parse("config.json", copy, strlen(copy), config, err);
  free(copy);
  return status;
}
