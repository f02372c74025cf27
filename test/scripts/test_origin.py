"""test/data/ORIGIN.md is one list of all committed data: each file has a line there, and each line has a file."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 25_500_000
SOURCES = {".c", ".h", ".cu", ".cuh", ".cpp", ".md", ".py", ".sed", ".sh"}


def committed():
    """Files below these folders: those that git knows, or where there is no git those that are there."""
    folders = ("test", "scripts", "src/quantize")
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        paths = [ROOT / name for name in done.stdout.splitlines()]
    else:
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")
                 if "__pycache__" not in path.parts]
    return [path for path in paths if path.is_file()]


def data():
    corpus = ROOT / "test" / "fuzz" / "corpus"
    return [path for path in committed() if path.suffix not in SOURCES or corpus in path.parents]


def listed():
    """The list's patterns, from the root of the repository."""
    page = (ROOT / "test" / "data" / "ORIGIN.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return [os.path.normpath(f"test/data/{pattern}") for cell in cells for pattern in re.findall("`([^`]+)`", cell)]


def test_every_file_of_data_has_its_origin():
    patterns = listed()
    assert len(patterns) > 20
    files = [path.relative_to(ROOT) for path in data()]
    assert len(files) > 300
    assert [str(file) for file in files if not any(file.match(pattern) for pattern in patterns)] == []


def test_every_origin_has_a_file():
    files = [path.relative_to(ROOT) for path in committed()]
    assert [pattern for pattern in listed() if not any(file.match(pattern) for file in files)] == []


def test_data_is_small():
    assert sum(path.stat().st_size for path in data() if ROOT / "src" not in path.parents) < LIMIT
