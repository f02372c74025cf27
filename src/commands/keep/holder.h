/* holder.h - the process that keeps a model for later calls of the same user: it has the weights and the KV
 * cache of the last prompts, and answers the requests of all calls (wire.h) in one batch. */
#pragma once

#include "commands/answer/assistant.h"

typedef struct {
  int keep_seconds; /* the process ends after this time without a connected call */
  bool quiet;       /* the process prints "ready", then closes its standard streams and enters "/" */
} HolderOptions;

/* Opens the model, listens, and serves until no call came for keep_seconds, or WIRE_STOP or a signal comes.
 * PRECOND the assistant is zeroed; the flags outlive the assistant */
Status holder_run(const AssistantFlags *flags, const HolderOptions *options, Assistant *assistant,
                  Error *err);
