/* waits.cuh - test_linear.cu's check that a dependent matmul waits for the kernel before it. It may load its
 * weights before, but neither x nor what it adds to. */
#pragma once

/* Lets the next kernel begin at once, delays by a chain of `turns` loads that each wait for the one before
 * (`zeros` is one int, 0), and only then writes x and y. */
static __global__ void write_late(const uint16_t *x, uint16_t *to_x, size_t n_x, const float *y, float *to_y,
                                  size_t n_y, const int *zeros, int turns) {
  begin_overlapping();
  int at = 0;
  for (int i = 0; i < turns; i++) at = (int)load_past_l1(zeros + at);
  for (size_t i = threadIdx.x; i < n_x; i += blockDim.x) to_x[i] = x[i + (size_t)at];
  for (size_t i = threadIdx.x; i < n_y; i += blockDim.x) to_y[i] = y[i + (size_t)at];
}

/* Each kernel must add to y exactly what it adds if x and y are complete before its launch. Until
 * write_late() writes them, both are NaN. */
static void check_waits(WeightType type, int n_in, int n_out, int n_tokens) {
  Stored s = stored_random(type, n_in, n_out, test_group(type), 41);
  Operands o = make_operands(&s, 1, n_tokens);
  const size_t n_x = (size_t)n_tokens * o.x_stride, n_y = (size_t)n_tokens * o.y_stride;
  const int turns = 300; /* each some hundred cycles of a GPU */
  std::vector<float> begin(n_y), wanted_y(n_y), got(n_y);
  for (size_t i = 0; i < n_y; i++) begin[i] = uniform(42, i);
  uint16_t *x;
  float *y;
  int *zeros;
  CHECK(cudaMalloc((void **)&x, n_x * 2));
  CHECK(cudaMalloc((void **)&y, n_y * 4));
  CHECK(cudaMalloc((void **)&zeros, 4));
  CHECK(cudaMemset(zeros, 0, 4));
  CHECK(cudaMemcpy(x, o.x, n_x * 2, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(y, begin.data(), n_y * 4, cudaMemcpyHostToDevice));
  for (const LinearEntry &entry : every_entry()) {
    const LinearEntry *chosen;
    if (!tried(entry) ||
        linear_choice(context, &o.w, entry.act, n_tokens, entry.name, &chosen, &error) != STATUS_OK)
      continue;
    MUST(linear_prepare(context, &o.w, entry.act, n_tokens, entry.name, &error));
    LinearCall call = {&o.w,      o.x,   o.x_stride, n_tokens, LINEAR_ADD_F32, o.y[0], o.y_stride,
                       entry.act, false, entry.name, 0};
    CHECK(cudaMemcpyAsync(o.y[0], y, n_y * 4, cudaMemcpyDeviceToDevice, stream));
    MUST(linear_run(context, &call, &error));
    CHECK(cudaMemcpyAsync(wanted_y.data(), o.y[0], n_y * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemsetAsync((void *)o.x, 0xff, n_x * 2, stream));
    CHECK(cudaMemsetAsync(o.y[0], 0xff, n_y * 4, stream));
    write_late<<<1, 1024, 0, stream>>>(x, (uint16_t *)o.x, n_x, y, o.y[0], n_y, zeros, turns);
    call.dependent = true;
    MUST(linear_run(context, &call, &error));
    CHECK(cudaMemcpyAsync(got.data(), o.y[0], n_y * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    const bool same = memcmp(got.data(), wanted_y.data(), n_y * 4) == 0;
    cases_run++;
    failures += !same;
    if (!same)
      printf("FAIL %s: %d rows by %s weights do not wait for x or y\n", entry.name, n_tokens,
             weight_type_name(type));
  }
  for (void *p : {(void *)x, (void *)y, (void *)zeros}) cudaFree(p);
  stored_free(&s);
  free_operands(&o);
}
