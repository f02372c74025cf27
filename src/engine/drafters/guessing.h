/* guessing.h - how many guesses of a drafter a step takes: as many as its success so far makes worth their
 * rows, and none where guesses do not pay.
 *
 * Costs are in steps of one row. A guess costs a row and the drafter's time; a guess that is right saves a
 * step. Wrong guesses never cost more than right ones have saved, plus one step, plus one part in
 * GUESS_CREDIT of all steps: so an answer takes at most that much longer than without. */
#pragma once

#include "engine/drafters/drafter.h"

enum { GUESS_CREDIT = 128 };

typedef struct {
  long long n_steps;    /* that generated */
  long long n_guessed;  /* tokens */
  long long n_accepted; /* of them */
  double draft_ms;      /* that the drafter took */
} GuessCounts;

typedef struct {
  int most;                /* guesses of a step; 0: none */
  bool always;             /* takes all guesses, whether they pay or not: for tests and measurements */
  double row_cost;         /* measured if `timed`: of a row more in a step */
  const double *row_costs; /* [GUESS_ROWS + 1] the backend's, or NULL: row_cost each */
  double guess_cost;
  bool redoes; /* after a wrong guess the next step computes the right ones again: a recurrent state */
  bool timed;
  double share;   /* of a step that a sequence bears: a right guess saves it; 1 where it is alone */
  double step_ms; /* of one row; 0: not known yet */
  double balance; /* what guesses saved less what they cost */
  struct {
    double right, wrong;
  } ranks[DRAFT_RANKS]; /* recent guesses */
  int rank;             /* of the guesses that are open */
  GuessCounts counts;
} Guessing;

/* row_cost: a backend's usual one. A backend whose steps end when forward() does is timed. */
void guessing_begin(Guessing *g, int most, const Drafter *drafter, double row_cost, bool timed);
/* Forgets how earlier guesses fared, as before a first text; what a step and its rows take stays known. */
void guessing_forget(Guessing *g);
/* The number of guesses of a rank that pay, at most n. */
int guessing_length(const Guessing *g, int rank, int n);
/* A step of n_rows rows took step_ms; the last n_guesses are guesses of this rank, for which the drafter
 * took draft_ms. */
void guessing_note_step(Guessing *g, int n_rows, int n_guesses, int rank, double step_ms, double draft_ms);
/* The sequence is one of n that generate in a step. */
void guessing_share(Guessing *g, int n);
/* One guess was right, or wrong, and with it all after it. */
void guessing_judge(Guessing *g, bool right);
