"""The line of a chat: editing, pasting, the screen, the terminal's settings, history, pipes beside a person.

The model is the tiny one, which writes stories whatever is said to it.
"""
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import time
from random import Random

import pytest
from chat_terminal import PASTE_OFF, PASTE_ON, Terminal, View, chat, pexpect, saved, template  # three are fixtures
from screen import Screen, columns_of

__all__ = ["chat", "saved", "template"]


def test_without_a_prompt_auk_on_a_terminal_is_a_chat(auk, stories, template, tmp_path):
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    for command in [[], ["run"]]:
        flags = ["-m", str(stories), "--chat-template", str(template), "--no-history"]
        terminal = Terminal([*auk, *command, *flags], environment)
        terminal.ready()
        assert "/regen" in terminal.say("/help")
        terminal.type("\x04")
        assert terminal.end() == 0
    terminal = Terminal([*auk, "-m", str(stories), "--json"], environment)
    terminal.wait("no prompt")
    assert terminal.end() == 2


def test_answers_alone_go_into_a_pipe_while_a_person_types(auk, stories, template, tmp_path):
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    command = f"{shlex.join(auk)} chat -m '{stories}' --chat-template '{template}' -n 10 | cat > '{tmp_path}/answers'"
    terminal = Terminal(["sh", "-c", command], environment)
    terminal.ready()
    terminal.say("One.")
    terminal.say(f"/save {tmp_path}/talk.json")
    terminal.type("\x04")
    terminal.end()
    answer = json.loads((tmp_path / "talk.json").read_text())["messages"][1]["content"]
    assert (tmp_path / "answers").read_text() == answer + "\n"


# --- the line


def test_control_c_drops_the_line_and_control_d_leaves(chat, saved):
    terminal = chat("-n", 5)
    terminal.type("not this\x03")
    assert "^C" in terminal.ready()
    terminal.type("\x03")
    terminal.ready()
    assert "Ctrl-D leaves" in terminal.child.before
    assert saved(terminal) == []
    assert terminal.echoes() is False  # the editor has the terminal
    terminal.type("\x04")
    assert terminal.end() == 0
    assert terminal.seen.endswith("\r\n" + PASTE_OFF)


def test_control_c_while_the_model_loads_leaves(chat):
    """Where it came just before the first prompt, that prompt answers it; it is never lost."""
    for wait_s in (0, 0.005, 0.01, 0.02, 0.04):
        terminal = chat(wait=False)
        time.sleep(wait_s)
        terminal.child.kill(signal.SIGSTOP)
        os.waitpid(terminal.child.pid, os.WUNTRACED)
        shown = ""
        with contextlib.suppress(pexpect.TIMEOUT):
            while True:  # the program may have written several times
                shown += terminal.child.read_nonblocking(4096, 0.1)
        if "/help" in shown:
            continue  # it was faster
        terminal.child.kill(signal.SIGINT)
        terminal.child.kill(signal.SIGCONT)
        if terminal.child.expect([pexpect.EOF, r"> .*\^C"]) == 0:
            assert terminal.end() in (130, None)  # None: before anything was caught
        else:
            terminal.type("\x04")
            assert terminal.end() == 0


@pytest.mark.parametrize("command", ["/exit", "/quit", "/bye"])
def test_words_that_leave(chat, command):
    terminal = chat()
    terminal.type(command + "\r")
    assert terminal.end() == 0


def test_pasted_text_comes_in_whole_and_waits(chat, saved):
    terminal = chat("-n", 5)
    terminal.type("Read this: \x1b[200~one\rtwo\r\tthree /clear\r\x1b[201~")
    time.sleep(0.1)
    terminal.type("and that.")
    terminal.wait("and that.")
    terminal.say("")
    assert saved(terminal)[0]["content"] == "Read this: one\ntwo\n\tthree /clear\nand that."


def test_a_long_paste_shows_as_one_label(chat, saved):
    terminal = chat("-n", 5, "-c", 0, "--context-overflow", "stop")
    lines = [f"line {i}" for i in range(40)]
    terminal.type("Count: \x1b[200~" + "\r".join(lines) + "\x1b[201~, please")
    terminal.wait("[40 lines], please")
    terminal.say("")
    assert saved(terminal)[0]["content"] == "Count: " + "\n".join(lines) + ", please"
    terminal.type("\x1b[200~" + "\r".join(lines) + "\x1b[201~\x7fgone")  # backspace takes all of it
    terminal.wait("gone")
    terminal.say("")
    assert saved(terminal)[2]["content"] == "gone"


def test_a_paste_of_a_command_is_no_command_until_enter(chat):
    terminal = chat("-n", 5)
    terminal.type("\x1b[200~/exit\r\x1b[201~")
    terminal.wait("/exit")
    terminal.type("\x03")
    terminal.ready()
    assert "Ctrl-D" in terminal.say("/help")


@pytest.mark.parametrize("typed, text", [
    ("中文 字符", "中文 字符"),
    ("中文x\x7f\x7f字", "中字"),
    ("naïve Ünïcödé ÿ", "naïve Ünïcödé ÿ"),
    ("e\u0301a\u0301\x7fo", "e\u0301o"),  # an accent goes with its letter
    ("👩\u200d💻 ❤\ufe0f", "👩\u200d💻 ❤\ufe0f"),
    ("b\x01a\x05c", "abc"),
    ("\U000F0000\U00020000 of the editor's own", "\U000F0000\U00020000 of the editor's own"),
    ("one\x1b\rtwo", "one\ntwo"),  # Alt-Enter
    ("say this\x1b[D\x1b[D\x1b[D\x1b[D\x0bthat", "say that"),
    ("one two\x17three", "one three"),
])
def test_the_line_is_edited_by_characters(chat, saved, typed, text):
    terminal = chat("-n", 2)
    terminal.say(typed)
    assert saved(terminal)[0]["content"] == text


def test_the_manner_of_vi(chat, saved, tmp_path):
    (tmp_path / ".editrc").write_text("bind -v\n")
    terminal = chat("-n", 2)
    terminal.type("hello wrld")
    terminal.wait("wrld")
    terminal.type("\x1b")
    terminal.rest()  # Esc alone
    terminal.type("bi")
    terminal.type("my \x1b[C\x1b[Do\x1b")  # sequences are sequences still
    terminal.rest()
    terminal.type("x\x03")
    terminal.ready()
    terminal.type("one")
    terminal.wait("one")
    terminal.type("\x1b")
    terminal.rest()
    terminal.say("0itwo ")
    assert saved(terminal)[0]["content"] == "two one"


def test_a_block_is_one_message(chat, saved):
    terminal = chat("-n", 2)
    terminal.type('"""\r')
    terminal.wait(PASTE_ON + "... ")
    terminal.type("/clear\r")
    terminal.wait(PASTE_ON + "... ")
    terminal.type('  "quoted"\r')
    terminal.wait(PASTE_ON + "... ")
    terminal.say('"""')
    terminal.say('"""/one line"""')
    terminal.type('"""dropped\r')
    terminal.wait(PASTE_ON + "... ")
    terminal.type("\x03")
    terminal.ready()
    terminal.say("\x1b[A")  # comes back as a block, not as a command
    assert [m["content"] for m in saved(terminal)][::2] == ['/clear\n  "quoted"', "/one line", "/one line"]


def test_lines_from_a_pipe_are_messages_whatever_they_say(run, stories, template):
    done = run("chat", "-m", stories, "--chat-template", template, "-n", 2, "-s", 1, input=b"exit\nhelp\n")
    assert done.returncode == 0 and done.stdout.strip() and b"/exit" not in done.stdout + done.stderr


def test_text_and_commands_are_told_apart(chat, saved):
    terminal = chat("-n", 2)
    texts = ["/usr/bin/env is what?", " /tmp", " /help", "/2 apples", "//"]
    for text in texts:
        terminal.say(text)
    hint = "(to send it as text, begin with a space)\n"
    assert terminal.say("/hlep") == f"there is no command /hlep: is it /help? {hint}"
    assert terminal.say("/tmp") == f"there is no command /tmp: /help lists them {hint}"
    assert terminal.say("/foo bar") == f"there is no command /foo: /help lists them {hint}"
    instead = "auk chat --continue -m MODEL goes on with another model"
    for word, does in ("exit", "/exit leaves, and so does Ctrl-D"), ("Help ", "/help lists what can be done"):
        assert terminal.say(word) == f"{does} {hint}"
    for line, meant in ("system Be kind.", "/system TEXT sets the system message"), (
            "parameter temperature 0.5", "/set NAME VALUE, such as /set temp 0.5"):
        assert terminal.say(f"/set {line}") == f'there is no setting "{line.split()[0]}"; {meant}\n'
    assert terminal.say("/model qwen3") == f"there is no command /model: {instead} {hint}"
    assert "stands alone" in terminal.say("/clear the table")
    terminal.say("")
    terminal.say("   ")
    assert [m["content"] for m in saved(terminal)][::2] == texts


def test_tab_completes(chat, tmp_path):
    (tmp_path / "a file.txt").write_text("text")
    terminal = chat()
    assert "repeat-penalty" in terminal.say("/se\t")
    assert "is set" not in terminal.say("/set rep\t1.5")
    assert "repeat-penalty 1.5" in terminal.say("/set")
    assert "in front of your next message" in terminal.say(f"/rea\t{tmp_path}/a\t")


# --- the screen


def test_wide_characters_stand_where_they_should(chat):
    terminal = chat(rows=12, columns=30)
    view = View(terminal, 12, 30)
    terminal.type("中文字符" * 4 + "\x01a")
    want = ["> a" + "中文字符" * 3 + "中", "文字符"]
    assert view.look(lambda lines: want[0] in lines)[-2:] == want
    terminal.type("\x05e\u0301x\x1b[D\x1b[DQ")
    assert view.look(lambda lines: any("Q" in line for line in lines))[-1] == "文字符Qe\u0301x"
    assert view.screen.column == 7
    terminal.type("\x7f\x7f\x7f")
    assert view.look(lambda lines: lines.count("文e\u0301x"))[-1] == "文e\u0301x"


def rows_of(cells, columns):
    """How cells after the prompt are broken into rows; and the row and column after them."""
    rows, column = ["> "], 2
    for cell in cells:
        width = columns_of(cell[0])
        if column + width > columns:
            rows, column = [*rows, ""], 0
        rows[-1] += cell
        column += width
        if column == columns:
            rows, column = [*rows, ""], 0
    return rows, len(rows) - 1, column


@pytest.mark.parametrize("rows", [12, 4])
def test_any_editing_leaves_on_the_screen_what_is_in_the_line(chat, rows):
    """Random keys against a list of cells: after each few, every character stands where it should, and the cursor. A
    line that is higher than the screen shows the rows around the cursor."""
    random = Random(1)
    columns = 20
    terminal = chat("--no-history", rows=rows, columns=columns)
    view = View(terminal, rows, columns)
    view.look(lambda lines: ">" in lines)
    letters = ["a", "b", " ", "中", "文", "é", "e\u0301", "か\u3099", "👩", "x\u0302\u0301"]
    cells, at, n_high = [], 0, 0
    for _ in range(80):
        for _ in range(random.randrange(1, 6)):
            key = random.choice(["insert"] * 12 + ["left"] * 5 + ["right"] * 2 + ["rub"] * 3 + ["home", "end", "kill"])
            if key == "insert" and len(cells) < 80:
                letter = random.choice(letters)
                cells, at = [*cells[:at], letter, *cells[at:]], at + 1
                terminal.type(letter)
            elif key == "left" and at > 0:
                at -= 1
                terminal.type("\x1b[D")
            elif key == "right" and at < len(cells):
                at += 1
                terminal.type("\x1b[C")
            elif key == "rub" and at > 0:
                cells, at = [*cells[:at - 1], *cells[at:]], at - 1
                terminal.type("\x7f")
            elif key == "home":
                at = 0
                terminal.type("\x01")
            elif key == "end":
                at = len(cells)
                terminal.type("\x05")
            elif key == "kill" and random.random() < 0.1:
                cells = cells[:at]
                terminal.type("\x0b")
        want = [row.rstrip() for row in rows_of(cells, columns)[0]]
        _, row, column = rows_of(cells[:at], columns)
        if at < len(cells) and column + columns_of(cells[at][0]) > columns:
            row, column = row + 1, 0  # before a wide character that stands in the next row
        n_high += len(want) > rows

        def is_right(lines):
            """True if the terminal shows the line's rows from `top` on, beginning in its row `first`."""
            first = 0 if len(want) > rows else next((i for i, line in enumerate(lines) if line.startswith(">")), 0)
            top = row - (view.screen.row - first)
            if top < 0 or view.screen.column != column:
                return False
            seen, due = lines[first:], want[top:][:rows]
            return seen[:len(due)] == due and not any(seen[len(due):])

        view.look(is_right)
        assert is_right(view.screen.lines()), (view.screen.lines(), want, row, column)
    assert n_high > 20 or rows > 4  # that it was higher than the screen was tried


def test_the_line_is_drawn_anew_where_the_window_changes(chat, saved):
    terminal = chat("-n", 2, rows=12, columns=60)
    view = View(terminal, 12, 60)
    terminal.type("中文字符" * 5)
    view.look(lambda lines: any("中文字符" * 5 in line for line in lines))
    view.resize(12, 25)
    want = ["> " + "中文字符" * 2 + "中文字", "符" + "中文字符" * 2]
    assert view.look(lambda lines: want[1] in lines)[-2:] == want
    terminal.type("!")
    assert view.look(lambda lines: want[1] + "!" in lines)[-2:] == [want[0], want[1] + "!"]
    view.resize(12, 60)
    whole = "> " + "中文字符" * 5 + "!"
    assert whole in view.look(lambda lines: whole in lines)
    terminal.type("\r")
    terminal.ready()
    assert saved(terminal)[0]["content"] == "中文字符" * 5 + "!"


def test_a_window_that_changes_during_an_answer_does_not_matter(chat, saved, variant):
    terminal = chat("--ignore-eos", "--temp", 1, model=variant(config={"max_position_embeddings": 200000}))
    terminal.type("Go\r")
    terminal.wait("the")
    terminal.child.setwinsize(10, 40)
    terminal.wait("the")
    terminal.type("\x03")
    terminal.ready()
    assert len(saved(terminal)) == 2


def test_a_terminal_that_knows_no_sequences_gets_none(chat):
    terminal = chat("-n", 5, environment={"TERM": "dumb"}, wait=False)
    terminal.wait("\r\n> ")
    terminal.type("Hello\r")
    terminal.wait("of 512]\r\n\r\n> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.seen


def test_notes_are_dim_where_there_are_colours(chat):
    terminal = chat("-n", 5, environment={"NO_COLOR": ""})
    assert re.search("\x1b\\[2m\\[5 tokens, [0-9.]+/s; context [0-9]+ of [0-9]+\\]\x1b\\[22m", terminal.say("Hi"))
    terminal = chat("-n", 5, "--no-status", environment={"NO_COLOR": ""})
    assert "/s; context" not in terminal.say("Hi")


# --- the terminal comes back


def typed_below_an_answer(chat, line, columns, **options):
    """A terminal with the line being typed, its view, and the rows above the line."""
    terminal = chat("-n", 4, "--no-history", rows=20, columns=columns, **options)
    view = View(terminal, 20, columns)
    terminal.type("above\r")
    view.look(lambda lines: "> above" in lines and ">" in lines)
    terminal.type(line)
    lines = view.look(lambda lines: any(row and line.endswith(row.removeprefix("> ")) for row in lines))
    start = lines.index("> " + line[:columns - 2].rstrip())
    assert start > 1 and "".join(lines[start:]) == "> " + line
    return terminal, view, lines[:start]


LONG_LINE = "one two three four five six seven eight"


def test_a_window_that_narrows_while_a_line_is_typed_leaves_what_stands_above_it(chat):
    """The line then covers more rows than it did, and this terminal has made none of the new ones."""
    _, view, above = typed_below_an_answer(chat, LONG_LINE, 60)
    view.resize(20, 25)
    want = ["> " + LONG_LINE[:23], LONG_LINE[23:]]
    assert view.look(lambda lines: want[1] in lines) == [row[:25].rstrip() for row in above] + want


@pytest.mark.parametrize("mark", ["VTE_VERSION", "TMUX"])
def test_a_line_in_a_window_that_narrows_and_breaks_rows_anew_is_there_once(chat, mark):
    terminal, view, above = typed_below_an_answer(chat, LONG_LINE, 60, environment={mark: "1"})
    broken = [row[i:i + 25] for row in [*above, "> " + LONG_LINE] for i in range(0, len(row), 25)]
    view.screen = Screen(20, 25)
    view.screen.feed("\r\n".join(broken))
    terminal.child.setwinsize(20, 25)
    terminal.type("!")  # comes after the line was drawn anew
    want = LONG_LINE[23:] + "!"
    broken = [row.rstrip() for row in broken[:-2]]
    assert view.look(lambda lines: want in lines) == [*broken, "> " + LONG_LINE[:23], want]


def test_a_window_that_widens_while_a_line_is_typed_leaves_what_stands_above_it(chat):
    """The line then covers fewer rows than it did, which this terminal has joined."""
    terminal, view, above = typed_below_an_answer(chat, LONG_LINE, 25)
    view.screen = Screen(20, 60)
    view.screen.feed("\r\n".join([*above, "> " + LONG_LINE]))
    terminal.child.setwinsize(20, 60)
    terminal.type("!")  # comes after the line was drawn anew
    want = "> " + LONG_LINE + "!"
    assert view.look(lambda lines: want in lines) == [*above, want]


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, None)])
@pytest.mark.parametrize("when", ["in a line", "in an answer"])
def test_signals_give_the_terminal_back(chat, variant, number, status, when):
    terminal = chat("--ignore-eos", "--temp", 1, model=variant(config={"max_position_embeddings": 200000}))
    if when == "in a line":
        terminal.type("half a li")
        terminal.wait("half a li")
    else:
        terminal.type("Go\r")
        terminal.wait("the")
    assert not terminal.echoes()
    terminal.child.kill(number)
    assert terminal.end() == status
    if status is None:
        assert terminal.child.signalstatus == number
    assert terminal.seen.rindex(PASTE_OFF) > terminal.seen.rindex(PASTE_ON)


def test_the_terminal_is_as_it_was_after_an_end(auk, chat, stories, template, tmp_path):
    """A shell's settings, before and after; also where the chat was never begun."""
    script = tmp_path / "script.sh"
    script.write_text(
        "before=$(stty -g); \"$@\"; echo \"status $?\"; [ \"$before\" = \"$(stty -g)\" ] && echo the same; read line\n")
    command = [*auk, "chat", "-m", str(stories), "--chat-template", str(template)]
    for flags, keys, status in ([], "\x04", 0), (["--top-k", "x"], "", 2), (["-m", "nowhere"], "", 3):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
        terminal = Terminal(["sh", str(script), *command, *flags], environment)
        if keys:
            terminal.ready()
            terminal.type(keys)
        terminal.wait(f"status {status}")
        terminal.wait("the same")
        terminal.drop()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash, for its jobs")
def test_a_chat_that_is_stopped_gives_the_terminal_to_the_shell(auk, stories, template, tmp_path):
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "PS1": "$ "}
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], environment, columns=200)
    terminal.wait("$ ")
    command = f"{shlex.join(auk)} chat -m '{stories}' --chat-template '{template}' -n 5; echo status $?"
    terminal.type(f"before=$(stty -g); {command}\r")
    terminal.ready()
    terminal.type("half a line")
    terminal.wait("half a line")
    terminal.type("\x1a")
    terminal.wait("Stopped")
    terminal.type('[ "$before" = "$(stty -g)" ] && echo as it "was"\r')
    terminal.wait("as it was")
    terminal.type("fg\r")
    terminal.wait(PASTE_ON, "> half a line")
    terminal.type(" and more\r")
    terminal.wait("5 tokens")
    terminal.ready()
    terminal.type(f"/save {tmp_path}/talk.json\r")
    terminal.ready()
    assert json.loads((tmp_path / "talk.json").read_text())["messages"][0]["content"] == "half a line and more"
    terminal.drop()


# --- history


def test_history_is_kept_from_chat_to_chat(chat, saved, tmp_path):
    terminal = chat("-n", 2)
    terminal.say("first 中文")
    terminal.say("second")
    terminal.say("second")
    terminal.type("two\x1b\rlines")
    terminal.say("")
    terminal.type("\x04")
    terminal.end()
    file = tmp_path / "state" / "auk" / "history"
    assert file.read_text() == "first 中文\nsecond\ntwo\\nlines\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    terminal = chat("-n", 2)
    terminal.say("\x1b[A\x1b[A\x1b[A!")  # from "lines" to "two", then to "second"
    terminal.say("\x12fir\x1b\x05")
    assert [m["content"] for m in saved(terminal)][::2] == ["second!", "first 中文"]


def test_a_saved_conversation_is_its_owners_alone(run, stories, template, tmp_path):
    """As the history is, whatever the umask; a file that is there keeps its mode."""
    file = tmp_path / "saved.json"
    flags = ["chat", "-m", stories, "--chat-template", template, "-n", 2, "-s", 1]
    for mode in (0o600, 0o644):
        process = run(*flags, input=f"Hi\n/save {file}\n".encode(), preexec_fn=lambda: os.umask(0))
        assert process.returncode == 0, process.stderr
        assert stat.S_IMODE(file.stat().st_mode) == mode
        file.chmod(0o644)


def test_no_history_leaves_no_trace(chat, tmp_path):
    terminal = chat("-n", 2, "--no-history")
    terminal.say("secret")
    terminal.type("\x04")
    terminal.end()
    assert not (tmp_path / "state").exists()


def test_a_history_that_cannot_be_kept_is_told_once(chat, tmp_path, saved):
    (tmp_path / "state").write_text("a file")
    terminal = chat("-n", 2, wait=False)
    assert "no history is kept" in terminal.ready()
    assert "history" not in terminal.say("one")
    assert len(saved(terminal)) == 2


def test_two_chats_share_a_history(chat, tmp_path):
    terminals = [chat("-n", 1), chat("-n", 1)]
    for i in range(5):
        for k, terminal in enumerate(terminals):
            terminal.say(f"chat {k} line {i}")
    lines = (tmp_path / "state" / "auk" / "history").read_text().splitlines()
    assert sorted(lines) == sorted(f"chat {k} line {i}" for k in range(2) for i in range(5))
    for k in range(2):
        assert [line for line in lines if f"chat {k}" in line] == [f"chat {k} line {i}" for i in range(5)]
