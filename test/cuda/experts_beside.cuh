/* experts_beside.cuh - part of test_experts.cu: with LINEAR_INVARIANT a token of a matrix of experts has the
 * same bits beside any number of tokens. Included there, after check_shape(). */
#pragma once

/* The results of LINEAR_INVARIANT for each choice of the first n_tokens tokens, whose experts are `ids`. */
static std::vector<unsigned char> invariant_results(const Shape &s, const OfExperts &m,
                                                    const std::vector<int> &ids, int n_tokens) {
  const int n = n_tokens * s.n_chosen, stride = (s.n_in + 127) / 128 * 128;
  const Choices c = ordered({ids.begin(), ids.begin() + n}, s.n_experts);
  const bool gathered = linear_experts_gathered(context, &m.w, n_tokens, LINEAR_INVARIANT),
             by_place = gathered || m.w.summed;
  std::vector<__half> x((size_t)n * stride, __float2half_rn(0));
  for (int row = 0; row < (by_place ? n : n_tokens); row++) {
    const int choice = by_place ? c.choices[row] : row * s.n_chosen;
    for (int k = 0; k < s.n_in; k++)
      x[(size_t)row * stride + k] =
          __float2half_rn(activation(7, m.w.summed ? choice : choice / s.n_chosen, k));
  }
  std::vector<float> factors;
  for (int p = 0; p < n; p++) factors.push_back(0.05f * (float)(1 + c.choices[p] % 17));
  __half *x_device = to_device(x);
  float *factors_device = to_device(factors);
  int *ids_device = to_device(c.ids), *begins = to_device(c.begins), *choices = to_device(c.choices);
  const size_t row = (size_t)s.n_out * (s.gated ? 2 : 4);
  void *y;
  CHECK(cudaMalloc(&y, n * row));
  const LinearExperts experts = {ids_device, begins, choices, gathered};
  LinearCall call = {&m.w, x_device, stride,  n_tokens, s.gated ? LINEAR_SWIGLU_F16 : LINEAR_TO_F32,
                     y,    s.n_out,  ACT_F16, false,    LINEAR_INVARIANT};
  call.row_factors = factors_device, call.experts = &experts;
  MUST(linear_run(context, &call, &error));
  const std::vector<unsigned char> by_places = to_host<unsigned char>(y, n * row);
  std::vector<unsigned char> by_choices(n * row);
  for (int i = 0; i < n; i++) memcpy(&by_choices[i * row], &by_places[c.places[i] * row], row);
  for (void *p :
       {(void *)x_device, (void *)factors_device, (void *)ids_device, (void *)begins, (void *)choices, y})
    cudaFree(p);
  return by_choices;
}

static void check_experts_beside(const Shape &s, bool summed, int n_tokens) {
  OfExperts m = make_matrix(s, summed);
  const Choices all = random_choices(s.n_experts, s.n_chosen, n_tokens, UNEVEN);
  MUST(linear_prepare(context, &m.w, ACT_F16, n_tokens, LINEAR_INVARIANT, &error));
  const std::vector<unsigned char> want = invariant_results(s, m, all.ids, n_tokens);
  bool good = true;
  for (int n : {1, 2, n_tokens / 3, n_tokens / 2}) {
    if (n == 0) continue;
    const std::vector<unsigned char> got = invariant_results(s, m, all.ids, n);
    good = good && memcmp(got.data(), want.data(), got.size()) == 0;
  }
  good ? passed++ : failed++;
  if (!good)
    printf("FAIL experts of %s, %d -> %d: other bits beside %d tokens\n", weight_type_name(s.type), s.n_in,
           s.n_out, n_tokens);
  cudaFree(m.memory);
  cudaFree(m.expanded);
}

/* Up to 40 rows of an expert on average tiles are low, beyond they are high. */
static void check_beside(bool few) {
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_FP4, WEIGHT_FP8, WEIGHT_BF16}) {
    const int group = type == WEIGHT_FP4 ? 16 : type == WEIGHT_FP8 ? 128 : type == WEIGHT_BF16 ? 0 : 64;
    const bool wide = type == WEIGHT_AWQ4 || type == WEIGHT_FP4 || type == WEIGHT_FP8;
    if (few && !wide) continue;
    const int most = few ? 90 : wide ? 900 : 40;
    check_experts_beside({type, 4, 2, 512, 80, group, true, true}, false, most);
    check_experts_beside({type, 4, 2, 256, 400, group, false, true}, true, most);
    if (few) continue;
    check_experts_beside({type, 128, 8, 2048, 768, group, true, false}, false, most);
    check_experts_beside({type, 128, 8, 768, 2048, group, false, false}, true, most);
  }
}
