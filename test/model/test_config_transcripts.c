/* test_config_transcripts.c - test/data/transcripts/configs: what each of many configs means, or why it is
 * refused.
 *
 * A line that begins with a brace or a bracket is a config, with ' for ". The indented lines below it are
 * what config_parse() makes of it. If it is taken, they are the lines of config_facts.h that differ from
 * those of the first config of its architecture, and for that one from those of the very first config, a
 * Llama; files are read in alphabetical order. Other lines are comments. `make goldens` writes all of it
 * anew, and its change is for people to review. The reference is transformers 5.23: its config classes for
 * defaults, its models for the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_facts.h"
#include "config_text.h"
#include "model/config/architectures.h"
#include "test/tests.h"
#include "test/transcript.h"

enum { MAX_FIRSTS = 400 };

/* The first config of each architecture, in order of appearance. */
static struct {
  char architecture[64];
  Facts facts;
} * firsts;
static size_t n_firsts;

static bool has_line(const Facts *facts, const char *line) {
  for (int i = 0; i < facts->n; i++)
    if (strcmp(facts->lines[i], line) == 0) return true;
  return false;
}

static void print_difference(FILE *out, const Facts *facts, const Facts *base) {
  for (int i = 0; i < facts->n; i++)
    if (!has_line(base, facts->lines[i])) fprintf(out, "    %s\n", facts->lines[i]);
}

static void print_taken(FILE *out, const ModelConfig *config) {
  static const Facts none = {0};
  Facts facts;
  size_t i = 0;
  config_facts(config, &facts);
  while (i < n_firsts && strcmp(firsts[i].architecture, config->architecture) != 0) i++;
  fprintf(out, "    taken as %s\n", config->architecture);
  print_difference(out, &facts, i < n_firsts ? &firsts[i].facts : n_firsts ? &firsts[0].facts : &none);
  if (i < n_firsts) return;
  assert_true(n_firsts < MAX_FIRSTS);
  strcpy(firsts[n_firsts].architecture, config->architecture);
  firsts[n_firsts++].facts = facts;
}

static void run_config(FILE *out, const char *line) {
  ModelConfig config;
  Error err = {{0}};
  const Status status = parse(line, &config, &err);
  if (status == STATUS_OK)
    print_taken(out, &config);
  else if (status == STATUS_MODEL)
    fprintf(out, "    refused: %s\n", err.text);
  else
    fprintf(out, "    status %d: %s\n", status, err.text);
  config_release(&config);
}

static void write_transcript(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line == '{' || *line == '[') run_config(out, line);
  }
}

/* A row of architectures that no transcript has is not tested. */
TEST(configs_mean_what_their_transcripts_say) {
  firsts = calloc(MAX_FIRSTS, sizeof *firsts);
  check_transcripts("test/data/transcripts/configs", write_transcript);
  for (size_t i = 0; i < n_architectures; i++) {
    size_t k = 0;
    if (!architectures[i].architecture) continue;
    while (k < n_firsts && strcmp(firsts[k].architecture, architectures[i].architecture) != 0) k++;
    if (k == n_firsts) fail_msg("no config of %s in test/data/transcripts", architectures[i].architecture);
  }
  free(firsts);
}
