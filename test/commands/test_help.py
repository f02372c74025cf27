"""What auk says of itself, and to whom mistypes a word."""
import re

import pytest


def test_the_help_begins_with_what_one_types(run):
    text = run("--help").stdout.decode()
    assert text.index("auk -m MODEL -p") < text.index("Commands:")
    assert max(len(line) for line in text.splitlines()) <= 100
    assert run("-h").stdout.decode() == text == run("help").stdout.decode()


def test_every_command_has_help_in_columns(run):
    names = re.findall(r"^  (\w+) +\w", run("--help").stdout.decode().split("Commands:\n")[1], re.MULTILINE)
    assert {"run", "chat", "models", "inspect"} <= set(names)
    for name in names:
        process = run(name, "--help")
        assert process.returncode == 0 and process.stderr == b""
        text = process.stdout.decode()
        assert text.startswith("usage: auk ") and "--help" in text
        flags = text[text.index("\n\n", 8):]
        assert max(len(line) for line in flags.splitlines()) <= 112, name
        assert run("help", name).stdout == process.stdout


@pytest.mark.parametrize("arguments,message", [
    (["evl"], 'unknown command "evl": did you mean eval?'),
    (["tokenise", "x"], 'unknown command "tokenise": did you mean tokenize?'),
    (["help", "benhc"], 'unknown command "benhc": did you mean bench?'),
    (["zzz"], 'unknown command "zzz" (auk --help lists them)'),
    (["Why is the sky blue?"], 'unknown command "Why is the sky blue?" (a prompt is given with -p)'),
    (["/"], 'unknown command "/" (a model is given with -m, a file with -f)'),
    ([""], 'unknown command "" (auk --help lists them)'),
    (["--temprature", "1"], "unknown flag --temprature: did you mean --temperature?"),
    (["--device", "cdua"], '--device is "cdua", expected auto|cpu|cuda: did you mean cuda?'),
    (["--js"], "unknown flag --js: did you mean --json?"),
    (["inspect", "--jsn"], "unknown flag --jsn: did you mean --json?"),
])
def test_the_nearest_word_is_named(run, arguments, message):
    process = run(*arguments)
    assert process.returncode == 2 and process.stdout == b""
    assert process.stderr.decode() == f"auk: {message}\n"


def test_every_flag_is_used_by_a_test(root, run):
    """One of its spellings at least stands in a test, other than the tests of what is made of the tables."""
    made_of_tables = {"test_help.py", "test_completions.py", "test_man.py", "test_flags.c"}
    sources = "\n".join(path.read_text() for path in sorted((root / "test").rglob("test_*"))
                        if path.suffix in (".py", ".c") and path.name not in made_of_tables)
    used = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*|(?<![\w-])-\d", sources))
    names = re.findall(r"^  (\w+) +\w", run("--help").stdout.decode().split("Commands:\n")[1], re.MULTILINE)
    untested = [f"{name} {flag}" for name in names
                for flag in re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*)", run(name, "--help").stdout.decode(), re.MULTILINE)
                if not used & set(flag.split(", "))]
    assert untested == []
