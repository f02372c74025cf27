"""An answer on a terminal: its words wrap, its Markdown has styles, and what is copied from the screen is what a pipe
gets.

The model is the tiny one, some of whose tokens are marks, blanks and wide characters.
"""
import os
import re
from random import Random

import pytest
from chat_terminal import Terminal
from renamed_tokens import renamed
from screen import Screen, columns_of

STYLE = re.compile(r"\x1b\[[0-9;]*m")
MARKS = {",": "\n```c\nx = 1;  // a longer line of code\n```\n", ".": " **a bold** word `and code` ", "y": "\n# Of ",
         "w": "中文 ", "d": "  ", "i": "e\u0301", "b": "*"}


@pytest.fixture
def marked(variant):
    """A model whose answers have marks of Markdown."""
    return variant(tokenizer=renamed(MARKS))


@pytest.fixture
def shown(auk):
    """shown(flags..., columns=): what is written to a terminal of that width, newlines as the program has them."""

    def get(*flags, columns, **environment):
        variables = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        terminal = Terminal([*auk, *map(str, flags)], {**variables, **environment}, columns=columns)
        assert terminal.end() == 0, terminal.seen
        return terminal.seen.replace("\r\n", "\n").split("\x1b[2m[")[0].split("\n[")[0]

    return get


def ask(model, n, seed):
    return ["-m", model, "--raw", "-p", "Once upon a time", "-n", n, "--temp", 1.5, "-s", seed]


def joined(text):
    """Rows joined by blanks; blanks at the ends of lines may be left out of a row that they do not fit into."""
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]*\n", " ", text)).strip()


def test_what_is_copied_is_the_answer_at_any_width(shown, run, marked):
    random = Random(1)
    n_styled = 0
    for seed in range(12):
        asked = ask(marked, 60, seed)
        answer = run(*asked).stdout.decode()
        columns = random.randrange(8, 60)
        written = shown(*asked, columns=columns)
        n_styled += len(STYLE.findall(written))
        assert joined(STYLE.sub("", written)) == joined(answer)
        screen = Screen(400, columns)
        screen.feed(written.replace("\n", "\r\n"))
        rows = [row for row in screen.lines() if row]
        for word in {word for row in answer.split("\n") if "//" not in row for word in row.split()}:
            if sum(map(columns_of, word)) <= columns and word.isascii():
                assert any(word in row for row in rows), (columns, word)
    assert n_styled > 100


def test_flags_and_the_environment_leave_it_plain(shown, run, marked):
    asked = ask(marked, 60, 3)
    answer = run(*asked).stdout.decode()
    assert shown(*asked, "--no-wrap", "--plain", columns=20).rstrip() == answer.rstrip()
    styled = shown(*asked, "--no-wrap", columns=20)
    assert STYLE.search(styled) and STYLE.sub("", styled).rstrip() == answer.rstrip()
    wrapped = shown(*asked, "--plain", columns=20)
    assert "\x1b" not in wrapped and wrapped.rstrip() != answer.rstrip() and joined(wrapped) == joined(answer)
    for environment in {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}:
        assert shown(*asked, columns=20, **environment) == wrapped


def test_an_answer_in_a_form_stays_as_it_is(shown, run, stories):
    asked = ["-m", stories, "--raw", "-p", "Once", "-s", "1", "--temp", "1",
             "--regex", "# [a-z]{4} [*]{2}[a-z ]{40}[*]{2} x"]
    assert shown(*asked, columns=10) == run(*asked).stdout.decode()


