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


def test_more_rows_than_are_multiplied_at_once(latent_checkpoint, distance):
    """Heads are multiplied for 32768 rows of them at a time, and the last time for fewer."""
    model = latent_checkpoint(group=32, num_attention_heads=1024, kv_lora_rank=32, qk_rope_head_dim=8,
                              qk_nope_head_dim=16, v_head_dim=16, q_lora_rank=None)
    found = distance(model, 40)
    print(f"mean KL {found:.1e}")
    assert found <= BOUND


@pytest.mark.parametrize("n", [8, 12, 40])
def test_layers_in_groups_of_128(latent_checkpoint, distance, n):
    """Layers of other models take five kernels for 9 to 32 rows, which know nothing of latents."""
    model = latent_checkpoint(group=128, num_attention_heads=2, kv_lora_rank=128, qk_rope_head_dim=64,
                              qk_nope_head_dim=64, v_head_dim=128, q_lora_rank=128, hidden_size=256,
                              intermediate_size=256)
    found = distance(model, n)
    print(f"mean KL {found:.1e}")
    assert found <= BOUND
