/* models.cuh - models whose sizes a kernel of one token is compiled for. Their plan (plan_one.h) is a
 * constant: the compiler folds offsets and strides, and unrolls or drops loops and branches. This shortens
 * the phases of a layer, which are chains of latencies (LOG.md, "Plans as constants"). For any other plan the
 * kernel of its form runs, and reads the plan from its arguments.
 *
 * Such a kernel runs if the session's whole shape equals the struct's, the chip's clusters and shared memory
 * included. For another shape write a struct, and name it in SizedModels (SizedVaried and SizedLatent have
 * one each). Its kernel costs nvcc two to four seconds. Qwen3-8B has no such kernel, because the model was
 * slower with one. */
#pragma once

#include "cuda/kernels/fused/sizes/plan_one.h"

namespace step {

/* The table: a list of types. */
template <class... Each> struct Models {};

/* Clusters and shared memory of an H100 or H200 with 132 SMs. */
constexpr StepShape shape_of_hopper() {
  StepShape s = {};
  s.n_clusters = 15, s.shared_bytes = 227 << 10;
  return s;
}

/* Qwen3-Coder-30B-A3B has the same sizes. */
struct Qwen3_30B_A3B {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 2048, s.n_layers = 48, s.n_heads = 32, s.n_kv_heads = 4, s.head_dim = 128,
    s.vocab_size = 151936;
    s.n_experts = 128, s.n_chosen = 8, s.intermediate = 8 * 768, s.group = 128;
    return s;
  }
};

/* Qwen3.5-35B-A3B has the same sizes. */
struct Qwen3_6_35B_A3B {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 2048, s.n_layers = 40, s.n_heads = 16, s.n_kv_heads = 2, s.head_dim = 256,
    s.vocab_size = 248320;
    s.n_experts = 256, s.n_chosen = 9, s.intermediate = 9 * 512, s.group = 32;
    s.n_key_heads = 16, s.n_value_heads = 32, s.delta_layers = step_layers_before(40) / 15 * 7;
    return s;
  }
};

/* Qwen3.5-27B and Qwen3.6-27B have the same sizes. */
struct Qwen3_8_27B {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 5120, s.n_layers = 64, s.n_heads = 24, s.n_kv_heads = 4, s.head_dim = 256,
    s.vocab_size = 248320;
    s.intermediate = 17408, s.group = 32;
    s.n_key_heads = 16, s.n_value_heads = 48, s.delta_layers = step_layers_before(64) / 15 * 7;
    return s;
  }
};

struct Gpt_Oss_20B {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 3072, s.width = 2880, s.n_layers = 24, s.n_heads = 64, s.n_kv_heads = 8, s.head_dim = 64,
    s.vocab_size = 201088;
    s.n_experts = 32, s.n_chosen = 4, s.intermediate = 4 * 2880, s.group = STEP_FP4_GROUP,
    s.attn_group = STEP_HALF_GROUP;
    return s;
  }
};

struct Glm_4_7_Flash {
  static constexpr StepShape shape() {
    StepShape s = shape_of_hopper();
    s.hidden = 2048, s.n_layers = 47, s.n_heads = 20, s.n_kv_heads = 1, s.head_dim = STEP_LATENT_HEAD,
    s.vocab_size = 154880;
    s.n_experts = 64, s.n_chosen = 5, s.intermediate = 5 * 1536, s.group = 128;
    s.q_rank = 768, s.nope_dim = 192, s.value_dim = 256, s.n_dense = 1, s.dense_width = 10240;
    return s;
  }
};

} // namespace step

#ifdef EMULATED_ARCH /* the emulator has a table of its own */
#include <test/cuda/step_sizes.cuh>
#else
namespace step {
using SizedModels = Models<Qwen3_30B_A3B, Qwen3_6_35B_A3B, Qwen3_8_27B>;
using SizedVaried = Gpt_Oss_20B;
using SizedLatent = Glm_4_7_Flash;
} // namespace step
#endif

namespace step {

/* The plan of a model of the table. */
template <class Sizes> constexpr StepPlan plan_of() {
  const StepShape s = Sizes::shape();
  return step_plan_one(&s, step_keys(&s) * (step_is_latent(&s) ? 1 : 2) * s.head_dim * 2); /* in fp16 */
}
template <class Sizes> __device__ constexpr StepPlan sized_plan = plan_of<Sizes>();

/* step_qkv_split() of a model of the table. */
template <class Sizes> constexpr KSplit qkv_split_of() {
  const StepShape s = Sizes::shape();
  return step_qkv_split(&s);
}
template <class Sizes> __device__ constexpr KSplit sized_qkv_split = qkv_split_of<Sizes>();

} // namespace step
