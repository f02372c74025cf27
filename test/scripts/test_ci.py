""".ci/run over a stand-in for bootstrap.sh: which steps there are, what makes one fail, and what the last lines say."""
import os
import subprocess

import pytest

GOOD = "echo '5 passed, 0 failed, 0 skipped'"
PROGRAMS_90 = ("test_altup test_cluster test_drafters test_experts test_guesses test_host_rows test_linear "
               "test_linear_calls test_next test_pages test_rank_messages test_sums")
STEPS_90 = ("fused", "test_step", "test_step_rows")
NVCC = "cuda-objects CUDA=1 CUDA_ARCHS=80 90a NVCCFLAGS=--Ofast-compile=max"
# This stands in for scripts/kernels_sum.py: no part has passed before.
ALL_CHANGED = 'case $1 in --write) cat >>$0.written ;; --linked) ;; *) printf "%s hash\\n" "$@" ;; esac'
# Some parts of the two steps have not passed as they are.
CHANGED = ALL_CHANGED.replace('"%s hash\\n" "$@"', """'%s\\n' "$@" | grep -xE '{}' | sed 's/$/ new/' """)


def programs_80(root, beginning="test"):
    return " ".join(sorted(path.stem for path in (root / "test" / "cuda").glob(beginning + "_*.cu")))


def sources(root):
    return " ".join(sorted(path.name for path in (root / "cuda").rglob("*.cu")))


def built(root):
    parts = {80: f"{programs_80(root)} {programs_80(root, 'bench')} short", 90: " ".join((PROGRAMS_90, *STEPS_90))}
    return [f"gpu-programs EMULATE=1 EMULATED_ARCH={arch} PARTS={parts[arch]}" for arch in (80, 90)]


def kernels(root):
    return [f"test-gpu EMULATE=1 EMULATED_ARCH={arch} PARTS={parts}"
            for arch, parts in ((80, programs_80(root)), (80, "short"),
                                *((90, part) for part in (PROGRAMS_90, *STEPS_90)))]


@pytest.fixture
def run(root, tmp_path):
    """run(body, steps, kernels_sum): status and lines, where `body` of a shell script is what makes a target: $1 is its
    name; kernels_sum stands in for scripts/kernels_sum.py."""

    def run_it(body, *steps, kernels_sum=ALL_CHANGED):
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


def test_all_steps_run_and_are_added_up(run, root):
    status, lines, calls = run(GOOD)
    assert status == 0, lines
    first = ["test SANITIZE=1", "torture TORTURE=--every 18"]
    second = ["lint", "test-plain", "fuzz FUZZ_SECONDS=1", *built(root)]
    assert [call for call in calls[:7] if call in first] == first
    assert [call for call in calls[:7] if call in second] == second  # side by side
    assert sorted(calls[7:13]) == sorted(kernels(root))  # side by side
    assert calls[13:] == [f"{NVCC} PARTS={sources(root)} nvcc-host"]
    assert lines[-1] == "55 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("fails, reason, ran", [("test", "sanitized", 6), ("test-plain", "plain", 4)])
def test_a_row_that_fails_ends_the_run_when_the_other_is_done(run, fails, reason, ran):
    status, lines, calls = run(f"[ $1 != {fails} ] || {{ echo '3 passed, 2 failed'; exit 1; }}; {GOOD}")
    assert status == 1 and len(calls) == ran
    assert f"FAILED: {reason} (exit status 1)" in lines
    assert lines[-1] == "18 passed, 2 failed, 0 skipped"


def test_parts_that_have_passed_are_not_tested_again(run, root):
    status, lines, calls = run(GOOD, "emulated", "nvcc", kernels_sum=CHANGED.format("none"))
    n = len(" ".join((programs_80(root), programs_80(root, "bench"), "short", PROGRAMS_90, *STEPS_90, sources(root),
                      "nvcc-host")).split())
    assert status == 0 and not calls
    assert lines[-2:] == [
        f"{n} skipped: parts of the tests of kernels have passed with these sources (test/cuda/kernels.sum)",
        f"0 passed, 0 failed, {n} skipped"]


@pytest.mark.parametrize("changed, wanted", [
    ("emulated-80/test_linear|emulated-90/fused", [
        "gpu-programs EMULATE=1 EMULATED_ARCH=80 PARTS=test_linear",
        "gpu-programs EMULATE=1 EMULATED_ARCH=90 PARTS=fused",
        "test-gpu EMULATE=1 EMULATED_ARCH=80 PARTS=test_linear", "test-gpu EMULATE=1 EMULATED_ARCH=90 PARTS=fused"]),
    ("emulated-80/bench_step", ["gpu-programs EMULATE=1 EMULATED_ARCH=80 PARTS=bench_step"]),
    ("sample.cu", [NVCC + " PARTS=sample.cu"]),
    ("nvcc-host", [NVCC + " PARTS=nvcc-host"]),
    ("nvcc-host|sample.cu|dense.cu", [NVCC + " PARTS=dense.cu sample.cu nvcc-host"]),
])
def test_parts_that_have_changed_run_alone(run, changed, wanted):
    status, lines, calls = run(GOOD, "emulated", "nvcc", kernels_sum=CHANGED.format(changed))
    assert status == 0, lines
    assert sorted(calls) == sorted(wanted)


def test_parts_have_a_row_when_they_have_passed(run, tmp_path):
    """A part has passed if its line in the totals has no failed test, even where another part fails."""
    def written(body, changed):
        (tmp_path / "kernels_sum.written").write_text("")
        status, _, _ = run(body, "emulated", "nvcc", kernels_sum=CHANGED.format(changed))
        return status, (tmp_path / "kernels_sum.written").read_text().split("\n")[:-1]

    changed = "emulated-80/(test_linear|test_next|short|bench_many)|emulated-90/fused|sample.cu|nvcc-host"
    good = ("case $3 in *=80) echo 'test_linear: 5 passed, 0 failed, 0 skipped'; "
            "echo 'test_next: 0 passed, {}0 failed, 1 skipped{}';;"
            "*) echo 'fused: 1 passed, 0 failed, 0 skipped';; esac; echo '5 passed, {} failed, 1 skipped'; exit {}")
    rows = ["emulated-80/bench_many new", "emulated-80/test_linear new", "emulated-90/fused new"]
    assert written(good.format("", "", 0, 0), changed) == (
        0, [*rows[:2], "emulated-80/test_next new", rows[2], "sample.cu new", "nvcc-host new"])
    bad = good.format("1", "", 10, 1)
    assert written(f"case $1 in gpu-programs) ;; *) {bad} ;; esac", changed) == (1, rows)
    assert written(good.format("", ", status 1", 0, 0), changed)[1][:3] == rows
    assert written("exit 2", changed) == (1, [])


def test_a_part_whose_tests_this_chip_skips_has_passed(run):
    skips = "echo '1 skipped: needs clusters'; echo '0 passed, 0 failed, 1 skipped'"
    for status, step, changed in ((0, "emulated", "emulated-80/test_cluster"), (1, "lint", "")):
        assert run(skips, step, kernels_sum=CHANGED.format(changed))[0] == status


@pytest.mark.parametrize("fails", ["--linked", "emulated-80/test_linear"])
def test_hashes_that_cannot_be_made_end_the_run(run, fails):
    status, lines, _ = run(GOOD, "emulated", kernels_sum=f'case "$*" in *{fails}*) exit 1 ;; esac; {ALL_CHANGED}')
    assert status == 1 and lines[-2].startswith("FAILED: the hashes of ")


def test_named_steps_run_alone(run):
    status, lines, calls = run(GOOD, "lint", "torture")
    assert (status, calls) == (0, ["lint", "torture TORTURE=--every 18"])
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
def test_each_of_the_steps_side_by_side_can_fail(run, root, arch):
    status, lines, calls = run(f"case $* in *gpu-programs*) ;; *ARCH={arch}*) echo '4 passed, 1 failed'; exit 1 ;; "
                               f"*) {GOOD} ;; esac", "emulated", "lint")
    assert status == 1 and calls[:2] == built(root) and sorted(calls[2:]) == sorted(kernels(root))
    assert f"FAILED: emulated-{arch} (exit status 1)" in lines
    assert lines[-1] == f"{4 if arch == 80 else 9} passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("arch", [80, 90])
def test_an_emulated_chip_that_is_not_built_ends_the_run(run, root, arch):
    status, lines, calls = run(f"case $* in *ARCH={arch}*) exit 2 ;; *) {GOOD} ;; esac", "emulated")
    assert status == 1 and calls == built(root)[:1 if arch == 80 else 2]
    assert f"FAILED: emulated-{arch} is not built" in lines


def test_a_build_that_fails_is_a_failure(run):
    status, lines, _ = run("exit 2", "nvcc")
    assert status == 1 and "FAILED: nvcc" in lines and lines[-1] == "0 passed, 1 failed, 0 skipped"
    status, lines, _ = run("echo compiled", "nvcc")
    assert status == 0 and lines[-1] == "0 passed, 0 failed, 0 skipped"
