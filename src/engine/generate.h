/* generate.h - the loop: sample, hand the token out, decode, until something stops it. Ids only: text, stop
 * strings and printing are the command's. */
#ifndef AUK_ENGINE_GENERATE_H
#define AUK_ENGINE_GENERATE_H

#include "engine/session.h"

typedef enum {
  FINISH_EOS,
  FINISH_STOP,
  FINISH_LENGTH,
  FINISH_CONTEXT,
  FINISH_INTERRUPTED,
  FINISH_REPETITION, /* said by who looks at the tokens; generate() says FINISH_STOP */
} FinishReason;
const char *finish_name(FinishReason reason); /* "eos", "stop", "length", ... */

/* What is to happen behind a token. Zeroed before each call. */
typedef struct {
  bool stop; /* the end, with FINISH_STOP */
  /* [n_forced] Tokens that come next in place of the model's own, which are dropped; valid until the last of
   * them was handed out. Those of a later reply replace what is left of them. */
  const int32_t *forced;
  int n_forced;
} TokenReply;

/* Takes each token as it is made, or forced (an end token that the model makes is not handed out). */
typedef Status (*TokenSink)(void *user, int32_t id, TokenReply *reply, Error *err);

typedef struct {
  int max_tokens;     /* -1: until an end token or the context's end */
  const int32_t *eos; /* [n_eos] */
  int n_eos;
  bool ignore_eos;
  const int32_t *forced; /* [n_forced] the first tokens, as in a TokenReply */
  int n_forced;
  const volatile int *interrupted; /* set to non-zero by a signal handler; may be NULL */
} GenerateOptions;

typedef struct {
  FinishReason reason;
  int n_generated;                  /* tokens handed out */
  double first_token_ms, decode_ms; /* from the call to the first token; from there to the end */
} GenerateResult;

/* What comes out is the same whether the device runs ahead of the host or not, to the last draw.
 * PRECOND the session holds a prompt and its logits (session_sync). */
Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err);

#endif
