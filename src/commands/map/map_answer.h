/* map_answer.h - one record of --map to one result. */
#ifndef AUK_COMMANDS_MAP_MAP_ANSWER_H
#define AUK_COMMANDS_MAP_MAP_ANSWER_H

#include "commands/map/map.h"
#include "commands/map/map_prompt.h"
#include "commands/map/map_results.h"

/* What lies open while records are answered. */
typedef struct {
  const MapJob *job;
  Assistant *assistant;
  Choices choices;      /* n is 0 where the model writes */
  MapSettings settings; /* of results that are JSON, or gone on with */
  PromptPattern pattern;
  uint64_t seed; /* of the first record */
  bool steady;   /* see map_begin() */
  IdList beginning;
  ResultsFormat format;
  bool to_terminal; /* results are read as they come */

  MapPrompt prompt; /* of the record at hand, and what became of it */
  IdList ids, answer_ids;
  Buffer text, thinking;
  CodeBlock block;
  Show show;
  AnswerResult result;

  size_t n_answered, n_cut;                 /* cut by -n or the context */
  uint64_t n_prompt, n_reused, n_generated; /* tokens of them all */
} Mapping;                                  /* starts zeroed */

/* Once, before the first record. Where a seed was given and the device's arithmetic depends on how many
 * tokens a step has (a GPU picks its kernels by that), of a prompt before only what -p and the chat begin
 * every prompt with is kept, computed in the same steps always: no answer depends on the records before its
 * own, to the bit. Elsewhere all is kept that a prompt has in common with the one before. */
Status map_begin(Mapping *mapping, Error *err);

/* Makes the prompt of a record, answers it, and puts the result into `line`, with its end. STATUS_USAGE and
 * STATUS_MODEL are the record's fault; STATUS_INTERRUPTED: there is no result. PRECOND the assistant has
 * started. */
Status map_answer(Mapping *mapping, const Record *record, Buffer *line, Error *err);
/* The result that an error is. */
Status map_error(Mapping *mapping, const Record *record, const Error *error, Buffer *line, Error *err);
void mapping_release(Mapping *mapping); /* not the assistant */

#endif
