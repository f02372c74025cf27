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
        done = subprocess.run(["sh", root / "scripts" / "test_gpu.sh", build, *arguments], capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
                              env={**os.environ, "AUK": str(build / "auk"), **environment})
        return done.returncode, done.stdout.splitlines()

    return run_it


def test_parts_are_run_as_they_are_named(run):
    status, lines = run("test_sample", "sweep-2", "sweep-6")
    assert status == 0
    assert [line for line in lines if line.startswith("test_")] == [
        "test_sample ", "test_linear sweep 2/6", "test_linear sweep 6/6", "test_sample: 3 passed, 0 failed"]
    assert lines[-3:] == ["sweep-2: 3 passed, 0 failed", "sweep-6: 3 passed, 0 failed", "9 passed, 0 failed"]
    assert run("few", "test_linear")[1][1] == "test_linear few"


def test_failures_of_all_kinds_count(run, build):
    cuda = build / "test" / "cuda"
    program(cuda / "test_linear", "echo '3 passed, 2 failed'; exit 1")
    program(cuda / "test_sample", "echo '3 passed, 0 failed'; exit 6")
    (cuda / "test_attention").unlink()
    status, lines = run("test_linear", "test_sample", "test_attention", "nonsense")
    assert status == 1
    assert lines[-5:] == ["test_linear: 3 passed, 2 failed", "test_sample: 3 passed, 1 failed, status 6",
                          "test_attention: 0 passed, 1 failed, not built",
                          "nonsense: 0 passed, 1 failed, no such part", "6 passed, 5 failed"]


def test_a_part_without_an_end_is_ended(run, build):
    program(build / "test" / "cuda" / "test_sample", "sleep 30")
    status, lines = run("test_sample", "test_linear", LIMIT="1")
    assert status == 1
    assert lines[-3:] == ["test_sample: 0 passed, 1 failed, status 124", "test_linear: 3 passed, 0 failed",
                          "3 passed, 1 failed"]
    assert run("test_linear", TOTAL="0")[1][-2] == "test_linear: 0 passed, 1 failed, no time was left"


def test_sanitizers_are_skipped_by_name_or_run(run, build):
    status, lines = run("memcheck", PATH="/usr/bin:/bin")
    assert status == 0 and lines[-2] == "memcheck: 0 passed, 0 failed, skipped: no compute-sanitizer on PATH"
    program(build / "bin" / "compute-sanitizer", 'echo "$2" >>"$0.log"; shift 4; exec "$@"')
    status, lines = run("racecheck", PATH=f"{build / 'bin'}:/usr/bin:/bin")
    # One run ends with a finding: gemma2's steps of 8.
    assert status == 1 and lines[-2:] == ["racecheck: 17 passed, 1 failed", "17 passed, 1 failed"]
    assert (build / "bin" / "compute-sanitizer.log").read_text().split() == ["racecheck"] * 18
    calls = (build / "auk.log").read_text().splitlines()
    assert len(calls) == 18 and all(call.endswith("--device cuda") for call in calls)
