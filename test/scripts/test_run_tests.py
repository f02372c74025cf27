"""scripts/run_tests.py over a project of its own: every test runs once, on whichever core, and is counted once."""
import os
import subprocess
import sys

import pytest

CORES = 2  # three pytests
# Tests that say where they ran, and that their file's fixture was there: set up before them, and not torn down.
SLOW = """
import os, pathlib, time, pytest

@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("place") / "there"
    path.touch()
    yield path
    path.unlink()

@pytest.mark.parametrize("i", range(20))
def test_it(place, i):
    time.sleep(0.05)
    assert place.exists()
    with open("ran", "a") as log:
        log.write(f"{os.getpid()} {__name__} {i}\\n")
"""
OTHERS = """
import pytest
def test_fails():
    assert 1 == 2, "so it is"
@pytest.mark.skip(reason="not now")
def test_is_skipped():
    pass
"""
PROGRAM = """#!/bin/sh
echo 1..2; echo "ok 1 - one"; echo "{second}"
echo $OMP_WAIT_POLICY >>waits
exit {status}
"""


@pytest.fixture
def run_tests(root, sanitized, tmp_path):
    """run_tests(files, programs): the finished process, over these files of test/ and these C programs."""
    if sanitized:
        pytest.skip("runs nothing that was built with sanitizers")

    def run(files, programs=()):
        (tmp_path / "test").mkdir()
        (tmp_path / "build").mkdir()
        for name, text in files.items():
            (tmp_path / "test" / name).write_text(text)
        for name, text in dict(programs).items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        script = str(root / "scripts" / "run_tests.py")
        start = (f"import os, runpy; os.sched_getaffinity = lambda pid: set(range({CORES})); "
                 f"runpy.run_path({script!r}, run_name='__main__')")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        return subprocess.run([sys.executable, "-c", start, "build", *(f"./{name}" for name in dict(programs))],
                              cwd=tmp_path, env={**environment, "AUK": ""}, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)

    return run


def test_each_test_runs_once_on_one_of_the_cores(run_tests, tmp_path):
    done = run_tests({"test_a.py": SLOW, "test_b.py": SLOW})
    assert done.stdout.splitlines()[-1] == "40 passed, 0 failed, 0 skipped", done.stdout
    assert done.returncode == 0
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(tuple(rest) for _, *rest in ran) == sorted((f"test_{x}", str(i)) for x in "ab" for i in range(20))
    assert len({process for process, *_ in ran}) > 1


def test_what_fails_or_is_skipped_is_counted_once(run_tests):
    done = run_tests({"test_a.py": SLOW, "test_others.py": OTHERS,
                      "test_nothing.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n"})
    assert done.stdout.splitlines()[-3:] == ["1 skipped: not here", "1 skipped: not now",
                                             "20 passed, 1 failed, 2 skipped"], done.stdout
    assert done.returncode == 1 and "so it is" in done.stdout and "not now" in done.stdout


def test_reasons_of_skipped_tests_are_counted_before_the_totals(run_tests):
    many = '''
import pytest
@pytest.mark.parametrize("i", range(7))
def test_needs_it(i):
    pytest.skip("needs a disk: none here")
'''
    done = run_tests({"test_many.py": many, "test_others.py": OTHERS.replace("== 2", "== 1")},
                     {"good": PROGRAM.format(second="ok 2 # SKIP no_disk", status=0)})
    assert done.stdout.splitlines()[-4:-1] == ["7 skipped: needs a disk: none here", "1 skipped: good: no_disk",
                                               "1 skipped: not now"], done.stdout
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 9 skipped" and done.returncode == 0


def test_a_run_in_which_no_test_passed_is_a_failure(run_tests):
    done = run_tests({"test_nothing.py": "import pytest\ndef test_it():\n    pytest.skip('not here')\n"})
    assert done.stdout.splitlines()[-2:] == ["1 skipped: not here", "0 passed, 1 failed, 1 skipped"], done.stdout
    assert done.returncode == 1


def test_a_file_that_cannot_be_read_fails(run_tests):
    done = run_tests({"test_a.py": SLOW, "test_broken.py": "def f(:\n"})
    assert done.returncode == 1 and " 0 failed" not in done.stdout.splitlines()[-1], done.stdout


def test_a_pytest_that_dies_fails(run_tests):
    done = run_tests({"test_a.py": SLOW, "test_dies.py": "import os\ndef test_dies():\n  os._exit(9)\n"})
    assert done.returncode == 1 and "exit status 9" in done.stdout
    assert " 0 failed" not in done.stdout.splitlines()[-1], done.stdout


def test_programs_in_c_come_first(run_tests, tmp_path):
    programs = {"good": PROGRAM.format(second="ok 2 # SKIP no disk", status=0),
                "short": PROGRAM.format(second="", status=0),
                "bad": PROGRAM.format(second="not ok 2 - two", status=1)}
    done = run_tests({"test_a.py": SLOW}, programs)
    lines = done.stdout.splitlines()
    assert lines[-1] == "23 passed, 2 failed, 1 skipped", done.stdout
    assert done.returncode == 1
    assert [line for line in lines if line.startswith("./good: 1 passed, 0 failed, 1 skipped")]
    assert "  skipped: no disk" in lines
    assert "FAILED: ./short (exit status 0, 2 tests announced)" in lines
    assert "FAILED: ./bad (exit status 1, 2 tests announced)" in lines
    assert (tmp_path / "waits").read_text() == "passive\n" * 3


@pytest.mark.parametrize(("leak", "failed"), [("", 0), (r"==7==ERROR: LeakSanitizer: detected memory leaks\n", 1)])
def test_a_sanitizers_report_fails_unless_it_says_only_that_a_thread_has_ended(run_tests, leak, failed):
    report = rf"==25943==Unable to get registers from thread 25350.\n{leak}"
    program = f"#!/bin/sh\necho 1..1; echo 'ok 1 - one'; printf '{report}' >build/reports/report.25350\n"
    done = run_tests({"test_a.py": SLOW}, {"good": program})
    assert done.stdout.splitlines()[-1] == f"21 passed, {failed} failed, 0 skipped", done.stdout
    assert ("detected memory leaks" in done.stdout) == bool(failed)
