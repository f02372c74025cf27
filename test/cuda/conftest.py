"""Shared by the tests that need a GPU."""
import json
import pathlib
import subprocess

import pytest

NO_GPU = ("this build has no CUDA", "no NVIDIA GPU is visible", "no NVIDIA driver", "not built")
STORIES = pathlib.Path(__file__).resolve().parents[1] / "data" / "stories260K-awq"


@pytest.fixture(scope="session", autouse=True)
def gpu(auk):
    """Skips everything here where there is no GPU that this program can use. A model that fails on one is a failure."""
    done = subprocess.run([*auk, "eval", "-m", STORIES, "--ids-file", "-", "--device", "cuda"], input=b"1 2 3",
                          capture_output=True)
    said = done.stderr.decode().strip()
    if done.returncode:
        assert any(reason in said for reason in NO_GPU), said
        pytest.skip(f"needs a GPU: {said}")


@pytest.fixture
def computed_by_cuda(auk):
    """computed_by_cuda(model): skips the test if GPUs refuse the model, with the reason that `inspect` gives."""

    def look(model):
        done = subprocess.run([*auk, "inspect", model, "--json"], check=True, capture_output=True)
        report = json.loads(done.stdout)
        if "cuda" not in report["runs_on"]:
            pytest.skip(report["cuda_refusal"])

    return look
