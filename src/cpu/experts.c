/* experts.c - the operation norm_experts_residual: chooses each row's experts, then computes expert by
 * expert.
 *
 * Called by: backend.c, products.c.
 * The rows that chose an expert are copied one after another, so that an expert's weights are read once a
 * step, or not at all if no row chose it:
 *
 *     expert_rows     | rows of expert 0 | rows of expert 3 | rows of expert 4 | ...   by expert, then by row
 *     expert_inner    the same rows after gate and up; down then writes its outputs to expert_rows
 *     expert_latents  with ExpertConfig.latent: a row's input of its experts, then their sum
 *
 * Always true: a row adds up its experts in the order of their scores, so that its bits do not depend on the
 *              other rows. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

/* --- the choice */

/* weights = the softmax of the router's outputs, or the sigmoid of each; for SCORE_CHOSEN and
 * SCORE_CHOSEN_NEAR the numerators of the softmax. */
static void score(ExpertScore how, const float *outputs, int n, float *weights) {
  float most = outputs[0], sum = 0;
  for (int e = 1; e < n; e++) most = outputs[e] > most ? outputs[e] : most;
  for (int e = 0; e < n; e++) {
    const bool sigmoid = how == SCORE_SIGMOID || how == SCORE_CHOSEN_SIGMOID;
    weights[e] = sigmoid ? 1 / (1 + expf(-outputs[e])) : expf(outputs[e] - most);
    sum += weights[e];
  }
  for (int e = 0; how == SCORE_SOFTMAX && e < n; e++) weights[e] /= sum;
}

/* The index of the largest of scores[from .. to), the first one among equals. NaN is skipped: experts already
 * chosen have NaN. -1: all are NaN. */
static int best(const float *scores, int from, int to) {
  int at = -1;
  for (int e = from; e < to; e++)
    if (scores[e] == scores[e] && (at < 0 || scores[e] > scores[at])) at = e;
  return at;
}

/* Keeps the scores of the best groups' experts and makes all others NaN. A group's score is the sum of the
 * two best scores in it, or with group_is_best the best one. */
static void keep_groups(const ExpertConfig *config, float *scores) {
  const int size = config->n_experts / config->n_groups;
  if (config->n_groups == 1) return;
  for (int drop = config->n_groups - config->n_chosen_groups; drop > 0; drop--) {
    int worst = -1;
    float least = 0;
    for (int g = 0; g < config->n_groups; g++) {
      const int from = g * size, first = best(scores, from, from + size);
      if (first < 0) continue;
      const float top = scores[first];
      scores[first] = NAN;
      const int second = best(scores, from, from + size);
      scores[first] = top;
      if (second < 0) continue; /* all but one are NaN: the group stays */
      const float sum = config->group_is_best ? top : top + scores[second];
      if (worst < 0 || sum <= least) worst = g, least = sum;
    }
    for (int e = worst * size; worst >= 0 && e < (worst + 1) * size; e++) scores[e] = NAN;
  }
}

/* The weight of expert e by SCORE_CHOSEN_NEAR. outputs[i] is NaN if expert i was chosen before. */
static float share_among_near(const float *outputs, int n, int e, float near) {
  const float own = outputs[e];
  float sum = 0;
  for (int i = 0; i < n; i++) {
    const float other = outputs[i], size = fabsf(other) > own ? fabsf(other) : own;
    if (other == other && !((own - other) / size > near)) sum += expf(other - own);
  }
  return 1 / sum;
}

/* Chooses the experts of a row. outputs: the router's [n_experts], which are overwritten; weights:
 * [n_experts] scratch. */
static void choose(const ExpertConfig *config, const CpuLayer *layer, float *outputs, float *weights,
                   ExpertChoice *chosen) {
  const int n = config->n_experts;
  float sum = 0;
  score(config->score, outputs, n, weights);
  /* SCORE_SIGMOID always chooses by the weights, SCORE_CHOSEN_SIGMOID always by the outputs. The others
   * choose by the outputs, since softmax keeps their order but may round two weights to the same. With a
   * bias (added to the weights) or groups (judged by their weights), they choose by the weights. */
  if (layer->choice_bias || config->score == SCORE_SIGMOID || config->n_groups > 1)
    for (int e = 0; e < n; e++) {
      if (config->score != SCORE_CHOSEN_SIGMOID) outputs[e] = weights[e];
      if (layer->choice_bias) outputs[e] += layer->choice_bias[e];
    }
  keep_groups(config, outputs);
  for (int i = 0; i < config->n_chosen; i++) {
    int e = best(outputs, 0, n);
    if (e < 0) e = 0; /* the row holds NaNs */
    if (config->score == SCORE_CHOSEN_NEAR) weights[e] = share_among_near(outputs, n, e, (float)config->near);
    chosen[i] = (ExpertChoice){.expert = e, .weight = weights[e]};
    sum += weights[e];
    outputs[e] = NAN;
  }
  const bool divide = config->renormalise || config->score == SCORE_CHOSEN;
  for (int i = 0; i < config->n_chosen; i++) {
    if (divide) chosen[i].weight /= sum + (float)config->sum_plus;
    chosen[i].weight *= (float)config->scale;
    if (layer->expert_scales) chosen[i].weight *= layer->expert_scales[chosen[i].expert];
  }
}

/* Assigns each choice a row of expert_rows; ends[e] becomes the end of expert e's rows. */
static void place_choices(ExpertChoice *choices, int n_choices, int n_experts, int *ends) {
  memset(ends, 0, (size_t)n_experts * sizeof *ends);
  for (int i = 0; i < n_choices; i++) ends[choices[i].expert]++;
  for (int e = 0, at = 0; e < n_experts; e++) {
    const int n = ends[e];
    ends[e] = at;
    at += n;
  }
  for (int i = 0; i < n_choices; i++) choices[i].place = ends[choices[i].expert]++;
}

static void choose_experts(BackendState *state, int n_rows, int layer, const float *from) {
  const BackendModel *loaded = state->loaded;
  const ExpertConfig *config = &loaded->model->config.experts;
  const CpuLayer *weights = &loaded->layers[layer];
  const size_t stride = (size_t)state->plan.routes;
  const Matmul matmuls[] = {
      {.w = weights->router, .y = state->expert_routes, .y_stride = stride},
      {.w = weights->shared_gate, .y = state->shared_gates, .y_stride = 1},
  };
  run_matmuls(state, from, state->plan.hidden, n_rows, matmuls, weights->shared_gate.linear ? 2 : 1);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++)
    choose(config, weights, state->expert_routes + (size_t)r * stride,
           state->expert_scores + (size_t)r * stride,
           state->expert_choices + (size_t)r * (size_t)config->n_chosen);
}

/* --- the experts' products */

/* Copies a row to a choice's place; with scales_input the copy is multiplied by the choice's weight. */
static void gather_row(const BackendState *state, const ExpertChoice *choice, const float *from) {
  const size_t n = (size_t)state->plan.expert_row;
  float *to = state->expert_rows + (size_t)choice->place * n;
  memcpy(to, from, n * sizeof *from);
  if (!state->loaded->model->config.experts.scales_input) return;
  for (size_t i = 0; i < n; i++) to[i] *= choice->weight;
}

/* Rows of a step: inputs `from` of the experts, or sums `to` of their outputs, `stride` floats apart. */
typedef struct {
  const BackendState *state;
  const float *from;
  float *to;
  size_t stride;
} RowWork;

static void gather_choices(void *given, int row) {
  const RowWork *work = given;
  const BackendState *state = work->state;
  const int n_chosen = state->loaded->model->config.experts.n_chosen;
  const ExpertChoice *chosen = state->expert_choices + (size_t)row * (size_t)n_chosen;
  for (int i = 0; i < n_chosen; i++) gather_row(state, &chosen[i], work->from + (size_t)row * work->stride);
}

/* Assigns each choice a row of expert_rows, and copies the choice's input there. */
static void gather(BackendState *state, int n_rows, const float *from) {
  const ModelConfig *config = &state->loaded->model->config;
  place_choices(state->expert_choices, n_rows * config->experts.n_chosen, config->experts.n_experts,
                state->expert_ends);
  cpu_share(state, n_rows, gather_choices,
            &(RowWork){state, .from = from, .stride = (size_t)state->plan.expert_row});
}

/* Makes a group for each expert that some row chose, and returns the number of groups. With `down` a group
 * computes down, from expert_inner to expert_rows; otherwise gate and up, from expert_rows to
 * expert_inner. */
static int make_groups(BackendState *state, int layer, bool down) {
  const BackendModel *loaded = state->loaded;
  const CpuLayer *weights = &loaded->layers[layer];
  const ModelLayer *model = &loaded->model->layers[layer];
  const size_t row = (size_t)state->plan.expert_row, width = (size_t)state->plan.expert_width;
  const ModelConfig *config = &loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  int n = 0;
  for (int e = 0, from = 0; e < config->experts.n_experts; from = state->expert_ends[e++]) {
    const CpuExpert *expert = &weights->experts[e];
    float *outer = state->expert_rows + (size_t)from * row,
          *inner = state->expert_inner + (size_t)from * width;
    if (state->expert_ends[e] == from) continue;
    if (!down) model_prepare_expert(loaded->model, &model->experts[e], loaded->n_threads);
    const Matmul there = {.w = expert->up,
                          .gate = expert->gate,
                          .own_gate = is_ungated(config->activation),
                          .activation = own.expert_activation,
                          .numbers.limit = (float)own.expert_limit,
                          .y = inner,
                          .y_stride = width},
                 back = {.w = expert->down, .y = outer, .y_stride = row};
    state->expert_groups[n++] = (MatmulGroup){.matmul = down ? back : there,
                                              .x = down ? inner : outer,
                                              .x_stride = down ? width : row,
                                              .n_rows = state->expert_ends[e] - from};
  }
  return n;
}

/* Adds a group for the shared expert, if there is one. Returns the number of groups. */
static int add_beside(BackendState *state, int n_rows, int layer, bool down, const float *from, int n) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  const size_t hidden = (size_t)state->plan.hidden, g = (size_t)state->plan.intermediate;
  if (!weights->down.linear) return n;
  Matmul there = cpu_gate_up(state->loaded, layer);
  there.y = state->g, there.y_stride = g;
  const Matmul back = {.w = weights->down, .y = state->shared_out, .y_stride = hidden};
  state->expert_groups[n++] = (MatmulGroup){.matmul = down ? back : there,
                                            .x = down ? state->g : from,
                                            .x_stride = down ? g : hidden,
                                            .n_rows = n_rows};
  return n;
}

/* --- the experts' sum */

/* sum = the sum of the outputs of the row's experts, each times its weight unless the weight has scaled the
 * expert's input. */
static void add_up(const BackendState *state, int row, float *sum) {
  const ModelConfig *config = &state->loaded->model->config;
  const int n_chosen = config->experts.n_chosen, width = expert_row_width(config);
  const ExpertChoice *chosen = state->expert_choices + (size_t)row * (size_t)n_chosen;
  memset(sum, 0, (size_t)width * sizeof *sum);
  for (int i = 0; i < n_chosen; i++) {
    const float *out = state->expert_rows + (size_t)chosen[i].place * (size_t)state->plan.expert_row;
    const float weight = config->experts.scales_input ? 1 : chosen[i].weight;
    for (int c = 0; c < width; c++) sum[c] += weight * out[c];
  }
}

static void add_up_row(void *given, int row) {
  const RowWork *work = given;
  add_up(work->state, row, work->to + (size_t)row * work->stride);
}

/* h = the sum of each row's experts; with ExpertConfig.latent, latent_out of that sum. */
static void sum_experts(BackendState *state, int n_rows, int layer) {
  const StatePlan *plan = &state->plan;
  float *latents = state->expert_latents, *sums = latents ? latents : state->h;
  cpu_share(state, n_rows, add_up_row,
            &(RowWork){state, .to = sums, .stride = (size_t)(latents ? plan->expert_row : plan->hidden)});
  if (latents)
    run_matmul(state, state->loaded->layers[layer].latent_out, latents, plan->expert_row, n_rows, state->h,
               plan->hidden);
}

/* Adds to x the experts' sum, which is in h, and the output of the shared expert. */
static void finish_row(BackendState *state, int row, int layer) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const CpuLayer *weights = &loaded->layers[layer];
  const size_t at = (size_t)row * (size_t)state->plan.hidden;
  const int hidden = config->hidden;
  float *x = state->x + at, *sum = state->h + at, *beside = state->shared_out + at;
  const double post_eps = post_norm_eps(config);
  if (weights->expert_post_norm)
    loaded->kernels->rms_norm(sum, weights->expert_post_norm, hidden, post_eps, sum);
  if (weights->down.linear) {
    float factor = config->experts.shared_output == SHARED_HALVED ? 0.5f : 1;
    if (weights->shared_gate.linear) {
      factor = state->shared_gates[row];
      loaded->kernels->sigmoid(&factor, 1);
    }
    if (weights->shared_post_norm)
      loaded->kernels->rms_norm(beside, weights->shared_post_norm, hidden, post_eps, beside);
    for (int c = 0; c < hidden; c++) sum[c] += factor * beside[c];
  }
  if (weights->mlp_post_norm) loaded->kernels->rms_norm(sum, weights->mlp_post_norm, hidden, post_eps, sum);
  for (int c = 0; c < hidden; c++) x[c] += (float)config->residual_scale * sum[c];
}

/* With EXPERTS_OWN_NORMS the router and the experts have inputs of their own, which overwrite state->h. The
 * shared expert's input `from` is first copied to shared_out, where the expert's output will replace it;
 * returns the copy. */
static const float *own_inputs(BackendState *state, int n_rows, int layer, const float *from) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  const size_t bytes = (size_t)n_rows * (size_t)state->plan.hidden * sizeof *from;
  memcpy(state->shared_out, from, bytes);
  choose_experts(state, n_rows, layer, cpu_normalised(state, n_rows, weights->router_scale, NULL));
  gather(state, n_rows, cpu_normalised(state, n_rows, weights->expert_norm, NULL));
  return state->shared_out;
}

void cpu_experts(BackendState *state, int n_rows, int layer) {
  const BackendModel *loaded = state->loaded;
  const CpuLayer *weights = &loaded->layers[layer];
  const float *from = loaded->model->config.parallel /* norm_qkv_rope_append() has made h */
                          ? state->h
                          : cpu_normalised(state, n_rows, weights->mlp_norm, weights->mlp_norm_bias);
  if (loaded->model->config.experts.norms == EXPERTS_OWN_NORMS) {
    from = own_inputs(state, n_rows, layer, from);
  } else {
    choose_experts(state, n_rows, layer, from);
    float *latents = state->expert_latents;
    if (latents)
      run_matmul(state, weights->latent_in, from, state->plan.hidden, n_rows, latents,
                 state->plan.expert_row);
    gather(state, n_rows, latents ? latents : from);
  }
  for (int down = 0; down < 2; down++) {
    const int n = add_beside(state, n_rows, layer, down, from, make_groups(state, layer, down));
    run_groups(state, state->expert_groups, n);
  }
  sum_experts(state, n_rows, layer);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++) finish_row(state, r, layer);
}

void cpu_chosen_experts(BackendState *state, int n_rows, int layer, const float *from, float *y,
                        size_t y_stride) {
  gather(state, n_rows, from);
  for (int down = 0; down < 2; down++)
    run_groups(state, state->expert_groups, make_groups(state, layer, down));
  cpu_share(state, n_rows, add_up_row, &(RowWork){state, .to = y, .stride = y_stride});
}
