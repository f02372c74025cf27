/* fuzz_schema.c - a JSON Schema and, after a NUL byte, a text: the compilers and the machine. A text that is
 * allowed must be JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "constrain/constraint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *schema = (const char *)data, *nul = size ? memchr(data, 0, size) : NULL;
  const size_t n = nul ? (size_t)(nul - schema) : size;
  Constraint c;
  Error err = {{0}};
  bool allowed;
  const SchemaOptions options = {.exponents = true};
  Status status = constraint_open("fuzz", schema, n, options, NULL, &c, &err);
  if (status != STATUS_OK) {
    require(status == STATUS_USAGE && err.text[0]);
    return 0;
  }
  if (nul) {
    status = constraint_take_bytes(&c, nul + 1, size - n - 1, &allowed, NULL, &err);
    if (status == STATUS_OK && allowed && constraint_may_end(&c))
      require(json_parse("fuzz", STATUS_FAILED, nul + 1, size - n - 1, NULL, 0, NULL, &err) == STATUS_OK);
  }
  constraint_close(&c);
  return 0;
}
