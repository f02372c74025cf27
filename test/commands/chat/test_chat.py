"""auk chat, as a person at a terminal has it (through a pseudo-terminal), and as a script has it (through pipes).

The model is the tiny one, which writes stories whatever is said to it; what is tested is the chat around it.
"""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import pytest
from chat_terminal import READY, TEMPLATE, chat, saved, template  # the last three are fixtures

__all__ = ["chat", "saved", "template"]


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
    assert "no message of yours yet" in terminal.say("/undo")
    assert "no message of yours yet" in terminal.say("/regen")


def test_regen_says_why_the_likeliest_answer_comes_again(chat):
    terminal = chat("-n", 5)
    answer = terminal.say("One.")
    assert "temp is 0" not in answer
    assert "temp is 0: the same settings give the same answer" in terminal.say("/regen")
    terminal.say("/set temp 1")
    assert "temp is 0" not in terminal.say("/regen")


def test_the_first_answer_is_the_one_of_auk_run(chat, saved, run, stories, template):
    terminal = chat("-n", 25, "--temp", 1)
    terminal.say("Once upon a time")
    told = run("-m", stories, "--chat-template", template, "-s", "1", "-n", 25, "--temp", 1, "-p", "Once upon a time")
    assert saved(terminal)[1]["content"] + "\n" == told.stdout.decode()


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


def test_an_interrupted_form_is_told_as_interrupted(chat, saved, variant):
    model = variant(config={"max_position_embeddings": 200000})
    terminal = chat("--temp", 1, "--json-schema", '{"type": "string", "minLength": 150000}', model=model)
    for n in (1, 2):
        terminal.type("Tell me a story\r")
        terminal.wait("Tell me a story")
        terminal.wait("the")
        terminal.type("\x03")
        told = terminal.ready()
        assert "\ninterrupted" in told and "\ncut" not in told  # within a line, letters of the answer
        assert len(saved(terminal)) == 2 * n


def test_a_form_that_is_cut_is_told(chat):
    terminal = chat("-n", 5, "--temp", 1, "-s", 1, "--json-schema", '{"type": "string", "minLength": 500}')
    assert "cut after 5 tokens (/set n)" in terminal.say("Tell me.")
    assert "cut" in terminal.say("And then?")


def test_what_is_typed_after_an_interruption_is_not_lost(chat, saved, variant):
    model = variant(config={"max_position_embeddings": 200000})
    terminal = chat("--ignore-eos", "--temp", 1, model=model)
    terminal.type("Go\r")
    terminal.wait("Go")
    terminal.wait("the")
    terminal.type("\x03")
    time.sleep(0.05)  # a person's; the prompt may or may not be there
    terminal.type("/set n 7\r")
    terminal.ready()
    terminal.ready()
    assert "n 7" in terminal.say("/set")


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


@pytest.mark.parametrize("keys", ["\x03\x04", "not this\x03\x04", "\x04\x03"])
def test_ctrl_d_right_after_ctrl_c_leaves(chat, variant, keys):
    """The signal may come after both keys: what it drops was typed before it, but for the wish to leave."""
    terminal = chat("--ignore-eos", "--temp", 1, model=variant(config={"max_position_embeddings": 200000}))
    terminal.type("Go\r")
    terminal.wait("Go")
    terminal.wait("the")
    terminal.type(keys)
    assert terminal.end() == 0 and "not this" not in terminal.seen


def test_ctrl_d_during_an_answer_leaves_after_it(chat, variant):
    terminal = chat("--ignore-eos", "-n", 1000, model=variant(config={"max_position_embeddings": 200000}))
    terminal.type("Go\r")
    terminal.wait("Go")
    terminal.wait("the")
    terminal.type("\x04")
    assert terminal.end() == 0 and "[1000 tokens" in terminal.seen


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
    counted = re.search(r"the conversation has (\d+) tokens, the context 200: 0 are left for an answer", terminal.seen)
    assert int(counted[1]) > 200
    assert "Not sent" in terminal.say("n")
    assert saved(terminal) == before
    terminal.type("\x1b[A\x1b[A\r")  # after /save: the message is still there
    terminal.wait("[y/n] ")
    told = terminal.say("y")
    assert "forgotten" in told
    after = saved(terminal)
    assert after[-2]["content"] == "No room for this."
    assert after[:-2] == before[len(before) - len(after) + 2:] and len(after) < len(before) + 2


def test_the_question_says_why_it_comes_where_the_message_would_fit(chat):
    flags = ["-n", 40, "--ignore-eos"]
    roomy = chat(*flags)
    fill(roomy, 3)
    roomy.say("No room for this.")
    n = counts(roomy)[0]
    for left, words in ((4, "4 are left"), (1, "1 is left"), (0, "0 are left")):
        terminal = chat(*flags, "-c", n + left)
        fill(terminal, 3)
        terminal.type("No room for this.\r")
        terminal.wait("[y/n] ")
        assert f"the conversation has {n} tokens, the context {n + left}: {words} for an answer.\r\n" in terminal.seen


def test_what_was_typed_ahead_answers_no_question(chat, saved):
    """It is a message, and comes after the question, as it would have without one."""
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos")
    fill(terminal, 3)
    before = saved(terminal)
    terminal.type("No room for this.\r\ryes and no\rAnd more\r")
    for _ in range(2):
        terminal.wait("(Typed before the question, sent after it.) Forget the oldest")
        assert "Not sent" not in terminal.wait("[y/n] ")
    terminal.type(" Y \r")
    while terminal.child.expect_exact(["[y/n] ", READY]) == 0:  # they may have no room either
        terminal.seen += terminal.child.before + terminal.child.after
        terminal.type("yes\r")
    terminal.seen += terminal.child.before + terminal.child.after
    shown = [terminal.seen.index(f"> {message}\r\n") for message in ("yes and no", "And more")]
    assert shown == sorted(shown)
    asked = [m["content"] for m in saved(terminal) if m["role"] == "user"]
    assert asked[-1:] == ["And more"] and before[-1]["content"] not in asked


def test_an_answer_that_is_neither_yes_nor_no_is_asked_for_again(chat, saved):
    """It was typed after the question, and is no message."""
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos")
    fill(terminal, 3)
    before = saved(terminal)
    terminal.type("No room for this.\r")
    terminal.wait("[y/n] ")
    for answer in ("maybe", "yep", "what?"):
        terminal.type(f"{answer}\r")
        terminal.wait("(Please answer y or n.) Forget the oldest 1 turn? [y/n] ")
    assert "Not sent" in terminal.say("n")
    assert saved(terminal) == before
    assert "> maybe" not in terminal.seen and "> yep" not in terminal.seen


def test_an_interrupted_question_drops_what_was_typed_ahead(chat, saved):
    terminal = chat("-n", 40, "-c", 200, "--ignore-eos")
    fill(terminal, 3)
    before = saved(terminal)
    terminal.type("No room for this.\rNor for this\r")
    terminal.wait("(Typed before the question, sent after it.) Forget the oldest")
    terminal.wait("[y/n] ")
    terminal.type("\x03")
    assert "Not sent" in terminal.ready()
    assert saved(terminal) == before


@pytest.mark.parametrize("n, freed", [(20, 75), (75, 150)])
def test_sliding_makes_room_for_more_than_one_answer(chat, n, freed):
    """A quarter of the context, or twice the room for an answer, with the system message counted: not every message
    drops a turn."""
    n_ctx = 300
    system = "Be kind, and be patient with those who ask the same a second time; and never be short with them."
    terminal = chat("-n", n, "-c", n_ctx, "--ignore-eos", "--context-overflow", "slide", "-sys", system, "--stop", "e")
    n_slides = n_between = 0
    for i in range(14):
        told = terminal.say(f"Turn {i}. Go on with the story, please.")
        n_between += n_slides > 0 and "forgotten" not in told
        if "forgotten" in told:
            n_slides += 1
            prompt, _, _ = counts(terminal)
            assert n_ctx - freed - 75 < prompt <= n_ctx - freed
    assert n_slides >= 2 and n_between >= n_slides


def test_a_message_of_all_of_the_context_leaves_no_answer(chat, saved):
    """One token less is answered, with one token."""
    message = "word " * 30
    told = chat("-n", 5, "-c", 40).say(message)
    n = int(re.search(r"the message has (\d+) tokens", told)[1])
    assert n > 41
    terminal = chat("-n", 5, "-c", n)
    assert f"the message has {n} tokens with what belongs to it, the context {n}" in terminal.say(message)
    assert saved(terminal) == []
    terminal = chat("-n", 5, "-c", n + 1)
    assert f"the context of {n + 1} tokens is full" in terminal.say(message)
    assert len(saved(terminal)) == 2


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


def test_an_answer_that_goes_in_circles_ends(chat, variant):
    model = variant(config={"max_position_embeddings": 20000}, generation={"eos_token_id": None}, name="circles")
    terminal = chat("--repeat-penalty", "0.01", model=model)
    assert "cut: it repeats itself (/set n N allows that)" in terminal.say("Once")
    terminal.say("/set n 1200")
    assert "cut after 1200 tokens (/set n)" in terminal.say("Once")


def test_a_message_that_fits_nowhere_is_refused_with_both_counts(chat, saved):
    terminal = chat("-n", 5, "-c", 100)
    terminal.say("Hello.")
    told = terminal.say("word " * 100)
    counted = re.search(r"the message has (\d+) tokens with what belongs to it, the context 100", told)
    assert int(counted[1]) > 100
    assert len(saved(terminal)) == 2
    terminal.type("\x1b[A\x1b[A")  # after /save
    terminal.wait("word word")
    terminal.type("\x03")
    terminal.ready()


# --- the other commands


def test_help_names_every_command(chat):
    told = chat().say("/help")
    for name in "help exit clear regen undo edit system set read save load tokens tool stats".split():
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
    for name, line in [("temp", "temp 0.5"), ("--temperature", "temp 0.5"), ("seed ", "seed 1"), ("top_k", "top-k 0"),
                       ("max-tokens", "n 4")]:
        assert terminal.say(f"/set {name}") == f"  {line}\n"
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
    assert '/read is "-", expected a file (one of this name: ./-)' in terminal.say("/read -")
    terminal.say("What is it?")
    terminal.say("And now?")
    assert [m["content"] for m in saved(terminal)][::2] == ["first\nsecond\nWhat is it?", "And now?"]
    terminal.say("/read ~/one.txt")
    terminal.say("/clear")
    terminal.say("Nothing.")
    assert saved(terminal)[0]["content"] == "Nothing."


def test_a_file_that_fits_no_message_is_refused_where_it_is_read(chat, saved, tmp_path):
    """It made every later message one that is refused."""
    (tmp_path / "long.txt").write_text("word " * 600)
    (tmp_path / "short.txt").write_text("word " * 150)
    terminal = chat("-n", 5)
    refused = re.search(r"/long.txt has (\d+) tokens: the message would have (\d+), "
                        r"the context has 512; it is not read\n", terminal.say("/read ~/long.txt"))
    assert int(refused[2]) > int(refused[1]) > 512
    assert "-c N" not in terminal.seen  # it is the model's maximum
    assert "no file waits" in terminal.say('/read ""')
    terminal.say("Hello.")
    assert saved(terminal)[0]["content"] == "Hello."
    assert "in front of your next message (/undo drops them)" in terminal.say("/read ~/short.txt")
    assert re.search(r"short.txt has (\d+) tokens \(beside \1 that wait already\)", terminal.say("/read ~/short.txt"))
    terminal.say("And now?")
    assert saved(terminal)[2]["content"] == "word " * 150 + "\nAnd now?"
    assert "(-c N sets it, the model's maximum is 512); it is not read" in chat("-c", 100).say("/read ~/short.txt")


def test_a_message_with_files_that_is_refused_tells_the_way_out(chat, saved, tmp_path):
    (tmp_path / "notes.txt").write_text("word " * 150)
    terminal = chat("-n", 5, "-c", 512)
    terminal.say("/read ~/notes.txt")
    told = terminal.say("word " * 150)
    counted = re.search(r"the message has (\d+) tokens with what belongs to it, (\d+) of them from /read, "
                        r"the context 512: /undo drops what was read\n", told)
    assert int(counted[1]) > 512 > int(counted[2]) > 150
    terminal.say("/undo")
    terminal.say("Hello.")
    assert [m["content"] for m in saved(terminal)][0] == "Hello."
    told = chat("-c", 100).say("word " * 150)
    assert "the context 100 (-c N sets it, the model's maximum is 512)\n" in told


@pytest.mark.parametrize("drop", ["/undo", '/read ""'])
def test_what_was_read_can_be_listed_and_dropped(chat, saved, tmp_path, drop):
    (tmp_path / "notes.txt").write_text("Once upon\na time")
    terminal = chat("-n", 2)
    terminal.say("Hello.")
    before = saved(terminal)
    assert "wait for your next message" not in terminal.say("/tokens")
    counted = re.search(r"(\d+) tokens, in front of your next message", terminal.say("/read ~/notes.txt"))
    listed = terminal.say("/tokens")
    assert f"{counted[1]:>7}  wait for your next message (/undo drops them): Once upon a time\n" in listed
    assert f"what was read is dropped, {counted[1]} tokens\n" in terminal.say(drop)
    assert saved(terminal) == before
    assert "wait for your next message" not in terminal.say("/tokens")
    terminal.say("Again.")
    assert saved(terminal)[2]["content"] == "Again."
    assert "taken back: Again." in terminal.say("/undo")


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
    sums = r"^ +(\d+)  with the template's own and the beginning of an answer, of a context of 300$"
    whole = int(re.search(sums, told, re.MULTILINE)[1])
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


@pytest.mark.parametrize("command", ["/read", "/load", "/save"])
def test_a_file_that_could_be_waited_for_is_refused(chat, saved, tmp_path, command):
    """Ctrl-C would end the chat and not the wait."""
    os.mkfifo(tmp_path / "fifo")
    terminal = chat("-n", 2)
    terminal.say("Hello.")
    before = saved(terminal)
    assert "fifo is a fifo, expected a regular file" in terminal.say(f"{command} ~/fifo")
    assert "/dev/tty is a device" in terminal.say(f"{command} /dev/tty")
    assert f'{command} is "-", expected a file' in terminal.say(f"{command} -")
    assert saved(terminal) == before


def test_a_file_that_holds_no_chat_changes_nothing(chat, saved, tmp_path):
    (tmp_path / "open.json").write_text('[{"role": "user", "content": 7}]')
    terminal = chat("-n", 2)
    terminal.say("Hello.")
    before = saved(terminal)
    assert "neither a string nor a list" in terminal.say(f"/load {tmp_path}/open.json")
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

# It opens a thought, and knows how one is closed.
OPENED = TEMPLATE.replace("a: {% endif %}", "a: <think>\n{% endif %}") + "{# </think> #}"


@pytest.fixture
def thinker(variant, template):
    """A model whose template opens a thought, which the chat closes after five tokens."""
    template.write_text(OPENED)
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
    terminal.say("/set temp 1")
    assert "think-budget 5" in terminal.say("/set")  # another setting takes nothing of it
    terminal.say("/set think-budget 2")
    assert "think-budget 2" in terminal.say("/set")
    terminal.say("/set default")
    assert "think-budget 5" in terminal.say("/set")
    told = terminal.say("/tokens")
    assert re.search(r"\(and \d+ of thought\)", told)


def test_an_answer_that_is_interrupted_within_its_thought_stays(chat, saved, variant, template):
    template.write_text(OPENED)
    model = variant(config={"max_position_embeddings": 200000}, name="long")
    terminal = chat("--ignore-eos", "--temp", 1, model=model)
    terminal.type("Tell me a story\r")
    terminal.wait("Tell me a story")
    terminal.wait("the")
    terminal.type("\x03")
    told = terminal.ready()
    assert "interrupted" in told and "taken back" not in told
    user, answer = saved(terminal)
    assert user["content"] == "Tell me a story"
    assert answer["content"] == "" and "the" in answer["reasoning_content"]


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


def test_settings_are_told_once(pipe):
    assert pipe("Hi", flags=["-v"]).stderr.count(b"chat format") == 1


def test_seeds_begin_again_with_the_settings_of_the_beginning_and_with_a_seed(pipe):
    """Each answer takes the next seed. /clear alone begins another conversation, and no other series of seeds."""

    def answers(change):
        done = pipe("Tell me.", "/clear", change, "Tell me.", flags=["-n", 12, "--temp", 1])
        assert done.returncode == 0, done.stderr
        first, second = done.stdout.splitlines()
        return first, second

    first, second = answers("/set top-k 0")  # changes nothing
    assert first != second
    assert answers("/set default") == (first, first)
    assert answers("/set seed 1") == (first, first)
    assert answers("/set seed 2") == (first, second)


def test_a_full_context_asks_nobody_in_a_script(pipe):
    lines, flags = ["Go on with the story, please."] * 9, ["-c", "100", "--ignore-eos"]
    done = pipe(*lines, flags=flags)
    assert done.returncode == 2 and b"the context 100" in done.stderr
    done = pipe(*lines, flags=[*flags, "--context-overflow", "slide"])
    assert done.returncode == 0 and b"forgotten" in done.stderr


def test_an_interrupt_ends_a_script(start, template, variant):
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


def test_weights_that_are_touched_end_no_chat(chat, saved, stories, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(stories, model)
    terminal = chat("-n", 4, model=model)
    terminal.say("Once")
    before = saved(terminal)
    (model / "model.safetensors").touch()
    told = terminal.say("Once more")
    assert "model.safetensors was written to while it was in use" in told and "/save FILE keeps" in told
    assert "Not sent: " in terminal.say("And more")
    assert saved(terminal) == before
    terminal.type("/exit\r")
    assert terminal.end() == 0
