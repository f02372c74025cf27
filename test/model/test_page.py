"""models.md's list of tensors is the one of src/model's tables."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tensors_are_those_of_the_tables():
    command = [sys.executable, ROOT / "scripts/tensors_page.py", "--check"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
