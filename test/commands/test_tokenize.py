"""`auk tokenize` between pipes; what it takes and writes: test/data/transcripts/commands/tokenize.txt."""
import json
import os
import subprocess

import pytest


@pytest.fixture
def tokenizer(stories):
    return stories / "tokenizer.json"


def test_lines_are_answered_as_they_come(auk, tokenizer):
    with subprocess.Popen(
        [*auk, "tokenize", "-m", str(tokenizer), "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for text in ("a", "b"):
            process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["decoded"] == text  # before the next one is written
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_closed_pipe_has_its_status(auk, tokenizer):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*auk, "tokenize", "-m", str(tokenizer), "a"], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""
