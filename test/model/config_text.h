/* config_text.h - configs as texts in a test. */
#pragma once

#include "model/config/config.h"
#include "test/unit.h"

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
