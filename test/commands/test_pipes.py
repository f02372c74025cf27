"""One shot among pipes, files and signals: what goes in, what comes out, and what is said where something is cut."""
import errno
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest
from renamed_tokens import renamed
from screen import Screen
from terminals import read_all, resize

PROMPT = "Once upon a time"
STORY = (", there was a little girl named Lily. She loved to play outside in the sunshine. One day, she saw a big, red "
         "ball in the sky. It was a big, red ball. She")


@pytest.fixture
def ask(run, stories):
    """ask(*flags): the finished process of a raw prompt to the tiny model."""

    def get(*flags, model=stories, **options):
        return run("-m", model, "--raw", *flags, **options)

    return get


@pytest.fixture
def answer(ask):
    """answer(*flags): the answer of a run that must succeed and say nothing."""

    def get(*flags, **options):
        process = ask(*flags, **options)
        assert (process.returncode, process.stderr) == (0, b""), process.stderr
        return process.stdout

    return get


def piped(script, auk, **options):
    """A shell's pipeline, in which "$@" is the program."""
    options = {"stdin": subprocess.DEVNULL, "timeout": 60, **options}
    return subprocess.run(["sh", "-c", script, "sh", *auk], capture_output=True, **options)


# --- text in


# --- text out


def test_an_answer_in_a_pipe_is_the_answer_alone(auk, stories):
    script = f'"$@" -m {stories} --raw -p "{PROMPT}" -n 60 | cat'
    process = piped(script, auk, env={**os.environ, "TERM": "xterm-256color"})
    assert (process.stdout.decode(), process.stderr) == (STORY + "\n", b"")


def test_an_answer_ends_its_line_wherever_it_goes(auk, ask, stories, tmp_path):
    """A loop over lines gets it, and a log has a line of each; --no-newline leaves it as the model wrote it."""
    line, exact = STORY[:20] + "\n", STORY[:20]
    flags = ["-p", PROMPT, "-n", 5]
    for form in ([], ["--no-stream"]):
        assert ask(*flags, *form).stdout.decode() == line
        assert ask(*flags, *form, "--no-newline").stdout.decode() == exact
        assert ask(*flags, *form, "-o", tmp_path / "out").returncode == 0 and (tmp_path / "out").read_text() == line
        assert ask(*flags, *form, "-o", tmp_path / "out", "--no-newline").returncode == 0
        assert (tmp_path / "out").read_text() == exact
    asked = f'"$@" -m {stories} --raw -n 5 -p'
    piped(f'for i in 1 2 3; do {asked} "{PROMPT}" >> {tmp_path}/log; done', auk)
    assert (tmp_path / "log").read_text() == 3 * line
    process = piped(f'{asked} "{PROMPT}" | while read -r line; do echo "got:$line"; done', auk)
    assert process.stdout.decode() == f"got:{line}"
    assert ask("-p", PROMPT, "--regex", "[a-z]{2}\n").stdout.count(b"\n") == 1  # and to what has one, none is added


def test_an_empty_answer_writes_nothing(ask, tmp_path):
    """Not even a line: it may have been asked for (-n 0), be cut, or be what the model ends with at once."""
    for flags in (["-n", 0], ["-n", 0, "--no-stream"], ["-n", 0, "--no-newline"], ["-n", 9, "--stop", STORY[:2]],
                  ["-n", 9, "--regex", "a{0}"]):
        process = ask("-p", PROMPT, *flags)
        assert (process.returncode, process.stdout) == (0, b"")
        process = ask("-p", PROMPT, *flags, "-o", tmp_path / "out")
        assert (process.stdout, (tmp_path / "out").read_bytes()) == (b"", b"")
    cut = ask("-p", PROMPT, "-n", 0, "--regex", "[a-z]{2}")
    assert (cut.returncode, cut.stdout) == (4, b"")
    assert ask("-p", PROMPT, "-p", "Two", "-n", 0).stdout == 3 * b"\n"  # of several, each is a line


def test_an_answer_goes_to_a_file(ask, answer, tmp_path):
    out = tmp_path / "out"
    out.write_text("something much longer than the answer " * 40)
    process = ask("-p", PROMPT, "-n", 60, "-o", out)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    assert out.read_text() == STORY + "\n"
    assert answer("-p", PROMPT, "-n", 60, "-o", "-").decode() == STORY + "\n"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        assert ask("-p", PROMPT, "-n", 60, "-o", fifo).returncode == 0
        assert reader.stdout.read().decode() == STORY + "\n"


def test_an_answer_does_not_take_the_place_of_its_prompt(ask, tmp_path):
    text, link = tmp_path / "text", tmp_path / "link"
    text.write_text(PROMPT)
    link.symlink_to(text)
    for flags in (["-f", text], ["-f", text, "--choose", "a,the"], ["-f", link, "-p", "Go on"],
                  ["-f", text, "--map", link]):
        process = ask(*flags, "-o", text)
        assert (process.returncode, process.stdout) == (2, b"")
        assert process.stderr == f"auk: -o {text} is the file that -f {flags[1]} reads, which would be lost\n".encode()
    with open(text) as file:
        process = ask("-o", link, stdin=file)
    assert process.returncode == 2
    assert process.stderr == f"auk: -o {link} is the file on standard input, which would be lost\n".encode()
    assert text.read_text() == PROMPT


def test_what_is_refused_leaves_a_file_as_it_was(ask, run, tmp_path):
    out = tmp_path / "out"
    out.write_text("kept")
    both = ["--json", "--jsonl-stream"]
    for flags in (["-p", PROMPT, "-c", 2], ["-p", PROMPT, "-c", 100000], [], ["-p", PROMPT, *both]):
        assert ask(*flags, "-o", out).returncode == 2
    assert run("-m", tmp_path, "-p", PROMPT, "-o", out).returncode == 3
    assert out.read_text() == "kept"
    process = ask("-p", PROMPT, "-o", tmp_path / "no" / "out")
    assert process.returncode == 1 and b"No such file" in process.stderr and process.stdout == b""


@pytest.mark.parametrize("flags", [[], ["--no-stream"], ["--json"], ["--jsonl-stream"], ["-o", "/dev/full"]])
def test_a_full_disk_is_an_error(ask, flags):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        process = ask("-p", PROMPT, "-n", 5, *flags, stdout=full)
    assert process.returncode == 1
    assert os.strerror(errno.ENOSPC).encode() in process.stderr
    assert process.stderr.count(b"\n") == 1


@pytest.mark.parametrize("flags", [[], ["--jsonl-stream"]])
def test_a_reader_who_goes_away_ends_it_quietly(auk, endless, flags):
    process = subprocess.run(["sh", "-c", '"$@" | head -c 20 >&2; wait', "sh", *auk, *endless, *flags],
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert len(process.stderr) == 20  # head's, and not a word beside it


def test_a_closed_pipe_has_its_status(start, endless):
    process = start(*endless)
    process.stdout.read(5)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_a_closed_standard_output_is_an_error(auk, stories):
    process = piped(f'"$@" -m {stories} --raw -p "{PROMPT}" -n 5 >&-', auk)
    assert process.returncode == 1 and b"standard output" in process.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_written(start, endless, number):
    process = start(*endless)
    first = process.stdout.read(10)
    process.send_signal(number)
    rest = process.stdout.read()
    assert process.wait(60) == 130
    (first + rest).decode()  # whole characters
    assert process.stderr.read() == b""


def test_an_interrupted_answer_is_still_given_whole(start, endless):
    process = start(*endless, "--no-stream", "-v")
    assert any(b"context" in line for line in process.stderr)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.read().decode()
    assert b"end: interrupted" in process.stderr.read()


def test_not_streaming_writes_once_at_the_end(start, endless, answer):
    assert answer("-p", PROMPT, "-n", 60, "--no-stream").decode() == STORY + "\n"
    process = start(*endless, "--no-stream", "-n", "100000")
    os.set_blocking(process.stdout.fileno(), False)
    time.sleep(0.3)
    assert process.poll() is None and process.stdout.read() is None


# --- terminals


def on_terminal(start, *arguments, **options):
    """The output of a program whose standard output is a terminal."""
    main, terminal = pty.openpty()
    process = start(*arguments, stdout=terminal, **options)
    os.close(terminal)
    seen = read_all(main)
    os.close(main)
    process.wait(60)
    return process, seen.replace(b"\r\n", b"\n")


@pytest.fixture
def steering(variant):
    """The tiny model, whose token for "," is an escape sequence and whose "." is a bell and a CR."""

    return variant(tokenizer=renamed({",": "\x1b[2J\x9b5m", ".": "\x07\r\x7f"}), name="steering")


def test_a_model_cannot_steer_a_terminal(start, run, steering):
    flags = ["-m", steering, "--raw", "-p", PROMPT, "-n", 12]
    raw = run(*flags).stdout
    assert raw.startswith(b"\x1b[2J\xc2\x9b5m there was") and b"\x07\r\x7f" in raw  # to a pipe as it is
    process, seen = on_terminal(start, *map(str, flags))
    assert process.returncode == 0
    text = seen.decode()
    assert text.startswith("\u241b[2J\ufffd5m there was") and "\u2407\u2421" in text
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


def test_a_file_gets_what_a_pipe_gets(start, run, steering, tmp_path):
    flags = ["-m", steering, "--raw", "-p", PROMPT, "-n", 12]
    process, seen = on_terminal(start, *map(str, flags), "-o", str(tmp_path / "out"))
    assert (process.returncode, seen) == (0, b"")
    assert (tmp_path / "out").read_bytes() == run(*flags).stdout


def test_an_interrupted_prefill_takes_its_progress_back(start, variant, tmp_path):
    model = variant(config={"max_position_embeddings": 200000}, name="long")
    (tmp_path / "text").write_text("The dog ran. " * 20000)
    main, terminal = pty.openpty()
    process = start("-m", str(model), "--raw", "-f", str(tmp_path / "text"), "--json", "-u",
                    stderr=terminal)
    os.close(terminal)
    seen = b""
    while b"tokens" not in seen:
        seen += os.read(main, 4096)
    process.send_signal(signal.SIGINT)
    seen += read_all(main)
    os.close(main)
    assert process.wait(60) == 130
    assert seen.rsplit(b"\r\x1b[K", 1)[1].startswith(b"auk: prompt "), seen
    assert json.loads(process.stdout.read())["finish_reason"] == "interrupted"


def test_a_sign_turns_until_the_first_text(start, variant, tmp_path):
    model = variant(config={"max_position_embeddings": 200000}, name="long")
    (tmp_path / "text").write_text("The dog ran. " * 20000)
    main, terminal = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    process = start("-m", str(model), "--raw", "-f", str(tmp_path / "text"), stdout=terminal, stderr=terminal,
                    env=environment)
    os.close(terminal)
    seen = b""
    while len(set(re.findall("[\u2800-\u28ff]", seen.decode(errors="replace")))) < 3:
        seen += os.read(main, 4096)
    process.send_signal(signal.SIGINT)
    seen += read_all(main)
    os.close(main)
    assert process.wait(60) == 130
    screen = Screen(24, 80)
    screen.feed(seen.decode())
    assert re.fullmatch(r"\[0 tokens, 0.0/s; context \d+ of 200000\]", "".join(screen.lines()))


def test_a_terminal_that_takes_nothing_back_is_shown_no_progress(start, variant, sanitized, tmp_path):
    model = variant(config={"max_position_embeddings": 20000}, name="long")
    (tmp_path / "text").write_text("The dog ran. " * (400 if sanitized else 1500))  # a second
    main, terminal = pty.openpty()
    process = start("-m", str(model), "--raw", "-f", str(tmp_path / "text"), "-n", "2", "-u", stderr=terminal,
                    env={**os.environ, "TERM": "dumb"})
    os.close(terminal)
    seen = read_all(main)
    os.close(main)
    assert process.wait(60) == 0
    assert seen.startswith(b"auk: prompt ") and b"\x1b" not in seen


@pytest.mark.parametrize("command", [
    ["quantize", "FLOATS", "-o", "OUT", "--samples", "2", "--length", "32", "--group", "32", "--calibration", "TEXT"],
    ["eval", "-m", "MODEL", "--window", "99", "-f", "TEXT"],
    ["-m", "MODEL", "--raw", "-n", "2", "--parallel", "1", "--map", "TEXT"]],
    ids=lambda command: command[0].replace("-m", "map"))
def test_progress_does_not_wrap(start, root, stories, tmp_path, command):
    """Only the last row of a line that wraps could be erased."""
    (tmp_path / "text").write_text("Once upon a time there was a dog.\n" * 40)
    words = {"FLOATS": root / "test" / "data" / "stories260K-f32", "MODEL": stories, "TEXT": tmp_path / "text",
             "OUT": tmp_path / "out"}
    for columns in (9, 20, 0):  # 0: unknown
        main, terminal = pty.openpty()
        resize(terminal, columns)
        process = start(*(str(words.get(word, word)) for word in command), stderr=terminal, stdout=subprocess.DEVNULL)
        os.close(terminal)
        seen = read_all(main).decode()
        os.close(main)
        assert process.wait(60) == 0
        lines = seen.split("auk: ")[0].split("\r\x1b[K")
        assert 0 < max(map(len, lines[1:])) < columns if columns else max(map(len, lines)) > 14
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


@pytest.mark.parametrize("command, typed, wanted", [
    (["tokenize", "-m", "MODEL"], "hi\n", None), (["tokenize", "-m", "MODEL", "--jsonl"], '{"text": "hi"}\n', None),
    (["template", "--chat-template", "chatml"], '{"messages": [{"role": "user", "content": "hi"}]}\n', None),
    (["schema", "SCHEMA"], "1\n", b"valid\n"),
    (["-m", "MODEL", "--raw", "-n", "2", "--map", "-"], "Once upon a time\n", b", there\n"),
    (["-m", "MODEL", "--raw", "-n", "2", "-f", "-"], "Once upon a time\n", b", there\n"),
], ids=["text", "lines", "template", "schema", "map", "-f"])
def test_a_terminal_that_is_read_is_told(run, stories, tmp_path, command, typed, wanted):
    (tmp_path / "schema").write_text('{"type": "integer"}')
    line = [{"MODEL": stories, "SCHEMA": tmp_path / "schema"}.get(word, word) for word in command]
    main, terminal = pty.openpty()
    os.write(main, typed.encode() + b"\x04")
    process = run(*line, stdin=terminal)
    os.close(main)
    os.close(terminal)
    notes = [note for note in process.stderr.split(b"\n") if b"records" not in note]
    assert (process.returncode, notes) == (0, [b"auk: reading the terminal, Ctrl-D ends", b""])
    piped = run(*line, input=typed.encode())
    assert process.stdout == (wanted or piped.stdout) and b"terminal" not in piped.stderr


# --- prompts that are too long


@pytest.fixture
def long_text():
    return "".join(f"The dog number {i} ran. " for i in range(200))


def test_a_prompt_is_cut_only_where_that_is_asked_for(ask, long_text):
    process = ask("-n", 5, input=long_text.encode())
    assert process.returncode == 2 and process.stdout == b"" and b"the context 512" in process.stderr


@pytest.mark.parametrize("where", ["start", "middle"])
def test_a_cut_prompt_is_what_is_said(ask, long_text, where):
    """The bytes it names are gone, whole characters and the question are not, and the room for the answer is left."""
    text = "Größe! " + long_text + " Ende ü"
    process = ask("-p", "Then {} And so", "-n", 40, "--truncate", where, input=text.encode())
    assert process.returncode == 0, process.stderr
    words = process.stderr.decode().replace(",", "").split()
    begin, end = (int(words[words.index("bytes") + i]) for i in (1, 3))
    data = text.encode()
    left = (data[:begin] + data[end:]).decode()  # on borders of characters
    assert (begin == 0) == (where == "start")
    if where == "middle":
        assert left.startswith("Größe!") and left.endswith("Ende ü")
    want = ask("-p", f"Then {left} And so", "-n", 40, "-u")
    assert process.stdout == want.stdout
    n_prompt = int(want.stderr.split(b"prompt ")[1].split()[0])
    assert 512 - 40 - 3 <= n_prompt <= 512 - 40  # as much as fits is kept
    unread = ask("-p", f"Then {left} And so", "-n", 40, "--truncate", where)
    assert unread.stderr == b""  # what fits is left alone


def test_a_quarter_is_left_for_an_answer_of_any_length(ask, long_text):
    process = ask("--truncate", "start", "-u", "--ignore-eos", input=long_text.encode())
    n_prompt = int(process.stderr.split(b"auk: prompt ")[1].split()[0])
    assert 512 * 3 // 4 - 3 <= n_prompt <= 512 * 3 // 4
    assert b"the context of 512 tokens is full" in process.stderr  # the answer's end is not silent either


@pytest.mark.parametrize("n, room", [(0, 512), (100, 412), (255, 257), (256, 256), (400, 256)])
def test_an_answer_has_its_room_but_never_more_than_half(ask, long_text, n, room):
    process = ask("--truncate", "start", "-n", n, "-u", "--stop", "e", "--stop", " ", input=long_text.encode())
    before, more, left, n_cut = map(int, re.search(
        rb"the prompt has (\d+) tokens, (\d+) more than the (\d+) that are left beside the answer: (\d+) tokens of the "
        rb"text, its bytes 0 to \d+ of %d, were cut\n" % len(long_text), process.stderr).groups())
    n_prompt = int(process.stderr.split(b"auk: prompt ")[1].split()[0])
    assert left == room and more == before - room and n_cut >= more
    assert room - 3 <= n_prompt <= room


def test_a_prompt_that_cutting_cannot_help_is_refused(ask, long_text):
    process = ask("-p", long_text + "{}", "--truncate", "start", input=b"some text")
    assert process.returncode == 2 and b"even without its text" in process.stderr


# --- ends


def circles(ids):
    """True if the last ids are one passage of n that came back 16 times and for 256 tokens, or for 1,024."""
    enough = {n: min(max(256, 16 * n), 1024) for n in range(1, 257)}
    return any(len(ids) >= n + back and ids[-back:] == ids[-back - n:-n] for n, back in enough.items())


def test_an_answer_that_goes_in_circles_ends(run, variant, tmp_path):
    model = variant(config={"max_position_embeddings": 20000}, generation={"eos_token_id": None}, name="long")
    flags = ["-m", model, "-t", 1, "--raw", "-p", PROMPT, "--repeat-penalty", "0.01"]  # its own words are likelier
    process = run(*flags, "--json", "--ids", "--require-stop")
    answer = json.loads(process.stdout)
    ids = answer["ids"]
    assert answer["finish_reason"] == "repetition" and 256 < len(ids) < 1000
    assert circles(ids) and not circles(ids[:-1])  # as soon as it does
    assert process.returncode == 4
    assert process.stderr.decode().splitlines() == [
        "auk: the answer is cut: it repeats itself (give -n N to allow that)",
        "auk: the answer was cut short by going in circles (--require-stop)"]
    asked = json.loads(run(*flags, "--json", "-n", len(ids) + 5).stdout)
    assert asked["finish_reason"] == "length" and asked["usage"]["completion_tokens"] == len(ids) + 5
    ignoring = run(*flags, "--json", "--ignore-eos", "-c", answer["usage"]["prompt_tokens"] + len(ids) + 5)
    assert json.loads(ignoring.stdout)["finish_reason"] == "context"
    (tmp_path / "in").write_text(PROMPT + "\n")
    process = run(*flags[:5], *flags[7:], "--map", tmp_path / "in", "--json", "--require-stop")
    assert json.loads(process.stdout)["text"] == answer["text"] and process.returncode == 4
    assert b"in:1: the answer is cut: it repeats itself (give -n N to allow that)\n" in process.stderr


def test_a_stop_can_be_required(ask, variant):
    process = ask("-p", PROMPT, "-n", 5, "--require-stop")
    assert process.returncode == 4 and b"-n" in process.stderr
    assert process.stdout.decode() == STORY[:len(process.stdout) - 1] + "\n" != "\n"
    process = ask("-p", PROMPT, "-c", 20, "--ignore-eos", "--require-stop")
    assert process.returncode == 4 and b"context" in process.stderr
    assert ask("-p", PROMPT, "-n", 60, "--stop", "Lily", "--require-stop").returncode == 0
    ends = variant(generation={"eos_token_id": 432}, name="ends")
    assert ask("-p", PROMPT, "--require-stop", model=ends).returncode == 0


def test_usage_is_for_standard_error(ask):
    process = ask("-p", PROMPT, "-n", 5, "-u")
    assert process.stdout.decode() == STORY[:len(process.stdout) - 1] + "\n"
    assert process.stderr.startswith(b"auk: prompt ") and process.stderr.count(b"\n") == 1


NAMES = ["--prompt x", "--file x", "--system-prompt x", "--system-prompt-file x", "--chat-template-file x", "-no-cnv",
         "--ignore-chat-template", "--reasoning-budget 0", "--hidethinking", "--predict 1", "--n-predict 1",
         "--max-tokens 1", "--max-new-tokens 1", "--ctx-size 1", "-r x", "--reverse-prompt x", "--seed 1",
         "--temperature 1", "--repetition-penalty 1", "--output x", "--output-file x", "--usage", "--verbose",
         "--threads 1", "--model x"]


@pytest.mark.parametrize("name", NAMES)
def test_other_tools_names_are_taken(run, tmp_path, name):
    """The manual page's table of names: none of them is an unknown flag."""
    prompt = [] if "-p" in name.split() or "--prompt" in name else ["-p", "x"]
    process = run(*name.split(), "-m", tmp_path / "nothing", *prompt)
    assert process.returncode in (2, 3) and b"nothing" in process.stderr, process.stderr


# --- code blocks


@pytest.fixture
def fenced(variant):
    """The tiny model, whose tokens for "," and "." hold fences: its story is code from the first to the third."""
    return variant(tokenizer=renamed({",": "\n```sh\n", ".": "\n```\n"}), name="fenced")


def test_the_first_code_block_is_extracted(ask, fenced, tmp_path):
    process = ask("-p", PROMPT, "-n", 60, "-x", "-u", model=fenced)
    assert process.stdout.decode() == " there was a little girl named Lily\n"
    assert b"end: stop" in process.stderr  # auk does not wait for what follows the block
    process = ask("-p", PROMPT, "-n", 60, "-x", "-o", tmp_path / "out", model=fenced)
    assert (tmp_path / "out").read_text() == " there was a little girl named Lily\n"
    process = ask("-p", PROMPT, "-n", 60, "-x", "--no-stream", model=fenced)
    assert process.stdout.decode() == " there was a little girl named Lily\n"


def test_no_code_block_is_an_error(ask):
    process = ask("-p", PROMPT, "-n", 10, "-x")
    assert (process.returncode, process.stdout) == (1, b"")
    assert b"no fenced code block" in process.stderr


def test_a_code_block_that_is_cut_is_told(ask, fenced):
    process = ask("-p", PROMPT, "-n", 6, "-x", model=fenced)
    assert process.returncode == 4 and process.stdout.endswith(b"\n")
    assert process.stderr == b"auk: the end came within the code block (length)\n"
