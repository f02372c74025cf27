/* start.h - how a client (another auk process) gets at a kept model: it finds the holder (holder.h),
 * starts one, or makes room for another. */
#pragma once

#include "commands/keep/place.h"
#include "commands/keep/remote.h"
#include "commands/keep/watch.h"

/* Seconds of --keep, else of $AUK_KEEP; -1 if neither is set. 0: no holder is used. */
Status keep_asked(const AssistantFlags *flags, int *seconds, Error *err);

/* Finds the holder of this model, with n_ctx tokens of context or more (0: any; or WHOLE_CONTEXT of wire.h),
 * and sets its keep time (-1: unchanged). *remote is NULL if there is no such holder. *silent: the failure is
 * that the holder does not answer. */
Status keep_find(const AssistantFlags *flags, const Model *model, int n_ctx, int seconds, Remote **remote,
                 bool *silent, Error *err);
/* Starts a holder, unless there is one or another process starts it, and waits until it is ready. If the new
 * holder fails, the error is the one that it reports. `place` names the model; n_ctx is
 * as in keep_find(). */
Status keep_start(const AssistantFlags *flags, const ModelPlace *place, const Model *model, int n_ctx,
                  int seconds, Remote **remote, Error *err);

/* Ends the holders that no client is connected to, and waits until their memory is free. Returns their
 * number. */
int keep_make_room(void);

typedef Status KeepVisit(void *user, const char *path, int socket, Error *err);
/* Calls visit() for each holder of this user, with a connection that visit() closes; socket -1: the holder's
 * queue of connections is full. Removes names of sockets without a listener. */
Status keep_each(KeepVisit *visit, void *user, Error *err);
/* How a holder answers: with its state, by the end of the connection, not at all (watch.h), or with a state
 * that only another version of auk can read. */
typedef enum { KEEP_REPLIED, KEEP_ENDS, KEEP_IS_SILENT, KEEP_IS_OTHER } KeepReply;
/* Asks a holder, on a connection, for its state (WIRE_LOOK) or to stop; *state is valid if the holder
 * replied. Without a connection (socket -1) the holder is silent. */
Status keep_tell(Wire *wire, WireKind kind, const WireStop *stop, WireState *state, KeepReply *reply,
                 Error *err);
/* Waits until the holder has ended; false if it has not ended after `ms` milliseconds, or at a signal. */
bool keep_await_end(Wire *wire, int ms);
