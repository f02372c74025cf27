"""scripts/torture.py's judgement of a run: what it must complain of, and what it must not."""
import importlib.util
import subprocess

import pytest


@pytest.fixture(scope="module")
def torture(root):
    spec = importlib.util.spec_from_file_location("torture", root / "scripts" / "torture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WHOLE = subprocess.CompletedProcess([], 0, b"the answer", b"")
FILES = {"file": b"all of it"}


@pytest.mark.parametrize("status, out, err, files, wrong", [
    (0, b"the answer", b"", FILES, None),
    (1, b"the", b"auk: cannot write\n", {}, None),
    (1, b"", b"progress\nauk: cannot read\n", FILES, None),
    (130, b"the a", b"", {}, None),
    (0, b"the", b"", FILES, "success with output cut"),
    (0, b"the answer", b"", {}, "success with files missing"),
    (1, b"another", b"auk: cannot write\n", {}, "other output"),
    (1, b"", b"", {}, "0 messages"),
    (1, b"", b"auk: one\nauk: two\n", {}, "2 messages"),
    (1, b"", b"auk: cannot write\n", {"file": b"all"}, "files left: file"),
    (1, b"", b"auk: cannot write\n", {".file.tmp": b""}, "files left: .file.tmp"),
    (-11, b"", b"", {}, "crash or sanitizer"),
    (99, b"", b"auk: leak\n", {}, "crash or sanitizer"),
    (7, b"", b"auk: odd\n", {}, "status 7"),
])
def test_what_a_faulty_run_may_do(torture, status, out, err, files, wrong):
    process = subprocess.CompletedProcess([], status, out, err)
    assert torture.complaint(process, files, WHOLE, FILES) == wrong
