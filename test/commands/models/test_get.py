"""`auk get`: Hugging Face's tool is run with the right words, and what it fetched is looked at."""
import os

import pytest

USAGE, MODEL = 2, 3
COMMIT = "0123456789" * 4


@pytest.fixture
def get(run, tmp_path):
    """get(name, script, program): `auk get NAME` where the tool is this shell script; None: it is not installed."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def call(name, script, program="hf"):
        for old in programs.iterdir():
            old.unlink()
        if script is not None:
            (programs / program).write_text("#!/bin/sh\n" + script)
            (programs / program).chmod(0o755)
        return run("get", name, env={**os.environ, "PATH": str(programs), "HF_HUB_CACHE": str(tmp_path / "hub"),
                                     "HOME": str(tmp_path)})

    return call


def fetch(stories, hub, name="stories"):
    """A script that puts the tiny model into the cache, as the tool would."""
    folder = hub / f"models--a--{name}"
    return (f"PATH=/bin:/usr/bin; mkdir -p {folder}/refs {folder}/snapshots; printf {COMMIT} > {folder}/refs/main; "
            f'cp -r {stories} {folder}/snapshots/{COMMIT}; echo "got $*"\n')


@pytest.mark.parametrize("program", ["hf", "huggingface-cli"])
def test_a_model_is_fetched_and_looked_at(get, stories, tmp_path, program):
    process = get("a/stories", fetch(stories, tmp_path / "hub"), program)
    assert process.stdout == b"got download a/stories\n"
    assert (process.returncode, process.stderr) == (0, b"auk: auk -m a/stories runs it\n")


def test_a_model_that_will_not_run(get, stories, tmp_path):
    config = f"{tmp_path}/hub/models--a--stories/snapshots/{COMMIT}/config.json"
    process = get("a/stories", fetch(stories, tmp_path / "hub") + f'echo \'{{"model_type": "x"}}\' > {config}\n')
    assert process.returncode == MODEL and b"config.json" in process.stderr


def test_a_revision(get):
    process = get("a/b@v1", 'echo "$*"; exit 1\n')
    assert process.stdout == b"download a/b --revision v1\n"
    assert (process.returncode, process.stderr) == (1, b"auk: hf download a/b failed (exit status 1)\n")


def test_without_the_tool(get):
    process = get("a/b", None)
    assert process.returncode == 1 and process.stdout == b""
    assert process.stderr.decode() == ("auk: Hugging Face's tool hf is not installed: pip install huggingface_hub, "
                                       "then auk get a/b (or hf download a/b)\n")


@pytest.mark.parametrize("name", ["", "-x", "--local-dir", "a b", "a/b/c", "/a", "a/", "a/b@", "a/b@-x", "../x", "a;b",
                                  "x" * 600, "\xe9"])
def test_what_is_no_name(get, name):
    process = get(name, "echo reached\n")
    assert process.returncode == USAGE and b"reached" not in process.stdout


def test_a_name_is_needed(run):
    process = run("get")
    assert (process.returncode, process.stderr) == (USAGE, b"auk: which model? auk get Qwen/Qwen3-8B-AWQ\n")
