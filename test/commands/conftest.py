"""Shared by the tests of commands: the tiny trained model, variations of it, and running the program."""
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

LIMIT_S = 60  # nothing here takes seconds; what takes a minute hangs

# Threads that wait asleep: many small steps are slow where spinning threads share their cores with others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["TERM"] = "xterm"  # what terminals of the tests are, whatever this one is


@pytest.fixture(scope="session")
def stories(root):
    """A real trained model of 260,000 weights in AutoAWQ's layout; it writes small stories."""
    path = root / "test" / "data" / "stories260K-awq"
    assert path.is_dir(), "test/data/stories260K-awq is part of the repository (scripts/make_stories.py)"
    return path


@pytest.fixture
def run(auk):
    """run(*arguments, ...): the finished process. Standard input is empty unless `input` is given; what is written
    is kept unless it is sent elsewhere."""

    def run_it(*arguments, **options):
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": LIMIT_S, **options}
        return subprocess.run([*auk, *map(str, arguments)], **options)

    return run_it


@pytest.fixture
def start(auk):
    """start(*arguments, ...): the running process, which neither LIMIT_S nor the end of the test lets live on."""
    started = []

    def start_it(*arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([*auk, *map(str, arguments)], **options)
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        started.append((process, timer))
        return process

    yield start_it
    for process, timer in started:
        timer.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream and not stream.closed:
                stream.close()


@pytest.fixture
def variant(stories, tmp_path):
    """variant(config={...}, generation={...}, tokenizer=function, files={name: text}): the tiny model with other files
    beside the same weights. A member of None is removed; a tokenizer of None leaves the file out."""

    def make(config=None, generation=None, tokenizer=lambda it: it, files=None, name="variant"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(stories / "model.safetensors", folder)
        for file, changes in (("config.json", config), ("generation_config.json", generation)):
            members = {**json.loads((stories / file).read_text()), **(changes or {})}
            (folder / file).write_text(json.dumps({k: v for k, v in members.items() if v is not None}))
        if tokenizer:
            changed = tokenizer(json.loads((stories / "tokenizer.json").read_text()))
            (folder / "tokenizer.json").write_text(json.dumps(changed))
        for file, text in (files or {}).items():
            (folder / file).write_text(text)
        return folder

    return make


@pytest.fixture
def changed_checkpoint(root, tmp_path):
    """changed_checkpoint(source, change, folder, **members): a copy whose tensors by name are those that the function
    `change` has changed, or the dict that it returns, and whose config has these members; one that is "absent" is
    removed."""
    sys.path.insert(0, str(root / "scripts"))
    import checkpoint

    def make(source, change=None, folder="changed", **members):
        folder = tmp_path / folder
        shutil.copytree(source, folder)
        stored = checkpoint.read_safetensors(str(folder / "model.safetensors"))
        tensors = {name: array.copy() for name, array in stored.items()}
        if change and isinstance(others := change(tensors), dict):
            tensors = others
        checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors)
        config = {**json.loads((folder / "config.json").read_text()), **members}
        (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))
        return folder

    return make


@pytest.fixture
def logits_of(run, tmp_path):
    """logits_of(model, ids, *flags): a row for each id, computed on the CPU by one thread."""
    import numpy

    def of(model, ids, *flags):
        (tmp_path / "ids").write_text(" ".join(map(str, ids)))
        out = tmp_path / "logits.npy"
        done = run("eval", "-m", model, "--ids-file", tmp_path / "ids", "--logits-out", out, "--device", "cpu",
                   "-t", "1", *flags)
        assert done.returncode == 0, done.stderr
        return numpy.load(out)

    return of


@pytest.fixture
def packed_alone(run, tmp_path):
    """packed_alone(model): the model's packed file in a folder of its own, with nothing beside it."""

    def make(model):
        folder = tmp_path / "alone"
        folder.mkdir()
        done = run("pack", model, "-o", "/dev/stdout")
        assert done.returncode == 0, done.stderr
        (folder / "model.ak48").write_bytes(done.stdout)
        return folder / "model.ak48"

    return make


@pytest.fixture
def endless(variant):
    """Flags that make the model write for minutes: a context far beyond its own, and no end."""
    model = variant(config={"max_position_embeddings": 200000}, name="endless")
    return ["-m", str(model), "--raw", "-p", "Once", "--ignore-eos", "--temp", "1", "-s", "1"]


TALK = ("{{ bos_token }}{% for m in messages %}"
        "{% if 'bad' in m.content %}{{ raise_exception('no bad words') }}{% endif %}"
        "{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}they:{% endif %}")


@pytest.fixture
def talker(variant):
    """talker(more): the model with a chat template, which this text ends."""

    def make(more=""):
        files = {"chat_template.jinja": TALK + more, "tokenizer_config.json": json.dumps({"bos_token": "<s>"})}
        return variant(files=files, name="talker")

    return make
