/* delta.cu - which family of the gated delta rule runs, and its launches. */
#include <algorithm>
#include <cmath>

#include "cuda/kernels/delta/delta_kernels.cuh"

/* True if the sizes are those of the step and chunks families, and all rows are 16-byte aligned. */
static bool usual_sizes(const DeltaRule *r) {
  const DeltaConfig *s = &r->sizes;
  const bool mamba = s->rule == RULE_MAMBA2;
  return s->rule != RULE_CHANNELS && s->key_dim == 128 && s->value_dim == (mamba ? 64 : 128) &&
         s->conv == 4 && s->n_value_heads % (mamba ? 4 : 2) == 0 && r->stride % 4 == 0;
}

bool delta_can_run(DeltaFamily family, const DeltaRule *rule, int n_tokens) {
  switch (family) {
  case DELTA_STEP: return usual_sizes(rule) && n_tokens <= (rule->type == STATES_F32 ? DELTA_STEP_TOKENS : 1);
  case DELTA_CHUNKS: return usual_sizes(rule) && delta_chunks_shared() <= rule->shared_bytes;
  default: return true;
  }
}

bool delta_step_supports(const DeltaRule *rule, const DeviceLinear *gates, int n_tokens) {
  return rule->sizes.rule == RULE_GATED_DELTA && rule->type == STATES_F32 &&
         delta_can_run(DELTA_STEP, rule, n_tokens) && gates->n_out == 2 * rule->sizes.n_value_heads &&
         (gates->type == WEIGHT_F16 || gates->type == WEIGHT_BF16) && gates->n_in % 8 == 0 &&
         !gates->has_bias;
}

DeltaFamily delta_choose(const DeltaRule *rule, int n_tokens) {
  if (delta_can_run(DELTA_STEP, rule, n_tokens)) return DELTA_STEP;
  return delta_can_run(DELTA_CHUNKS, rule, n_tokens) ? DELTA_CHUNKS : DELTA_PLAIN;
}

size_t delta_input_floats(const DeltaConfig *s) {
  return align_up((size_t)s->conv * (size_t)delta_channels(s), 64);
}

size_t delta_state_floats(const DeltaConfig *s, StatesType type) {
  size_t cells = (size_t)s->n_value_heads * (size_t)s->key_dim * (size_t)s->value_dim;
  if (type != STATES_F32) cells = (cells + 1) / 2;
  return delta_input_floats(s) + align_up(cells, 64);
}

size_t delta_workspace_bytes(const DeltaConfig *s, int max_tokens) {
  const size_t plain = (size_t)max_tokens * (size_t)delta_channels(s) * sizeof(float);
  return std::max(plain, delta_chunks_workspace(*s, max_tokens));
}

static DeltaArgs kernel_args(const DeltaRule *r, int n_tokens) {
  const DeltaConfig *s = &r->sizes;
  DeltaArgs args = {};
  args.n_key_heads = s->n_key_heads, args.n_value_heads = s->n_value_heads;
  args.key_dim = s->key_dim, args.value_dim = s->value_dim, args.taps = s->conv;
  args.channels = delta_channels(s), args.group = s->n_value_heads / s->n_key_heads;
  args.sigmoid_gate = s->gate_is_sigmoid;
  args.mamba = s->rule == RULE_MAMBA2, args.offsets = delta_offsets(s), args.norm_width = delta_norm_width(s);
  args.doubles_beta = s->doubles_beta;
  args.by_channel = s->rule == RULE_CHANNELS, args.gate_rank = s->gate_rank,
  args.log_bound = (float)s->log_bound;
  args.z_scale = (float)s->z_scale, args.a_scale = (float)s->a_scale, args.out_scale = (float)s->out_scale;
  args.least_step = (float)s->least_step, args.largest_step = (float)s->largest_step;
  args.conv_bias = r->conv_bias, args.skip = r->skip;
  args.stride = r->stride, args.out_stride = r->out_stride, args.n_tokens = n_tokens;
  args.eps = r->eps, args.q_scale = (float)(1 / std::sqrt((double)s->key_dim));
  args.pos = r->pos, args.projections = r->projections, args.conv = r->conv, args.a_log = r->a_log;
  args.dt_bias = r->dt_bias, args.norm = r->norm;
  args.type = r->type, args.inputs = r->state, args.states = r->state + delta_input_floats(s);
  if (r->gates) {
    args.gates = r->gates->dense, args.gates_bf16 = r->gates->type == WEIGHT_BF16;
    args.gates_stride = r->gates->stride, args.n_in = r->gates->n_in;
    args.h = (const __half *)r->h, args.h_stride = r->h_stride;
  }
  args.segments = r->segments.device, args.segment_of = r->segments.of_row;
  args.state_step = r->segments.state_step, args.n_segments = 1;
  args.n_chunks = ceil_div(n_tokens, SEGMENT_CHUNK);
  args.out = (__half *)r->out, args.workspace = r->workspace;
  return args;
}

static Status run_chunks(const DeltaArgs &args, cudaStream_t stream, Error *err) {
  TRY(delta_chunks_prepare(args, stream, err));
  TRY(delta_keep_inputs(args, stream, err));
  return delta_chunks_scan(args, stream, err);
}

static Status run_plain(const DeltaArgs &args, cudaStream_t stream, Error *err) {
  TRY(delta_plain_convolve(args, stream, err));
  TRY(delta_keep_inputs(args, stream, err));
  return delta_plain(args, stream, err);
}

Status delta_run(DeltaFamily family, const DeltaRule *rule, int n_tokens, cudaStream_t stream, Error *err) {
  const DeltaArgs args = kernel_args(rule, n_tokens);
  const bool step = family == DELTA_STEP, chunks = family == DELTA_CHUNKS;
  if (step) {
    TRY(delta_step(args, stream, err));
    if (n_tokens > 1) TRY(delta_keep_inputs(args, stream, err));
    return args.mamba ? delta_norm_groups(args, true, stream, err) : STATUS_OK;
  }
  TRY((chunks ? run_chunks : run_plain)(args, stream, err));
  return args.mamba ? delta_norm_groups(args, false, stream, err) : delta_norm(args, stream, err);
}

/* run_chunks() of the segments from args.first_segment on, as many at once as the workspace has room for. */
static Status run_segments_in_chunks(DeltaArgs args, const DeltaRule *rule, cudaStream_t stream, Error *err) {
  const Segment *segments = rule->segments.host;
  const int n = rule->segments.n, room = ceil_div(rule->max_tokens, SEGMENT_CHUNK);
  for (int end = args.first_segment; end < n;) {
    args.first_segment = end, args.first_chunk = segments[end].first_chunk, args.n_chunks = 0;
    for (int more; end < n; end++, args.n_chunks += more) {
      more = ceil_div(segments[end].n_tokens, SEGMENT_CHUNK);
      if (args.n_chunks + more > room) break;
    }
    args.n_segments = end - args.first_segment;
    TRY(run_chunks(args, stream, err));
  }
  return STATUS_OK;
}

Status delta_run_segments(const DeltaRule *rule, int n_rows, cudaStream_t stream, Error *err) {
  DeltaArgs args = kernel_args(rule, n_rows);
  const bool chunks = delta_can_run(DELTA_CHUNKS, rule, n_rows);
  if (delta_can_run(DELTA_STEP, rule, 1) && rule->segments.n_singles > 0) {
    args.n_segments = rule->segments.n_singles;
    TRY(delta_step(args, stream, err));
    args.first_segment = args.n_segments;
  }
  args.n_segments = rule->segments.n - args.first_segment;
  if (args.n_segments > 0) {
    TRY(chunks ? run_segments_in_chunks(args, rule, stream, err) : run_plain(args, stream, err));
    if (!args.mamba) return delta_norm(args, stream, err);
  }
  return args.mamba ? delta_norm_groups(args, false, stream, err) : STATUS_OK;
}
