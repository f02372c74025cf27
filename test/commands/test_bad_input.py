"""Whatever is wrong: one line on standard error that names it, the documented status, nothing on standard output, and
no half-written file."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

FAILED, MODEL, INTERRUPTED, PIPE = 1, 3, 130, 141


def refused(process, status, *parts):
    assert process.returncode == status, (process.returncode, process.stderr)
    assert process.stdout == b""
    assert process.stderr.startswith(b"auk: ") and process.stderr.endswith(b"\n")
    assert process.stderr.count(b"\n") == 1, process.stderr
    for part in parts:
        assert os.fsencode(str(part)) in process.stderr, (part, process.stderr)


# --- flags


def test_control_bytes_do_not_reach_the_terminal(run):
    refused(run("-m", "a\x1b[2Jb\nc", "-p", "Hi"), MODEL, "a?[2Jb?c")


def test_nor_do_those_of_names_in_what_is_said_of_success(run, stories, tmp_path):
    name = tmp_path / "a\x1b[2Jb\nc"
    said = run("pack", "-m", stories, "-o", name).stderr
    assert said.count(b"auk: ") == said.count(b"\n") == 1 and said.count(b"a?[2Jb?c") == 1
    said = run("cache", "--cache-dir", name, "--clear").stderr
    assert said.endswith(b"a?[2Jb?c: cannot list: Not a directory\n")
    name.unlink()
    assert run("cache", "--cache-dir", name).stderr.endswith(b"a?[2Jb?c: 0 bytes\n")
    assert run("cache", "--cache-dir", name, "--clear").stderr.endswith(b"a?[2Jb?c: 0 files removed\n")
    name.write_bytes(b"\xff\n")
    assert b"a?[2Jb?c:1: " in run("-m", stories, "--raw", "-n", 1, "--map", name).stderr


@pytest.mark.parametrize("command", [["run", "-p", "Hi"], ["eval", "--ids-file", "/dev/null"], ["bench"]])
class TestModels:
    """Every command that opens a model."""

    def test_a_path_that_does_not_exist(self, run, command, tmp_path):
        refused(run(*command, "-m", tmp_path / "nothing"), MODEL, tmp_path / "nothing")

    def test_a_directory_without_a_config(self, run, command, tmp_path):
        refused(run(*command, "-m", tmp_path), MODEL, tmp_path, "config.json")

    def test_a_file_that_is_no_model(self, run, command, tmp_path):
        (tmp_path / "file").write_text("not a model")
        refused(run(*command, "-m", tmp_path / "file"), MODEL, tmp_path / "file")

    def test_no_weights(self, run, command, tmp_path, stories):
        shutil.copy(stories / "config.json", tmp_path)
        refused(run(*command, "-m", tmp_path), MODEL, "model.safetensors")

    @pytest.mark.parametrize("text, part", [
        ("{", ""),
        ('{"a": 1} x', ""),
        ('{"a": 1, "a": 2}', "a"),
        ('["a"]', ""),
        ("\0", ""),
        ('{"hidden_size": 1e400}', ""),
        ('{"hidden_size": "64"}', ""),
    ])
    def test_a_config_that_is_broken(self, run, command, variant, text, part):
        model = variant()
        (model / "config.json").write_text(text)
        refused(run(*command, "-m", model), MODEL, "config.json", part)

    def test_an_architecture_that_is_not_known(self, run, command, variant):
        model = variant(config={"architectures": ["MambaForCausalLM"], "model_type": "mamba"})
        refused(run(*command, "-m", model), MODEL, "MambaForCausalLM")

    @pytest.mark.parametrize("size", [0, 4, 8, 100, 5000, 100_000])
    def test_truncated_weights(self, run, command, variant, size):
        model = variant()
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:size])
        refused(run(*command, "-m", model), MODEL, "model.safetensors")

    def test_a_header_that_lies(self, run, command, variant):
        model = variant()
        weights = model / "model.safetensors"
        data = weights.read_bytes()
        weights.write_bytes(b"\xff" * 8 + data[8:])
        refused(run(*command, "-m", model), MODEL, "model.safetensors")


# --- prompts


def test_a_tokenizer_of_another_model(run, variant):
    def add(it):
        it["added_tokens"].append({"id": 512, "content": "<|new|>", "single_word": False, "lstrip": False,
                                   "rstrip": False, "normalized": False, "special": True})
        return it

    model = variant(tokenizer=add)
    refused(run("-m", model, "-p", "a<|new|>b", "--parse-special", "--raw"), MODEL, "id 512", "below 512")
    assert run("-m", model, "-p", "a<|new|>b", "--raw", "-n", 1).returncode == 0


def test_a_tokenizer_that_is_missing_or_broken(run, variant):
    refused(run("-m", variant(tokenizer=None, name="a"), "-p", "Hi"), MODEL, "tokenizer.json")
    broken = variant(name="b")
    (broken / "tokenizer.json").write_text("{}")
    refused(run("-m", broken, "-p", "Hi"), MODEL, "tokenizer.json")


def test_a_context_that_does_not_fit_the_memory(run, variant):
    """Keys and values of 2^30 tokens, 1280 bytes each, are more than a terabyte: refused with both numbers."""
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 1 << 40:
        pytest.skip("needs a machine with less than a terabyte of memory")
    model = variant(config={"max_position_embeddings": 1 << 30})
    refused(run("-m", model, "-p", "Hi", "-c", 0, "--kv", "f32"), FAILED, "not enough memory", "needed", "free")


def test_sampling_defaults_out_of_range(run, variant):
    process = run("-m", variant(generation={"do_sample": True, "top_p": 1.5}), "-p", "Hi", "-n", 1)
    refused(process, MODEL, "top_p")


# --- output that fails


def test_a_full_disk(auk, stories):
    for arguments in (["-p", "Hi", "--raw", "-m", stories], ["--help"], ["--version"],
                      ["bench", "-m", stories, "-p", "4", "-n", "4"],
                      ["eval", "-m", stories, "-f", stories / "config.json", "--max-tokens", "9"]):
        with open("/dev/full", "wb") as full:
            process = subprocess.run([*auk, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=full,
                                     stderr=subprocess.PIPE, timeout=60)
        assert process.returncode == FAILED
        assert process.stderr.count(b"\n") == 1 and b"standard output" in process.stderr


def test_a_closed_standard_output(auk, stories):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *auk, "-m", stories, "--raw", "-p", "Hi"]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    refused(process, FAILED, "standard output")


def test_a_reader_that_goes_away(start, endless):
    process = start(*endless)
    assert os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    assert process.wait(60) == PIPE
    assert process.stderr.read() == b""


# --- interruptions


def interrupt(process, expected=INTERRUPTED, number=signal.SIGINT):
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == expected
    assert err == b""
    return out


def catches_interrupts(process):
    """True if its handler is there: until then an interrupt ends it as it would end any program."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"(?m)^SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1


def test_an_interrupted_answer_ends_cleanly(start, run, endless):
    process = start(*endless)
    begin = os.read(process.stdout.fileno(), 100)
    text = begin + interrupt(process)
    whole = run(*endless, "-n", 40).stdout
    whole, text = whole.removesuffix(b"\n"), text.removesuffix(b"\n")
    assert begin and (text.startswith(whole) or whole.startswith(text))
    text.decode()  # no half characters


FORMS = {
    "a regular expression": ["--regex", "[a-z ]{40000,}"],
    "a regular expression that is not complete": ["--regex", "([a-z ]{9})*9"],
    "a schema": ["--json-schema", '{"type": "string", "minLength": 150000}'],
    "a grammar": ["--grammar", 'root ::= [a-z ]+ "9"'],
    "code": ["-x"],
}


@pytest.mark.parametrize("flags", FORMS.values(), ids=FORMS.keys())
def test_an_interrupted_form_has_the_status_of_an_interruption(start, endless, flags):
    """The masks of a form look at the interruption, too: three moments, so that it comes within a mask as well."""
    for wait_s in (0, 0.03, 0.1):
        asked = [flag for flag in endless if flag != "--ignore-eos" or "-x" in flags]  # code alone would end by itself
        process = start(*asked, *flags, "--jsonl-stream" if "-x" not in flags else "--plain")
        if "-x" not in flags:
            assert os.read(process.stdout.fileno(), 10)
        while not catches_interrupts(process):
            time.sleep(0.01)
        time.sleep(wait_s)
        out = interrupt(process)
        assert "-x" in flags or json.loads(out.splitlines()[-1])["finish_reason"] == "interrupted"


def test_waiting_for_input_can_be_interrupted(start, stories):
    process = start("-m", stories, "-", stdin=subprocess.PIPE)
    while not catches_interrupts(process):
        assert process.poll() is None
        time.sleep(0.01)
    assert interrupt(process) == b""


def processor_s(process):
    """Seconds of processor time that it has taken so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ENCODING = {
    "an answer": (["--raw", "-f", "TEXT"], signal.SIGINT),
    "an answer in a chat format": (["-f", "TEXT"], signal.SIGTERM),
    "a chat": (["chat"], signal.SIGINT),
    "lines": (["--raw", "-p", "{}", "--map", "TEXT"], signal.SIGINT),
    "an evaluation": (["eval", "-f", "TEXT"], signal.SIGHUP),
}


@pytest.mark.parametrize("flags, number", ENCODING.values(), ids=ENCODING.keys())
def test_the_first_interruption_counts_while_a_text_is_encoded(start, variant, tmp_path, flags, number):
    """The tokenizer's regular expression works at this text for four seconds until it is refused."""

    def slow(tree):
        split = {"type": "Split", "pattern": {"Regex": "(?<=a)a*c"}, "behavior": "Isolated", "invert": False}
        return {**tree, "normalizer": None, "pre_tokenizer": split}

    model = variant(tokenizer=slow, files={"chat_template.jinja": "{{ messages[0].content }}"})
    (tmp_path / "text").write_text("a" * 8_000_000 + "\n")
    flags = [str(tmp_path / "text") if flag == "TEXT" else flag for flag in flags]
    command = [flags.pop(0)] if not flags[0].startswith("-") else []
    with open(tmp_path / "text", "rb") as text:
        process = start(*command, "-m", model, "-t", "1", *flags, stdin=text if command == ["chat"] else None)
        while processor_s(process) < 0.8:  # what comes before takes a tenth of a second
            assert process.poll() is None
            time.sleep(0.01)
        begin = processor_s(process)
        process.send_signal(number)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, process.stdout.read()) == (INTERRUPTED, b"")
    assert used.ru_utime + used.ru_stime - begin < 2  # of three that were left


def has_open_in(process, folder):
    """True if the process has a file of this folder open, even one without a name."""
    for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if os.readlink(link).startswith(str(folder)):
                return True
        except FileNotFoundError:  # closed since it was listed
            continue
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_evaluation_leaves_nothing(start, variant, tmp_path, number):
    model = variant(config={"max_position_embeddings": 200000})
    (tmp_path / "ids").write_text("5 " * 200000)
    out = tmp_path / "out"
    out.mkdir()
    process = start("eval", "-m", model, "--ids-file", tmp_path / "ids", "--logits-out", out / "logits.npy")
    while not has_open_in(process, out):  # or until the process is killed
        assert process.poll() is None
        time.sleep(0.01)
    assert interrupt(process, number=number) == b""
    assert list(out.iterdir()) == []


def test_an_interrupted_packing_ends_early(start, stories, tmp_path):
    """The writer waits until the fifo is emptied; once it is, no further tensor is written."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("pack", stories, "-o", fifo)
    with open(fifo, "rb", buffering=0) as reader:
        assert reader.read(4) == b"84ka"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        size = 4 + len(reader.readall())
    assert (process.wait(60), process.stderr.read()) == (INTERRUPTED, b"")
    assert size < 256 + 218144


def test_an_interrupted_benchmark(start, variant):
    model = variant(config={"max_position_embeddings": 200000})
    process = start("bench", "-m", model, "-p", 16, "-n", 100000, "-r", 100)
    assert os.read(process.stdout.fileno(), 10)
    interrupt(process)
