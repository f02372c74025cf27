"""Qwen3.8-Flash-Next: tables of n-grams however they are stored, and what is wrong with them by name."""
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import checkpoint  # noqa: E402  (from scripts/)

MINIATURE = ROOT / "test" / "data" / "miniatures" / "qwen4-exp-bf16"
TABLE = "model.layers.0.ple.ple_embedding.ngram_embedding"
IDS = [98 if i % 9 == 4 else i * 7 % 104 for i in range(60)]  # 98 ends a text


@pytest.fixture
def changed(changed_checkpoint):
    return lambda *change, **members: changed_checkpoint(MINIATURE, *change, **members)


@pytest.fixture
def logits(logits_of):
    return lambda model, *flags: logits_of(model, IDS, *flags)


def parts(tensors):
    return [checkpoint.to_f32(tensors[f"{TABLE}.shard_{i}.weight"]) for i in range(4)]


def others(tensors):
    return {name: array for name, array in tensors.items() if not name.startswith(TABLE)}


def whole(tensors):
    return {**others(tensors), TABLE + ".weight": np.concatenate(parts(tensors))}


def test_a_table_may_be_whole_or_in_parts(changed, logits):
    expected = logits(MINIATURE)
    assert np.array_equal(logits(changed(whole)), expected)

    def in_eight(tensors):
        halves = [half for part in parts(tensors) for half in np.split(part, 2)]
        return {**others(tensors), **{f"{TABLE}.shard_{i}.weight": half for i, half in enumerate(halves)}}

    assert np.array_equal(logits(changed(in_eight, "eight")), expected)


# A scale for the table, one for each part, or one for each row of a part, as Qwen, others and compressed-tensors
# store them. The codes are exact in fp32, so that the same numbers in fp32 give the same bits.
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), "rows"], ids=str)
@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_codes_of_8_bits_are_their_numbers(changed, logits, kind, shape):
    def codes(part):
        return (checkpoint.to_e4m3(part * 64) if kind == "fp8" else np.rint(part * 40).clip(-127, 127).astype(np.int8))

    def scale(index):
        rows = np.float32(2.0) ** (np.arange(60) % 5 - 6).astype(np.float32)
        if shape == "rows":
            return rows.reshape(-1, 1)
        return np.full(shape, 2.0**-5 if shape == () else 2.0**(-4 - index), np.float32)

    def stored(tensors, exact):
        out = others(tensors)
        for i, part in enumerate(parts(tensors)):
            of_part = scale(i)[:len(part)] if shape == "rows" else scale(i)
            numbers = codes(part)
            out[f"{TABLE}.shard_{i}.weight"] = (
                (checkpoint.to_f32(numbers) * of_part.reshape(-1, 1)).astype(np.float32) if exact else numbers)
            if not exact and shape != ():
                out[f"{TABLE}.shard_{i}.weight_scale"] = of_part
        if not exact and shape == ():
            out[TABLE + ".weight_scale"] = scale(0)
        return out

    exact = logits(changed(lambda tensors: stored(tensors, True), "exact"))
    assert np.array_equal(logits(changed(lambda tensors: stored(tensors, False))), exact)


def test_a_text_is_the_same_in_any_steps(logits):
    """Chunks that end within an n-gram, within a block of positions, and at both."""
    expected = logits(MINIATURE, "--kv", "f32")
    for chunk in (1, 2, 3, 4, 7, 8, 31):
        assert np.array_equal(logits(MINIATURE, "--kv", "f32", "--chunk", str(chunk)), expected)


def dropped(*names):
    return lambda tensors: {name: array for name, array in tensors.items() if name not in names}


def with_part(index, array):
    return lambda tensors: {**tensors, f"{TABLE}.shard_{index}.weight": array(tensors[f"{TABLE}.shard_{index}.weight"])}


BAD = {
    "no table": (lambda tensors: others(tensors), {}, f"tensor {TABLE}.weight is missing"),
    "one part is missing": (dropped(f"{TABLE}.shard_3.weight"), {}, f"shard_0.weight is [42, 6], expected [56, 6]"),
    "two parts are missing": (dropped(f"{TABLE}.shard_2.weight", f"{TABLE}.shard_3.weight"), {},
                              f"tensor {TABLE}.shard_0.weight is [42, 6], expected [84, 6]"),
    "parts differ in type": (with_part(2, lambda part: checkpoint.to_f32(part)), {}, "shard_2 is F32, expected BF16"),
    "codes without a scale": (with_part(0, lambda part: checkpoint.to_e4m3(checkpoint.to_f32(part))), {},
                              "shard_0.weight_scale is missing: the table has codes of 8 bits"),
    "a type that is unknown": (with_part(0, lambda part: np.zeros(part.shape, np.uint8)), {}, "shard_0.weight is U8"),
    "other hashes": (lambda tensors: {**tensors, TABLE.replace("ngram_embedding", "layer_multipliers"):
                                      np.array([1, 3, 5], np.int64)}, {},
                     "layer_multipliers holds other numbers than those that"),
    "another number of hashes": (lambda tensors: {**tensors, TABLE.replace("ngram_embedding", "ngram_heads_offsets"):
                                                  np.array([0, 1], np.int64)}, {},
                                 "ngram_heads_offsets is [2], expected [4]"),
    "no mix": (dropped("hyper_connection_mixer.input_mix_weight_up.weight",
                       "model.hyper_connection_mixer.input_mix_weight_up.weight"), {},
               "hyper_connection_mixer.input_mix_weight_up.weight is missing"),
    "no index": (dropped("model.layers.1.self_attn.indexer.index_qk_proj.weight"), {},
                 "indexer.index_qk_proj.weight is missing"),
    "other sizes": (None, {"hc_lowrank": 5}, "input_mix_weight_down.weight is [4, 48], expected [5, 48]"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(run, changed, name):
    tensors, config, message = BAD[name]
    done = run("inspect", changed(tensors, **config))
    assert done.returncode == 3 and message in done.stderr.decode(), done.stderr


@pytest.mark.parametrize("name", ["model.layers.3.self_attn.indexer.index_qk_proj.weight",
                                  "model.layers.0.ple.key_proj.weight"])
def test_what_is_no_number_shows_in_the_logits(run, changed, tmp_path, name):
    """Scores of blocks, and gates of n-grams, do not hide it."""
    broken = changed(lambda tensors: {**tensors, name: np.full_like(tensors[name], 0x7fc0)})  # NaN in bf16
    (tmp_path / "ids").write_text(" ".join(map(str, IDS)))
    done = run("eval", "-m", broken, "--ids-file", tmp_path / "ids", "--device", "cpu")
    assert done.returncode == 1 and b"hold a NaN or an infinity" in done.stderr
