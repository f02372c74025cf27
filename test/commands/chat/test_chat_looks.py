"""How a chat looks: what it begins with, whose text is whose, rows at any width, lists, what is shown again.

The model is the tiny one, which writes stories whatever is said to it; some of its tokens are marks of Markdown.
"""
import re
import time

import pytest
from chat_terminal import MINE, NOT_MINE, PASTE_OFF, View, chat, saved, template  # three of them fixtures
from renamed_tokens import renamed

__all__ = ["chat", "saved", "template"]

COLOURS = {"NO_COLOR": ""}
DIM = "\x1b[2m%s\x1b[22m"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def joined(text):
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]*\n", " ", text)).strip()


def test_it_begins_with_the_model_its_weights_the_device_and_the_context(chat, stories):
    terminal = chat("-t", 2, "-c", 300, environment=COLOURS)
    banner = f"{stories.name}: 4 bits (AutoAWQ gemm); CPU, 2 threads; context 300"
    assert DIM % banner + "\r\n" + DIM % "/help lists commands, Ctrl-D leaves" + "\r\n\r\n" in terminal.seen


def test_turns_are_apart_and_ones_own_lines_have_a_colour(chat, saved):
    terminal = chat("-n", 4, rows=40, columns=60, environment=COLOURS)
    terminal.say("One two three.")
    assert "".join(re.findall(re.escape(MINE) + "(.*?)" + re.escape(NOT_MINE), terminal.seen)).endswith(
        "One two three.")
    view = View(terminal, 40, 60)
    terminal.say("/set temp 0")
    terminal.type("Two.\r")
    terminal.ready()
    lines = view.look(lambda lines: lines.count("> Two."))
    answers = [m["content"] for m in saved(terminal)][1::2]
    rows = [row.strip() for row in view.screen.lines()]
    one, two = rows.index("> One two three."), rows.index("> Two.")
    assert rows[one - 1] == rows[two - 2] == "" and rows[two - 1] == "> /set temp 0"
    assert [rows[one + 1], rows[two + 1]] == [answer.strip() for answer in answers]
    assert re.fullmatch(r"\[4 tokens, [0-9.]+/s; context \d+ of 512\]", rows[two + 3]), lines
    assert rows[two + 2] == "cut after 4 tokens (/set n)" and rows[two + 4] == ""


@pytest.mark.parametrize("columns", [11, 24, 37, 80])
def test_rows_break_between_words_and_what_is_copied_is_the_answer(chat, saved, variant, columns):
    marked = variant(tokenizer=renamed({",": " **a bold** word ", ".": " `code` 中文。", "y": "\n# Of "}))
    terminal = chat("-n", 60, "--temp", 1, "--no-status", model=marked, rows=200, columns=columns, environment=COLOURS)
    terminal.type("Go\r")
    terminal.wait(NOT_MINE + "\x1b[?2004l")
    written = terminal.ready().replace("\x1b[2mcut", "cut").split("cut after")[0].replace("\r\n", "\n")
    assert STYLE.search(written)
    terminal.child.setwinsize(200, 200)
    answer = saved(terminal)[1]["content"]
    assert joined(STYLE.sub("", written)) == joined(answer)
    for row in STYLE.sub("", written).split("\n"):
        for word in row.split():
            assert word in answer.split()


def test_a_window_that_changes_in_the_middle_of_an_answer_has_the_rest_at_its_width(chat, saved, variant):
    terminal = chat("--ignore-eos", "--temp", 0.7, "--no-status", rows=50, columns=100,
                    model=variant(config={"max_position_embeddings": 200000}))
    terminal.type("Go\r")
    terminal.wait("Go\r\n" + PASTE_OFF)
    written = ""
    for columns in 30, 60:
        terminal.child.setwinsize(50, columns)
        end = len(written) + 2500  # what was written before has gone through the terminal by then
        while len(written) < end:
            written += terminal.wait("\r\n") + "\r\n"
        rows = written.split("\r\n")[-9:-1]
        assert all(len(row) <= columns or max(map(len, row.split())) > columns for row in rows), rows
        assert sorted(map(len, rows))[len(rows) // 2] > columns - 15
    terminal.type("\x03")
    written += terminal.wait("interrupted")
    terminal.ready()
    terminal.child.setwinsize(50, 200)
    same = joined(written.replace("\r\n", "\n")) == joined(saved(terminal)[1]["content"])
    assert same


def test_words_that_the_terminal_has_yet_to_show_are_not_lost_by_ctrl_c(chat, saved, variant):
    terminal = chat("--ignore-eos", "--temp", 0.7, "--no-status", "--no-wrap",
                    model=variant(config={"max_position_embeddings": 200000}))
    terminal.type("Go\r")
    terminal.wait("Go\r\n" + PASTE_OFF)
    time.sleep(1)  # nothing is read, so the answer fills the terminal
    terminal.type("\x03")
    written = terminal.wait("interrupted")
    terminal.ready()
    assert joined(written.replace("\r\n", "\n")) == joined(saved(terminal)[1]["content"])


def test_messages_of_the_chat_wrap_too(chat):
    terminal = chat(columns=30)
    told = terminal.say("/foo")
    assert max(map(len, told.splitlines())) <= 30
    assert joined(told) == "there is no command /foo: /help lists them (to send it as text, begin with a space)"
    assert max(map(len, chat("--no-wrap", columns=30).say("/foo").splitlines())) > 30


def test_help_wraps_between_words(chat):
    told = chat(rows=60, columns=40).say("/help")
    assert max(map(len, told.splitlines())) <= 40
    assert joined(told) == joined(chat(columns=100).say("/help"))


def test_an_edited_message_is_shown(chat, tmp_path, saved):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "Two\\nlines" >"$1"\n')
    editor.chmod(0o755)
    terminal = chat("-n", 3, environment={"EDITOR": str(editor)})
    terminal.say("One.")
    assert terminal.say("/edit").startswith("> Two\nlines\n")
    assert saved(terminal)[0]["content"] == "Two\nlines"


def test_a_loaded_conversation_shows_its_last_turn(chat, tmp_path):
    talk = tmp_path / "talk.json"
    talk.write_text('[{"role": "user", "content": "First."}, {"role": "assistant", "content": "Yes."},'
                    ' {"role": "user", "content": "A\\nquestion"}, {"role": "assistant", "content": "**An** answer"}]')
    terminal = chat(environment=COLOURS)
    told = terminal.say(f"/load {talk}")
    assert "4 messages, " in told and "First." not in told
    assert told.endswith(f"{MINE}> A question{NOT_MINE}\n" + DIM % "**An** answer" + "\n\n")


def test_tab_shows_what_there_is_to_choose_from(chat, tmp_path):
    for name in ("letter one", "letter two\x1b[2J", "other"):
        (tmp_path / name).write_text("")
    terminal = chat(rows=30, columns=60)
    view = View(terminal, 30, 60)
    terminal.type("/s\t")
    assert view.look(lambda lines: lines[-1:] == [""] and lines.count("> /s") == 2)[-3:] == [
        "> /s", "save    set     stats   system", "> /s"]
    terminal.type("e\t\x15")
    terminal.type(f"/read {tmp_path}/letter \t")
    lines = view.look(lambda lines: any("letter one" in line for line in lines))
    assert "letter one      letter two␛[2J" in [line.strip() for line in lines], lines


def test_nothing_has_a_style_where_none_is_wanted(chat):
    for flags, environment in (["--plain"], COLOURS), ([], {"NO_COLOR": "1"}):
        terminal = chat("-n", 4, *flags, environment=environment)
        terminal.say("Hi")
        terminal.say("/foo")
        assert not STYLE.search(terminal.seen)
