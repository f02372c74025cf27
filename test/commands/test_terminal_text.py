"""Nothing that a model, its files or its names hold steers a terminal, whichever command shows it and on whichever of
the two outputs; a text that goes to a pipe stays byte for byte, lists and messages are harmless there too.

The model here has evil characters in its tokens, its template, its configuration and its name. Each command runs with
both outputs on a pseudo-terminal, and the name of the case must appear there: the text was shown, and made harmless.
"""
import json
import os
import pty

import pytest
from chat_terminal import chat, template  # noqa: F401 (fixtures)
from renamed_tokens import renamed
from terminals import read_all

CONTROLS = "\x1b]0;t\x07\x1b[31m\x9b5m\x08\x7f"
BIDIRECTIONAL = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
EVIL = f"evil{CONTROLS}{BIDIRECTIONAL}live"


def steers(text):
    """The characters of the text that a terminal would obey, or that would make a line read otherwise."""
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or c in BIDIRECTIONAL]


@pytest.fixture
def evil(variant, tmp_path):
    """The tiny model, whose token for "," is EVIL, whose template raises it for a tool, and whose name has it."""
    template = ("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception(m.content) }}{% endif %}"
                "{{ m.content }}{% endfor %}")
    path = variant(tokenizer=renamed({",": EVIL}), files={"chat_template.jinja": template}, name=f"model {EVIL}")
    (tmp_path / "messages").write_text(json.dumps({"messages": [{"role": "tool", "content": EVIL}]}) + "\n")
    (tmp_path / "refused").mkdir()
    (tmp_path / "refused" / "config.json").write_text(json.dumps({"architectures": [EVIL], "model_type": EVIL}))
    (tmp_path / EVIL).write_text("no JSON\n")
    (tmp_path / "lines").write_text("One day\nOnce\n")
    return path


RAW = ["-m", "MODEL", "--raw", "-p", "Once upon a time", "-n", "3", "-s", "1", "--temp", "1"]
CHOOSE = ["-m", "MODEL", "--raw", "-p", "Once", "--choice", EVIL, "--choice", EVIL + "b"]
MAP = ["-m", "MODEL", "--raw", "-p", "{} upon a time", "-n", "3", "--map", "DIR/lines"]

# Every command as a person may call it: MODEL is the evil one, DIR the folder that it is in.
COMMANDS = {
    "answer": RAW,
    "answer as JSON": [*RAW, "--json"],
    "answer as a stream of JSON": [*RAW, "--jsonl-stream"],
    "answer at once": [*RAW, "--no-stream"],
    "answer to the terminal by name": [*RAW, "-o", "/dev/tty"],
    "JSON to the terminal by name": [*RAW, "--json", "-o", "/dev/tty"],
    "settings": [*RAW, "-v"],
    "choice": CHOOSE,
    "choice as JSON": [*CHOOSE, "--json"],
    "choice to the terminal by name": [*CHOOSE, "-o", "/dev/tty"],
    "records": MAP,
    "records with ends of NUL": [*MAP, "-0"],
    "records as JSON": [*MAP, "--json"],
    "chosen records": [*CHOOSE[:3], "-p", "{}", *CHOOSE[5:], "--map", "DIR/lines"],
    "decode": ["tokenize", "-m", "MODEL", "--decode", "-p", "COMMA"],
    "tokenize line after line": ["tokenize", "-m", "MODEL", "--jsonl", "-f", "DIR/ids"],
    "tokenize a file that is not there": ["tokenize", "-m", "MODEL", "-f", f"DIR/{EVIL}no"],
    "tokenize with no tokenizer": ["tokenize", "-m", "MODEL", "--tokenizer", f"DIR/{EVIL}", "x"],
    "template": ["template", "-m", "MODEL", "-f", "DIR/messages"],
    "template that raises": ["-m", "MODEL", "--map-json", "--map", "DIR/messages"],
    "template that is not there": ["-m", "MODEL", "--chat-template", EVIL, "-p", "x"],
    "inspect": ["inspect", "MODEL"],
    "inspect as JSON": ["inspect", "MODEL", "--json"],
    "inspect what is refused": ["inspect", "DIR/refused"],
    "models": ["models", "DIR"],
    "models as JSON": ["models", "DIR", "--json"],
    "names of models": ["models", "DIR", "--names"],
    "pack": ["pack", "-m", "MODEL", "-o", f"DIR/none/{EVIL}"],
    "bench": ["bench", "-m", f"DIR/{EVIL}"],
    "eval": ["eval", "-m", "MODEL", "-f", f"DIR/{EVIL}no"],
    "cache": ["cache", "--cache-dir", f"DIR/{EVIL}"],
    "a cache that cannot be": [*RAW, "--cache", "--cache-dir", f"DIR/{EVIL}/under a file", "-v"],
    "a command that is none": [EVIL],
    "a flag that is none": ["run", f"--{EVIL}"],
    "a value that is none": ["run", "-n", EVIL],
    "completions": ["completions", EVIL],
    "man": ["man", EVIL],
    "help": ["help", EVIL],
    "chats": ["chats"],
    "chats as JSON": ["chats", "--json"],
    "names of chats": ["chats", "--names"],
    "a chat": ["chats", "show", "kept"],
    "a chat's file": ["chats", "show", "kept", "--json"],
    "a chat that is not there": ["chats", "show", EVIL],
    "a chat to remove that is not there": ["chats", "rm", EVIL],
    "prompts": ["prompts"],
    "names of prompts": ["prompts", "--names"],
    "a prompt that is not there": ["-m", "MODEL", "-P", f"{EVIL}no"],
    "a model to keep that is not there": ["keep", "-m", f"DIR/{EVIL}no", "--keep", "9s"],
    "results that are not there": ["merge", f"DIR/{EVIL}no"],
    "results to go on with": [*MAP, "--resume", f"DIR/{EVIL}"],
    "chat": ["chat", "-m", "MODEL", "-sysf", f"DIR/{EVIL}/under a file"],
}


# The cases whose standard output is a list, which has nothing to obey in a pipe either.
LISTS = ["chats", "models", "prompts"]


def home(path):
    """The environment of a user whose home the folder is."""
    return {"HOME": str(path), "XDG_STATE_HOME": f"{path}/state", "XDG_CONFIG_HOME": f"{path}/config"}


@pytest.fixture
def kept(tmp_path):
    """A chat and a prompt with EVIL in them and in their names, in the folders of home(tmp_path)."""
    chats, prompts = tmp_path / "state/auk/chats", tmp_path / "config/auk/prompts"
    chats.mkdir(parents=True)
    prompts.mkdir(parents=True)
    said = [{"role": "user", "content": f"ask {EVIL}"}, {"role": "assistant", "content": f"say {EVIL}"}]
    (chats / f"kept-{EVIL}.json").write_text(json.dumps({"title": EVIL, "model": EVIL, "messages": said}))
    (prompts / f"{EVIL}.md").write_text(f"Review {EVIL}\n")
    return said


@pytest.mark.parametrize("case", COMMANDS)
def test_a_terminal_is_given_nothing_to_obey(auk, evil, kept, tmp_path, case):
    vocabulary = json.loads((evil / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "ids").write_text(json.dumps({"ids": [vocabulary[EVIL]]}) + "\n")
    named = {"MODEL": str(evil), "COMMA": str(vocabulary[EVIL])}
    arguments = [named.get(word, word.replace("DIR/", f"{tmp_path}/")) for word in COMMANDS[case]]
    arguments = [str(tmp_path) if word == "DIR" else word for word in arguments]
    environment = {**os.environ, "TERM": "dumb", **home(tmp_path)}  # no escape sequences of our own
    child, main = pty.fork()
    if child == 0:
        os.execve(auk[0], [*auk, *arguments], environment)
    seen = read_all(main).decode().replace("\r\n", "\n")
    os.close(main)
    os.waitpid(child, 0)
    assert steers(seen) == []
    assert case == "settings" or "evil" in seen


@pytest.mark.parametrize("case", ["decode", "choice", "answer"])
def test_a_pipe_is_given_every_byte(run, evil, case):
    vocabulary = json.loads((evil / "tokenizer.json").read_text())["model"]["vocab"]
    named = {"MODEL": str(evil), "COMMA": str(vocabulary[EVIL])}
    assert EVIL.encode() in run(*[named.get(word, word) for word in COMMANDS[case]]).stdout


def test_a_pipe_is_given_every_byte_of_a_kept_chat(run, kept, tmp_path):
    shown = run("chats", "show", "kept", env={**os.environ, **home(tmp_path)}).stdout.decode()
    assert shown == f"> {kept[0]['content']}\n\n{kept[1]['content']}\n"


@pytest.mark.parametrize("case", COMMANDS)
def test_messages_and_lists_have_nothing_to_obey_in_a_pipe(run, evil, kept, tmp_path, case):
    (tmp_path / "ids").write_text("{}\n")
    named = {"MODEL": str(evil), "COMMA": "5", "DIR": str(tmp_path), "/dev/tty": f"{tmp_path}/tty"}
    arguments = [named.get(word, word.replace("DIR/", f"{tmp_path}/")) for word in COMMANDS[case]]
    process = run(*arguments, env={**os.environ, **home(tmp_path)})
    assert steers(process.stderr.decode()) == []
    if case in LISTS:
        assert "evil" in process.stdout.decode() and steers(process.stdout.decode()) == []


def test_a_chat_that_goes_on_shows_nothing_to_obey(chat, evil, kept, tmp_path):
    terminal = chat("--continue=kept", "-n", "2", model=evil, wait=False,
                    environment={"TERM": "dumb", **home(tmp_path)})
    shown = terminal.wait("\r\n> ")
    shown += terminal.wait("\r\n> ") if "say evil" not in shown else ""
    assert steers(shown.replace("\r", "")) == [] and "evil" in shown


def test_a_chat_shows_nothing_to_obey(chat, evil, tmp_path):
    (tmp_path / "system").write_text(EVIL)
    (tmp_path / "conversation").write_text(json.dumps([{"role": "user", "content": f"again {EVIL}"}]))
    terminal = chat("-sysf", tmp_path / "system", "-n", "6", "--no-history", model=evil,
                    environment={"TERM": "dumb"}, wait=False)
    terminal.wait("> ")

    def say(line):
        terminal.type(line + "\r")
        terminal.wait("\r\n> ")
        return terminal.child.before

    shown = [say("/system"), say("Hi, you."),
             say(f"/load {tmp_path}/conversation") + terminal.wait("\r\n> "),  # after the message, shown as if typed
             say("/tokens"), say("/undo"), say(f"/load {tmp_path}/none{BIDIRECTIONAL}"), say(f"/none{BIDIRECTIONAL}")]
    assert [steers(text.replace("\r", "")) for text in shown] == [[]] * len(shown)
    assert all("evil" in shown[i] for i in (0, 3, 4)) and "<U+202E>" in shown[5]
