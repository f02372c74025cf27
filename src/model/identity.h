/* identity.h - which checkpoint an open model is: a number that depends on what it holds and not on where. */
#ifndef AUK_MODEL_IDENTITY_H
#define AUK_MODEL_IDENTITY_H

#include "base/content.h"
#include "model/model.h"

/* The content of everything that decides what the model computes: its weights' files, which tensors in them
 * are used, its configuration as read, and what flags have set in it. Sampling defaults and the tokenizer are
 * no part of it. *known is false where `search` does not let it find out, where a file is another by now, and
 * for a dummy. */
Status model_content(const Model *model, const ContentSearch *search, ContentHash *hash, bool *known,
                     Error *err);

/* Whether its files still are what was opened: what is computed with others in their place belongs to neither
 * content. */
bool model_is_unchanged(const Model *model);

/* Refuses (STATUS_FAILED, with its name) a file of weights that was written to in place since it was opened:
 * what is computed through its mapping is no longer the model's. One stat() a file. */
Status model_check_weights(const Model *model, Error *err);

#endif
