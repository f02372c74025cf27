/* launch.h - starts the process that becomes a holder (holder.h). */
#pragma once

#include "commands/answer/assistant.h"
#include "commands/keep/wire.h"

/* Starts a holder with the flags that are part of the key (place.h) and with the context and keep time of
 * `hello`. Waits until the holder is ready to be greeted. If the holder ends before that, the error is the
 * reason that it gave. */
Status launch(const AssistantFlags *flags, const ModelPlace *place, const WireHello *hello, Error *err);
