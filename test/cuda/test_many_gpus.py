"""`auk --map --gpu 0,1`: records over several GPUs of a machine, from one queue to one writer. Needs two GPUs: the
emulated one can be two."""
import os
import subprocess

import pytest

from conftest import STORIES

N_RECORDS = 8


@pytest.fixture
def job(auk, tmp_path):
    """job(gpus, **environment): the finished run over some records."""
    (tmp_path / "in").write_text("".join(f"{i} dogs\n" for i in range(N_RECORDS - 1)) + "so " * 1000 + "\n")
    flags = ["-m", STORIES, "--raw", "-p", "{} went", "--map", tmp_path / "in", "-n", "3", "--temp", "1", "-s", "5",
             "-c", "64", "--parallel", "2", "--device", "cuda"]

    def run(gpus, *more, **environment):
        keep = {"EMULATED_GPUS": "2", **os.environ, **environment}
        return subprocess.run([*auk, *flags, "--gpu", gpus, *more], env=keep, capture_output=True)

    if "GPUs are visible" not in run("977").stderr.decode():
        pytest.skip("needs two GPUs")
    return run


def is_emulated(auk):
    return b"EMULATED_GPUS" in open(auk[-1], "rb").read()


def test_answers_of_two_gpus_are_those_of_one_also_if_one_fails(auk, job):
    one = job("0")
    assert one.returncode == 1 and one.stdout.count(b"\n") == N_RECORDS, one.stderr
    assert b"1 of 8 records are errors" in one.stderr
    two = job("all", "-v")
    assert two.stdout == one.stdout and two.returncode == 1
    assert b"GPU 0: 2 sequences at once" in two.stderr and b"GPU 1: 2 sequences at once" in two.stderr
    if not is_emulated(auk):
        return
    fails = job("0,1", AUK_FAULT="cuda:440", EMULATED_FAULT_GPU="1")
    assert fails.stdout == one.stdout, fails.stderr
    assert b"GPU 1 fails, and leaves" in fails.stderr and fails.returncode == 1
    both = job("0,1", AUK_FAULT="cuda:440")
    assert both.returncode == 1 and one.stdout.startswith(both.stdout) and b"auk: GPU: " in both.stderr


@pytest.mark.parametrize("gpus, message", [("0,977", "--gpu is 977, expected 0 to"), ("0,0", "expected each GPU once"),
                                           ("0,", "expected a number"), ("", "expected a number")])
def test_gpus_that_are_none_are_refused(job, gpus, message):
    refused = job(gpus)
    assert refused.returncode in (1, 2) and message in refused.stderr.decode()
    assert refused.stdout == b"" and refused.stderr.count(b"\n") == 1


def test_a_prompt_alone_has_one_gpu(auk, job):
    assert job  # there are two
    refused = subprocess.run([*auk, "-m", STORIES, "-p", "x", "--gpu", "0,1"], capture_output=True)
    assert refused.returncode == 2 and b"only many records (--map)" in refused.stderr
