/* declared.h - tokens that the files beside tokenizer.json declare, as AutoTokenizer adds them. */
#pragma once

#include "base/buffer.h"
#include "base/json.h"
#include "base/status.h"

/* Reads a JSON file of the checkpoint; *json is NULL if there is no such file. Refuses JSON that is no
 * object. */
Status checkpoint_json(const char *directory, const char *name, Json **json, Error *err);

/* Appends a JSON array of the tokens, for added_load(), in the order in which AutoTokenizer adds them.
 * Appends nothing if there are none. If the file at `path` is not called tokenizer.json, there are none: the
 * files beside it do not belong to it. */
Status declared_read(const char *path, Buffer *out, Error *err);
