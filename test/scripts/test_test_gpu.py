"""scripts/test_gpu.sh over programs that stand in for the real ones: parts, totals, time limits, sanitizers."""
import os
import subprocess

import pytest


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def build(tmp_path):
    """A build whose programs say what they were called with."""
    for name in ("test_linear", "test_attention", "test_sample"):
        program(tmp_path / "build" / "test" / "cuda" / name, f'echo "{name} $*"; echo "3 passed, 0 failed"')
    program(tmp_path / "build" / "auk", 'echo "auk $*" >>"$0.log"; case "$*" in *gemma2*"--chunk 8"*) exit 5 ;; esac')
    return tmp_path / "build"


@pytest.fixture
def run(root, build):
    def run_it(*arguments, **environment):
        known = {name: value for name, value in os.environ.items() if name not in ("LIMIT", "TOTAL")}
        done = subprocess.run(["sh", root / "scripts" / "test_gpu.sh", build, *arguments], capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
                              env={**known, "AUK": str(build / "auk"), **environment})
        return done.returncode, done.stdout.splitlines()

    return run_it


def test_parts_are_run_as_they_are_named(run):
    status, lines = run("test_sample", "sweep-2", "sweep-6")
    assert status == 0
    assert [line for line in lines if line.startswith("test_")] == [
        "test_sample ", "test_linear sweep 2/6", "test_linear sweep 6/6", "test_sample: 3 passed, 0 failed, 0 skipped"]
    assert lines[-3:] == ["sweep-2: 3 passed, 0 failed, 0 skipped", "sweep-6: 3 passed, 0 failed, 0 skipped",
                          "9 passed, 0 failed, 0 skipped"]
    assert run("few", "test_linear")[1][1] == "test_linear few"


def test_parts_have_nine_minutes_and_emulated_ones_ninety(run, build):
    """So a part that hangs ends; whole models on an emulated GPU take longer than on a real one."""
    program(build / "bin" / "timeout", 'echo "limit $1"; shift; exec "$@"')
    path = f"{build / 'bin'}:{os.environ['PATH']}"
    for size, most in (([], 540), (["few"], 5400)):
        limit = int(run(*size, "test_sample", PATH=path)[1][1].removeprefix("limit "))
        assert most - 30 <= limit <= most


def test_failures_of_all_kinds_count(run, build):
    cuda = build / "test" / "cuda"
    program(cuda / "test_linear", "echo '3 passed, 2 failed'; exit 1")
    program(cuda / "test_sample", "echo '3 passed, 0 failed'; exit 6")
    (cuda / "test_attention").unlink()
    status, lines = run("test_linear", "test_sample", "test_attention", "nonsense")
    assert status == 1
    assert lines[-5:] == ["test_linear: 3 passed, 2 failed, 0 skipped",
                          "test_sample: 3 passed, 1 failed, 0 skipped, status 6",
                          "test_attention: 0 passed, 1 failed, 0 skipped, not built",
                          "nonsense: 0 passed, 1 failed, 0 skipped, no such part", "6 passed, 5 failed, 0 skipped"]


def test_skipped_tests_are_told_by_reason(run, build):
    for name, n in (("test_linear", 2), ("test_sample", 3)):
        program(build / "test" / "cuda" / name,
                f"echo '{n} skipped: needs clusters'; echo '1 passed, 0 failed, {n} skipped'")
    status, lines = run("test_linear", "test_sample")
    assert status == 0
    assert lines[-3:] == ["test_sample: 1 passed, 0 failed, 3 skipped", "5 skipped: needs clusters",
                          "2 passed, 0 failed, 5 skipped"]


def test_a_program_without_tests_is_a_failure(run, build):
    program(build / "test" / "cuda" / "test_sample", "echo '0 passed, 0 failed'")
    status, lines = run("test_sample")
    assert status == 1
    assert lines[-2:] == ["test_sample: 0 passed, 1 failed, 0 skipped, no test ran", "0 passed, 1 failed, 0 skipped"]


def test_pytest_runs_over_the_tests_of_gpus_and_tells_why_some_were_skipped(run, build):
    python = build / "python3"
    program(python, f"echo \"$AUK_TEST_SIZE $*\" >>{build}/calls\n"
                    "echo 'SKIPPED [4] test/cuda/conftest.py:16: needs a GPU: none'\n"
                    "echo '5 passed, 4 skipped in 1.00s'")
    status, lines = run("few", "pytest", "short", PYTHON=str(python))
    assert status == 0
    assert lines[-4:] == ["pytest: 5 passed, 0 failed, 4 skipped", "short: 5 passed, 0 failed, 4 skipped",
                          "8 skipped: needs a GPU: none", "10 passed, 0 failed, 8 skipped"]
    calls = (build / "calls").read_text()
    assert calls.count("few -m pytest") == 2 and calls.count(" -k ") == 1


def test_a_part_without_an_end_is_ended(run, build):
    program(build / "test" / "cuda" / "test_sample", "sleep 30")
    status, lines = run("test_sample", "test_linear", LIMIT="1")
    assert status == 1
    assert lines[-3:] == ["test_sample: 0 passed, 1 failed, 0 skipped, status 124",
                          "test_linear: 3 passed, 0 failed, 0 skipped", "3 passed, 1 failed, 0 skipped"]
    assert run("test_linear", TOTAL="0")[1][-2] == "test_linear: 0 passed, 1 failed, 0 skipped, no time was left"


def test_sanitizers_are_skipped_by_name_or_run(run, build):
    status, lines = run("memcheck", PATH="/usr/bin:/bin")
    assert status == 0 and lines[-3:] == ["memcheck: 0 passed, 0 failed, 1 skipped",
                                          "1 skipped: there is no compute-sanitizer on PATH",
                                          "0 passed, 0 failed, 1 skipped"]
    program(build / "bin" / "compute-sanitizer", 'echo "$2" >>"$0.log"; shift 4; exec "$@"')
    status, lines = run("racecheck", PATH=f"{build / 'bin'}:/usr/bin:/bin")
    # One run ends with a finding: gemma2's steps of 8.
    assert status == 1 and lines[-2:] == ["racecheck: 17 passed, 1 failed, 0 skipped", "17 passed, 1 failed, 0 skipped"]
    assert (build / "bin" / "compute-sanitizer.log").read_text().split() == ["racecheck"] * 18
    calls = (build / "auk.log").read_text().splitlines()
    assert len(calls) == 18 and all(call.endswith("--device cuda") for call in calls)
