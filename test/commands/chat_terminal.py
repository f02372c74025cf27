"""chat_terminal.py - a chat on a pseudo-terminal, and fixtures that open one, for the tests of auk chat."""
import fcntl
import json
import os
import signal
import termios
import time

import pytest
from screen import Screen

pexpect = pytest.importorskip("pexpect", reason="needs pexpect")

LIMIT_S = 30
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
MINE, NOT_MINE = "\x1b[32m", "\x1b[39m"  # the style of what is typed
READY = PASTE_ON + "> "  # where the editor begins to read
TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}a: {% endif %}")


class Terminal:
    """A chat on a terminal. Its output is compared as text, escape sequences included."""

    def __init__(self, command, environment, rows=24, columns=250):  # wide: no message is broken
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
        return self.wait(READY, PASTE_ON + MINE + "> ")

    def type(self, keys):
        self.child.send(keys)

    def rest(self):
        """Waits until the program has read all that was typed, and then for longer than it waits for what may follow an
        Esc."""
        descriptor = os.open(f"/proc/{self.child.pid}/fd/0", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        end = time.monotonic() + LIMIT_S
        try:
            while any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))) and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            os.close(descriptor)
        time.sleep(0.3)

    def say(self, line):
        """Enters a line: what is written until the next one can be, without the line's own echo."""
        self.type(line + "\r")
        written = self.ready().replace(PASTE_OFF, "").split("\r\n", 1)[-1].replace("\r\n", "\n")
        return written.removeprefix(NOT_MINE)

    def echoes(self):
        return bool(termios.tcgetattr(self.child.child_fd)[3] & termios.ECHO)

    def drop(self):
        """Ends a chat as a lost terminal does, so that sanitizers look for leaks; kills one that does not end."""
        if self.child.isalive():
            self.child.kill(signal.SIGHUP)
            try:
                self.child.expect(pexpect.EOF, timeout=1)
            except pexpect.TIMEOUT:
                self.child.kill(signal.SIGKILL)
            self.child.wait()
        self.child.close()

    def end(self):
        self.child.expect(pexpect.EOF)
        self.seen += self.child.before
        self.child.close()
        return self.child.exitstatus


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


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture
def chat(auk, stories, template, tmp_path):
    """chat(flags..., rows=, columns=, model=, environment={}): a Terminal, ready for a line."""
    open_ones = []

    def open_one(*flags, model=None, environment=None, wait=True, **size):
        variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path), "TERM": "xterm",
                     "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **(environment or {})}
        rewrap = ("VTE_VERSION", "KITTY_WINDOW_ID", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION",
                  "WEZTERM_PANE", "TERM_PROGRAM", "TMUX")  # the terminal here is an xterm
        for name in ("AUK_MODEL", "VISUAL", "EDITOR", *rewrap):
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


@pytest.fixture
def saved(tmp_path):
    """saved(terminal): the messages of the chat."""

    def messages(terminal):
        path = tmp_path / "saved.json"
        path.unlink(missing_ok=True)
        assert "saved" in terminal.say(f"/save {path}")
        return json.loads(path.read_text())["messages"]

    return messages
