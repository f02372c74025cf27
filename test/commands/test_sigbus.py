"""A mapped file that is cut or overwritten while it is in use ends the program with one line that names it."""
import json
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


def overwrite(model, data=None):
    """Writes over the end of the weights in place: noise, or what is there already."""
    with open(model / "model.safetensors", "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        data = file.read() if data is None else data
        file.seek(-4096, os.SEEK_END)
        file.write(data)


def overwritten(model):
    path = model / "model.safetensors"
    return f"auk: {path} was written to while it was in use: these are other weights now\n".encode()


@pytest.mark.parametrize("noise", [bytes(4096), b"\xff" * 4096, None])
def test_weights_that_are_overwritten_under_an_answer(answering, model, noise):
    """The answer is not given, whether it could be made (of zeroes), or not (of NaN), or the bytes are the same."""
    process = answering()
    overwrite(model, noise)
    out, err = process.communicate(b"Once more\n", timeout=60)
    assert (process.returncode, out, err) == (FAILED, b"", overwritten(model))


def test_weights_that_are_overwritten_under_choices(start, model):
    process = start("-m", model, "--map", "-", "--choose", "a,the", stdin=subprocess.PIPE)
    process.stdin.write(b"Once\n")
    process.stdin.flush()
    assert process.stdout.readline() in (b"a\n", b"the\n")
    overwrite(model)
    assert process.communicate(b"Twice\n", timeout=60) == (b"", overwritten(model))
    assert process.returncode == FAILED


@pytest.mark.parametrize("flags", [["-n", "4"], ["--choose", "a,the"]])
def test_weights_that_are_overwritten_before_they_are_loaded(start, model, tmp_path, flags):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("-m", model, "-f", fifo, *flags)
    with open(fifo, "wb") as writer:  # the model is open, and mapped
        overwrite(model)
        writer.write(b"Once")
    assert (process.wait(60), process.stdout.read(), process.stderr.read()) == (FAILED, b"", overwritten(model))


LONG = "One day " * 60  # what is done with it takes longer than it takes to overwrite


@pytest.mark.parametrize("flags", [["--ignore-eos"], ["--ignore-eos", "--json"],
                                   ["--json", *(f"--choice={i} {LONG}" for i in range(20))]])
def test_weights_that_are_overwritten_under_one_answer(start, model, flags):
    process = start("-m", model, "-p", LONG, "-c", "500", "-v", *flags)
    assert any(b"chat format" in line for line in process.stderr)
    overwrite(model)
    out, err = process.communicate(timeout=60)
    assert process.returncode == FAILED and err.endswith(overwritten(model))
    assert b"{" not in out


def test_weights_that_are_overwritten_under_a_chat(start, model, tmp_path):
    """Nothing is answered any more, and the conversation can be saved."""
    process = start("chat", "-m", model, "--chat-template", "chatml", "-n", "4", stdin=subprocess.PIPE)
    process.stdin.write(f"Once\n/save {tmp_path}/first\n".encode())
    process.stdin.flush()
    assert any(b"2 messages saved" in line for line in process.stderr)  # the answer is whole
    overwrite(model)
    _, err = process.communicate(f"Once more\nAnd more\n/regen\n/save {tmp_path}/saved\n".encode(), timeout=60)
    assert process.returncode == FAILED
    assert overwritten(model) in err and err.count(b"was written to while") == 1
    assert err.count(b"Not sent: ") == 2 and b"saved" in err
    assert err.endswith(b"\nauk: the chat ends with messages that were not answered\n")
    messages = json.loads((tmp_path / "saved").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] and messages[0]["content"] == "Once"


def test_weights_that_are_overwritten_under_an_evaluation(start, model, tmp_path):
    """Bytes written to the fifo wait for their reader until after the overwriting."""
    fifo, text = tmp_path / "fifo", tmp_path / "text"
    os.mkfifo(fifo)
    text.write_text(LONG)
    process = start("eval", "-m", model, "-f", text, "--logits-out", fifo)
    with open(fifo, "rb") as reader:
        assert reader.read(6) == b"\x93NUMPY"
        overwrite(model)
        assert len(reader.read()) > 1 << 17
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (FAILED, b"", overwritten(model))


def test_weights_that_are_replaced_stay_what_they_were(answering, model):
    """Another file with this name, other rights, another link: the mapping is of the first file."""
    process = answering()
    (model / "model.safetensors").chmod(0o600)
    os.link(model / "model.safetensors", model / "link")
    shutil.copy(model / "config.json", model / "new")
    (model / "new").rename(model / "model.safetensors")
    assert process.communicate(b"Once\n", timeout=60) == (b"upon a time,\n", b"")
    assert process.returncode == 0


def test_a_signal_that_somebody_sends_is_none_of_a_file(answering):
    process = answering()
    process.send_signal(signal.SIGBUS)
    assert process.wait(60) == -signal.SIGBUS
    assert process.stderr.read() == b""
