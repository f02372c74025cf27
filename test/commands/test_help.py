"""The help that auk prints, and its messages for mistyped words."""
import re

import pytest


def test_the_help_begins_with_what_one_types(run):
    text = run("--help").stdout.decode()
    assert text.index("auk -m MODEL -p") < text.index("Commands:")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert run("-h").stdout.decode() == text == run("help").stdout.decode()


def test_every_command_has_help_in_columns(run):
    names = re.findall(r"^  (\w+) +\w", run("--help").stdout.decode().split("Commands:\n")[1], re.MULTILINE)
    assert {"run", "chat", "models", "inspect"} <= set(names)
    for name in names:
        process = run(name, "--help")
        assert process.returncode == 0 and process.stderr == b""
        text = process.stdout.decode()
        assert text.startswith("usage: auk ") and "--help" in text
        assert run("help", name).stdout == process.stdout
        every = run(name, "--help", "all").stdout
        assert run("help", name, "all").stdout == every
        assert max(map(len, (text + every.decode()).splitlines())) <= 80, name


@pytest.mark.parametrize("name, flag", [("run", "-p"), ("chat", "--no-history")])
def test_the_first_screen_has_the_flags_that_people_use(run, name, flag):
    first, every = (run(name, "--help", *which).stdout.decode() for which in ((), ("all",)))
    flags, others = (re.findall(r"^  (-[\w-]+)", text, re.MULTILINE) for text in (first, every))
    assert len(flags) == 16 and flags[-1] == "-h" and flag in flags and set(flags) < set(others)
    assert first.endswith(f"\n--help all lists all {len(others)} flags, man auk explains them.\n")
    for entry in re.findall(r"^  -.*\n(?: {28}.*\n)*", first, re.MULTILINE)[:-1]:  # its text is that of all
        assert " ".join(entry.split()[-5:]) in " ".join(every.split()), entry


def test_every_flag_is_used_by_a_test(root, run):
    """One of its spellings at least stands in a test, other than the tests of what is made of the tables."""
    made_of_tables = {"test_help.py", "test_completions.py", "test_man.py", "test_flags.c"}
    paths = [path for path in (root / "test").rglob("test_*") if path.suffix in (".py", ".c")]
    paths += (root / "test" / "data" / "transcripts" / "commands").glob("*.txt")
    sources = "\n".join(path.read_text() for path in paths if path.name not in made_of_tables)
    used = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*|(?<![\w-])-\d", sources))
    names = re.findall(r"^  (\w+) +\w", run("--help").stdout.decode().split("Commands:\n")[1], re.MULTILINE)
    pattern = re.compile(r"^  (-[\w-]+(?:, -[\w-]+)*)", re.MULTILINE)
    untested = [f"{name} {flag}" for name in names
                for flag in pattern.findall(run(name, "--help", "all").stdout.decode())
                if not used & set(flag.split(", "))]
    assert untested == []
