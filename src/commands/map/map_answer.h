/* map_answer.h - turns one record of --map into one result. */
#pragma once

#include "commands/answer/answer.h"
#include "commands/map/map.h"
#include "commands/map/map_prompt.h"
#include "commands/map/map_results.h"

/* The state of answering one record after another. */
typedef struct {
  const MapJob *job;
  Assistant *assistant;
  Choices choices;      /* choices.n is 0 if the model writes the answer */
  MapSettings settings; /* for JSON results, --resume and --claim */
  PromptPattern pattern;
  uint64_t seed;      /* seed of the first record */
  IdList prefix;      /* common prefix of all prompts */
  const IdList *base; /* the prefix if it is computed in steps of its own, else NULL (map_begin()) */
  ResultsFormat format;
  bool to_terminal; /* results appear on a terminal */

  MapPrompt prompt; /* prompt and outputs of the current record */
  IdList ids;
  AnswerText text;
  Buffer shown; /* the result as a text */
  Show show;
  AnswerResult result;
  AnswerForm form;
  AnswerSink sink;
  Answer *answer;           /* NULL: none, or ended */
  size_t n_asked, n_scored; /* the record's choices that the engine was asked for, and has scored */

  size_t n_answered, n_cut;                 /* n_cut: cut by -n, the context or a loop */
  size_t n_incomplete;                      /* answers cut within the form, a call or the block of -x */
  uint64_t n_prompt, n_reused, n_generated; /* total tokens */
} Mapping;                                  /* starts zeroed */

/* Call this function once, before the first record. It chooses what a session keeps from record to record: as
 * a rule, the longest prefix shared with the previous prompt. On a GPU with a seed (-s), -p (or -P) and
 * --map, a session keeps only the prefix that -p and the chat template give every prompt. This prefix is
 * always computed in the same steps, and a GPU's kernels depend on the number of tokens in a step. So no
 * answer depends on earlier records, to the bit. */
Status map_begin(Mapping *mapping, Error *err);

/* map_ask() builds a record's prompt and request. map_reply() writes the record's result with its end into
 * `line`. Their errors STATUS_USAGE, STATUS_MODEL and STATUS_CUT_SHORT concern this record alone. The
 * record's text must be valid until map_reply(). Each record in flight has a Mapping with counts of its own,
 * from map_begin_another(). Its `assistant` has the same flags as the first Mapping's, but may be on another
 * device. PRECOND the assistant has started */
Status map_begin_another(const Mapping *first, Assistant *assistant, Mapping *other, Error *err);
void mapping_release_another(Mapping *other);
Status map_ask(Mapping *mapping, const Record *record, EngineRequest *request, Error *err);
/* Makes the next request of a record whose choices are scored. Such a record has one request for each choice.
 * PRECOND n_asked < choices.n */
void map_ask_more(Mapping *mapping, EngineRequest *request);
/* Takes the result of a request. *complete: it was the last request, and `line` has the record's result. */
Status map_reply(Mapping *mapping, const Record *record, const EngineRequest *request,
                 const EngineResult *done, bool *complete, Buffer *line, Error *err);
/* Writes the result of a record that failed. */
Status map_error(Mapping *mapping, const Record *record, const Error *error, Buffer *line, Error *err);
void mapping_release(Mapping *mapping); /* releases all but the assistant */
