"""Up to eight tokens as one kernel (--decode-step cluster): the same as a kernel for each operation, within what
fp16 costs; the same bits with and without graphs and again; and what it is not for is refused by name.

test_step.cu compares the kernel itself with double. Models here are random ones of heads and groups that it is for.
Needs a GPU with clusters (compute capability 9.0): skipped by name elsewhere.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
import compare  # noqa: E402
import layouts  # noqa: E402
import miniature_experts  # noqa: E402

STORIES = ROOT / "test" / "data" / "stories260K-awq"
EMULATED = os.environ.get("AUK_TEST_SIZE") == "few"  # where there are clusters, a chip of 9.0
BOUND = 2e-5  # mean KL, as for all models on GPUs
NEAR = 0.03  # of a log-probability: test_parallel.py has the derivation
HIDDEN, INTERMEDIATE, LAYERS, KV_HEADS, VOCAB = 512, 768, 2, 2, 512
WIDE = 1024  # steps of several rows want multiples of it
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128, "num_attention_heads": 6}
HYBRID = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "head_dim": 256,
          "num_attention_heads": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
          "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {**QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 24,
           "num_attention_heads": 8, "num_experts_per_tok": 6, "moe_intermediate_size": 768, "norm_topk_prob": True,
           "decoder_sparse_step": 1, "mlp_only_layers": []}
KINDS = {  # what the architectures and checkpoints that it serves differ in: config, inputs in a group of weights
    "qwen3": (QWEN3, 128),
    "qwen2": ({**QWEN3, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}, 128),
    "qwen3 in groups of 32": (QWEN3, 32),
    "qwen3 in FP4": (QWEN3, 16),
    "qwen3 in FP8": (QWEN3, "blocks"),
    "qwen3 in FP8 by outputs": (QWEN3, "channel"),
    "qwen3 in int8": (QWEN3, "int8"),
    "qwen2 in fp16": ({**QWEN3, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}, "fp16"),
    "qwen3 in bf16": (QWEN3, "bf16"),
    # 36 FFN blocks, 6 of each choice: a cluster's first and last ones are of two experts. Where there are eight
    # clusters, four share a KV head.
    "experts": (EXPERTS, 128),
    # Four neighbours have the same logits each: of the second-best four, the first two are taken.
    "experts that tie": (EXPERTS, 128),
    # A block multiplies the router by 384 columns, 256 of them at once.
    "experts of hidden 3072": ({**QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                                "num_experts": 40, "num_attention_heads": 8, "num_experts_per_tok": 8,
                                "moe_intermediate_size": 256, "norm_topk_prob": False, "decoder_sparse_step": 1,
                                "mlp_only_layers": []}, 128),
    # One in three of 6 clusters has no query head, and some have value heads of two key heads. In FP4 the first layer
    # is of attention, and clusters have four value heads.
    "hybrid": ({**HYBRID, "linear_num_key_heads": 8, "linear_num_value_heads": 16}, 128),
    "hybrid in groups of 32": ({**HYBRID, "linear_num_key_heads": 8, "linear_num_value_heads": 16}, 32),
    "hybrid in groups of 64": ({**HYBRID, "linear_num_key_heads": 8, "linear_num_value_heads": 16}, 64),
    "hybrid in FP4": ({**HYBRID, "linear_num_key_heads": 8, "linear_num_value_heads": 24,
                       "layer_types": ["full_attention", "linear_attention"]}, 16),
    # One warp has a second set of rows of the router; where there are six clusters, each has an expert and a part of
    # others.
    "hybrid with experts": ({**HYBRID, "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
                             "linear_num_key_heads": 8, "linear_num_value_heads": 16, "num_experts": 136,
                             "num_experts_per_tok": 6, "moe_intermediate_size": 256,
                             "shared_expert_intermediate_size": 256}, 32),
    # 11 FFN blocks of 64 an expert: where there are 16 clusters, some have two and some three, a last group of half as
    # many inputs, and two experts in a group. Two blocks and a half have columns, and one of two layers a window.
    "gpt-oss": ({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 64,
                 "num_attention_heads": 16, "num_local_experts": 8, "num_experts_per_tok": 4, "intermediate_size": 704,
                 "attention_bias": True, "sliding_window": 3, "swiglu_limit": 7.0, "torch_dtype": "bfloat16",
                 "rope_scaling": miniature_experts.GPT_OSS_YARN,
                 "layer_types": ["sliding_attention", "full_attention"]}, "mxfp4"),
    # Two heads in each of nine clusters, a layer without experts, then two with; its FFN blocks are one or two of a
    # cluster.
    "glm": ({"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "num_hidden_layers": 3,
             "num_attention_heads": 18, "num_key_value_heads": 18, "q_lora_rank": 256, "kv_lora_rank": 512,
             "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "rope_interleave": True,
             "first_k_dense_replace": 1, "intermediate_size": 2304, "n_routed_experts": 16, "num_experts_per_tok": 3,
             "n_shared_experts": 1, "moe_intermediate_size": 512, "norm_topk_prob": True, "routed_scaling_factor": 1.8,
             "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc"}, 128),
    "heads of 64": ({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 64,
                     "num_attention_heads": 8}, 128),
}
BYTES = "blocks", "channel", "int8"  # weights of 8 bits
HALVES = {"fp16": np.float16, "bf16": checkpoint.to_bf16, "mxfp4": checkpoint.to_bf16}  # mxfp4: beside experts
# Where both round x to int8, a number that differs by 1e-3 between them may round to another integer: they differ from
# each other as much as either does from the CPU.
ROUNDED = ["qwen3 in int8"]
# A block owns whole groups of columns.
HIDDENS = {"gpt-oss": 320, "experts": 1024, "glm": 1024, "experts of hidden 3072": 3072}
# Shared memory for the fewest slots of the ring.
SMALL = {"experts": 102 << 10, "hybrid with experts": 171 << 10, "gpt-oss": 97 << 10, "glm": 142 << 10}
# The weights' seeds, 5 unless given. With 5 the scores of the sixth and seventh expert of one token of "experts" are
# 4e-4 apart, and fp16, which moves scores by 2.5e-4, decides between them. With 8 they are 6e-3 apart for all tokens.
SEEDS = {"experts": 8, "glm": 3}
GATES = ["in_proj_b", "in_proj_a", "shared_expert_gate", "mlp.gate"]
UNLIKE = 34  # so many experts differ; the others repeat them
# Embedding and head, as compressed-tensors' checkpoints have them.
BF16 = ["qwen3 in FP4", "qwen3 in groups of 32", "qwen3 in bf16"]
TIES = ["experts that tie"]
BF16_ROUTERS = ["hybrid with experts"]  # and the gate of the MLP beside the experts
TIED = ["qwen3 in groups of 32", "qwen3 in bf16"]


def mixer_of(config, layer, hidden):
    """The matrices of a layer before its MLP."""
    if "kv_lora_rank" in config:
        heads, rank, latent = (config[name] for name in ("num_attention_heads", "q_lora_rank", "kv_lora_rank"))
        nope, rope, value = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        return {"self_attn.q_a_proj": (rank, hidden), "self_attn.q_b_proj": (heads * (nope + rope), rank),
                "self_attn.kv_a_proj_with_mqa": (latent + rope, hidden),
                "self_attn.kv_b_proj": (heads * (nope + value), latent), "self_attn.o_proj": (hidden, heads * value)}
    n_q, n_k = (config["head_dim"] * n for n in (config["num_attention_heads"], KV_HEADS))
    if config.get("layer_types", {layer: ""})[layer] != "linear_attention":
        gates = 2 if config["head_dim"] == 256 else 1
        return {"self_attn.q_proj": (gates * n_q, hidden), "self_attn.k_proj": (n_k, hidden),
                "self_attn.v_proj": (n_k, hidden), "self_attn.o_proj": (hidden, n_q)}
    keys, values = (128 * config[f"linear_num_{name}_heads"] for name in ("key", "value"))
    return {"linear_attn.in_proj_qkv": (2 * keys + values, hidden), "linear_attn.in_proj_z": (values, hidden),
            "linear_attn.out_proj": (hidden, values)}


def delta_tensors(config, prefix, random, dense, hidden):
    """A layer of the gated delta rule has these beside mixer_of()."""
    keys, values = (config[f"linear_num_{name}_heads"] for name in ("key", "value"))
    return {prefix + "in_proj_b.weight": dense(values, hidden).astype(np.float16),
            prefix + "in_proj_a.weight": dense(values, hidden).astype(np.float16),
            prefix + "conv1d.weight": (dense(128 * (2 * keys + values), 4)[:, None]).astype(np.float16),
            prefix + "A_log": random.uniform(0, 1, values).astype(np.float32),
            prefix + "dt_bias": random.uniform(-4, -1, values).astype(np.float16),
            prefix + "norm.weight": (1 + 0.2 * random.standard_normal(128)).astype(np.float16)}


def clamped_experts(config, prefix, random, dense, hidden):
    """The router and experts of a layer of gpt-oss, and its sinks. Gates and ups are so large that some are cut."""
    n, width = config["num_local_experts"], config["intermediate_size"]
    tensors = {"mlp.router.weight": dense(n, hidden), "self_attn.sinks": random.standard_normal(
        config["num_attention_heads"])}
    for name, n_out, n_in, std in ("gate_up_proj", 2 * width, hidden, 3), ("down_proj", hidden, width, 1):
        weight = random.standard_normal((n, n_out, n_in), np.float32) * np.float32(std / n_in**0.5)
        blocks, scales = miniature_experts.mxfp4(weight)
        tensors |= {f"mlp.experts.{name}_blocks": blocks, f"mlp.experts.{name}_scales": scales,
                    f"mlp.experts.{name}_bias": 0.5 * random.standard_normal((n, n_out))}
    tensors["mlp.router.bias"] = 0.5 * random.standard_normal(n)
    return {prefix + name: tensor if tensor.dtype == np.uint8 else checkpoint.to_bf16(tensor.astype(np.float32))
            for name, tensor in tensors.items()}


def tensors_of(kind, random, hidden):
    config, group = KINDS[kind]
    plus = 0 if config.get("head_dim") == 256 else 1  # hybrids multiply by 1 + weight
    clamped = "num_local_experts" in config

    def dense(n_out, n_in):
        return random.standard_normal((n_out, n_in), np.float32) / np.float32(n_in) ** 0.5

    def norm(n):
        return (plus + 0.2 * random.standard_normal(n)).astype(np.float16)

    def mlp_of(name, width):
        return {name + "gate_proj": (width, hidden), name + "up_proj": (width, hidden),
                name + "down_proj": (hidden, width)}

    mlps = {}
    experts = config.get("num_experts", config.get("n_routed_experts", 0))
    width = config.get("moe_intermediate_size", INTERMEDIATE)
    shared = ["mlp.shared_expert."] if "shared_expert_intermediate_size" in config else []
    beside = ["mlp.shared_experts."] if "n_shared_experts" in config else []
    for mlp in ([] if clamped else
                [f"mlp.experts.{e}." for e in range(min(experts, UNLIKE))] + shared + beside or ["mlp."]):
        mlps |= mlp_of(mlp, width)
    halves = checkpoint.to_bf16 if kind in BF16 else np.float16
    router_halves = checkpoint.to_bf16 if kind in BF16_ROUTERS else np.float16
    tensors = {"model.embed_tokens.weight": halves(dense(VOCAB, hidden) * 8),
               "lm_head.weight": halves(dense(VOCAB, hidden) * 4),
               "model.norm.weight": norm(hidden)}
    if kind in TIED:
        del tensors["lm_head.weight"]
    for layer in range(config.get("num_hidden_layers", LAYERS)):
        prefix = f"model.layers.{layer}."
        is_dense = layer < config.get("first_k_dense_replace", 0)
        tensors[prefix + "input_layernorm.weight"] = norm(hidden)
        tensors[prefix + "post_attention_layernorm.weight"] = norm(hidden)
        if experts and not is_dense:
            rows = dense(experts, hidden)
            rows = rows[np.arange(experts) // 4 * 4] if kind in TIES else rows
            tensors[prefix + "mlp.gate.weight"] = router_halves(rows)
        if beside and not is_dense:
            tensors[prefix + "mlp.gate.e_score_correction_bias"] = (0.3 * random.standard_normal(experts)).astype(
                np.float32)
        if shared:
            tensors[prefix + "mlp.shared_expert_gate.weight"] = router_halves(dense(1, hidden))
        mixer = mixer_of(config, layer, hidden)
        own = mlp_of("mlp.", config["intermediate_size"]) if is_dense else mlps
        for name, (n_out, n_in) in (mixer | own).items():
            weight = dense(n_out, n_in)
            tensors |= ({f"{prefix}{name}.weight": HALVES[group](weight)} if group in HALVES else
                        bytes_of(prefix + name, weight, group) if group in BYTES else
                        layouts.float_tensors(prefix + name, weight, "nvfp4-packed", None, None)[0] if group == 16 else
                        checkpoint.awq_tensors(prefix + name, *checkpoint.awq_quantise(weight, group, search=False)))
            if clamped or (config["model_type"] == "qwen2" and name[10] in "qkv" and "o_proj" not in name and
                           "self_attn" in name):
                tensors[prefix + name + ".bias"] = (0.3 * random.standard_normal(n_out)).astype(np.float16)
        if "linear_attn.out_proj" in mixer:
            tensors |= delta_tensors(config, prefix + "linear_attn.", random, dense, hidden)
        elif "kv_lora_rank" in config:
            tensors[prefix + "self_attn.q_a_layernorm.weight"] = norm(config["q_lora_rank"])
            tensors[prefix + "self_attn.kv_a_layernorm.weight"] = norm(config["kv_lora_rank"])
        elif config["model_type"] in ("qwen3", "qwen3_moe", "qwen3_5_text", "qwen3_5_moe_text"):
            tensors[prefix + "self_attn.q_norm.weight"] = norm(config["head_dim"])
            tensors[prefix + "self_attn.k_norm.weight"] = norm(config["head_dim"])
        if clamped:
            tensors |= clamped_experts(config, prefix, random, dense, hidden)
        for e in range(UNLIKE, experts):
            own, other = (f"{prefix}mlp.experts.{i}." for i in (e, e % UNLIKE))
            tensors |= {own + name[len(other):]: tensor for name, tensor in tensors.items() if name.startswith(other)}
    return tensors


def bytes_of(name, weight, layout):
    if layout == "blocks":
        return layouts.float_tensors(name, weight, "fp8-inv", [128, 128], np.float32)[0]
    if layout == "channel":
        return layouts.float_tensors(name, weight, "fp8-packed", "channel", np.float32)[0]
    scales = np.abs(weight).max(1, keepdims=True) / 127
    return layouts.int8_tensors(name, np.rint(weight / scales) + 128, scales)


def quantisation(group):
    if group == "mxfp4":
        return {"quantization_config": miniature_experts.MXFP4}
    return {} if group in HALVES else {"quantization_config": scheme_of(group)}


def scheme_of(group):
    if group == "blocks":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    if group in BYTES:
        kind = {"num_bits": 8, "type": "int" if group == "int8" else "float", "symmetric": True}
        layer = {"targets": ["Linear"], "weights": {**kind, "strategy": "channel"},
                 "input_activations": {**kind, "strategy": "token", "dynamic": True}}
        return {"quant_method": "compressed-tensors", "format": f"{kind['type']}-quantized", "ignore": ["lm_head"],
                "config_groups": {"group_0": layer}}
    if group != 16:
        return {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": group, "zero_point": True,
                "modules_to_not_convert": [gate.replace("mlp.gate", "mlp.gate.") for gate in GATES]}
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 16, "strategy": "tensor_group"}
    ignored = ["lm_head", *(f"re:.*{gate}$" for gate in GATES)]
    return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ignored,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def make_model(folder, kind, hidden=None, **more):
    hidden = hidden or HIDDENS.get(kind, HIDDEN)
    folder.mkdir()
    shutil.copy(STORIES / "tokenizer.json", folder)
    checkpoint.write_json(str(folder / "config.json"), {
        "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": 256,
        "vocab_size": VOCAB, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": kind in TIED,
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float16", **KINDS[kind][0],
        **quantisation(KINDS[kind][1]), **more})
    tensors = tensors_of(kind, np.random.default_rng(SEEDS.get(kind, 5)), hidden)
    checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def evaluate(auk, folder, *flags, n=5 if EMULATED else 24, chunk=1):
    ids, out = folder / "ids", folder / "logits.npy"
    ids.write_text(" ".join(map(str, np.random.default_rng(3).integers(3, VOCAB, n))))
    done = subprocess.run([*auk, "eval", "-m", folder, "--ids-file", ids, "--logits-out", out, "--device", "cuda",
                           "--chunk", str(chunk), *flags], capture_output=True, text=True)
    if "no clusters" in done.stderr:
        pytest.skip("needs a GPU with clusters")
    assert done.returncode == 0, done.stderr
    return np.load(out)


@pytest.mark.parametrize("kind", KINDS)
def test_one_kernel_is_the_others(auk, tmp_path, kind):
    if EMULATED and kind in ("hybrid in groups of 32", "hybrid in groups of 64"):
        pytest.skip("groups of 128 and FP4 run what is a hybrid's own")
    if EMULATED and kind == "experts of hidden 3072":
        pytest.skip("takes an emulated GPU minutes")
    folder = make_model(tmp_path / kind, kind)
    fewer = {"n": 4} if EMULATED and kind in HIDDENS else {}
    one, others = (evaluate(auk, folder, "--decode-step", step, **fewer) for step in ("cluster", "kernels"))
    assert one.tobytes() != others.tobytes(), "one of them was not computed"
    mean, worst, same, decided = compare.report(others, one)
    print(f"{kind}: mean KL {mean:.2e}, worst {worst:.2e}, same top {same} of {decided}")
    bound = BOUND
    if kind in ROUNDED:
        bound = 2 * compare.report(evaluate(auk, folder, "--device", "cpu", **fewer), others)[0]
    assert mean <= bound and same >= 0.995 * decided
    if EMULATED and kind not in ("qwen3", "qwen2", "hybrid"):
        return  # the host's side is the same for all
    assert one.tobytes() == evaluate(auk, folder, "--decode-step", "cluster", "--no-graphs").tobytes()
    assert one.tobytes() == evaluate(auk, folder, "--decode-step", "cluster").tobytes()


@pytest.mark.parametrize("kind, seeds, n", [("qwen3", (1, 2), 8), ("experts", (1,), 1), ("gpt-oss", (1,), 2),
                                            ("glm", (1,), 2)])
def test_lanes_that_fall_behind_change_no_bit(auk, tmp_path, monkeypatch, kind, seeds, n):
    """A peer that has a block's products may go on and overwrite what lanes of that block have yet to read: with these
    seeds it did where the lanes of a warp did not read before the first of them sent (send_gated())."""
    if not EMULATED:
        pytest.skip("only the emulated GPU lets single lanes fall behind")
    folder = make_model(tmp_path / "model", kind)
    expected = evaluate(auk, folder, "--decode-step", "cluster", n=n)
    monkeypatch.setenv("EMULATED_BEHIND", "1")
    for seed in seeds:
        monkeypatch.setenv("EMULATED_SEED", str(seed))
        assert evaluate(auk, folder, "--decode-step", "cluster", n=n).tobytes() == expected.tobytes(), seed


@pytest.mark.parametrize("kind", ["experts", "hybrid with experts", "gpt-oss", "glm"])
def test_a_plan_that_is_a_constant_changes_no_bit(auk, tmp_path, monkeypatch, kind):
    """The emulator has kernels for these sizes (step_sizes.cuh); with less memory it takes others. Once a
    block has a ring of few slots."""
    if not EMULATED:
        pytest.skip("the models of the table are large")
    folder = make_model(tmp_path / "model", kind)
    n = 1 if kind in HIDDENS else 2
    expected = evaluate(auk, folder, "--decode-step", "cluster", n=n)
    for shared in (227 << 10) - 16, SMALL[kind]:
        monkeypatch.setenv("EMULATED_SHARED", str(shared))
        assert evaluate(auk, folder, "--decode-step", "cluster", n=n).tobytes() == expected.tobytes(), shared


@pytest.mark.parametrize("kind", ["hybrid", "glm"])
def test_a_prompts_states_lie_where_one_kernel_reads_them(auk, tmp_path, kind):
    """The other kernels compute four tokens at a time, then one kernel the ninth."""
    folder = make_model(tmp_path / "model", kind)
    one, others = (evaluate(auk, folder, "--decode-step", step, n=9, chunk=4)[-1:] for step in ("cluster", "kernels"))
    assert one.tobytes() != others.tobytes(), "one of them was not computed"
    assert compare.report(others, one)[0] <= BOUND


@pytest.mark.parametrize("kv", ["f16", "q8"])
def test_a_prompts_cache_lies_where_one_kernel_reads_it(auk, tmp_path, monkeypatch, kv):
    """The other kernels compute four tokens of 512 numbers at a time. A layer's keys are an odd number of 128 bytes:
    one head of 64, nine positions."""
    monkeypatch.setattr(sys.modules[__name__], "KV_HEADS", 1)
    folder = make_model(tmp_path / "odd", "heads of 64", num_key_value_heads=1)
    one, others = (evaluate(auk, folder, "--decode-step", step, "--kv", kv, n=9, chunk=4)[-1:]
                   for step in ("cluster", "kernels"))
    assert one.tobytes() != others.tobytes(), "one of them was not computed"
    assert compare.report(others, one)[0] <= (BOUND if kv == "f16" else 1e-3)


@pytest.mark.parametrize("kind, chunk", [("qwen3", 1), ("heads of 64", 1), ("qwen3", 4), ("heads of 64", 8)])
def test_a_cache_of_8_bits_in_one_kernel_is_the_others(auk, tmp_path, kind, chunk):
    """test_a_cache_of_8_bits_equals_the_cpus() of test_model.py says why half of what 8 bits cost is the bound."""
    if EMULATED and (kind, chunk) != ("qwen3", 1):
        pytest.skip("test_step.cu and test_step_rows.cu run these kernels on the emulated GPU")
    folder = make_model(tmp_path / "q8", kind, hidden=None if chunk == 1 else WIDE)
    n = 8 if EMULATED else 150
    one, others, again = (evaluate(auk, folder, "--decode-step", step, "--kv", "q8", n=n, chunk=chunk)
                          for step in ("cluster", "kernels", "cluster"))
    assert one.tobytes() != others.tobytes(), "one of them was not computed"
    mean, worst, same, decided = compare.report(others, one)
    cost = compare.report(evaluate(auk, folder, "--decode-step", "cluster", n=n, chunk=chunk), one)[0]
    print(f"{kind}, {chunk} rows: mean KL {mean:.2e} of {cost:.2e}, worst {worst:.2e}, same top {same} of {decided}")
    assert 0 < mean <= cost / 2 <= 5e-3 and same >= 0.99 * decided
    assert one.tobytes() == again.tobytes()


@pytest.mark.parametrize("kind, chunk", [("qwen3", 2), ("qwen3", 3), ("qwen3", 4), ("qwen3", 6), ("qwen3", 8),
                                         ("qwen3 in groups of 32", 4), ("qwen3 in FP4", 2), ("qwen3 in FP4", 4),
                                         ("qwen3 in FP4", 7), ("heads of 64", 8)])
def test_several_rows_are_the_others(auk, tmp_path, kind, chunk):
    """The last step has fewer tokens."""
    if EMULATED and kind != "qwen3":
        pytest.skip("test_step_rows.cu runs these kernels on the emulated GPU")
    n = 2 * chunk - 1 if EMULATED else 23
    folder = make_model(tmp_path / "wide", kind, hidden=WIDE)
    one, others, again = (evaluate(auk, folder, "--decode-step", step, n=n, chunk=chunk)
                          for step in ("cluster", "kernels", "cluster"))
    assert one.tobytes() != others.tobytes(), "one of them was not computed"
    mean, worst, same, decided = compare.report(others, one)
    print(f"{kind}, {chunk} rows: mean KL {mean:.2e}, worst {worst:.2e}, same top {same} of {decided}")
    assert mean <= BOUND and same >= 0.995 * decided
    assert one.tobytes() == again.tobytes()


@pytest.mark.parametrize("flags", [[], ["--kv", "f32"], ["--act", "int8"], ["--kernel", "awq_plain"]])
def test_auto_is_one_of_them(auk, tmp_path, flags):
    """One kernel where it was measured to lead, and without a word the others where it is not for what is asked."""
    folder = make_model(tmp_path / "qwen3", "qwen3")
    others, auto = (evaluate(auk, folder, *more, *flags, n=4).tobytes() for more in (["--decode-step", "kernels"], []))
    if flags:
        assert auto == others
    else:
        one = evaluate(auk, folder, "--decode-step", "cluster", n=4).tobytes()
        assert auto in ([one] if EMULATED else [one, others])


@pytest.mark.parametrize("kind, tiny, said", [("qwen3 in FP4", slice(None), "lm_head"),
                                              ("qwen3 in groups of 32", slice(7, 8), "lm_head"),
                                              ("qwen3 in bf16", slice(None), "model.layers.1.mlp.down_proj")])
def test_a_matrix_that_fp16_does_not_hold(auk, tmp_path, kind, tiny, said):
    """The whole of it, or the row of one token, which is its embedding, too: numbers below 2^-24."""
    folder = make_model(tmp_path / "tiny", kind)
    tensors = dict(checkpoint.read_safetensors(folder / "model.safetensors"))
    name = (f"{said}.weight" if said != "lm_head" else
            "model.embed_tokens.weight" if kind in TIED else "lm_head.weight")
    weight = checkpoint.to_f32(tensors[name]).copy()
    weight[tiny] *= 2.0**-30
    checkpoint.write_safetensors(str(folder / "model.safetensors"), {**tensors, name: checkpoint.to_bf16(weight)})
    others, auto = (evaluate(auk, folder, *flags, n=4).tobytes() for flags in (["--decode-step", "kernels"], []))
    assert auto == others
    done = subprocess.run([*auk, "eval", "--ids-file", "-", "--device", "cuda", "--decode-step", "cluster", "-m",
                           folder], input="1 2 3", capture_output=True, text=True)
    if "no clusters" in done.stderr:
        pytest.skip("needs a GPU with clusters")
    assert done.returncode == 3 and f"{said} has numbers that fp16 does not hold" in done.stderr, done.stderr


def map_tokens(auk, folder, step, kv, n, parallel, records):
    """The tokens of each record's greedy answer: {"id", "token", "logprob"}."""
    done = subprocess.run([*auk, "-m", folder, "--raw", "--device", "cuda", "--decode-step", step, "--kv", kv, "-n",
                           str(n), "--temp", "0", "--ignore-eos", "--logprobs", "2", "--map", "-", "--json",
                           "--parallel", str(parallel)], input="\n".join(records), capture_output=True, text=True)
    if "no clusters" in done.stderr:
        pytest.skip("needs a GPU with clusters")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["logprobs"] for line in done.stdout.splitlines()]


def logprobs_of(tokens):
    return [token["logprob"] for token in tokens]


def seconds_of(tokens):
    """The second tokens' log-probabilities: where the first has all of the probability, these still have digits."""
    return [token["top"][1]["logprob"] for token in tokens]


@pytest.mark.parametrize("kind, kv", [*((kind, "f16") for kind in KINDS if not kind.startswith("experts of")),
                                      ("qwen3", "q8"), ("heads of 64", "q8"), ("experts", "q8")])
def test_the_last_sequence_of_a_batch_takes_one_kernel(auk, tmp_path, kind, kv):
    """The first record's prompt leaves it a few tokens of context; then the second, in another place, is alone. In a
    few tokens fp16 may decide between two experts that are nearly equal."""
    if EMULATED and (kind, kv) != ("hybrid", "f16"):
        pytest.skip("test_step.cu runs these kernels with pages on the emulated GPU")
    folder = make_model(tmp_path / "batch", kind, max_position_embeddings=18 if EMULATED else 256)
    long, n = ("there was a big dog. " * 2, 8) if EMULATED else ("there was a big dog. " * 34, 40)

    together, others = ([logprobs_of(tokens) for tokens in map_tokens(auk, folder, step, kv, n, 2, [long, "Once"])]
                        for step in ("cluster", "kernels"))
    assert 0 < len(together[0]) < n - 3 and len(together[1]) == n, "the first record does not end before the second"
    first = next((i for i in range(n) if together[1][i] != others[1][i]), n)
    print(f"{kind}, {kv}: alone from token {first} on, beside {len(together[0])} of the first record")
    assert 0 < first < n, "one of them was not computed, or more than that"
    apart = np.abs(np.subtract(together[1], others[1]))
    assert np.quantile(apart[first:], 0.75 if "experts" in kind else 1) < NEAR


@pytest.mark.parametrize("kind, kv", [("qwen3", "f16"), ("qwen3", "q8"), ("qwen2", "f16"), ("qwen3 in FP4", "f16"),
                                      ("qwen3 in groups of 32", "f16"), ("heads of 64", "f16"), ("heads of 64", "q8")])
@pytest.mark.parametrize("parallel", [2, 3, 5])
def test_several_sequences_take_one_kernel(auk, tmp_path, kind, kv, parallel):
    """Six records of different lengths: the last ones begin while others are answered."""
    if EMULATED and (kind, kv, parallel) != ("qwen3", "f16", 3):
        pytest.skip("test_step_rows.cu runs these kernels on the emulated GPU")
    folder = make_model(tmp_path / "several", kind, hidden=WIDE)
    n = 3 if EMULATED else 40
    records = [("there was a big dog. " * (1 + 5 * i))[:12 if EMULATED else None] for i in range(3 if EMULATED else 6)]
    together, others = (map_tokens(auk, folder, step, kv, n, parallel, records) for step in ("cluster", "kernels"))
    again = together if EMULATED else map_tokens(auk, folder, "cluster", kv, n, parallel, records)
    assert together == again and [len(tokens) for tokens in together] == [n] * len(records)
    worst, n_same, n_other_bits = 0, 0, 0
    for ours, theirs in zip(together, others):  # as far as both chose the same tokens, and the first other one
        same = next((i for i in range(n) if ours[i]["id"] != theirs[i]["id"]), n)
        apart = np.subtract(logprobs_of(ours), logprobs_of(theirs))[:same + 1]
        seconds = np.subtract(seconds_of(ours), seconds_of(theirs))[:same]
        worst, n_same = max(worst, np.abs(apart).max()), n_same + same
        n_other_bits += (seconds != 0).sum()
    print(f"{kind}, {kv}, {parallel} at once: log-probabilities at most {worst:.2e} apart, {n_same} tokens the same")
    assert worst < NEAR and n_same > n, "they differ where no tokens are nearly equal"
    assert n_other_bits > 0, "one of them was not computed"  # they are printed in few digits: many are equal


def test_answers_sample_behind_it(auk, tmp_path):
    folder = make_model(tmp_path / "qwen3", "qwen3")
    flags = ["-p", "Once upon a time", "-n", "10", "--device", "cuda", "--temp", "0.8", "-s", "4", "--ignore-eos"]

    def answer(*more):
        done = subprocess.run([*auk, "-m", folder, *flags, *more], stdin=subprocess.DEVNULL, capture_output=True)
        if b"no clusters" in done.stderr:
            pytest.skip("needs a GPU with clusters")
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = answer("--decode-step", "cluster")
    assert text and text == answer("--decode-step", "cluster", "--no-graphs")


@pytest.mark.parametrize("flags", [["--temp", "0"], ["--temp", "0.8", "--top-k", "20"], ["--temp", "0.8"]])
def test_the_best_logits_give_the_tokens_of_all_logits(auk, tmp_path, flags):
    """With log-probabilities all logits are made in each step, else only the best ones where these are enough."""
    folder = make_model(tmp_path / "qwen3", "qwen3")
    call = [*auk, "-m", folder, "-p", "Once upon a time", "-n", "10", "--device", "cuda", "-s", "4", "--ignore-eos",
            "--decode-step", "cluster", "--json", *flags]
    texts = []
    for more in [], ["--logprobs", "1"]:
        done = subprocess.run([*call, *more], stdin=subprocess.DEVNULL, capture_output=True)
        if b"no clusters" in done.stderr:
            pytest.skip("needs a GPU with clusters")
        assert done.returncode == 0, done.stderr
        texts.append(json.loads(done.stdout)["text"])
    assert texts[0] and texts[0] == texts[1]


@pytest.mark.parametrize("flags, said", [
    (["-m", STORIES], "not for heads of another size"),
    (["-m", None, "--kv", "f32"], "fp16"),
    (["-m", None, "--act", "int8"], "int8"),
    (["-m", None, "--kernel", "awq_plain"], "--kernel"),
])
def test_what_it_is_not_for_is_refused(auk, tmp_path, flags, said):
    model = flags[1] or make_model(tmp_path / "qwen3", "qwen3")
    done = subprocess.run([*auk, "eval", "--ids-file", "-", "--device", "cuda", "--decode-step", "cluster", "-m", model,
                           *flags[2:]], input="1 2 3", capture_output=True, text=True)
    if "no clusters" in done.stderr:
        pytest.skip("needs a GPU with clusters")
    assert done.returncode in (2, 3) and said in done.stderr, done.stderr
