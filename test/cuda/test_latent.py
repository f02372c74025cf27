"""Latent attention on GPUs, in sizes that no miniature has: its logits are near the CPU's."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compare  # noqa: E402  (from scripts/)

BOUND = 2e-5  # mean KL, as in test_model.py


@pytest.fixture
def distance(auk, tmp_path):
    """distance(model, n, *flags): the mean KL from the CPU's logits of n tokens to the GPU's."""

    def measure(model, n, *flags):
        (tmp_path / "ids").write_text(" ".join(str(7 * i * i % 97) for i in range(n)))
        logits = []
        for device in ("cpu", "cuda"):
            out = tmp_path / f"{device}.npy"
            subprocess.run([*auk, "eval", "-m", model, "--ids-file", tmp_path / "ids", "--logits-out", out, "--device",
                            device, *flags], check=True, stdout=subprocess.DEVNULL)
            logits.append(np.load(out))
        return compare.kl(*logits).mean()

    return measure


@pytest.mark.parametrize("rank, heads", [(512, 3), (512, 66), (256, 3)])
def test_rows_of_published_sizes(latent_checkpoint, distance, rank, heads):
    """wgmma takes rows of 512 + 64 and 256 + 64 numbers, 64 query heads of a token in a tile; no miniature has them."""
    model = latent_checkpoint(group=64, num_attention_heads=heads, kv_lora_rank=rank, qk_rope_head_dim=64,
                              qk_nope_head_dim=64, v_head_dim=64, q_lora_rank=None, hidden_size=64,
                              intermediate_size=64)
    for flags in [[], ["--chunk", "1"], ["--chunk", "7"]]:
        found = distance(model, 70 if heads < 64 else 20, *flags)
        print(f"mean KL {found:.1e}")
        assert found <= BOUND


def test_the_most_heads(latent_checkpoint, distance):
    model = latent_checkpoint(group=32, num_attention_heads=1024, kv_lora_rank=32, qk_rope_head_dim=8,
                              qk_nope_head_dim=16, v_head_dim=16, q_lora_rank=None)
    found = distance(model, 12)
    print(f"mean KL {found:.1e}")
    assert found <= BOUND


def test_records_beside_each_other(auk, latent_checkpoint, tmp_path):
    """Single rows and tiles of several sequences in one step give the texts of each alone, but for a near tie."""
    model = latent_checkpoint(group=64, num_attention_heads=3, kv_lora_rank=512, qk_rope_head_dim=64,
                              qk_nope_head_dim=64, v_head_dim=64, q_lora_rank=None, hidden_size=64,
                              intermediate_size=64)
    (tmp_path / "lines").write_text("".join(f"{'ab c' * (i % 4 * 9 + 1)}{i}\n" for i in range(6)))
    command = [*auk, "-m", model, "--map", tmp_path / "lines", "-p", "{}", "-n", "6", "--raw", "--temp", "0",
               "--device", "cuda", "--no-invariant", "--parallel"]
    texts = [subprocess.run([*command, n], check=True, capture_output=True).stdout for n in "14"]
    alone, beside = (text.split(b"\n") for text in texts)
    assert len(alone) == len(beside) >= 6
    assert sum(a != b for a, b in zip(alone, beside)) <= 1


@pytest.mark.parametrize("n", [8, 12, 40])
def test_layers_in_groups_of_128(latent_checkpoint, distance, n):
    """Layers of other models take five kernels for 2 to 32 rows, which know nothing of latents."""
    model = latent_checkpoint(group=128, num_attention_heads=2, kv_lora_rank=128, qk_rope_head_dim=64,
                              qk_nope_head_dim=64, v_head_dim=128, q_lora_rank=128, hidden_size=256,
                              intermediate_size=256)
    found = distance(model, n)
    print(f"mean KL {found:.1e}")
    assert found <= BOUND
