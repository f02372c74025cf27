/* identity.h - a hash that identifies an open model by its content. */
#pragma once

#include "base/content.h"
#include "model/model.h"

/* Hash of everything that decides the model's results: the files of weights, which of their tensors are used,
 * the configuration, and flags that override it; not sampling defaults or the tokenizer. *known false: the
 * model is a dummy, a file has changed since it was opened, or `search` does not permit reading a file. */
Status model_content(const Model *model, const ContentSearch *search, ContentHash *hash, bool *known,
                     Error *err);

/* Hash of the sizes of the files of weights, and of samples of their content: different models almost never
 * have the same hash. Fast. */
Status model_sample(const Model *model, ContentHash *hash, Error *err);

/* Appends what identifies an open model without reading its weights: its configuration's hash, and a line
 * with the FileStamp (base/file.h) of each file of weights. */
Status model_stamps(const Model *model, Buffer *text, Error *err);

/* True if the files of weights at the model's paths still are those that were opened. */
bool model_is_unchanged(const Model *model);

/* Fails (STATUS_FAILED) if a file of weights was written to in place since it was opened: this changes the
 * mapped weights. Costs one stat() per file. */
Status model_check_weights(const Model *model, Error *err);
