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

/* Refused as a model, with a message that names the file and has `message` in it. */
static inline void assert_refused(const char *text, const char *message) {
  ModelConfig config;
  Error err;
  const Status status = parse(text, &config, &err);
  if (status != STATUS_MODEL) fail_msg("%s: status %d", text, status);
  if (strncmp(err.text, "config.json", 11) != 0 || !strstr(err.text, message))
    fail_msg("%s: \"%s\", expected \"%s\"", text, err.text, message);
  config_release(&config);
}

/* A config of one model_type and these members, as assert_refused(); model_type NULL: they are all of it. */
static inline void assert_members_refused(const char *model_type, const char *members, const char *message) {
  char text[1200];
  if (model_type)
    snprintf(text, sizeof text, "{'model_type': '%s', %s}", model_type, members);
  else
    snprintf(text, sizeof text, "%s", members);
  assert_refused(text, message);
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
