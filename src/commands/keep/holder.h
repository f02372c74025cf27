/* holder.h - the process that keeps a model for later clients (auk processes that connect) of the same user:
 * it has the weights and the KV cache of the last prompts, and answers the requests (wire.h) of all
 * clients. */
#pragma once

#include "commands/answer/assistant.h"

typedef struct {
  int keep_seconds; /* the process ends after this time without a connected client */
  bool quiet;       /* the process prints "ready", then writes to /dev/null alone, and enters "/" */
} HolderOptions;

/* Opens the model, listens, and serves. Ends when WIRE_STOP or a signal comes; when no client was connected
 * for keep_seconds (or the time of the last HELLO that set one); or when, without a connected client, the
 * model's files or the socket's name have changed. PRECOND the assistant is zeroed; the flags outlive it */
Status holder_run(const AssistantFlags *flags, const HolderOptions *options, Assistant *assistant,
                  Error *err);
