"""The printed parts of models.md are what the program and the tables of src/model say."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_page_is_what_is_printed(auk):
    done = subprocess.run([sys.executable, ROOT / "scripts/models_page.py", "--check"], capture_output=True, text=True,
                          env={**os.environ, "AUK": " ".join(auk)})
    assert (done.returncode, done.stderr) == (0, "")
