/* remote.h - the engine of another process (the holder), as its client sees it: what engine.h promises, over
 * a connection (wire.h). Texts, forms, files and terminals stay with the client; ids go out and come back. */
#pragma once

#include "base/status.h"
#include "commands/keep/wire.h"

typedef struct Remote Remote;

/* Greets a holder on a connected socket, which the remote then owns. *remote is NULL, without failure, if the
 * holder refuses the client or has just ended. *silent: the failure is that the holder does not answer. */
Status remote_open(int socket, const Buffer *key, const WireHello *hello, Remote **remote, bool *silent,
                   Error *err);
void remote_close(Remote *remote); /* NULL is fine; what the holder computes for this client ends */
RELEASE_BY(remote_release, Remote, remote_close)

const WireState *remote_facts(const Remote *remote); /* as of the greeting */
bool remote_is_alive(Remote *remote);                /* false: the holder has ended */
/* Descriptor of the tokenizer's image (tokenizer_image_make()) that the holder has sent, or -1; owned by the
 * remote. */
int remote_image(const Remote *remote);

/* engine_run() with up to n_at_once requests at a time. A request whose generate.interrupted is set ends with
 * FINISH_INTERRUPTED. STATUS_FAILED if the holder ends before all requests are done. Unlike with
 * engine_run(), score() is not called for an end token. PRECOND a sink forces no tokens while earlier forced
 * ones are still to come */
Status remote_run(Remote *remote, int n_at_once, const EngineJob *job, Error *err);
