"""Chats that keep themselves: what is written when, --continue in a chat and beside a prompt, `auk chats`."""
import json
import os
import resource
import stat

import pytest
from chat_terminal import Terminal, chat, pexpect, template  # noqa: F401 (fixtures)

USAGE = 2


@pytest.fixture
def chats(tmp_path):
    """chats(): the kept chats, the last written first, as their files have them."""

    def read():
        folder = tmp_path / "state" / "auk" / "chats"
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [json.loads(path.read_text()) for path in files]

    return read


@pytest.fixture
def call(run, tmp_path):
    """call(...): run(...) with the chats of this test."""

    def it(*arguments, env=None, **options):
        own = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        return run(*arguments, env={**os.environ, **own, **(env or {})}, **options)

    return it


def contents(talk):
    return [message["content"] for message in talk["messages"]]


def test_a_chat_keeps_itself_and_goes_on(chat, chats, tmp_path, stories):
    terminal = chat("-n", 4)
    assert chats() == []
    terminal.say("Why is the sky blue?")
    terminal.say("And the sea?")
    [kept] = chats()
    assert (kept["title"], kept["turns"], kept["model"]) == ("Why is the sky blue?", 2, str(stories))
    assert kept["chat_template"] == str(tmp_path / "template.jinja")
    folder = tmp_path / "state" / "auk" / "chats"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    terminal.say("/undo")
    assert chats()[0]["turns"] == 1
    terminal.say("/system Be kind.")
    assert chats()[0]["messages"][0] == {"role": "system", "content": "Be kind."}
    terminal.say("/clear")
    terminal.say("Another thing")
    assert [talk["turns"] for talk in chats()] == [1, 1]
    terminal.type("/exit\r")
    assert terminal.end() == 0
    terminal = chat("-n", 4, "--continue=sky", wait=False)
    assert "goes on: Why is the sky blue? (3 messages, " in terminal.ready()
    terminal.say("More")
    talk = chats()[0]
    assert (talk["turns"], contents(talk)[0], contents(talk)[1], contents(talk)[3]) == (
        2, "Be kind.", "Why is the sky blue?", "More")
    assert len(chats()) == 2


def test_an_interruption_before_the_first_line_ends_the_program(chat, chats, tmp_path, variant):
    """It writes the last turn to a terminal that is not read from meanwhile."""
    terminal = chat("-n", 4)
    terminal.say("Tell me.")
    terminal.type("/exit\r")
    assert terminal.end() == 0
    [kept], [path] = chats(), (tmp_path / "state" / "auk" / "chats").glob("*.json")
    kept["messages"][1]["content"] = "word " * 40000
    path.write_text(json.dumps(kept))
    model = variant(config={"max_position_embeddings": 200000})
    terminal = chat("--continue", model=model, wait=False)
    terminal.wait("word word")
    terminal.type("\x03")
    assert terminal.end() == 130


def test_a_chat_goes_on_with_its_own_model_and_template(chat, chats, call, talker, variant):
    terminal = chat("-n", 4)
    terminal.say("Hello")
    process = call("--continue", "-p", "More", "-n", 4, "--json", env={"AUK_MODEL": "elsewhere"})
    assert process.returncode == 0, process.stderr
    talk = chats()[0]
    assert contents(talk)[2:] == ["More", json.loads(process.stdout)["text"]]
    assert process.stderr == b""
    other = talker()
    process = call("--continue", "-m", other, "-p", "Other", "-n", 4)
    assert process.stderr.decode() == f"auk: this chat was with {talk['model']}; {other} goes on with it\n"
    talk, first = chats()[0], talk["model"]
    assert talk["model"] == str(other) and "chat_template" not in talk
    assert [m.get("model") for m in talk["messages"]] == [None, first, None, first, None, None]
    shown = call("chats", "show").stdout.decode()
    assert shown.startswith(f"> Hello\n\n({first})\n") and "\n> Other\n\n" in shown
    process = call("--continue", "-m", "/nowhere", "-p", "Hi")
    assert process.returncode == 3 and len(chats()[0]["messages"]) == 6
    other.rename(other.with_name("moved"))
    process = call("--continue", "-p", "Hi")
    assert process.returncode == 3 and b"(the model of this chat; -m MODEL goes on with another)" in process.stderr


def test_settings_leave_a_chat_its_model_template_and_thinking(call, stories, talker, tmp_path):
    model = talker("{{ enable_thinking }}")
    folder, config = tmp_path / "state" / "auk" / "chats", tmp_path / "config" / "auk" / "config"
    folder.mkdir(parents=True)
    config.parent.mkdir(parents=True)
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]

    def go_on(settings, *flags):
        config.write_text(settings)
        (folder / "it.json").write_text(json.dumps({"title": "Hello", "turns": 1, "model": str(model), "think": True,
                                                    "messages": messages}))
        process = call("--continue", "-p", "More", "--json", "--ids", "-v", *flags,
                       env={"XDG_CONFIG_HOME": str(config.parents[1]), "AUK_MODEL": "mine"})
        assert process.returncode == 0 and str(stories).encode() not in process.stderr, process.stderr
        result = json.loads(process.stdout)
        assert result["model"] == model.name
        return result["prompt_ids"], result["ids"]

    ids = go_on("", "-n", 9)
    assert len(ids[1]) == 9
    other = f"[mine]\nm {stories}\ntokenizer /nonexistent\nrope-theta 3\nstop a\nn 2\n"
    for settings in ("chat-template chatml\n", "no-think\n", other, "m mine\n" + other):
        assert go_on(f"n 9\n{settings}") == ids
    assert go_on(f"n 9\n[mine]\nm {model}\nn 2\nchat-template chatml\n") == (ids[0], ids[1][:2])


def test_a_turn_is_encoded_as_in_the_chat(chat, call, chats, template):
    """One more prompt sees the same text as one more line of the chat."""
    terminal = chat("-n", 4, "-sys", "Be kind.")
    terminal.say("Hello")
    process = call("--continue", "-p", "More", "-n", 4, "--json", "--ids", "-t", 1)
    tokens = json.loads(process.stdout)["prompt_ids"]
    text = call("tokenize", "-m", chats()[0]["model"], "--decode", *map(str, tokens)).stdout.decode()
    text = text.replace("</s> ", "</s>")
    answer = contents(chats()[0])[2]
    assert text == f"s: Be kind.</s>u: Hello</s>a: {answer}</s>u: More</s>a: "


def test_what_is_not_kept(chat, chats, call, talker, tmp_path):
    model = talker()
    for arguments, text in (["-p", "Hi"], b""), (["chat"], b"Hi\n"), (["-p", "Hi", "-p", "Ho"], b""):
        assert call("-m", model, "-n", 2, *arguments, input=text).returncode in (0, USAGE)
    chat("-n", 4, "--no-history").say("Hi")
    assert chats() == []
    assert not (tmp_path / "state" / "auk" / "chats").exists()
    process = call("--continue", "-p", "Hi", "-m", model)
    assert (process.returncode, process.stderr) == (
        USAGE, b"auk: there is no chat to go on with: auk chat begins one, and so does an answer on the terminal "
        b"(those in pipes and files are not kept)\n")
    process = call("-C", "and then")
    assert (process.returncode, process.stderr) == (
        USAGE, b'auk: there is no chat named "and then" (auk chats lists them; a prompt follows -p)\n')
    chat("-n", 4).say("Hi")
    before = chats()
    assert call("--continue", "--no-history", "-p", "Hi", "-n", 2).returncode == 0
    assert chats() == before


def test_a_prompt_on_a_terminal_is_a_chat(auk, talker, chats, tmp_path, call):
    model = talker()
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"}

    def ask(*flags):
        terminal = Terminal([*auk, "-m", str(model), "-n", "3", *flags], variables)
        return terminal.end()

    assert ask("-p", "Once") == 0
    assert [contents(talk)[0] for talk in chats()] == ["Once"]
    for flags in ["--json"], ["--no-history"], ["--raw"], ["-o", str(tmp_path / "o")], ["--choose", "a,b"]:
        if flags[0] == "--choose":
            assert Terminal([*auk, "-m", str(model), *flags, "-p", "No"], variables).end() == 0
        else:
            assert ask("-p", "No", *flags) == 0
    assert len(chats()) == 1
    assert call("--continue", "-p", "upon", "-n", 2).returncode == 0
    assert contents(chats()[0])[2] == "upon" and len(chats()) == 1


@pytest.mark.parametrize("environment, why", [
    ({"XDG_STATE_HOME": "", "HOME": ""},
     "this chat is not kept: neither XDG_STATE_HOME nor HOME names a place for chats"),
    ({"XDG_STATE_HOME": "/proc/1/none"}, "no history is kept: /proc/1/none/auk: cannot make the directory: "),
], ids=["no-home", "no-place"])
def test_a_chat_that_cannot_be_kept_goes_on(chat, environment, why):
    terminal = chat("-n", 4, environment=environment)
    terminal.say("Hi")
    terminal.say("Ho")
    assert terminal.seen.count("kept") == 1 and why in terminal.seen  # one line
    terminal.type("/exit\r")
    assert terminal.end() == 0


def test_a_full_disk(chat):
    """A file system that takes folders, and no bytes: a file of 0 bytes at most."""
    terminal = chat("-n", 4, wait=False)
    terminal.ready()
    resource.prlimit(terminal.child.pid, resource.RLIMIT_FSIZE, (0, 0))
    said = terminal.say("Hi")
    assert terminal.child.isalive()
    assert "is not kept" in said or "no history is kept" in said


def test_two_terminals_do_not_overwrite_one_another(chat, chats):
    chat("-n", 4).say("Shared")
    one, other = chat("-n", 4, "--continue"), chat("-n", 4, "--continue")
    one.say("from one")
    said = other.say("from the other")
    assert "another auk has written to this chat: it goes on as " in said
    one.say("again")
    talks = sorted(contents(talk)[2::2] for talk in chats())
    assert talks == [["from one", "again"], ["from the other"]]
    begins = [chat("-n", 4), chat("-n", 4)]
    for terminal in begins:
        terminal.say("Same words")
    for terminal in begins:
        terminal.say("More")
    assert sorted(talk["turns"] for talk in chats()) == [2, 2, 2, 3]


def test_a_file_to_talk_about(chat, chats, call, talker, tmp_path):
    (tmp_path / "doc.md").write_text("A text.\n")
    terminal = chat("-n", 4, "-f", tmp_path / "doc.md", wait=False)
    assert "tokens, in front of your next message" in terminal.ready()
    terminal.say("What is it?")
    assert contents(chats()[0])[0] == "A text.\nWhat is it?"
    process = call("chat", "-m", talker(), "-f", tmp_path / "none", input=b"Hi\n")
    assert process.returncode == 1 and process.stdout == b""


def keep_many(folder, n):
    folder.mkdir(parents=True)
    for i in range(n):
        talk = {"title": f"Question {i}", "began": "2026-11-22T15:10:00Z", "turns": 2, "model": "m", "messages":
                [{"role": "user", "content": f"Question {i}"}, {"role": "assistant", "content": "x" * 2000}] * 2}
        (folder / f"2026-11-22-1510-question-{i}.json").write_text(json.dumps(talk))
        os.utime(folder / f"2026-11-22-1510-question-{i}.json", (1000 + i, 1000 + i))


def test_chats_are_listed_shown_and_removed(call, tmp_path):
    folder = tmp_path / "state" / "auk" / "chats"
    process = call("chats")
    assert (process.returncode, process.stdout) == (0, b"")
    assert process.stderr == b"auk: no chat was kept yet: auk chat begins one\n"
    assert call("chats", "--json").stdout == b"[]\n"
    keep_many(folder, 3)
    (folder / "notes.txt").write_text("no chat")
    (folder / "broken.json").write_text("{")
    os.utime(folder / "broken.json", (1, 1))
    process = call("chats")
    lines = process.stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "CHANGED", "TURNS", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == [f"2026-11-22-1510-question-{i}" for i in (2, 1, 0)]
    assert lines[1].endswith("  2  Question 2")
    assert process.returncode == 0 and b"broken.json:1:" in process.stderr
    listed = json.loads(call("chats", "--json").stdout)
    assert listed[0] == {"name": "2026-11-22-1510-question-2", "title": "Question 2", "began": "2026-11-22T15:10:00Z",
                         "changed": "1970-01-01T00:16:42Z", "turns": 2, "model": "m",
                         "path": str(folder / "2026-11-22-1510-question-2.json")}
    assert call("chats", "--names").stdout.split()[0] == b"2026-11-22-1510-question-2"
    assert call("chats", "show", "question-1").stdout.startswith(b"> Question 1\n\nxxxx")
    assert json.loads(call("chats", "show", "question-1", "--json").stdout)["title"] == "Question 1"
    assert call("chats", "rm", "question-1").returncode == USAGE  # a whole name
    assert call("chats", "rm", "2026-11-22-1510-question-1", "broken").returncode == 0
    assert len(call("chats", "--names").stdout.split()) == 2
    assert call("chats", "rm").returncode == USAGE
    assert call("chats", "rm", "--all").stderr == b"auk: 2 chats removed\n"
    assert (folder / "notes.txt").exists()
    for wrong in ["nothing"], ["show", "a", "b"], ["--all"], ["rm", "--json", "a"], ["show", "--names"]:
        assert call("chats", *wrong).returncode == USAGE


def test_a_title_that_is_cut_says_so(auk, tmp_path):
    """Columns count: a Chinese character has two."""
    folder = tmp_path / "state" / "auk" / "chats"
    folder.mkdir(parents=True)
    for i, title in enumerate(["a" * 26, "a" * 27, "\u5929" * 13, "\u5929" * 14]):
        talk = {"title": title, "began": "2026-11-22T15:10:00Z", "turns": 1,
                "messages": [{"role": "user", "content": "a"}]}
        (folder / f"{i}.json").write_text(json.dumps(talk))
        os.utime(folder / f"{i}.json", (1000 + i, 1000 + i))
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    terminal = Terminal([*auk, "chats"], variables, columns=57)
    assert terminal.end() == 0
    titles = [line.split("    1  ")[1] for line in terminal.seen.split("\r\n")[1:5]]
    assert titles == ["\u5929" * 11 + "...", "\u5929" * 13, "a" * 23 + "...", "a" * 26]


def test_a_thousand_chats(call, tmp_path):
    """Below 50 ms of processor time each; what is measured is far below, sanitizers take more."""
    keep_many(tmp_path / "state" / "auk" / "chats", 1000)
    for arguments in ["chats"], ["--continue=999", "-m", "/nowhere", "-p", "a"]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = call(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert process.returncode in (0, 3)
        assert seconds < (2 if os.environ.get("ASAN_OPTIONS") else 0.5)
