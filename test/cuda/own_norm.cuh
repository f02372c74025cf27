/* own_norm.cuh - test_linear.cu's check of a matmul that computes the RMSNorm of its x (LinearCall.norm). */
#pragma once

/* LinearCall.norm. Rows are fp16 numbers times powers of 2 that differ by row and by the norm's weight. The
 * reference is the matmul of the fp16 numbers times the row's power and 1 / rms in double. */
static void check_norm(const char *kernel, WeightType type, int n_in, int n_out, int group, int n_tokens) {
  const LinearEntry *chosen;
  if (!wanted(kernel)) return;
  Stored s = stored_random(type, n_in, n_out, group, 21);
  Operands o = make_operands(&s, 1, n_tokens);
  std::vector<__half> x((size_t)n_tokens * o.x_stride);
  std::vector<float> rows((size_t)(n_tokens + 1) * n_in),
      y((size_t)n_tokens * o.y_stride); /* then the weight */
  std::vector<double> ref((size_t)n_tokens * n_out);
  double by[64], found[4] = {};
  CHECK(cudaMemcpy(x.data(), o.x, x.size() * 2, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(ref.data(), o.ref[0], ref.size() * 8, cudaMemcpyDeviceToHost));
  normed_rows(x, o.x_stride, n_tokens, n_in, rows, by);
  float *to;
  CHECK(cudaMalloc((void **)&to, rows.size() * 4));
  CHECK(cudaMemcpy(to, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  LinearCall call = {&o.w, NULL, 0, n_tokens, LINEAR_TO_F32, o.y[0], o.y_stride, ACT_F16, true, kernel, 0};
  call.norm = {to, to + (size_t)n_tokens * n_in, 1e-6f};
  if (linear_choice(context, &o.w, ACT_F16, n_tokens, call.kernel, &chosen, &error) == STATUS_OK) {
    MUST(linear_prepare(context, &o.w, ACT_F16, n_tokens, call.kernel, &error));
    MUST(linear_run(context, &call, &error));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(y.data(), o.y[0], y.size() * 4, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < ref.size(); i++) {
      const double want = ref[i] * by[i / n_out], d = y[i / n_out * o.y_stride + i % n_out] - want;
      found[0] += isnan(d) ? 1e300 : d * d, found[1] += want * want;
    }
    if (chosen->launch == LAUNCH_DENSE_ROWS) found[0] /= 100; /* 1e-7: it rounds the normalised x to fp16 */
    judge(o.w, {chosen, n_tokens, 0}, found);
  }
  cudaFree(to);
  stored_free(&s);
  free_operands(&o);
}
