"""Latent attention on the CPU, in sizes and types of cache that no reference has."""
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
import compare  # noqa: E402

YOUTU = ROOT / "test" / "data" / "miniatures" / "youtu-f16"


@pytest.fixture
def logits(auk, tmp_path):
    """logits(model, *flags): of 40 tokens."""
    (tmp_path / "ids").write_text(" ".join(str(7 * i * i % 97) for i in range(40)))

    def of(model, *flags):
        out = tmp_path / "logits.npy"
        subprocess.run([*auk, "eval", "-m", model, "--ids-file", tmp_path / "ids", "--logits-out", out, "--device",
                        "cpu", *flags], check=True, stdout=subprocess.DEVNULL)
        return np.load(out)

    return of


def test_a_latent_of_queries_may_be_wider_than_the_residual_stream(latent_checkpoint, logits):
    """Its product has more parts of inputs than any other."""
    model = latent_checkpoint(group=32, num_attention_heads=64, kv_lora_rank=32, qk_rope_head_dim=8,
                              qk_nope_head_dim=512, v_head_dim=32, q_lora_rank=2048, hidden_size=32,
                              intermediate_size=32)
    one_by_one = logits(model, "--chunk", "1")
    assert np.isfinite(one_by_one).all() and np.array_equal(one_by_one, logits(model))


def test_large_keys_of_the_rope_do_not_cost_values_in_8_bits(tmp_path, logits):
    """Keys with a rope 16 times as large and their queries 16 times as small give the same scores. A value's scale is
    that of a whole row, in which the key would be the largest."""
    tensors = {name: array.copy() for name, array in checkpoint.read_checkpoint(YOUTU).items()}
    config = checkpoint.read_json(YOUTU / "config.json")
    rank, rope, nope = (config[key] for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    for name, array in tensors.items():
        if name.endswith("kv_a_proj_with_mqa.weight"):
            array[rank:] *= 16
        if name.endswith("q_b_proj.weight"):
            array.reshape(config["num_attention_heads"], nope + rope, -1)[:, nope:] /= 16
    shutil.copy(YOUTU / "tokenizer.json", tmp_path)
    checkpoint.write_json(str(tmp_path / "config.json"), config)
    checkpoint.write_safetensors(str(tmp_path / "model.safetensors"), tensors)
    exact = logits(YOUTU, "--kv", "f32")
    usual, scaled = (compare.kl(exact, logits(model, "--kv", "q8")).mean() for model in (YOUTU, tmp_path))
    print(f"mean KL {usual:.1e}, with large keys {scaled:.1e}")
    assert scaled <= 2 * usual
