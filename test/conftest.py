"""What every pytest file here can ask for: the program, the repository, and the larger data where it is.

`make test` names the program it built in AUK; a bare `python3 -m pytest test` takes build/auk.
"""
import os
import pathlib
import shlex
import signal

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The tests may run under nohup, or behind a shell that ignores interrupts: programs they start must not.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def auk():
    """The program under test as the beginning of an argv list: subprocess.run([*auk, "--version"])."""
    command = shlex.split(os.environ.get("AUK", str(ROOT / "build" / "auk")))
    path = pathlib.Path(command[-1])
    assert path.exists(), f"{path} is not built: make"
    return command[:-1] + [str(path.resolve())]


@pytest.fixture(scope="session")
def sanitized(auk):
    """Whether the program has sanitizers in it, which make it start and run some times as long: where a test does the
    same often, or much so that time or memory shows, less of it looks at the same there."""
    return b"__asan_init" in pathlib.Path(auk[-1]).read_bytes()


@pytest.fixture(scope="session")
def shared():
    """The folder of larger data beside the repository; tests over it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs larger data, which is not committed")
    return folder
