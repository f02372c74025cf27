/* guessing.h - how many guesses of a drafter a step takes: as many as are worth their rows by the drafter's
 * success so far, and none if guesses do not pay.
 *
 * The unit of costs is the time of a step of one row. A guess costs a row and the drafter's time; a guess
 * that is right saves a step. Wrong guesses never cost more than right guesses have saved, plus one step,
 * plus 1/GUESS_CREDIT of all steps: so an answer takes at most 1/GUESS_CREDIT and one step longer than
 * without guesses. */
#pragma once

#include "engine/drafters/drafter.h"

enum { GUESS_CREDIT = 128 };

typedef struct {
  long long n_steps;    /* steps that generated tokens */
  long long n_guessed;  /* guessed tokens */
  long long n_accepted; /* guessed tokens that were right */
  double draft_ms;      /* the drafter's time */
} GuessCounts;

/* Begins with the members up to `share`, and zeros after them. */
typedef struct {
  int most;                /* the most guesses of the sequence in a step; 0: none */
  bool always;             /* takes all guesses, whether they pay or not: for tests and measurements */
  double row_cost;         /* cost of one more row in a step; measured if `timed` */
  const double *row_costs; /* [GUESS_ROWS + 1] Backend.row_costs, or NULL: n rows cost n * row_cost */
  double guess_cost;       /* the drafter's; if not 0, measured if `timed` */
  bool redoes;    /* after a wrong guess the next step computes the right guesses again (recurrent models) */
  bool timed;     /* steps end when forward() returns, so that their times can be taken */
  double share;   /* one sequence's share of a step's cost, which a right guess saves; 1: it is alone */
  double step_ms; /* time of a step of one row; 0: not known yet */
  double balance; /* what guesses saved less what they cost */
  struct {
    double right, wrong;
  } ranks[DRAFT_RANKS]; /* decaying counts of guesses */
  int rank;             /* rank of the last step's guesses */
  long long n_steps;    /* steps so far, also those that `counts` no longer has */
  GuessCounts counts;
} Guessing;

/* Forgets which earlier guesses were right, as for a new session; the measured costs stay. */
void guessing_forget(Guessing *g);
/* The number of guesses of a rank that pay, at most n. */
int guessing_length(const Guessing *g, int rank, int n);
/* Notes that a step of n_rows rows, the last of them these guesses, took step_ms. */
void guessing_note_step(Guessing *g, int n_rows, const Guesses *guesses, double step_ms);
/* Sets `share` for a step in which n sequences generate. */
void guessing_share(Guessing *g, int n);
/* right: notes that the next guess was right. Otherwise notes that it and all guesses after it were wrong. */
void guessing_judge(Guessing *g, bool right);
