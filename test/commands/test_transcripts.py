"""Calls of the program with all that they write: test/data/transcripts/commands, written anew by `make goldens`.

A line "$ ..." is a shell's, in a folder of its own for each "# ..." above it, where `stories` is the tiny model and
`data` the folder of test data; lines before the first heading are run before each. Below a call stand its standard
output after four blanks, its standard error after "  ! ", and its status, if it is not 0, after "  = ".
"""
import os
import pathlib
import re
import subprocess

import pytest

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "transcripts" / "commands"
LIMIT_S = 300  # of a line, which may start twenty programs
# Programs that calls may use: `prompt` writes the text of the prompt of each result that --json --ids gives, `hub` puts
# the tiny model into Hugging Face's cache, by NAME, a digit that its commit has 40 times, and REF.
PROGRAMS = {"auk": """{auk} "$@\"""", "prompt": """sed -n 's/.*"prompt_ids": \\[\\([^]]*\\)\\].*/\\1/p' |
while read -r ids; do {auk} tokenize -m {model} --decode --skip-special "$ids"; echo; done""", "hub": """
repository=$HOME/.cache/huggingface/hub/models--$(echo "$1" | sed s,/,--,g)
commit=$(printf "$2%.0s" $(seq 40))
mkdir -p "$repository/snapshots/$commit" "$repository/blobs"
ln -s {model}/* "$repository/snapshots/$commit"
[ -z "$3" ] && exit
mkdir -p "$repository/refs/$(dirname "$3")" && printf $commit > "$repository/refs/$3\""""}
NO_GPU = re.compile(rb"auk: [^\n]*: computing on the CPU\n")  # of a machine with a driver, or a build with CUDA
OWN = ("AUK_", "HF_", "HUGGINGFACE_", "XDG_")  # variables that no call has but its own


def sections(path):
    """The text of each heading with what follows it; the first is what stands before all headings."""
    return re.split(r"^(?=# )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


HEADINGS = [(path, text.split("\n")[0]) for path in sorted(FOLDER.glob("*.txt")) for text in sections(path)[1:]]


def shown(data, before):
    """Each line after `before`; what is no text, or invisible, is escaped."""
    text = data.decode(errors="backslashreplace")
    text = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    lines = "".join(f"{before}{line}\n" for line in text.removesuffix("\n").split("\n")) if text else ""
    return lines + "  (no newline)\n" * (bool(text) and not text.endswith("\n"))


@pytest.fixture
def call(auk, stories, tmp_path):
    """call(line): what a shell's line does, as a transcript has it."""
    here, programs = tmp_path / "here", tmp_path / "programs"
    here.mkdir()
    programs.mkdir()
    (here / "stories").symlink_to(stories)
    (here / "data").symlink_to(DATA)
    for name, text in PROGRAMS.items():
        (programs / name).write_text("#!/bin/sh\n" + text.format(auk=" ".join(auk), model=stories) + "\n")
        (programs / name).chmod(0o755)
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith(OWN)}, "AUK_KEEP": "0",
                   "CUDA_VISIBLE_DEVICES": "", "HOME": str(here), "PATH": f"{programs}:{os.environ['PATH']}"}

    def run(line):
        done = subprocess.run(["sh", "-c", line], cwd=here, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S, check=False)
        said = shown(done.stdout, "    ") + shown(NO_GPU.sub(b"", done.stderr), "  ! ")
        status = f"  = {done.returncode}\n" if done.returncode else ""
        return f"$ {line}\n" + said.replace(str(here), "HERE") + status

    return run


@pytest.fixture(scope="module")
def written():
    """{path: {heading: text}}, which takes the files' places where GOLDENS=write."""
    texts = {}
    yield texts
    for path, of in texts.items() if os.environ.get("GOLDENS") == "write" else ():
        path.write_text("".join(of.get(text.split("\n")[0], text) for text in sections(path)), encoding="utf-8")


@pytest.mark.parametrize("path, heading", HEADINGS, ids=[f"{path.stem}: {heading[2:]}" for path, heading in HEADINGS])
def test_calls_write_what_the_transcript_has(call, written, path, heading):
    before, *texts = sections(path)
    (text,) = [text for text in texts if text.split("\n")[0] == heading]
    for line in re.findall(r"^\$ (.*)", before, re.MULTILINE):
        call(line)
    now = heading + "\n" + "".join(call(line) for line in re.findall(r"^\$ (.*)", text, re.MULTILINE)) + "\n"
    written.setdefault(path, {})[heading] = now
    if os.environ.get("GOLDENS") != "write":
        assert now.split("\n") == text.split("\n"), "`make goldens` writes all transcripts anew, for review"
