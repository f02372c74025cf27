/* config_text.h - configs as texts in a test: what is accepted, what is refused, the layers as letters.
 * Included by test/model/test_architectures.c and test_dense_families.c; failures are assertions. */
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

/* The configs here are written with ' for ", which none of them needs. */
static inline Status parse(const char *text, ModelConfig *config, Error *err) {
  char *copy = strdup(text);
  for (char *p = copy; *p; p++)
    if (*p == '\'') *p = '"';
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
static inline void assert_layers(const ModelConfig *c, const char *expected) {
  char found[64] = "";
  for (int i = 0; i < c->n_layers && i < 63; i++) {
    found[i] = "gln"[config_layer(c, i).rope];
    if (config_layer(c, i).window) found[i] = (char)(found[i] - 'a' + 'A');
  }
  assert_string_equal(found, expected);
}

/* What a Granite 4.0 needs to be supported: neither Mamba layers nor experts. */
#define HYBRID                                                                                               \
  ", 'num_local_experts': 0, 'num_hidden_layers': 4, 'layer_types': ['attention', 'attention', "             \
  "'full_attention', 'attention']"
