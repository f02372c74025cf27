/* guessing.c - see guessing.h. */
#include "engine/drafters/guessing.h"

#include <string.h>

/* Prior counts of right and wrong guesses of each rank. */
static const struct { double right, wrong; } priors[DRAFT_RANKS] = {{1, 1.5}, {2, 2}, {4, 1.5}, {8, 1}};

static const double MEMORY = 0.97,    /* multiplies a rank's counts before a guess of the rank is counted */
    FORGOTTEN = 0.998,                /* multiplies all counts at each step, so that a rank is tried again */
    RECENT = 0.1,                     /* weight of the newest time in running means */
    LEAST_COST = 0.01, MOST_COST = 2; /* bounds of a row's cost: a measurement outside was disturbed */

void guessing_forget(Guessing *g) {
  g->balance = 0;
  memset(g->ranks, 0, sizeof g->ranks);
  g->rank = 0;
  g->n_steps = 0;
  g->counts = (GuessCounts){0};
}

static double cost_of(const Guessing *g, int n) {
  return n * g->guess_cost + (g->row_costs ? g->row_costs[n] : n * g->row_cost);
}

/* The least that a wrong guess adds to the next step: a row if that step redoes right guesses, else 0. */
static double redo_cost(const Guessing *g) {
  return !g->redoes ? 0 : g->row_costs ? g->row_costs[1] : g->row_cost;
}

int guessing_length(const Guessing *g, int rank, int n) {
  if (n > g->most) n = g->most;
  if (g->always) return n;
  const double right = g->ranks[rank].right + priors[rank].right,
               chance = right / (right + g->ranks[rank].wrong + priors[rank].wrong);
  const double credit = g->share * (1 + (double)g->n_steps / GUESS_CREDIT) + g->balance;
  double tokens = 1, all_right = 1, best = 1 / g->share;
  int length = 0;
  for (int i = 1; i <= n; i++) {
    all_right *= chance;
    tokens += all_right;
    if (cost_of(g, i) + redo_cost(g) > credit) break;
    const double rate = tokens / (g->share + cost_of(g, i) + (1 - all_right) * redo_cost(g));
    if (rate <= best) continue;
    best = rate;
    length = i;
  }
  return length;
}

void guessing_share(Guessing *g, int n) {
  g->share = g->row_cost + (1 - g->row_cost) / n;
}

static void approach(double *mean, double newest) {
  *mean += RECENT * (newest - *mean);
}

/* Learns the time of a step of one row, and the cost of each further row. */
static void note_time(Guessing *g, int n_rows, double ms) {
  if (n_rows == 1) {
    if (g->step_ms == 0) g->step_ms = ms;
    approach(&g->step_ms, ms);
  } else if (g->step_ms > 0 && n_rows <= DRAFT_MOST + 1) {
    const double cost = (ms / g->step_ms - 1) / (n_rows - 1);
    approach(&g->row_cost, cost < LEAST_COST ? LEAST_COST : cost > MOST_COST ? MOST_COST : cost);
  }
}

void guessing_note_step(Guessing *g, int n_rows, const Guesses *guesses, double step_ms) {
  g->n_steps++;
  g->counts.n_steps++;
  g->counts.n_guessed += guesses->n;
  g->counts.draft_ms += guesses->ms;
  g->rank = guesses->rank;
  for (int i = 0; i < DRAFT_RANKS; i++) {
    g->ranks[i].right *= FORGOTTEN;
    g->ranks[i].wrong *= FORGOTTEN;
  }
  if (g->timed) note_time(g, n_rows, step_ms);
  if (g->timed && g->guess_cost > 0 && guesses->n > 0 && g->step_ms > 0)
    approach(&g->guess_cost, guesses->ms / guesses->n / g->step_ms);
  g->balance -= cost_of(g, guesses->n);
}

void guessing_judge(Guessing *g, bool right) {
  g->ranks[g->rank].right = MEMORY * g->ranks[g->rank].right + right;
  g->ranks[g->rank].wrong = MEMORY * g->ranks[g->rank].wrong + !right;
  g->counts.n_accepted += right;
  g->balance += right ? g->share : -redo_cost(g);
}
