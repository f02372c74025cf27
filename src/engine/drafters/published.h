/* published.h - drafters that are trained for a target and read its hidden states (config.h, DraftKind):
 * EAGLE-3, DFlash, layers for multi-token prediction (MTP), Gemma 4's assistants. */
#pragma once

#include "engine/drafters/drafter.h"

typedef struct {
  const Backend *backend; /* the target's, which runs OP_DRAFT_EMBED */
  const BackendOptions *backend_options;
  const Model *target;               /* prepared; outlives the drafter */
  const BackendModel *loaded_target; /* `target` as loaded: BackendOptions.target */
  Model *model; /* from model_open_draft(), and prepared; stays the caller's and outlives the drafter */
  /* From published_load(), for drafters that share it; outlives them. NULL: this drafter loads its own */
  BackendModel *loaded;
  int n_ctx; /* n_ctx of the target's session */
  KvType kv;
  double cost; /* time of a guess, in steps of the target */
} PublishedOptions;

/* The bytes of memory that published_open() takes in addition to the weights. */
size_t published_bytes(const PublishedOptions *options);
/* The target's layers whose states a drafter with this config reads. */
TapList published_taps(const DraftConfig *draft);
/* Loads the weights of options->model; with draft.target_head it takes the target's lm_head. Release them by
 * Backend.unload(). */
Status published_load(const PublishedOptions *options, BackendModel **loaded, Error *err);
Status published_open(const PublishedOptions *options, Drafter *drafter, Error *err);

/* For tests: the logits [config.vocab_size] that the last guess of the last propose() was picked from. */
Status published_logits(void *self, float *out, Error *err);
