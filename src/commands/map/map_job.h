/* map_job.h - the settings of a --map run: everything of its model and its flags that decides what a record's
 * result is. */
#ifndef AUK_COMMANDS_MAP_MAP_JOB_H
#define AUK_COMMANDS_MAP_MAP_JOB_H

#include "commands/map/map.h"
#include "commands/map/map_settings.h"

/* Fills zeroed settings. Reads all of the weights, to know them again (as much as loading them does).
 * PRECOND the assistant is open, and prepared for the choices where there are some. */
Status map_job_settings(const MapJob *job, const Assistant *assistant, const Choices *choices,
                        MapSettings *settings, Error *err);

#endif
