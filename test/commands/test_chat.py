"""auk chat, as a person at a terminal has it (through a pseudo-terminal), and as a script has it (through pipes).

The model is the tiny one, which writes stories whatever it is told; what is tested is the chat around it.
"""
import json
import os
import re
import shlex
import signal
import stat
import subprocess

import termios
import time
from random import Random

import pytest
from screen import Screen, columns_of

pexpect = pytest.importorskip("pexpect", reason="needs pexpect")

LIMIT_S = 30
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
READY = PASTE_ON + "> "  # where the editor begins to read
TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}a: {% endif %}")


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATE)
    return path


class Terminal:
    """A chat on a terminal. What it writes is text here, escape sequences included."""

    def __init__(self, command, environment, rows=24, columns=80):
        self.child = pexpect.spawn(command[0], command[1:], env=environment, dimensions=(rows, columns),
                                   timeout=LIMIT_S, encoding="utf-8", codec_errors="replace")
        self.child.delaybeforesend = self.child.delayafterread = None
        self.child.delayafterclose = self.child.ptyproc.delayafterclose = 0
        self.seen = ""

    def wait(self, *texts):
        """Until the first of the texts comes: what came before it."""
        self.child.expect_exact(list(texts))
        self.seen += self.child.before + self.child.after
        return self.child.before

    def ready(self):
        return self.wait(READY)

    def type(self, keys):
        self.child.send(keys)

    def say(self, line):
        """Enters a line: what is written until the next one can be, without the line's own echo."""
        self.type(line + "\r")
        return self.ready().replace(PASTE_OFF, "").split("\r\n", 1)[-1].replace("\r\n", "\n")

    def echoes(self):
        return bool(termios.tcgetattr(self.child.child_fd)[3] & termios.ECHO)

    def drop(self):
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
            self.child.wait()
        self.child.close()

    def end(self):
        self.child.expect(pexpect.EOF)
        self.seen += self.child.before
        self.child.close()
        return self.child.exitstatus


@pytest.fixture
def chat(auk, stories, template, tmp_path):
    """chat(flags..., rows=, columns=, model=, environment={}): a Terminal, ready for a line."""
    open_ones = []

    def open_one(*flags, model=None, environment=None, wait=True, **size):
        variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path), "TERM": "xterm",
                     "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **(environment or {})}
        for name in ("AUK_MODEL", "VISUAL", "EDITOR"):
            if name not in (environment or {}):
                variables.pop(name, None)
        command = [*auk, "chat", "-m", str(model or stories), "--chat-template", str(template), "-s", "1", "-t", "1",
                   *map(str, flags)]
        terminal = Terminal(command, variables, **size)
        open_ones.append(terminal)
        if wait:
            terminal.ready()
        return terminal

    yield open_one
    for terminal in open_ones:
        terminal.drop()


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


@pytest.fixture
def saved(tmp_path):
    """saved(terminal): the messages of the chat."""

    def messages(terminal):
        path = tmp_path / "saved.json"
        path.unlink(missing_ok=True)
        assert "saved" in terminal.say(f"/save {path}")
        return json.loads(path.read_text())["messages"]

    return messages


def counts(terminal):
    """The last answer's tokens: prompt, those that were known, answer."""
    told = terminal.say("/stats")
    prompt = re.search(r"prompt: (\d+) tokens, (\d+) of them known; (\d+) prefilled", told)
    answer = re.search(r"answer: (\d+) tokens", told)
    assert int(prompt[1]) == int(prompt[2]) + int(prompt[3])
    return int(prompt[1]), int(prompt[2]), int(answer[1])


# --- turns


def test_a_turn_prefills_only_what_is_new(chat):
    """At temperature 1 the model cuts its text into tokens as it likes: these are kept, whatever the tokenizer would
    have made of the text. The answer's last token was not computed further, so it counts as new."""
    terminal = chat("-n", 30, "--temp", 1, "-c", 500)
    terminal.say("Tell me more.")
    prompt, known, answer = counts(terminal)
    assert (known, answer) == (0, 30)
    new = prompt + 1  # of a turn: "</s>" of the answer before, and the same "u: ...</s>a: "
    for _ in range(6):
        before = prompt + answer
        terminal.say("Tell me more.")
        prompt, known, answer = counts(terminal)
        assert known == before - 1
        assert prompt - before <= new


def test_undo_and_regen_keep_what_is_known(chat, saved):
    terminal = chat("-n", 20, "--temp", 1)
    terminal.say("One.")
    first = counts(terminal)
    terminal.say("Two.")
    second = counts(terminal)
    two = saved(terminal)
    assert [m["role"] for m in two] == ["user", "assistant"] * 2
    terminal.say("/regen")
    again = saved(terminal)
    assert again[:3] == two[:3] and again[3] != two[3]
    assert counts(terminal)[:2] == (second[0], second[0] - 1)  # its last token is computed anew
    assert "taken back: Two." in terminal.say("/undo")
    assert saved(terminal) == two[:2]
    terminal.say("Two.")
    prompt, known, _ = counts(terminal)
    assert prompt == second[0] and known >= first[0] + first[2] - 1
    terminal.say("/undo")
    terminal.say("/undo")
    assert saved(terminal) == []
    assert "no message yet" in terminal.say("/undo")
    assert "no message yet" in terminal.say("/regen")


def test_the_first_answer_is_the_one_of_auk_run(chat, saved, run, stories, template):
    terminal = chat("-n", 25, "--temp", 1)
    terminal.say("Once upon a time")
    told = run("-m", stories, "--chat-template", template, "-s", "1", "-n", 25, "--temp", 1, "-p", "Once upon a time")
    assert saved(terminal)[1]["content"] == told.stdout.decode()


def test_seeds_repeat_a_chat_but_not_an_answer(chat, saved):
    def talk(*flags):
        terminal = chat("-n", 20, "--temp", 1, "--no-history", *flags)
        terminal.say("Tell me.")
        terminal.say("/regen")
        terminal.say("Tell me.")
        return [m["content"] for m in saved(terminal)][1::2]

    assert talk() == talk()
    assert talk("-s", "-1") != talk("-s", "-1")


def test_an_interrupted_answer_stays(chat, saved, variant):
    model = variant(config={"max_position_embeddings": 200000})
    terminal = chat("--ignore-eos", "--temp", 1, model=model)
    terminal.type("Tell me a story\r")
    terminal.wait("Tell me a story")
    terminal.wait("the")
    terminal.type("\x03")
    assert "interrupted" in terminal.ready()
    user, answer = saved(terminal)
    assert user["content"] == "Tell me a story" and "the" in answer["content"]
    terminal.say("/set n 5")
    terminal.say("And then?")
    assert [m["role"] for m in saved(terminal)] == ["user", "assistant"] * 2


def test_what_is_typed_during_an_answer_is_not_echoed_into_it(chat, variant, saved):
    model = variant(config={"max_position_embeddings": 200000})
    terminal = chat("--ignore-eos", "--temp", 1, model=model)
    terminal.type("Go\r")
    terminal.wait("Go")
    terminal.wait("the")
    terminal.type("typed ahead")
    time.sleep(0.1)
    terminal.type("\x03")  # which drops what was typed, as everywhere
    assert "typed ahead" not in terminal.ready()


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
    assert [m["content"] for m in saved(terminal)][::2] == ['/clear\n  "quoted"', "/one line"]


def test_text_and_commands_are_told_apart(chat, saved):
    terminal = chat("-n", 2)
    texts = ["/usr/bin/env is what?", "/tmp", " /help", "/foo bar", "//"]
    for text in texts:
        terminal.say(text)
    assert "is it /help?" in terminal.say("/hlep")
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


class View:
    """A terminal's screen, looked at."""

    def __init__(self, terminal, rows, columns):
        self.terminal, self.screen, self.fed = terminal, Screen(rows, columns), 0

    def look(self, until):
        """The lines that are not empty, as soon as `until` holds of them all."""
        terminal, end = self.terminal, time.monotonic() + LIMIT_S
        while True:
            try:
                terminal.seen += terminal.child.read_nonblocking(65536, 0.05)
            except pexpect.TIMEOUT:
                pass
            self.fed += self.screen.feed(terminal.seen[self.fed:])
            lines = self.screen.lines()
            if until(lines) or time.monotonic() > end:
                return [line for line in lines if line]

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self.terminal.child.setwinsize(rows, columns)


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
    """How cells are broken into rows behind the prompt; and the row and column behind them."""
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
            """Whether the line's rows stand from `first` on, those from `top` on."""
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
    begun = len(terminal.seen)
    terminal.type("Hello\r")
    terminal.wait("of 512]\r\n> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.seen[begun:]


def test_notes_are_dim_where_there_are_colours(chat):
    terminal = chat("-n", 5, environment={"NO_COLOR": ""})
    assert re.search("\x1b\\[2m\\[5 tokens, [0-9.]+/s; context [0-9]+ of [0-9]+\\]\x1b\\[22m", terminal.say("Hi"))
    terminal = chat("-n", 5, "--no-status", environment={"NO_COLOR": ""})
    assert "/s; context" not in terminal.say("Hi")


# --- the terminal comes back


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


# --- the context


def fill(terminal, n=4):
    told = ""
    for i in range(n):
        told += terminal.say(f"Turn {i}. Go on with the story, please.")
    return told


def test_a_context_that_fills_is_told_of(chat):
    terminal = chat("-n", 11, "-c", 205, "--ignore-eos")
    told = fill(terminal, 5)
    levels = [(int(m[1]), int(m[2])) for m in re.finditer(r"the context is (\d+)% full: (\d+) of 205 tokens", told)]
    assert len(levels) == 2 and 75 <= levels[0][0] < 90 <= levels[1][0]
    assert all(level == 100 * used // 205 for level, used in levels)


def test_where_it_is_full_the_person_is_asked(chat, saved):
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos")
    fill(terminal, 3)
    before = saved(terminal)
    terminal.type("No room for this.\r")
    terminal.wait("[y/n] ")
    assert re.search(r"the conversation has \d+ tokens, the context 200", terminal.seen)
    assert "Not sent" in terminal.say("n")
    assert saved(terminal) == before
    terminal.type("\x1b[A\x1b[A\r")  # behind /save: the message is still there
    terminal.wait("[y/n] ")
    told = terminal.say("y")
    assert "forgotten" in told
    after = saved(terminal)
    assert after[-2]["content"] == "No room for this."
    assert after[:-2] == before[len(before) - len(after) + 2:] and len(after) < len(before) + 2


def test_it_slides_by_whole_turns_and_says_so(chat, saved):
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos", "--context-overflow", "slide", "-sys", "Be kind.")
    told = fill(terminal, 8)
    assert "[y/n]" not in terminal.seen and "forgotten" in told
    messages = saved(terminal)
    assert messages[0] == {"role": "system", "content": "Be kind."}
    assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * (len(messages) // 2)
    assert messages[-2]["content"].startswith("Turn 7")


def test_it_stops_where_it_shall(chat, saved):
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos", "--context-overflow", "stop")
    told = fill(terminal, 5)
    assert "--context-overflow slide" in told and "forgotten" not in told
    assert len(saved(terminal)) < 10
    terminal.say("/clear")
    terminal.say("Now there is room.")
    assert len(saved(terminal)) == 2


def test_an_answer_that_the_context_cuts_is_told(chat):
    terminal = chat("-c", 60, "--ignore-eos")
    assert "the context of 60 tokens is full" in terminal.say("Go on.")


def test_a_message_that_fits_nowhere_is_refused_with_both_counts(chat, saved):
    terminal = chat("-n", 5, "-c", 100)
    terminal.say("Hello.")
    told = terminal.say("word " * 100)
    counted = re.search(r"the message has (\d+) tokens with what belongs to it, the context 100", told)
    assert int(counted[1]) > 100
    assert len(saved(terminal)) == 2
    terminal.type("\x1b[A\x1b[A")  # behind /save
    terminal.wait("word word")
    terminal.type("\x03")
    terminal.ready()


# --- the other commands


def test_help_names_every_command(chat):
    told = chat().say("/help")
    for name in "help exit clear regen undo edit system set read save load tokens stats".split():
        assert re.search(rf"^  /{name} ", told, re.MULTILINE), name
    assert all(len(line) <= 80 for line in told.splitlines())


def test_clear_forgets_but_the_system_message(chat, saved):
    terminal = chat("-n", 2, "-sys", "Be kind.")
    terminal.say("Hello.")
    assert "forgotten" in terminal.say("/clear")
    assert saved(terminal) == [{"role": "system", "content": "Be kind."}]


def test_the_system_message_can_change(chat, saved):
    terminal = chat("-n", 2)
    assert "no system message" in terminal.say("/system")
    terminal.say("/system Be terse.")
    assert terminal.say("/system") == "Be terse.\n"
    terminal.say("Hello.")
    assert saved(terminal)[0] == {"role": "system", "content": "Be terse."}
    terminal.say('/system ""')
    assert saved(terminal)[0]["role"] == "user"


def test_settings_have_the_names_and_ranges_of_the_flags(chat, saved):
    terminal = chat("-n", 4, "--temp", "0.5")
    told = terminal.say("/set")
    for line in "temp 0.5", "top-k 0", "top-p 1", "min-p 0", "repeat-penalty 1", "presence-penalty 0", "seed 1", "n 4":
        assert f"  {line}\n" in told
    for change, line in [("temp 0", "temp 0"), ("temperature 0.25", "temp 0.25"), ("top_k=3", "top-k 3"),
                         ("--min-p 0.1", "min-p 0.1"), ("repetition-penalty 1.1", "repeat-penalty 1.1"),
                         ("frequency-penalty -1", "frequency-penalty -1"), ("n 7", "n 7"), ("seed 5", "seed 5"),
                         ("max-new-tokens 8", "n 8"), ("s -1", "seed -1 (another one for each answer)"),
                         ("default", "temp 0.5")]:
        assert terminal.say(f"/set {change}") == ""
        assert f"  {line}\n" in terminal.say("/set"), change
    for mistake, told in [("temp -1", "expected a number from 0 to 1000"), ("top-k 1.5", "expected a whole number"),
                          ("n x", "expected a whole number"), ("top-p", "/set NAME VALUE"),
                          ("device cpu", "no setting"),
                          ("ctx-size 5", "no setting"), ("think on", "knows no thoughts"),
                          ("seed", "/set NAME VALUE")]:
        assert told in terminal.say(f"/set {mistake}"), mistake
    terminal.say("/set n 6")
    terminal.say("Hello.")
    assert counts(terminal)[2] == 6


def test_files_come_before_the_next_message(chat, saved, tmp_path):
    (tmp_path / "one.txt").write_text("first")
    (tmp_path / "two words.txt").write_text("second\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    terminal = chat("-n", 2)
    terminal.say("/read ~/one.txt")
    terminal.say(f"/read '{tmp_path}/two words.txt'")
    assert "not valid UTF-8" in terminal.say(f"/read {tmp_path}/bad.txt")
    assert "No such file" in terminal.say("/read nowhere")
    assert "/read FILE" in terminal.say("/read")
    terminal.say("What is it?")
    terminal.say("And now?")
    assert [m["content"] for m in saved(terminal)][::2] == ["first\nsecond\nWhat is it?", "And now?"]
    terminal.say("/read ~/one.txt")
    terminal.say("/clear")
    terminal.say("Nothing.")
    assert saved(terminal)[0]["content"] == "Nothing."


def test_edit_changes_the_last_message(chat, saved, tmp_path):
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\n[ -t 0 ] && [ -t 1 ] && sed -i \"$CHANGE\" \"$2\" && echo \"with $1\"\n")
    editor.chmod(0o700)
    terminal = chat("-n", 4, environment={"EDITOR": f"{editor} -flag", "CHANGE": "s/old/new/", "TMPDIR": str(tmp_path)})
    terminal.say("old text")
    told = terminal.say("/edit")
    assert "with -flag" in told
    assert [m["content"] for m in saved(terminal)][0] == "new text"
    assert "nothing was changed" in terminal.say("/edit")
    assert len(saved(terminal)) == 2
    assert not list(tmp_path.glob("auk-*"))
    terminal = chat("-n", 4, environment={"VISUAL": "false", "EDITOR": str(editor)})
    terminal.say("old text")
    assert "did not end well" in terminal.say("/edit")
    assert saved(terminal)[0]["content"] == "old text"
    terminal = chat("-n", 4, environment={"EDITOR": f"{editor} x", "CHANGE": "1cfrom nothing"})
    terminal.say("/edit")
    # sed changes no line of an empty file
    assert saved(terminal) == []


def test_tokens_are_counted(chat):
    terminal = chat("-n", 6, "--ignore-eos", "-c", 300)
    terminal.say("Once upon a time")
    prompt, _, answer = counts(terminal)
    told = terminal.say("/tokens")
    assert re.search(r"^ +\d+  user       Once upon a time$", told, re.MULTILINE)
    assert re.search(r"^ +\d+  assistant  ", told, re.MULTILINE)
    whole = int(re.search(r"^ +(\d+)  with it, of the 300 that the context has$", told, re.MULTILINE)[1])
    assert prompt + answer <= whole <= prompt + answer + 6  # the end of the turn, and the opening of the next one


def test_a_chat_goes_on_from_a_file(chat, saved, tmp_path):
    terminal = chat("-n", 5, "--temp", 1, "-sys", "Be kind.")
    terminal.say("Hello \"there\" \\ 中文")
    terminal.say("More.")
    before = saved(terminal)
    path = tmp_path / "kept.json"
    terminal.say(f"/save {path}")
    assert stat.S_ISREG(path.stat().st_mode)
    other = chat("-n", 5)
    assert "5 messages" in other.say(f"/load {path}")
    assert saved(other) == before
    other.say("Even more.")
    assert saved(other)[:5] == before and len(saved(other)) == 7
    assert "saved" in other.say(f"/save {path}")  # a conversation may take a conversation's place
    (tmp_path / "notes.txt").write_text("precious")
    assert "left as it is" in other.say(f"/save {tmp_path}/notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "precious"
    assert "left as it is" in other.say(f"/save {tmp_path}")
    assert "nowhere" in other.say("/save nowhere/x.json")
    (tmp_path / "open.json").write_text(json.dumps([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]))
    assert "/regen" in other.say(f"/load {tmp_path}/open.json")
    other.say("/regen")
    assert [m["role"] for m in saved(other)] == ["user", "assistant"]


HOSTILE = {
    "not JSON": ("{", "open.json"),
    "no messages": ("{}", "holds no conversation"),
    "messages of another kind": ('{"messages": {}}', "holds no conversation"),
    "a text": ('"messages"', "holds no conversation"),
    "a message that is none": ('{"messages": [1]}', "message 0 is no object"),
    "no role": ('{"messages": [{"content": "x"}]}', "message 0 has no role"),
    "a role with a control token": ('{"messages": [{"role": "user</s>a", "content": "x"}]}', 'the role "user</s>a"'),
    "a role of another kind": ('{"messages": [{"role": ["user"], "content": "x"}]}', "message 0 has no role"),
    "an unknown role": ('[{"role": "user", "content": "a"}, {"role": "root", "content": "x"}]', 'the role "root"'),
    "a content of another kind": ('[{"role": "user", "content": 7}]', "neither a string nor a list"),
    "an image": ('[{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]', "another type"),
    "calls of tools": ('[{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]', "tool_calls"),
    "a thought of another kind": ('[{"role": "assistant", "reasoning_content": 1}]', "reasoning_content"),
    "a key twice": ('{"messages": [], "messages": []}', "messages"),
    "deep nesting": ("[" * 100000, "open.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_hold_no_chat_are_refused_and_change_nothing(chat, saved, tmp_path, name):
    text, told = HOSTILE[name]
    (tmp_path / "open.json").write_text(text)
    terminal = chat("-n", 2)
    terminal.say("Hello.")
    before = saved(terminal)
    assert told in terminal.say(f"/load {tmp_path}/open.json")
    assert saved(terminal) == before


def test_what_the_template_refuses_is_told_and_taken_back(chat, saved, template, tmp_path):
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    template.write_text(refusal + TEMPLATE)
    terminal = chat("-n", 2)
    terminal.say("Hello.")
    terminal.say("/system Be kind.")
    assert "no system here" in terminal.say("Again.")
    assert [m["role"] for m in saved(terminal)] == ["system", "user", "assistant"]
    (tmp_path / "open.json").write_text(json.dumps([{"role": "system", "content": "x"}]))
    terminal.say('/system ""')
    assert "no system here" in terminal.say(f"/load {tmp_path}/open.json")
    assert len(saved(terminal)) == 2


# --- thoughts


@pytest.fixture
def thinker(variant, template):
    """A model whose template opens a thought, which the chat closes after five tokens."""
    template.write_text(TEMPLATE.replace("a: {% endif %}", "a: <think>\n{% endif %}") + "{# </think> #}")
    return variant(name="thinker")


def test_thoughts_are_dim_kept_and_can_be_hidden(chat, saved, thinker):
    flags = ["-n", 20, "--think-budget", 5, "--ignore-eos"]
    terminal = chat(*flags, model=thinker, environment={"NO_COLOR": ""})
    told = terminal.say("Hello.")
    _, answer = saved(terminal)
    assert answer["reasoning_content"].strip() and answer["content"]
    dim = "".join(re.findall("\x1b\\[2m(.*?)\x1b\\[22m", told, re.DOTALL))
    assert dim.startswith(answer["reasoning_content"].strip())
    assert answer["content"] in told.replace("\x1b[2m", "")
    terminal.say("/set show-thinking off")
    told = terminal.say("/regen")
    _, answer = saved(terminal)
    assert told.startswith(answer["content"]) and answer["reasoning_content"]
    terminal.say("/set think-budget 2")
    assert "think-budget 2" in terminal.say("/set")
    told = terminal.say("/tokens")
    assert re.search(r"\(and \d+ of thought\)", told)


# --- without a person


@pytest.fixture
def pipe(run, stories, template):
    """pipe(lines, flags...): the finished process."""

    def run_lines(*lines, flags=()):
        return run("chat", "-m", stories, "--chat-template", template, "-s", "1", "-n", "8", *flags,
                   input="".join(line + "\n" for line in lines).encode())

    return run_lines


def test_lines_of_a_pipe_are_messages_and_answers_alone_come_out(pipe, tmp_path):
    path = tmp_path / "talk.json"
    done = pipe("Hello.", "", '"""', "two", "lines", '"""', f"/save {path}")
    assert done.returncode == 0
    messages = json.loads(path.read_text())["messages"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["Hello.", "two\nlines"]
    assert done.stdout.decode() == "".join(m["content"] + "\n" for m in messages if m["role"] == "assistant")
    assert b"\x1b" not in done.stdout + done.stderr


def test_the_first_mistake_ends_a_script(pipe):
    for lines, told in [(["/hlep"], "is it /help?"), (["/load nowhere"], "nowhere"), (["/edit"], "needs a terminal"),
                        (["/set temp x"], "--temp"), (['"""', "open"], "within a block")]:
        done = pipe(*lines, "never said")
        assert done.returncode in (1, 2) and told in done.stderr.decode() and done.stdout == b""


def test_bytes_that_are_no_text_are_refused(run, stories, template):
    done = run("chat", "-m", stories, "--chat-template", template, input=b"\xff\xfe\n")
    assert done.returncode == 2 and b"not valid UTF-8" in done.stderr


def test_a_full_context_asks_nobody_in_a_script(pipe):
    lines, flags = ["Go on with the story, please."] * 9, ["-c", "100", "--ignore-eos"]
    done = pipe(*lines, flags=flags)
    assert done.returncode == 2 and b"the context 100" in done.stderr
    done = pipe(*lines, flags=[*flags, "--context-overflow", "slide"])
    assert done.returncode == 0 and b"forgotten" in done.stderr


def test_a_chat_needs_a_template(run, stories):
    done = run("chat", "-m", stories, input=b"Hello\n")
    assert done.returncode == 2 and b"--chat-template" in done.stderr
    done = run("chat", "-m", stories, "--raw", input=b"Hello\n")
    assert done.returncode == 2 and b"--raw" in done.stderr


def test_an_interrupt_ends_a_script(start, stories, template, variant):
    model = variant(config={"max_position_embeddings": 200000})
    process = start("chat", "-m", model, "--chat-template", template, "--ignore-eos", "--temp", "1",
                    stdin=subprocess.PIPE)
    process.stdin.write(b"Go\n")
    process.stdin.flush()
    assert process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130


def test_a_reader_that_goes_away_ends_it_quietly(start, variant, template):
    model = variant(config={"max_position_embeddings": 200000})
    process = start("chat", "-m", model, "--chat-template", template, "--ignore-eos", stdin=subprocess.PIPE)
    process.stdin.write(b"Go\n")
    process.stdin.flush()
    assert process.stdout.read(20)
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""
