/* step_sizes.cuh - the table of fused/sizes/models.cuh on an emulated GPU: "experts", "hybrid with experts",
 * "gpt-oss" and "glm" of test_one_kernel.py, for which it runs kernels with constant plans. */
#pragma once

namespace step {

struct TestExperts {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 1024, s.n_layers = 2, s.n_heads = 8, s.n_kv_heads = 2, s.head_dim = 128, s.vocab_size = 512;
    s.n_experts = 24, s.n_chosen = 6, s.intermediate = 6 * 768, s.group = 128, s.n_clusters = 16;
    return s;
  }
};

struct TestHybrid {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 512, s.n_layers = 2, s.n_heads = 4, s.n_kv_heads = 2, s.head_dim = 256, s.vocab_size = 512;
    s.n_experts = 136, s.n_chosen = 7, s.intermediate = 7 * 256, s.group = 32, s.n_clusters = 14;
    s.n_key_heads = 8, s.n_value_heads = 16, s.delta_layers = 1;
    return s;
  }
};

struct TestVaried {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 1024, s.width = 320, s.n_layers = 2, s.n_heads = 16, s.n_kv_heads = 2, s.head_dim = 64,
    s.vocab_size = 512;
    s.n_experts = 8, s.n_chosen = 4, s.intermediate = 4 * 704, s.group = STEP_FP4_GROUP,
    s.attn_group = STEP_HALF_GROUP, s.n_clusters = 16;
    return s;
  }
};

struct TestLatent {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 1024, s.n_layers = 3, s.n_heads = 18, s.n_kv_heads = 1, s.head_dim = STEP_LATENT_HEAD,
    s.vocab_size = 512;
    s.n_experts = 16, s.n_chosen = 4, s.intermediate = 4 * 512, s.group = 128, s.n_clusters = 16;
    s.q_rank = 256, s.nope_dim = 192, s.value_dim = 256, s.n_dense = 1, s.dense_width = 2304;
    return s;
  }
};

using SizedModels = Models<TestExperts, TestHybrid>;
using SizedVaried = TestVaried;
using SizedLatent = TestLatent;

} // namespace step
