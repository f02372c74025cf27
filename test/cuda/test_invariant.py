"""`--invariant` on a GPU: an answer's bytes depend on its prompt and its flags alone. They are the same from a call by
itself and from a process that keeps the model and computes other answers in the same steps, and calls that are killed
change those of no other.

AUK_KEEP_CALLS=200 makes so many calls (default 40), AUK_KEEP_SEED=N draws other moments."""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
STORIES = DATA / "stories260K-awq"
EMULATED = os.environ.get("AUK_TEST_SIZE") == "few"
N_CALLS = 6 if EMULATED else int(os.environ.get("AUK_KEEP_CALLS", "40"))
AT_ONCE = 4 if EMULATED else 20
SEED = int(os.environ.get("AUK_KEEP_SEED", "20261123"))
# Figures of a run: times, and keys that were known.
TIMES = re.compile(rb'"((\w+_ms)|(\w+_per_second)|(reused_tokens))": [0-9.]+')
FEW = ["-n", "5" if EMULATED else "40"]
CALLS = [
    ["-p", "Once upon a time", "--temp", "0", "-s", "1", "--json", "--logprobs", "2", "--ids", *FEW],
    ["-p", "The dog", "--choose", "ran,was big,sat", "--json"],
    ["-p", "The cat", "--temp", "1", "-s", "3", "--repeat-penalty", "1.2", *FEW],
    ["-p", "When?", "--regex", "[0-9]{4}-[01][0-9]", "-s", "4", "--temp", "1"],
    ["-p", "One", "-p", "Two dogs and a cat", "--temp", "0", *FEW],
    ["-p", "Lily " * 90, "--temp", "0", *FEW],  # longer than the 64 tokens of a page
]
KINDS = CALLS[:2] if EMULATED else CALLS


@pytest.fixture
def call(auk):
    """call(*arguments): a process with --invariant on the GPU, with a runtime directory of its own."""
    folder = tempfile.mkdtemp(prefix="auk")  # a socket's path has at most 107 bytes
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "AUK_KEEP": "60s"}

    def go(*arguments, **options):
        return subprocess.Popen([*auk, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**environment, **options}, bufsize=0)

    def invariant(*arguments, **options):
        return go("-m", STORIES, "--raw", "--device", "cuda", "--invariant", *arguments, **options)

    invariant.go = go
    yield invariant
    go("keep", "--stop").communicate()
    shutil.rmtree(folder)


def ends(process):
    out, said = process.communicate(timeout=120)
    return process.returncode, TIMES.sub(b"", out), said


def test_bytes_are_those_of_a_call_by_itself(call):
    draw = random.Random(SEED)
    alone = [ends(call(*kind, AUK_KEEP="0")) for kind in KINDS]
    assert all(status == 0 for status, _, _ in alone), alone
    assert ends(call.go("keep", "-m", STORIES, "--device", "cuda", "--invariant"))[0] == 0

    def ask(kind, kill_after_s):
        process = call(*KINDS[kind])
        if kill_after_s is None:
            assert ends(process) == alone[kind], (SEED, KINDS[kind])
            return "lived"
        time.sleep(kill_after_s)
        process.kill()
        ends(process)
        return "killed"

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        done = [pool.submit(ask, n % len(KINDS), draw.choice([None, None, draw.uniform(0, 0.1)]) if n > 2 else None)
                for n in range(N_CALLS)]
        assert [job.result() for job in done].count("lived") >= min(3, N_CALLS // 3)
    kept, = json.loads(ends(call.go("keep", "--json"))[1])
    assert kept["device"] == "cuda" and kept["answers"] >= 3


def test_a_process_that_rounds_otherwise_is_not_asked(call):
    assert ends(call.go("keep", "-m", STORIES, "--device", "cuda"))[0] == 0
    assert b"keeps the model" not in ends(call("-p", "x", "-n", "1", "-v", AUK_KEEP=""))[2]


def test_an_interrupted_answer_ends_whole(call):
    process = call("-p", "Once", "--temp", "0", "-n", "400", "-c", "512", "--ignore-eos", AUK_KEEP="0")
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    status, rest, _ = ends(process)
    assert status == 130 and "upon a time, there was".startswith((first + rest).decode().rstrip("\n")[:20])


def test_guesses_change_no_bit(call):
    kind = ["-p", "red dog, big cat, " * 3, "--temp", "0", "--repeat-penalty", "0.3", "--json", "--logprobs", "2",
            "--ids", "-n", "12"]
    out, _ = call(*kind, AUK_KEEP="0").communicate()
    out_guessed, said = call(*kind, "--guess", "4", "-v").communicate()
    answer, other = json.loads(out), json.loads(out_guessed)
    assert re.search(rb"; [1-9]\d* tokens guessed, [1-9]", said), said
    assert (answer["ids"], answer["logprobs"]) == (other["ids"], other["logprobs"])
