"""-P NAME: prompts that are files of the user, and `auk prompts`, which lists them."""
import json
import os

import pytest

USAGE = 2


@pytest.fixture
def call(run, talker, tmp_path):
    """call(...): auk with the model and the prompts of this test. Its member `prompts` is their folder."""
    model = talker()
    folder = tmp_path / "config" / "auk" / "prompts"
    folder.mkdir(parents=True)

    def it(*arguments, **options):
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "AUK_MODEL": str(model)}
        return run(*arguments, env=environment, **options)

    it.prompts = folder
    return it


@pytest.fixture
def asked(call):
    """asked(flag, ...): the text of the prompt that auk makes of the flags."""

    def text(*arguments, **options):
        process = call(*arguments, "-n", 1, "--json", "--ids", **options)
        assert process.returncode == 0, process.stderr
        ids = json.loads(process.stdout.splitlines()[-1])["prompt_ids"]
        whole = call("tokenize", "--decode", "--skip-special", *map(str, ids)).stdout.decode()
        return whole.removeprefix("user: ").removesuffix("\nthey:")

    return text


def refused(process, message):
    assert (process.returncode, process.stdout, process.stderr.decode()) == (USAGE, b"", f"auk: {message}\n")


def test_the_text_is_where_its_place_is(call, asked, tmp_path):
    (call.prompts / "review.md").write_text("Review this: {} Be brief, {{}}.\n")
    (call.prompts / "plain.txt").write_text("Say more.\n")
    (call.prompts / "bare").write_text("Tell a joke.")
    (tmp_path / "a.txt").write_text("from a\n")
    assert asked("-P", "review", "-f", tmp_path / "a.txt") == "Review this: from a Be brief, {}."
    assert asked("-P", "review", input=b"piped\n") == "Review this: piped Be brief, {}."
    assert asked("-P", "review", "-p", "typed") == "Review this: typed Be brief, {}."
    assert asked("-P", "review", "-f", tmp_path / "a.txt", "-p", "typed", input=b"piped\n") == (
        "Review this: piped\nfrom a\ntyped Be brief, {}.")
    assert asked("-P", "plain", "-p", "typed") == "typed\nSay more."
    assert asked("-P", "bare") == "Tell a joke."
    assert asked("-P", call.prompts / "bare") == "Tell a joke."  # a file
    assert asked("--named-prompt=plain", input=b"piped") == "piped\nSay more."


def test_many(call, asked):
    (call.prompts / "to.md").write_text("To {}!")
    (call.prompts / "members.md").write_text("In {lang}: {text}")
    process = call("-P", "to", "-p", "A", "-p", "B", "-n", 1, "--json", "--ids")
    texts = [call("tokenize", "--decode", *map(str, json.loads(line)["prompt_ids"])).stdout.decode()
             for line in process.stdout.splitlines()]
    assert ["To A!" in texts[0], "To B!" in texts[1]] == [True, True]
    assert asked("-P", "to", "--map", "-", input=b"C\n") == "To C!"
    assert asked("-P", "members", "--map", "-", "--map-json", input=b'{"lang": "French", "text": "Hi"}\n') == (
        "In French: Hi")
    assert call("-P", "to", "-p", "x", "--choose", "a,b").stdout in (b"a\n", b"b\n")
    refused(call("-P", "to", "-p", "x", "--map", "-", input=b"C\n"),
            "-p does not go with -P and --map: each record is the text of -P")
    assert call("-P", "to", "--messages", "x").returncode == USAGE


def test_mistakes(call):
    (call.prompts / "review.md").write_text("Review this: {}")
    (call.prompts / "empty.md").write_text("\n")
    (call.prompts / "nul.md").write_bytes(b"a\0b")
    (call.prompts / "latin.md").write_bytes(b"caf\xe9")
    (call.prompts / "folder").mkdir()
    refused(call("-P", "review"),
            "the prompt review has a place for a text, but there is none: -p TEXT, -f FILE and standard input are "
            "empty or not given")
    refused(call("-P", "reviw", "-p", "x"), 'there is no prompt named "reviw": did you mean review?')
    refused(call("-P", "something-else", "-p", "x"),
            f'there is no prompt named "something-else": {call.prompts}/something-else.md would be one')
    for name in "folder", "":
        refused(call("-P", name, "-p", "x"),
                f'there is no prompt named "{name}": {call.prompts}/{name}.md would be one')
    refused(call("-P", "empty", "-p", "x"), f"{call.prompts}/empty.md is empty")
    refused(call("-P", "nul", "-p", "x"), f"{call.prompts}/nul.md is no text: it has a NUL at offset 1")
    assert call("-P", "latin", "-p", "x").returncode == USAGE
    assert call("-P", "./none", "-p", "x").returncode != 0
    process = call("-P", "review", "-p", "x", "-o", call.prompts / "review.md")
    assert process.returncode == USAGE and b"the file that -P" in process.stderr
    assert (call.prompts / "review.md").read_text() == "Review this: {}"


def test_a_fifo_among_the_prompts_is_not_waited_for(call):
    os.mkfifo(call.prompts / "pipe.md")
    refused(call("-P", "pipe", "-p", "x", timeout=20),
            f"{call.prompts}/pipe.md is a fifo, expected a regular file")
    read, write = os.pipe()  # as the shell's <(...)
    os.write(write, b"Say {}")
    os.close(write)
    assert call("-P", f"/dev/fd/{read}", "-p", "x", "-n", 1, pass_fds=[read]).returncode == 0
    os.close(read)


def test_they_are_listed(call):
    process = call("prompts")
    assert (process.returncode, process.stdout) == (0, b"")
    assert process.stderr.decode() == (
        f"auk: there are no prompts: {call.prompts}/review.md would be one, for -P review\n")
    (call.prompts / "review.md").write_text("# Review\n\nthis")
    (call.prompts / "a.txt").write_text("\n" + "\xe9" * 100)
    (call.prompts / "review.md~").write_text("old")
    (call.prompts / ".hidden").write_text("old")
    os.mkfifo(call.prompts / "pipe")
    assert call("prompts", "--names").stdout == b"a\npipe\nreview\n"
    assert call("prompts").stdout.decode() == "a       " + "\xe9" * 30 + "\npipe    \nreview  Review\n"
