"""What every pytest file here can ask for: the program, the repository, and the larger data where it is.

`make test` names the program it built in AUK; a bare `python3 -m pytest test` takes build/auk.
"""
import os
import pathlib
import shlex
import signal
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What a test keeps or reads of its own user's: in a folder of the tests, never in the home of whom they run for.
HOMES = tempfile.TemporaryDirectory(prefix="auk-tests-")
for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
    os.environ[variable] = os.path.join(HOMES.name, variable)

# The tests may run under nohup, or behind a shell that ignores interrupts: programs they start must not.
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
    """Tests of the scripts, of which sanitizers in the program see nothing, run once: with the program without them."""
    if collection_path == ROOT / "test" / "scripts":
        return has_sanitizers(pathlib.Path(program()[-1])) or None


@pytest.fixture(scope="session")
def sanitized(auk):
    """Whether the program has sanitizers in it, which make it start and run some times as long: where a test does the
    same often, or much so that time or memory shows, less of it looks at the same there."""
    return has_sanitizers(pathlib.Path(auk[-1]))


@pytest.fixture(scope="session")
def shared():
    """The folder of larger data beside the repository; tests over it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs larger data, which is not committed")
    return folder
