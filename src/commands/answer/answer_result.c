/* answer_result.c - see answer_result.h. */
#include "commands/answer/answer_result.h"

#include <stdio.h>
#include <stdlib.h>

void answer_text_clear(AnswerText *answer) {
  answer->thinking.size = answer->text.size = answer->code.size = answer->calls.size = 0;
  answer->ids.count = answer->scores.count = 0;
}

void answer_text_release(AnswerText *answer) {
  buffer_release(&answer->thinking);
  buffer_release(&answer->text);
  buffer_release(&answer->code);
  buffer_release(&answer->calls);
  id_list_release(&answer->ids);
  free(answer->scores.items);
}

double answer_per_second(long long n, double ms) {
  return n > 0 && ms > 0 ? (double)n * 1e3 / ms : 0;
}

double answer_per_step(const AnswerResult *result) {
  const GuessCounts *g = &result->guesses;
  return g->n_steps > 0 ? (double)(g->n_steps + g->n_accepted) / (double)g->n_steps : 0;
}

bool answer_was_cut(const AnswerResult *result) {
  return result->reason == FINISH_LENGTH || result->reason == FINISH_CONTEXT ||
         result->reason == FINISH_REPETITION;
}

AnswerLack answer_lack(const AnswerResult *result, const Assistant *a) {
  AnswerLack lack = {{0}};
  const char *reason = finish_name(result->reason);
  if (result->reason == FINISH_INTERRUPTED) return lack;
  if (result->in_thought)
    snprintf(lack.text, sizeof lack.text, "the end came within the thought (%s), there is no answer", reason);
  else if (result->in_call)
    snprintf(lack.text, sizeof lack.text, "the end came within a call (%s), which is left out", reason);
  else if (result->in_form)
    snprintf(lack.text, sizeof lack.text, "the end came within the answer (%s), which does not fit %s",
             reason, a->form.flag);
  return lack;
}

bool answer_is_incomplete(const AnswerResult *result, const Assistant *a) {
  const bool code = result->in_block || result->has_no_block,
             is_text =
                 (!a->form.given || a->form.is_calls) && !a->tools.required && !code && !result->in_call;
  return answer_was_cut(result) && !is_text && (result->in_block || *answer_lack(result, a).text);
}

AnswerFigures answer_figures(const AnswerResult *result, const Assistant *a) {
  AnswerFigures figures;
  snprintf(figures.text, sizeof figures.text, "[%d tokens, %.1f/s; context %d of %d]", result->n_generated,
           answer_per_second(result->n_generated - 1, result->decode_ms), assistant_n_held(a),
           assistant_n_ctx(a));
  return figures;
}

void answer_print_usage(const AnswerResult *result) {
  int n_new = result->n_prompt - result->n_reused, n = result->n_generated;
  char reused[48] = "", thought[48] = "";
  if (result->n_reused) snprintf(reused, sizeof reused, " (%d known)", result->n_reused);
  const GuessCounts *g = &result->guesses;
  char guessed[96] = "";
  if (g->n_guessed)
    snprintf(guessed, sizeof guessed, "; %lld tokens guessed, %lld right, %.2f a step", g->n_guessed,
             g->n_accepted, answer_per_step(result));
  if (result->thought) snprintf(thought, sizeof thought, " (%d of thought)", result->n_thought);
  fprintf(stderr,
          "auk: prompt %d tokens%s, %.1f ms (%.1f/s); answer %d tokens%s, %.1f ms (%.1f/s)%s; end: %s\n",
          result->n_prompt, reused, result->prefill_ms, answer_per_second(n_new, result->prefill_ms), n,
          thought, result->first_token_ms + result->decode_ms, answer_per_second(n - 1, result->decode_ms),
          guessed, finish_name(result->reason));
}
