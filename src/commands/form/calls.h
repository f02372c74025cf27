/* calls.h - calls of functions within an answer: free text, then calls between marks such as <tool_call>,
 * then nothing. A bare call is the whole answer, without marks. Calls have the form of their schemas. */
#pragma once

#include "commands/form/bound.h"
#include "commands/form/tools.h"

typedef enum {
  CALLS_NONE,   /* text so far */
  CALLS_INSIDE, /* in a call, after its mark */
  CALLS_MARKS,  /* within the tokens of a mark, after which the state is `after` */
  CALLS_BETWEEN /* after a call: another one may begin, or the answer ends */
} CallsState;

typedef struct {
  const Tools *tools; /* or NULL: the answer has no calls */
  Bound *bound;
  CallsState state, after;
  bool begun;          /* the answer has text other than white space */
  int n_spaces;        /* tokens of white space since the last mark */
  Buffer call;         /* text so far of the call, or of its current part */
  IdList marks;        /* tokens that are forced around calls and their parts */
  size_t n_marks;      /* how many of `marks` are still to come */
  WrittenCall written; /* a call that is written in parts (written_calls.h) */
  IdList exit;         /* tokens that follow the current part of a call */
} Calls;               /* starts zeroed, except tools and bound */

void calls_release(Calls *calls);

/* True if a call has begun and not ended. */
bool calls_is_inside(const Calls *calls);

/* Sets *mask to the tokens that may be next; NULL: all. PRECOND no thought is open */
Status calls_mask(Calls *calls, const uint64_t **mask, Error *err);

/* Takes a token. *is_call: the token belongs to a call or a mark, not to text. Appends a complete call to
 * `lines` as tools_read_calls() does. *ended: nothing may follow. Sets reply->forced to the tokens that must
 * come next. */
Status calls_take(Calls *calls, int32_t id, bool *is_call, Buffer *lines, bool *ended, TokenReply *reply,
                  Error *err);
