"""What the tests of GPUs share."""
import pathlib
import subprocess

import pytest

STORIES = pathlib.Path(__file__).resolve().parents[1] / "data" / "stories260K-awq"


@pytest.fixture(scope="session", autouse=True)
def gpu(auk):
    """Skips everything here where there is no GPU that this program can use."""
    done = subprocess.run([*auk, "eval", "-m", STORIES, "--ids-file", "-", "--device", "cuda"], input=b"1 2 3",
                          capture_output=True)
    if done.returncode:
        pytest.skip(f"needs a GPU: {done.stderr.decode().strip()}")
