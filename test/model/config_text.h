/* config_text.h - configs as texts in a test: what is accepted, what is refused, the layers as letters.
 * Included by the tests of src/model/config; failures are assertions. */
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

static inline ModelConfig accepted(const char *text) {
  ModelConfig config;
  Error err;
  if (parse(text, &config, &err) != STATUS_OK) fail_msg("refused %s: %s", text, err.text);
  return config;
}

/* Layers as letters: g(lobal rope), l(ocal rope), n(o rope), in capitals where there is a window. */
static inline void layers_of(const ModelConfig *c, char found[64]) {
  memset(found, 0, 64);
  for (int i = 0; i < c->n_layers && i < 63; i++) {
    found[i] = "gln"[config_layer(c, i).rope];
    if (config_layer(c, i).window) found[i] = (char)(found[i] - 'a' + 'A');
  }
}

static inline void assert_layers(const ModelConfig *c, const char *expected) {
  char found[64];
  layers_of(c, found);
  assert_string_equal(found, expected);
}

/* The members by which a Granite 4.0 is supported: it has neither Mamba layers nor experts. */
#define HYBRID                                                                                               \
  ", 'num_local_experts': 0, 'num_hidden_layers': 4, 'layer_types': ['attention', 'attention', "             \
  "'full_attention', 'attention']"
