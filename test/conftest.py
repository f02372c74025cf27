"""Fixtures of all pytest files: the program, the repository, and the larger data where it is.

`make test` names the program it built in AUK; a bare `python3 -m pytest test` takes build/auk.
"""
import os
import pathlib
import shlex
import signal
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Files of the user that a test keeps or reads lie in a folder of the tests, never in the home of the real user.
HOMES = tempfile.TemporaryDirectory(prefix="auk-tests-")
for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
    os.environ[variable] = os.path.join(HOMES.name, variable)

# The tests may run under nohup, or under a shell that ignores interrupts: programs that they start must not ignore
# them.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No test uses a process of this user that keeps a model, but those about such processes (test_keep.py).
os.environ["AUK_KEEP"] = "0"


def program():
    return shlex.split(os.environ.get("AUK", str(ROOT / "build" / "auk")))


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def auk():
    """The program under test as the beginning of an argv list: subprocess.run([*auk, "--version"])."""
    command = program()
    path = pathlib.Path(command[-1])
    assert path.exists(), f"{path} is not built: make"
    return command[:-1] + [str(path.resolve())]


def has_sanitizers(program):
    return program.exists() and b"__asan_init" in program.read_bytes()


def pytest_ignore_collect(collection_path, config):
    """Tests of scripts/ run only with the program without sanitizers, which see nothing of the scripts."""
    if collection_path == ROOT / "test" / "scripts":
        return has_sanitizers(pathlib.Path(program()[-1])) or None


@pytest.fixture(scope="session")
def sanitized(auk):
    """True if the program has sanitizers in it, which make it start and run several times as long. Tests that repeat
    something, or do much of it to see time or memory, do less of it then."""
    return has_sanitizers(pathlib.Path(auk[-1]))


@pytest.fixture(scope="session")
def shared():
    """The folder of larger data beside the repository; tests over it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs larger data, which is not committed")
    return folder
