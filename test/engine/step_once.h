/* step_once.h - a step of a config's program, for tests that have no engine. */
#pragma once

#include "engine/forward.h"

static inline Status step_once(const Backend *on, BackendState *state, const ModelConfig *config,
                               TokenRange range, Error *err) {
  Program program;
  Status status = forward_prepare(on, config, &program, err);
  if (status == STATUS_OK) status = forward(on, state, &program, range, err);
  program_release(&program);
  return status;
}
