/* map_claim_life.h - which processes of a --claim directory live. Each changes the number in its own file as
 * long as it lives, and watches the numbers of the others. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* This process's number: a thread changes it four times per lease. */
typedef struct Life Life;
Status life_begin(const char *path, int lease_s, Life **life, Error *err);
/* Removes the file, so that other processes see at once that this process has ended. NULL is fine. */
void life_end(Life *life);

/* The numbers of other processes, and when this process first saw each of them. */
typedef struct Watch Watch;
Status watch_open(int lease_s, Watch **watch, Error *err);
void watch_close(Watch *watch);
/* *dead: the owner's file at `path` is gone, or its number has not changed for a whole lease (the longer one
 * of this process's and the owner's). */
Status watch_look(Watch *watch, const char *owner, const char *path, bool *dead, Error *err);
