/* bench_memory.h - the part of `auk bench -v` that says what memory is taken. */
#ifndef AUK_COMMANDS_MEASURE_BENCH_MEMORY_H
#define AUK_COMMANDS_MEASURE_BENCH_MEMORY_H

#include "commands/device.h"
#include "engine/session.h"

/* Bytes of the device's own memory that are not free: this program's and others'. 0: it has none. */
Status memory_taken(const Device *device, double *bytes, Error *err);

/* Prints to standard error what weights and KV cache take, and what else is taken; of a device with memory
 * of its own also what of that was taken before the weights came, which is its context and what other
 * programs have. To be called when the session has run every kind of step. */
Status memory_tell(const Device *device, const Model *model, const Session *session, double taken_before,
                   Error *err);

#endif
