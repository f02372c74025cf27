"""The prefix cache of a GPU: keys and values leave its memory and come back to the same places.

Prefilled in other chunks, the same tokens round otherwise on a GPU, so that a hit need not give a miss's bits. Two hits
give the same ones, and a greedy answer begins as the miss's does: a head, layer or position in a wrong place would show
in its first word. Needs a GPU: skipped by name where `auk` finds none.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

STORIES = pathlib.Path(__file__).resolve().parents[2] / "test" / "data" / "stories260K-awq"
MINIATURES = pathlib.Path(__file__).resolve().parents[2] / "test" / "data" / "miniatures"
FEW = os.environ.get("AUK_TEST_SIZE") == "few"  # an emulated GPU
STORY = ("One day, a little girl named Lily went to the park with her mom. They saw a big red ball. "
         "The ball was very pretty. Lily wanted to play with it. ") * 6


@pytest.fixture
def ask(auk, tmp_path):
    def ask_it(prompt, *flags, model=STORIES):
        done = subprocess.run([*auk, "-m", model, "--raw", "-p", prompt, "-n", "6", "--temp", "0", "-v", "--device",
                               "cuda", "--cache-dir", tmp_path / "cache", *flags], capture_output=True)
        assert done.returncode == 0, done.stderr
        hit = re.search(rb"cache: (\d+) of \d+ tokens in", done.stderr)
        return done.stdout, int(hit[1]) if hit else 0

    return ask_it


@pytest.mark.parametrize("kv", ["q8"] if FEW else ["f16", "f32", "q8"])
def test_a_hit_goes_on_as_the_miss_did(ask, kv):
    miss, n_miss = ask(STORY, "--kv", kv)
    hit, n_hit = ask(STORY, "--kv", kv)
    again, _ = ask(STORY, "--kv", kv)
    assert n_miss == 0 and n_hit >= 256
    assert hit == again
    assert hit[:8] == miss[:8]
    if FEW:
        return
    other = STORY + "Then Tom came and said:"
    alone, n_alone = ask(other, "--kv", kv, "--no-cache")
    shared, n_shared = ask(other, "--kv", kv)
    assert n_alone == 0 and n_shared >= 256
    assert shared[:8] == alone[:8]


@pytest.mark.parametrize("name", ["qwen3_5-awq", "granite4-h-awq", "falcon-h1-bf16", "lfm2-awq", "qwen4-exp-bf16"])
def test_a_state_comes_back_as_it_was(ask, tmp_path, name):
    """The last prompt with all but its end known gives the bits of the prompt whose state it goes on from: both compute
    the same last tokens after the same keys, values and state."""
    model = tmp_path / name
    shutil.copytree(MINIATURES / name, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    text = "One day, a little girl named Lily. " * 9  # letter by letter
    miss, n_miss = ask(text, model=model)
    hit, n_hit = ask(text, model=model)
    assert n_miss == 0 and n_hit >= 256
    assert hit == miss
