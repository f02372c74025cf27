"""A mapped file that is cut while it is in use ends the program with one line that names it, whoever reads it then."""
import os
import shutil
import signal
import subprocess

import pytest

FAILED = 1


@pytest.fixture
def model(stories, tmp_path):
    """The tiny model; its weights are cut to 5,000 bytes, some of the embedding, by the test."""
    folder = tmp_path / "model"
    shutil.copytree(stories, folder)
    return folder


def cut(model):
    os.truncate(model / "model.safetensors", 5000)


def told(model):
    path = (model / "model.safetensors").resolve()
    return f"auk: {path} was cut to 5000 bytes while it was in use\n".encode()


@pytest.fixture
def answering(start, model):
    """answering(*flags): a process that has answered one line and waits for the next."""

    def start_it(*flags):
        process = start("-m", model, "-n", 4, "--map", "-", *flags, stdin=subprocess.PIPE)
        process.stdin.write(b"Once\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"upon a time,\n"
        return process

    return start_it


@pytest.mark.parametrize("threads", [1, 8])
def test_weights_that_are_cut_under_an_answer(answering, model, threads):
    """Told of once, be there many threads that find it out."""
    process = answering("-t", threads)
    cut(model)
    out, err = process.communicate(b"Once more\n", timeout=60)
    assert (process.returncode, out, err) == (FAILED, b"", told(model))


def test_weights_that_are_cut_and_gone(answering, model):
    process = answering()
    cut(model)
    (model / "model.safetensors").unlink()
    out, err = process.communicate(b"Once more\n", timeout=60)
    assert (process.returncode, out) == (FAILED, b"")
    assert err.startswith(b"auk: ") and b"model.safetensors (deleted): byte " in err
    assert err.endswith(b" cannot be read any more: the file was cut short or its disk fails\n")


def test_weights_that_are_cut_while_they_are_packed(start, model, tmp_path):
    """There it is the kernel that reads them, and write() that fails."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("pack", model, "-o", fifo)
    with open(fifo, "rb", buffering=0) as reader:
        assert reader.read(4) == b"84ka"
        cut(model)
        reader.readall()
    assert (process.wait(60), process.stderr.read()) == (FAILED, told(model))


def test_a_signal_that_somebody_sends_is_none_of_a_file(answering):
    process = answering()
    process.send_signal(signal.SIGBUS)
    assert process.wait(60) == -signal.SIGBUS
    assert process.stderr.read() == b""
