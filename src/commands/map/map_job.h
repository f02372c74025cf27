/* map_job.h - collects the settings of a --map run: what determines the result of a record besides its
 * prompt. */
#pragma once

#include "commands/map/map.h"
#include "commands/map/map_settings.h"

/* Fills zeroed settings. Reads all weights to hash them, unless the cache (--cache) has their hashes. PRECOND
 * the assistant is open, and choices_prepare() was called if there are choices. */
Status map_job_settings(const MapJob *job, const Assistant *assistant, const Choices *choices,
                        MapSettings *settings, Error *err);
