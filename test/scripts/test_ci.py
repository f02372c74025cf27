""".ci/run over a stand-in for bootstrap.sh: which steps there are, what makes one fail, and what the last lines say."""
import os
import shutil
import subprocess
import sys

import pytest

GOOD = "echo '5 passed, 0 failed, 0 skipped'"
PROGRAMS_90 = ("test_altup test_cluster test_drafters test_experts test_guesses test_host_rows test_linear "
               "test_linear_calls test_next test_pages test_rank_messages")
STEPS_90 = "test_step test_step_rows fused"
BUILT = [f"gpu-programs EMULATE=1 EMULATED_ARCH={arch} PARTS={parts}"
         for arch, parts in ((80, "programs short"), (90, f"{PROGRAMS_90} {STEPS_90}"))]
KERNELS = [f"test-gpu EMULATE=1 EMULATED_ARCH={arch} PARTS={parts}"
           for arch, parts in ((80, "programs short"), (90, PROGRAMS_90), (90, STEPS_90))]


@pytest.fixture
def run(root, tmp_path):
    """run(body, steps, kernels_sum): status and lines, where `body` of a shell script is what makes a target: $1 is its
    name; kernels_sum stands in for scripts/kernels_sum.py."""

    def run_it(body, *steps, kernels_sum="[ $# = 1 ]"):  # it knows no hash, and can write one
        make, calls = tmp_path / "make", tmp_path / "calls"
        make.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n{body}\n')
        make.chmod(0o755)
        for name, text in (("nvcc", ""), ("kernels_sum", kernels_sum)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name != "FUZZ_SECONDS"}
        done = subprocess.run(["bash", root / ".ci" / "run", *steps], capture_output=True, text=True, timeout=60,
                              check=False, stdin=subprocess.DEVNULL,
                              env={**environment, "MAKE_TARGET": str(make), "PATH": f"{tmp_path}:/usr/bin:/bin",
                                   "KERNELS_SUM": str(tmp_path / "kernels_sum")})
        return done.returncode, done.stdout.splitlines(), calls.read_text().splitlines() if calls.exists() else []

    return run_it


def test_all_steps_run_and_are_added_up(run):
    status, lines, calls = run(GOOD)
    assert status == 0, lines
    assert calls[:7] == ["lint", "test SANITIZE=1", "test-plain", "torture TORTURE=--every 12", "fuzz FUZZ_SECONDS=2",
                         *BUILT]
    assert sorted(calls[7:10]) == KERNELS  # side by side
    assert calls[10:] == ["all CUDA=1 CUDA_ARCHS=80 90a NVCCFLAGS=--Ofast-compile=max"]
    assert lines[-1] == "40 passed, 0 failed, 0 skipped"


def test_kernels_that_have_passed_are_not_tested_again(run, tmp_path):
    status, lines, calls = run(GOOD, "emulated", "nvcc", kernels_sum="true")
    assert status == 0 and not calls
    assert lines[-3:] == ["1 skipped: the kernels have not changed since emulated passed (test/cuda/kernels.sum)",
                          "1 skipped: the kernels have not changed since nvcc passed (test/cuda/kernels.sum)",
                          "0 passed, 0 failed, 2 skipped"]
    kernels_sum = f'[ "$1" = --write ] && touch {tmp_path}/written'
    bad = f"case $* in *PARTS=test_step*) echo '0 passed, 1 failed'; exit 1 ;; *) {GOOD} ;; esac"
    for body, written in ((bad, False), (GOOD, True)):
        run(body, "emulated", kernels_sum=kernels_sum)
        assert (tmp_path / "written").exists() == written


def test_the_hash_is_of_all_that_kernels_include(root, tmp_path):
    for folder in ("cuda", "test/cuda", "scripts", "src"):
        shutil.copytree(root / folder, tmp_path / folder)
    command = [sys.executable, tmp_path / "scripts" / "kernels_sum.py"]
    subprocess.run([*command, "--write"], check=True)
    for name, counts in (("src/model/tensors.def", True), ("cuda/state.c", True), ("test/cuda/test_ranks.py", True),
                         ("scripts/emulate.sed", True), ("test/cuda/emulator/emulator.h", True),
                         ("src/engine/batch.c", False), ("scripts/lint.py", False)):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text + "int more;\n")
        assert subprocess.run(command, check=False).returncode == counts, name
        (tmp_path / name).write_text(text)
    name = tmp_path / "cuda" / "state.c"
    name.write_text("/* A comment's word. */\n" + name.read_text().replace(" ", "  "))
    assert subprocess.run(command, check=False).returncode == 0


def test_named_steps_run_alone(run):
    status, lines, calls = run(GOOD, "lint", "torture")
    assert (status, calls) == (0, ["lint", "torture TORTURE=--every 12"])
    assert lines[-1] == "10 passed, 0 failed, 0 skipped"
    status, lines, calls = run(GOOD, "lynt")
    assert status == 1 and lines[-2].startswith("FAILED: there is no step lynt")


@pytest.mark.parametrize("body, reason", [
    ("echo '2 passed, 1 failed'; exit 1", "FAILED: lint (exit status 1)"),
    ("echo '2 passed, 1 failed'; echo 'make: *** [lint] Error 1'; exit 2", "FAILED: lint (exit status 2)"),
    ("echo '2 passed, 1 failed'", "FAILED: lint has failed tests and exit status 0"),
    ("echo '2 passed, 0 failed'; exit 3", "FAILED: lint (exit status 3)"),
    ("echo 'all is well'", "FAILED: lint ends without totals (exit status 0)"),
    ("kill -9 $$", "FAILED: lint ends without totals (exit status 137)"),
    ("echo '0 passed, 0 failed'", "FAILED: lint passed no test"),
    ("echo '14 skipped: no clang'; echo '0 passed, 0 failed, 14 skipped'", "FAILED: lint passed no test"),
])
def test_a_step_fails_and_ends_the_run(run, body, reason):
    status, lines, calls = run(body, "lint", "plain")
    assert status == 1 and calls == ["lint"]
    assert reason in lines
    assert " 0 failed" not in lines[-1] and " failed, " in lines[-1]


def test_skipped_tests_are_told_by_reason_over_all_steps(run):
    status, lines, _ = run("echo '3 skipped: needs a GPU: none'\n"
                           "[ $1 != lint ] || { echo '7 passed, 0 failed, 3 skipped'; exit 0; }\n"
                           "echo '1 skipped: root reads all'; echo '1 passed, 0 failed, 4 skipped'", "lint", "plain")
    assert status == 0
    assert lines[-3:] == ["6 skipped: needs a GPU: none", "1 skipped: root reads all",
                          "8 passed, 0 failed, 7 skipped"]


@pytest.mark.parametrize("arch", [80, 90])
def test_each_of_the_steps_side_by_side_can_fail(run, arch):
    status, lines, calls = run(f"case $* in *gpu-programs*) ;; *ARCH={arch}*) echo '4 passed, 1 failed'; exit 1 ;; "
                               f"*) {GOOD} ;; esac", "emulated", "lint")
    assert status == 1 and calls[:2] == BUILT and sorted(calls[2:]) == KERNELS
    assert f"FAILED: emulated-{arch} (exit status 1)" in lines
    assert lines[-1] == f"{4 if arch == 80 else 9} passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("arch", [80, 90])
def test_an_emulated_chip_that_is_not_built_ends_the_run(run, arch):
    status, lines, calls = run(f"case $* in *ARCH={arch}*) exit 2 ;; *) {GOOD} ;; esac", "emulated")
    assert status == 1 and calls == BUILT[:1 if arch == 80 else 2]
    assert f"FAILED: emulated-{arch} is not built" in lines


def test_a_build_that_fails_is_a_failure(run):
    status, lines, _ = run("exit 2", "nvcc")
    assert status == 1 and "FAILED: nvcc" in lines and lines[-1] == "0 passed, 1 failed, 0 skipped"
    status, lines, _ = run("echo compiled", "nvcc")
    assert status == 0 and lines[-1] == "0 passed, 0 failed, 0 skipped"
