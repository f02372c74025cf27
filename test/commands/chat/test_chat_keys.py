"""The keys of a chat's line: each one that is bound, lines within the line, what is no character, and labels."""
import json
import os

import pytest
from chat_terminal import View, chat, saved, template  # fixtures but for the first

__all__ = ["chat", "saved", "template"]

LEFT, HOME, BREAK = "\x1b[D", "\x1b[H", "\x1b\r"
THREE = f"abcdef{BREAK}gh{BREAK}ijklm"

# Keys that are typed, and the message that they make; X shows where the cursor was.
KEYS = [
    *((f"one two{keys}X", "one twXo") for keys in ("\x1b[D", "\x1bOD", "\x02")),
    *((f"one two{LEFT}{LEFT}{keys}X", "one twXo") for keys in ("\x1b[C", "\x1bOC", "\x06")),
    *((f"one two{keys}X", "Xone two") for keys in ("\x1b[1~", "\x1b[7~", "\x1b[H", "\x1bOH", "\x01")),
    *((f"one two{HOME}{keys}X", "one twoX") for keys in ("\x1b[4~", "\x1b[8~", "\x1b[F", "\x1bOF", "\x05")),
    *((f"one two{keys}X", "one Xtwo") for keys in ("\x1b[1;5D", "\x1b[1;3D")),
    *((f"one two{HOME}{keys}X", "oneX two") for keys in ("\x1b[1;5C", "\x1b[1;3C")),
    *((f"one two{LEFT}{keys}X", "one tXo") for keys in ("\x7f", "\x08")),
    *((f"one{LEFT}{keys}X", "on\nXe") for keys in ("\x1b\r", "\x1b\n")),
    (f"one two{HOME}\x1b[3~X", "Xne two"),
    (f"one two{LEFT}\x15X", "Xo"),
    (f"one two{LEFT}\x0bX", "one twX"),
    (f"one{HOME}\x7fX", "Xone"),
    ("one\x0c two", "one two"),  # Ctrl-L clears the screen alone
    # Up and Down move through the lines, in the column where the cursor is or at a shorter line's end.
    *((f"{THREE}{up}X", "abcdef\nghX\nijklm") for up in ("\x1b[A", "\x1bOA")),
    (f"{THREE}\x1b[A\x1b[AX", "abXcdef\ngh\nijklm"),
    *((f"{THREE}\x1b[A\x1b[A{down}X", "abcdef\nghX\nijklm") for down in ("\x1b[B", "\x1bOB")),
    (f"{THREE}\x1b[A{LEFT}\x1b[BX", "abcdef\ngh\niXjklm"),
    (f"{THREE}\x1b[A\x1b[A{LEFT}{LEFT}\x1b[B\x1b[BX", "abcdef\ngh\nXijklm"),
    (f"ab{BREAK}{BREAK}cd\x1b[A\x1b[AX", "Xab\n\ncd"),
    (f"abcd{LEFT}{BREAK}\x1b[AX", "Xabc\nd"),
]


@pytest.mark.parametrize("name", ["xterm", "vt100", "unheard-of"])
def test_every_key_that_is_bound_does_what_it_should(chat, saved, name):
    terminal = chat("-n", 1, "--no-history", environment={"TERM": name})
    for typed, want in KEYS:
        terminal.say(typed)
        assert saved(terminal)[-2]["content"] == want, typed
        terminal.say("/clear")


def test_up_and_down_go_on_to_what_was_entered_before(chat, saved):
    terminal = chat("-n", 1)
    for text in ("first", f"second{BREAK}line"):
        terminal.say(text)
    for keys, want in (("\x1b[A\x1b[A\x1b[A", "first"), ("\x1b[A\x1b[A\x1b[A\x1b[B\x05", "first")):
        terminal.type("half" if keys.endswith("\x05") else "")
        terminal.say(keys + "!")
        assert saved(terminal)[-2]["content"].startswith(want)


def test_ctrl_c_drops_a_search_and_a_half_pasted_text(chat, saved):
    terminal = chat("-n", 1)
    terminal.say("first")
    terminal.type("half\x12fir\x03")
    terminal.ready()
    terminal.type("kept ")
    terminal.wait("kept")
    terminal.type("\x1b[200~lost")
    terminal.rest()
    terminal.type("\x03")
    terminal.say("and more")
    assert saved(terminal)[-2]["content"] == "kept and more"


@pytest.mark.parametrize("name, sent", [("dumb", ["one\ntwo\nthree"]), ("linux", ["one\ntwo\nthree"]),
                                        ("xterm", ["one", "two", "three"])])
def test_lines_that_come_at_once_are_a_paste_where_pastes_have_no_marks(chat, tmp_path, name, sent):
    terminal = chat("-n", 1, environment={"TERM": name}, wait=False)
    terminal.wait("Ctrl-D leaves")
    terminal.rest()
    terminal.type("one\rtwo\rthree")
    terminal.rest()
    terminal.type("\r")
    terminal.rest()
    terminal.type("/exit\r")
    assert terminal.end() == 0
    kept, = (tmp_path / "state" / "auk" / "chats").glob("*.json")
    assert [m["content"] for m in json.loads(kept.read_text())["messages"] if m["role"] == "user"] == sent


def test_what_is_no_character_is_passed_over(chat, saved):
    terminal = chat("-n", 1)
    typed = b"a\x00b\xffc\xe2\x82d\xc2\x85e\xc2\x9ff\xc2\xa0g\xf0\x9f\x98\xe2\x82\xach\xed\xa0\x80i\xc3j"
    os.write(terminal.child.child_fd, typed)
    terminal.say("")
    assert saved(terminal)[0]["content"] == "abcdef\u00a0g\u20achij"


@pytest.mark.parametrize("rows, most", [(6, 3), (9, 3), (12, 4), (24, 8), (26, 8)])
def test_what_is_higher_than_a_third_of_the_screen_shows_as_a_label(chat, saved, rows, most):
    """But three rows are always shown. A newline at the end begins a row, but is no line more."""
    terminal = chat("-n", 1, rows=rows, columns=40)
    view = View(terminal, rows, 40)
    view.look(lambda lines: ">" in lines)
    widest = 40 * most - 2 - 1  # columns after the prompt: a row that is full is followed by another one
    for text, label in (("\n".join(["x"] * most), None), ("\n".join(["x"] * (most + 1)), f"[{most + 1} lines]"),
                        ("x\n" * most, f"[{most} lines]"), ("é" * widest, None),
                        ("é" * (widest + 1), f"[{widest + 1} characters]"), ("é" * (widest + 1) + "\n",
                                                                             f"[{widest + 2} characters]")):
        terminal.type(f"\x1b[200~{text}\x1b[201~")
        want = "> " + (label or text.split("\n")[0][:38])
        shown = view.look(lambda lines: want in lines)
        assert want in shown, (text, label)
        terminal.type("\x15\x03" if label is None else "\x03")
        view.look(lambda lines: [line for line in lines if line][-1] == ">")


def test_a_label_is_one_character_of_the_line(chat, saved):
    terminal = chat("-n", 1, "-c", 0)
    paste = "\x1b[200~" + "\r".join(["line"] * 20) + "\x1b[201~"
    for keys in (LEFT + "\x7f", LEFT * 2 + "\x1b[3~", LEFT * 2 + "\x1b[C\x7f"):
        terminal.type(f"a{paste}b{keys}")
        terminal.say("X")
        assert saved(terminal)[-2]["content"] == "aXb", keys
        terminal.say("/clear")
    for n_left in (0, 2):  # the letters beside it go alone
        terminal.type(f"a{paste}b" + LEFT * n_left)
        terminal.say("\x7fX")
        whole = "\n".join(["line"] * 20)
        assert saved(terminal)[-2]["content"] == (f"a{whole}X" if n_left == 0 else f"X{whole}b")
        terminal.say("/clear")
