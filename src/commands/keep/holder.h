/* holder.h - the process that keeps a model for later calls of the same user: it has the weights and the
 * keys of the last prompts, and answers what calls ask (wire.h), all of them together in one batch. */
#pragma once

#include "commands/answer/assistant.h"

typedef struct {
  int keep_seconds; /* it ends when no call was connected for so long */
  bool quiet;       /* says "ready" to standard output, then closes its standard streams and enters "/" */
} HolderOptions;

/* Opens the model, listens, and serves until it has been idle for long enough, WIRE_STOP, or a signal
 * comes. PRECOND the assistant is zeroed; its flags outlive it */
Status holder_run(const AssistantFlags *flags, const HolderOptions *options, Assistant *assistant,
                  Error *err);
