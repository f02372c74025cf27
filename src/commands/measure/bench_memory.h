/* bench_memory.h - reports memory for `auk bench -v`. */
#ifndef AUK_COMMANDS_MEASURE_BENCH_MEMORY_H
#define AUK_COMMANDS_MEASURE_BENCH_MEMORY_H

#include "commands/device.h"
#include "engine/session.h"

/* Bytes in use of the device's own memory, by all programs; 0 if it has none. */
Status memory_taken(const Device *device, double *bytes, Error *err);

/* Prints to standard error the bytes of weights, KV cache and the rest; for a device with its own memory also
 * the bytes in use before loading the weights (its context and other programs). Call it after the session has
 * run every kind of step. */
Status memory_report(const Device *device, const Model *model, const Session *session, double taken_before,
                     Error *err);

#endif
