"""scripts/checkpoint.py and gguf_file.py: layouts against their definitions written out, the search
against trying all."""
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)
from gguf_file import Gguf  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_awq_words_hold_columns_in_autoawq_order(rng):
    q = rng.integers(0, 16, (3, 24)).astype(np.uint8)
    words = checkpoint.awq_pack(q).view(np.uint32)
    for row in range(3):
        for word in range(3):
            columns = [int(words[row, word]) >> 4 * k & 15 for k in range(8)]
            assert columns == [q[row, 8 * word + column] for column in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert np.array_equal(checkpoint.awq_unpack(checkpoint.awq_pack(q)), q)


def quantise_and_back(weight, group):
    q, zeros, scales = checkpoint.awq_quantise(weight, group)
    return checkpoint.awq_dequantise(checkpoint.awq_pack(q), checkpoint.awq_pack(zeros), scales)


@pytest.mark.parametrize("group", [16, 32, -1])
def test_weights_on_a_grid_come_back_exactly(rng, group):
    """Groups that are (q - z) s for a zero in 0..15 and an fp16 scale, spanning all levels, have an error
    of nothing."""
    n_out, n_in = 8, 64
    groups = n_out * n_in // (n_in if group == -1 else group)
    q = rng.integers(0, 16, (groups, n_out * n_in // groups))
    q[:, :2] = [0, 15]
    scales = rng.uniform(0.001, 1, (groups, 1)).astype(np.float16).astype(np.float32)
    weight = ((q - rng.integers(0, 16, (groups, 1))) * scales).astype(np.float32).reshape(n_out, n_in)
    assert np.array_equal(quantise_and_back(weight, group), weight)


def test_search_is_within_a_percent_of_trying_everything(rng):
    """Every zero with 400 scales each, 0.2 % apart, on 64 groups of 32."""
    groups = (rng.standard_normal((64, 32)) + rng.standard_normal((64, 1))).astype(np.float32)
    best = np.full(64, np.inf)
    for zero in range(16):
        for scale in np.geomspace(0.05, 0.9, 400):
            q = np.clip(np.rint(groups / scale) + zero, 0, 15)
            best = np.minimum(best, (((q - zero) * scale - groups) ** 2).sum(axis=1))
    found = ((quantise_and_back(groups, 32) - groups) ** 2).sum()
    assert found <= 1.01 * best.sum()


def test_importance_makes_the_error_of_the_output_less(rng):
    """Inputs of mean squares over three orders of magnitude: the layer's error shrinks, the weights' may grow."""
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    importance = rng.permutation(np.geomspace(0.03, 30, 64)).astype(np.float32)
    errors = []
    for given in (None, importance):
        q, zeros, scales = checkpoint.awq_quantise(weight, 32, given)
        found = checkpoint.awq_dequantise(checkpoint.awq_pack(q), checkpoint.awq_pack(zeros), scales)
        errors.append(((found - weight) ** 2 * importance).sum())
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-30])
def test_constant_groups_have_a_scale(value):
    weight = np.full((8, 32), value, np.float32)
    assert (checkpoint.awq_quantise(weight, 32)[2] > 0).all()
    assert np.abs(quantise_and_back(weight, 32) - weight).max() <= abs(value) / 1000 or abs(value) < 2**-24


def test_safetensors_come_back(rng, tmp_path):
    tensors = {"a": rng.standard_normal((2, 3)).astype(np.float32), "b": rng.standard_normal(5).astype(np.float16),
               "c": checkpoint.to_bf16(np.float32([1, 1 + 2**-8, 1 + 3 * 2**-8])), "d": np.int32([[7]])}
    checkpoint.write_safetensors(str(tmp_path / "model.safetensors"), tensors)
    back = checkpoint.read_checkpoint(str(tmp_path))
    for name, array in tensors.items():
        assert np.array_equal(np.asarray(back[name]), np.asarray(array)) and back[name].shape == array.shape
    assert checkpoint.to_f32(back["c"]).tolist() == [1, 1, 1 + 2**-6]  # ties to even


def test_gguf_blocks_mean_what_ggml_says(tmp_path):
    """One block of each kind, with the file written out here by hand."""
    q4, q8 = bytes(range(16, 32)), bytes(range(32))
    data = struct.pack("<ee", 0.5, -2.0) + q4 + bytes(12) + struct.pack("<e", 0.25) + q8
    string = lambda text: struct.pack("<Q", len(text)) + text  # noqa: E731
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
    head += string(b"words") + struct.pack("<IIQ", 9, 8, 2) + string(b"a") + string("ä".encode())
    head += string(b"general.alignment") + struct.pack("<II", 4, 32)
    head += string(b"four") + struct.pack("<IQIQ", 1, 32, 3, 0)
    head += string(b"eight") + struct.pack("<IQQIQ", 2, 16, 2, 8, 32)
    (tmp_path / "f").write_bytes(head + bytes(-len(head) % 32) + data)
    gguf = Gguf(str(tmp_path / "f"))
    assert gguf.metadata["words"] == ["a", "ä"]
    low, high = [b & 15 for b in q4], [b >> 4 for b in q4]
    assert gguf.tensor("four").tolist() == [0.5 * q - 2 for q in low + high]
    assert gguf.tensor("eight").tolist() == [[0.25 * q for q in range(16)], [0.25 * q for q in range(16, 32)]]


def test_the_tiny_model_is_what_its_script_makes(shared, tmp_path):
    source = shared / "models"
    subprocess.run([sys.executable, ROOT / "scripts" / "make_stories.py", source / "stories260K.bin",
                    source / "stories260K-tokenizer.bin", tmp_path], check=True)
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == 8
    for path in made:
        assert path.read_bytes() == (ROOT / "test" / "data" / path.relative_to(tmp_path)).read_bytes(), path.name
