/* quant_rules.h - which layers a rule of quantization_config means. Private to src/model: quantization.c and
 * quant_compressed.c make rules of what they read. */
#ifndef AUK_MODEL_QUANT_RULES_H
#define AUK_MODEL_QUANT_RULES_H

#include "model/config_reader.h"
#include "model/quantization.h"

typedef enum {
  MATCH_ALL,    /* every linear layer */
  MATCH_NAME,   /* that of this name */
  MATCH_PART,   /* those in whose names this stands */
  MATCH_BEGIN,  /* a regular expression that fits a name from its beginning, as Python's re.match() */
  MATCH_SEARCH, /* one that fits somewhere, as re.search() */
} MatchKind;

/* Adds a rule behind the others. Refused: a regular expression that is none, and more rules than any real
 * config has. */
Status quant_rule_add(const Reader *r, QuantConfig *quant, MatchKind kind, const char *pattern,
                      QuantScheme scheme);

/* Adds a rule for each string of the list `key`, which may be absent: those that begin with "re:" are regular
 * expressions where `regex`, others are of `kind`. */
Status quant_rules_add_list(const Reader *r, const char *key, QuantConfig *quant, bool regex, MatchKind kind,
                            QuantScheme scheme);

#endif
