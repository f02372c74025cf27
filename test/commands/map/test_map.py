"""`auk --map` on the tiny trained model: records of every form, errors in their places, streams that are answered as
they come."""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import pytest

from map_records import NAMES, PATTERN, TOO_LONG
from renamed_tokens import renamed


@pytest.fixture
def map_run(run, stories):
    """map_run(*flags, lines=..., input=...): a finished --map run over these lines (or bytes) on standard input."""

    def go(*flags, lines=NAMES, status=0, model=stories, **options):
        data = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
        process = run("-m", model, "--raw", "-t", 1, "-n", 8, "--map", "-", *flags, input=data, **options)
        assert process.returncode == status, process.stderr
        return process

    return go


@pytest.fixture
def one(run, stories):
    """one(prompt, *flags): the answer of one shot."""

    def get(prompt, *flags):
        process = run("-m", stories, "--raw", "-n", 8, "-p", prompt, "--no-newline", *flags)
        assert process.returncode == 0, process.stderr
        return process.stdout.decode()

    return get


def objects(process):
    return [json.loads(line) for line in process.stdout.decode().splitlines()]


def texts(process):
    return [record.get("text") for record in objects(process)]


# --- records and what becomes of them


def test_each_line_has_the_answer_of_one_shot_in_order(map_run, one):
    want = [one(PATTERN.replace("{}", name)) for name in NAMES]
    process = map_run("-p", PATTERN)
    assert process.stdout.decode() == "".join(text + "\n" for text in want)
    assert process.stderr == b""
    found = objects(map_run("-p", PATTERN, "--json"))
    assert [record["text"] for record in found] == want
    assert [record["index"] for record in found] == list(range(len(NAMES)))
    assert all(record["finish_reason"] == "length" for record in found)


def test_the_record_is_the_prompt_where_there_is_no_other(map_run, one):
    got = map_run(lines=["One day, Tim", "The dog"]).stdout.decode()
    assert got == one("One day, Tim") + "\n" + one("The dog") + "\n"


def test_the_record_comes_first_where_it_has_no_place(map_run, one):
    assert map_run("-p", "The dog", lines=["One day."]).stdout.decode() == one("One day.\nThe dog") + "\n"


def test_files_come_before_it_all(map_run, one, tmp_path):
    (tmp_path / "context").write_text("Tim was a {} dog.\n")
    got = map_run("-f", tmp_path / "context", "-p", "He saw {}.", "--json", lines=["Lily", "Tom"])
    assert texts(got) == [one("Tim was a {} dog.\nHe saw " + name + ".") for name in ("Lily", "Tom")]
    first, second = (record["usage"] for record in objects(got))
    assert first["reused_tokens"] == 0
    assert second["reused_tokens"] >= second["prompt_tokens"] - 4  # the file is prefilled once


def test_every_line_is_a_record_whatever_ends_it(map_run, one):
    got = map_run("-p", "Once {}", lines=b"\xef\xbb\xbfupon\r\n\r\nthere\n\nwas")
    assert got.stdout.decode().splitlines() == [one("Once " + text) for text in ["upon", "", "there", "", "was"]]


def test_an_answer_keeps_to_its_line(map_run, sanitized):
    """Newlines come out as \\n, and a backslash as two, whatever the model writes."""
    flags = ["-p", "{}", "--temp", 100, "--ignore-eos", "-s", 5, "-n", 60]  # every token is about as likely
    lines = ["Once"] * (10 if sanitized else 40)
    told = texts(map_run(*flags, "--json", lines=lines))
    plain = map_run(*flags, lines=lines).stdout.decode("utf-8").split("\n")
    assert plain.pop() == "" and len(plain) == len(lines)
    assert plain == [text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for text in told]
    assert any("\n" in text for text in told), "the model wrote no newline: the test looks at nothing"
    between_nuls = map_run(*flags, "-0", lines=b"Once\0" * len(lines)).stdout
    assert map_run(*flags, "--map-nul", lines=b"Once\0" * len(lines)).stdout == between_nuls
    assert between_nuls.decode() == "".join(text.replace("\0", "\ufffd") + "\0" for text in told)


def test_json_records_give_their_members(map_run, one):
    lines = ['{"id": "a\\u00e9", "who": "Tim", "n": 2}', "", ' {"who": "Lily", "n": [1, "x"], "id": 7} ', '"word"']
    got = map_run("--map-json", "-p", "{who} saw {n} {{who}}", "--json", lines=lines, status=1)
    found = objects(got)
    assert [record.get("id") for record in found] == ["a\u00e9", 7, None]
    assert found[0]["text"] == one("Tim saw 2 {who}")
    assert found[1]["text"] == one('Lily saw [1, "x"] {who}')
    assert found[2]["error"] == "the record is no object, expected a JSON object on each line"
    assert got.stderr.decode().splitlines() == [
        f"auk: standard input:4: {found[2]['error']}",  # the empty line counts as a line
        "auk: 1 of 3 records are errors",
    ]


def test_a_name_in_braces_is_text_without_json_records_and_a_note_says_so(map_run, tmp_path):
    note = b"auk: {name} in -p is text: with --map-json it is a member of each record\n"
    assert map_run("-p", "A {name} of {}").stderr == note
    (tmp_path / "named.md").write_text("A {name} of {}")
    assert map_run("-P", tmp_path / "named.md").stderr == note.replace(b"-p", b"-P")
    for pattern in ("A { name } of {}", "A {{name}} of {}", "{}"):
        assert map_run("-p", pattern).stderr == b""


def test_json_records_can_be_prompts(map_run, one):
    lines = ['{"prompt": "The dog"}', '"One day"',
             '{"messages": [{"role": "user", "content": "no"}, {"role": "user", "content": "Tim"}]}']
    assert texts(map_run("--map-json", "--json", lines=lines)) == [one("The dog"), one("One day"), one("Tim")]


def test_an_error_stands_in_its_place_and_stops_nothing(map_run, one):
    lines = b"Tim\n\xff\xfe\n" + b"so " * 1000 + b"\nLily\n"
    want = [one("Tim"), None, None, one("Lily")]
    process = map_run("-p", "{}", "--json", lines=lines, status=1)
    found = objects(process)
    assert [record.get("text") for record in found] == want
    assert found[1]["error"] == "the record is not valid UTF-8: byte 0xff at offset 0"
    assert "the context 512" in found[2]["error"]
    assert [record["index"] for record in found] == [0, 1, 2, 3]
    assert process.stderr.count(b"auk: standard input:") == 2
    assert b"2 of 4 records are errors" in process.stderr
    plain = map_run("-p", "{}", lines=lines, status=1).stdout.decode().splitlines()
    assert [plain[0], plain[3]] == [want[0], want[3]]
    assert [plain[1], plain[2]] == ["\\!" + found[1]["error"], "\\!" + found[2]["error"]]


def test_json_that_is_broken_is_an_error_of_its_record(map_run, one):
    lines = ['{"prompt": "Tim"}', '{"prompt": "Tim"', '{"prompt": 3}', '{"prompt": "Tim"} 4', '[]', '{"prompt": "Tim"}']
    found = objects(map_run("--map-json", "--json", lines=lines, status=1))
    assert [i for i, record in enumerate(found) if "error" in record] == [1, 2, 3, 4]
    assert found[0]["text"] == found[5]["text"] == one("Tim")


def test_no_records_are_no_error(map_run):
    assert map_run("-p", PATTERN, lines=[]).stdout == b""


def test_a_prompt_that_is_empty_is_an_error(map_run, stories):
    got = map_run(lines=["", "Tim"], model=stories)
    assert len(got.stdout.splitlines()) == 2  # this tokenizer puts a token before every text


def test_options_of_one_shot_count_for_each_record(map_run, one):
    assert map_run("-p", PATTERN, "--stop", "a").stdout.decode().splitlines() == [
        one(PATTERN.replace("{}", name), "--stop", "a") for name in NAMES]
    found = objects(map_run("-p", PATTERN, "--json", "--ids"))
    assert all(len(record["ids"]) == 8 and record["prompt_ids"] for record in found)
    process = map_run("-p", PATTERN, "--require-stop", status=4)
    assert b"6 answers were cut short" in process.stderr
    process = map_run("-p", PATTERN, "-x", "--json", status=1)
    assert all("no fenced code block" in record["error"] for record in objects(process))
    process = map_run("-p", "{} Tim saw", "--truncate", "start", lines=["so " * 1000, "He"])
    assert process.stdout.decode().splitlines()[1] == one("He Tim saw")
    assert b"were cut" in process.stderr


def test_an_answer_that_the_context_cuts_is_told(map_run):
    process = map_run("-p", PATTERN, "-c", 20, "-n", -1, "--ignore-eos", lines=["Tim", "Lily"])
    assert process.stderr.decode().splitlines() == [
        f"auk: standard input:{line}: the answer is cut: the context of 20 tokens is full" for line in (1, 2)]


def test_what_is_computed_once_stays(map_run):
    """The beginning that records have in common is not prefilled again, even if long answers came after it."""
    beginning = "One day, a little girl named Lily went to the park with her mom and her dog. "
    found = objects(map_run("-p", beginning + "{}", "--json", "-n", "60", "--ignore-eos", lines=["She", "He", "A cat"]))
    for record in found[1:]:
        assert record["usage"]["prompt_tokens"] - record["usage"]["reused_tokens"] <= 4


fenced = renamed({",": "```sh\n", ".": "\n```\n"})  # a change of tokenizer.json: tokens that hold fences


def test_code_blocks_are_extracted_record_by_record(run, variant):
    """Text that was held back in one answer does not appear in the next."""
    flags = ["-m", variant(tokenizer=fenced, name="fenced"), "--raw", "-t", 1, "-x", "-n"]
    prompts, lengths = ["Once upon a time", "Tim", "Once upon a time"], (2, 6, 60)
    for n in lengths:
        alone = [run(*flags, n, "-p", prompt, "--no-newline") for prompt in prompts]
        found = objects(run(*flags, n, "--map", "-", "--json", input="\n".join(prompts).encode()))
        for process, record in zip(alone, found):
            assert record.get("text", "") == process.stdout.decode()
            assert ("error" in record) == (process.returncode == 1)
    assert found[0]["text"] == found[2]["text"] == " there was a little girl named Lily\n"


def test_a_code_block_of_a_thought_is_none_of_the_answer(run, variant):
    template = "{{ messages[0].content }} <think>\n{# </think> #}"
    model = variant(tokenizer=fenced, files={"chat_template.jinja": template}, name="thinker")
    flags = ["-m", model, "-n", 200, "--think-budget", 80, "--ignore-eos", "-t", 1, "--temp", 1, "-s", 4, "-c", 500]
    record = objects(run(*flags, "--map", "-", "--json", input=b"Once upon a time\n"))[0]
    alone = run(*flags, "-p", "Once upon a time", "-x").stdout.decode()
    assert "\n```\n" in record["thinking"] and alone not in record["thinking"] and alone and alone in record["text"]
    found = run(*flags, "--map", "-", "-x", input=b"Once upon a time\n").stdout.decode()
    assert found == alone.replace("\n", "\\n") + "\n"


def test_what_all_records_took_is_told_in_the_end(map_run):
    process = map_run("-p", PATTERN, "--json", "-u", lines=[*NAMES, "so " * 999], status=1)
    records = objects(process)[:-1]
    sums = [sum(record["usage"][name] for record in records)
            for name in ("prompt_tokens", "reused_tokens", "completion_tokens")]
    told = re.search(r"auk: 6 records answered in [0-9.]+ s, 1 errors; prompts (\d+) tokens \((\d+) known\), "
                     r"answers (\d+) \([0-9.]+/s\)\n", process.stderr.decode())
    assert list(map(int, told.groups())) == sums and sums[0] and sums[2]
    assert "auk: 1 of 7 records are errors\n" in process.stderr.decode()


# --- chats

def test_records_are_turns_of_a_chat(run, talker):
    model = talker()
    flags = ["-m", model, "-n", 8, "-t", 1, "-sys", "Be kind."]
    want = [run(*flags, "-p", f"Who saw {name}?", "--no-newline").stdout.decode() for name in NAMES]
    given = "".join(name + "\n" for name in NAMES).encode()
    process = run(*flags, "--map", "-", "-p", "Who saw {}?", "--json", input=given)
    assert [record["text"] for record in objects(process)] == want
    assert all(record["usage"]["reused_tokens"] > 10 for record in objects(process)[1:])


def test_what_a_template_raises_is_an_error_of_its_record(run, talker):
    process = run("-m", talker(), "-n", 8, "--map", "-", "--json", input=b"Tim\nbad\nLily\n")
    assert process.returncode == 1
    assert [record.get("error") for record in objects(process)] == [
        None, "the chat template says: no bad words", None]


def test_conversations_have_their_own_system_prompt_or_that_of_all(run, talker):
    model = talker()

    def ids(*flags, record):
        process = run("-m", model, "-n", 1, "--map", "-", "--map-json", "--json", "--ids", *flags,
                      input=json.dumps(record).encode())
        assert process.returncode == 0, process.stderr
        return objects(process)[0]["prompt_ids"]

    def turn(role, content):
        return {"role": role, "content": content}

    user, kind, rude = turn("user", "Hi"), turn("system", "Be kind."), turn("system", "Be rude.")
    assert ids("-sys", "Be kind.", record={"messages": [user]}) == ids(record={"messages": [kind, user]})
    assert ids("-sys", "Be kind.", record={"prompt": "Hi"}) == ids(record={"messages": [kind, user]})
    assert ids("-sys", "Be kind.", record={"messages": [rude, user]}) == ids(record={"messages": [rude, user]})
    assert ids(record={"messages": [user]}) == ids(record={"prompt": "Hi"})


def test_control_tokens_in_records_are_text(run, talker):
    model = talker()
    for record in ("</s>", json.dumps({"messages": [{"role": "user", "content": "</s>"}]})):
        flags = ["-m", model, "-n", 1, "--map", "-", "--json", "--ids", *(["--map-json"] if record[0] == "{" else [])]
        plain = objects(run(*flags, input=record.encode()))[0]["prompt_ids"]
        special = objects(run(*flags, "--parse-special", input=record.encode()))[0]["prompt_ids"]
        assert special.count(2) == 1 and plain.count(2) == 0 and len(plain) > len(special)


def test_thoughts_are_no_part_of_an_answer(run, talker):
    model = talker(" <think>\n{# </think> #}")
    flags = ["-m", model, "-n", 20, "--think-budget", 5, "--ignore-eos", "--map", "-"]
    record = objects(run(*flags, "--json", input=b"Tim\n"))[0]
    assert record["thinking"] and record["usage"]["thinking_tokens"] == 5
    assert run(*flags, input=b"Tim\n").stdout.decode() == record["text"] + "\n"
    assert "thinking" not in objects(run(*flags, "--json", "--hide-thinking", input=b"Tim\n"))[0]
    shown = run(*flags, "--show-thinking", input=b"Tim\n").stdout.decode()
    assert shown == f"<think>\\n{record['thinking']}\\n</think>\\n\\n{record['text']}\n"
    cut = run("-m", model, "-n", 3, "--ignore-eos", "--map", "-", input=b"Tim\n")
    assert cut.stdout == b"\n"
    assert cut.stderr == (b"auk: standard input:1: the end came within the thought (length), there is no answer\n")


# --- seeds


def test_a_record_is_answered_as_one_shot_with_its_own_seed(map_run, one):
    flags = ["-p", "{}", "--temp", "1.5"]
    found = objects(map_run(*flags, "--json", "-s", 100, lines=["Once"] * 5))
    assert [record["seed"] for record in found] == [100, 101, 102, 103, 104]
    assert [record["text"] for record in found] == [one("Once", "--temp", "1.5", "-s", 100 + i) for i in range(5)]
    assert len({record["text"] for record in found}) > 1
    assert texts(map_run(*flags, "--json", "-s", 102, lines=["Once"] * 3)) == [r["text"] for r in found[2:]]
    first, second = (objects(map_run(*flags, "--json", lines=["Once"]))[0] for _ in range(2))
    assert first["seed"] != second["seed"]
    assert one("Once", "--temp", "1.5", "-s", first["seed"]) == first["text"]


# --- streams


def test_lines_are_answered_as_they_come(start, stories):
    process = start("-m", stories, "--raw", "-n", "4", "--map", "-", stdin=subprocess.PIPE)
    for name in NAMES:
        process.stdin.write(name.encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # before the next line is there
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait() == 0


def resident(pid):
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])


def test_memory_does_not_grow_with_the_number_of_records(start, stories, sanitized):
    """The second thousand of records adds less than a page for each four records: nothing is kept for each record."""
    process = start("-m", stories, "--raw", "-n", "2", "--map-json", "--map", "-", "--json", "-t", "1",
                    "-p", "{who} went", stdin=subprocess.PIPE)
    sizes = []
    for _ in range(2):
        for i in range(200 if sanitized else 1000):
            process.stdin.write(json.dumps({"who": NAMES[i % 6], "id": i}).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
        sizes.append(resident(process.pid))
    process.stdin.close()
    assert process.wait() == 0
    if not sanitized:  # it keeps freed memory aside
        assert sizes[1] - sizes[0] < 1000, sizes


def test_a_reader_that_goes_away_ends_it_quietly(start, stories):
    process = start("-m", stories, "--raw", "-n", "4", "--map", "-", stdin=subprocess.PIPE)
    process.stdin.write(b"Tim\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"Tim\n" * 100)
    process.stdin.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""


def test_results_that_cannot_be_written_end_it(map_run):
    process = map_run("-p", PATTERN, "-o", "/dev/full", status=1)
    assert b"/dev/full: cannot write: No space left on device" in process.stderr


def test_an_interruption_ends_between_results(start, stories):
    process = start("-m", stories, "--raw", "-n", "4", "--map", "-", stdin=subprocess.PIPE)
    process.stdin.write(b"Tim\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)  # while it waits for a line
    assert process.wait() == 130
    assert process.stdout.read() == b""


def on_terminal(auk, *flags, **options):
    """The finished process's status, and what it has shown on the terminal that its standard error is."""
    main, terminal = pty.openpty()
    process = subprocess.Popen([*auk, *map(str, flags)], stderr=terminal, **options)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(main, 1 << 16):
            shown += piece
    except OSError:
        pass  # the other end is closed
    os.close(main)
    return process.wait(), shown.decode()


def test_progress_is_for_terminals(auk, stories, tmp_path, sanitized):
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_text("Once\n" * 500)
    flags = ["-m", stories, "--raw", "-t", "1", "--ignore-eos", "--parallel", "8", "-n", "1", "--map"]
    longer = ["-n", "3" if sanitized else "30"]  # longer than a moment, after which the line is drawn again
    status, shown = on_terminal(auk, *flags, given, *longer, stdin=subprocess.DEVNULL, stdout=open(out, "wb"))
    assert status == 0 and out.read_bytes().count(b"\n") == 500
    assert shown.startswith("loading\x1b[K\r") and "auk: 500 records answered in " in shown
    lines = re.findall(r"\r\x1b\[K(\d+) of 500 records, (\d+) running([^\r]*)", shown)
    assert lines[:8] == [("0", str(n), "") for n in range(1, 9)]  # at once, and before any is answered
    counts = [int(done) for done, _, _ in lines]
    assert counts == sorted(counts) and all(0 <= int(n) <= 8 for _, n, _ in lines)
    assert len(lines) > 8 and re.fullmatch(r", [0-9.]+/s, \d+ tokens/s, \d:\d\d left", lines[-1][2])
    # Standard input is estimated from what was read of it; a pipe's end is not known.
    status, shown = on_terminal(auk, *flags, "-", stdin=open(given, "rb"), stdout=open(out, "wb"))
    assert status == 0 and "\r\x1b[K0 of about 500 records, 1 running\r" in shown
    pipe = subprocess.Popen(["cat", given], stdout=subprocess.PIPE)
    status, shown = on_terminal(auk, *flags, "-", stdin=pipe.stdout, stdout=open(out, "wb"))
    pipe.stdout.close()
    assert pipe.wait() == 0 and status == 0
    assert "\r\x1b[K0 records, 1 running\r" in shown and " of " not in shown and " left" not in shown


def test_progress_counts_results_that_were_there_and_each_of_several(auk, stories, tmp_path):
    (tmp_path / "in").write_text("Once\n" * 40)
    flags = ["-m", stories, "--raw", "-t", "1", "-n", "4", "--map", tmp_path / "in", "--resume", tmp_path / "out",
             "--n-best", "2", "--temp", "1", "-s", "1", "--shard", "1/2"]
    devices = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    assert "\r\x1b[K0 of 40 records, 1 running\r" in on_terminal(auk, *flags, **devices)[1]
    shard = tmp_path / "out.1-of-2"
    shard.write_text("".join(shard.read_text().splitlines(True)[:30]))
    status, shown = on_terminal(auk, *flags, **devices)
    assert status == 0 and "\r\x1b[K30 of 40 records, 1 running\r" in shown
    assert "auk: 10 records answered in " in shown and ", 30 were there" in shown


def test_progress_counts_what_is_answered(auk, variant, tmp_path):
    """Not what is written: short answers wait for that of the first record, which takes longer."""
    model, out = variant(config={"max_position_embeddings": 200000}), tmp_path / "out"
    records = [{"form": {"type": "string", "minLength": 100000}}] + 30 * [{"form": {"type": "string", "minLength": 9}}]
    (tmp_path / "in").write_text("".join(json.dumps(record) + "\n" for record in records))
    flags = ["-m", model, "--raw", "-t", "1", "--temp", "1", "-s", "1", "--parallel", "2", "--map-json", "--map",
             tmp_path / "in", "-p", "Once {form}", "--json-schema", "{form}", "-n", "90000"]
    main, terminal = pty.openpty()
    process = subprocess.Popen([*auk, *map(str, flags)], stdin=subprocess.DEVNULL, stdout=open(out, "wb"),
                               stderr=terminal)
    os.close(terminal)
    shown = b""
    while max(map(int, re.findall(rb"\x1b\[K(\d+) of 31 records, ", shown)), default=0) < 3:
        shown += os.read(main, 1 << 16)
    assert out.read_bytes() == b""
    process.kill()
    process.wait()
    os.close(main)


def test_progress_counts_the_records_of_other_processes_too(auk, run, stories, tmp_path):
    """With --claim: those that were seen to be done. How fast the others are is not known."""
    (tmp_path / "in").write_text("Once\n" * 40)
    claims = tmp_path / "claims"
    flags = ["-m", stories, "--raw", "-t", "1", "-n", "4", "--map", tmp_path / "in", "--claim", claims]
    assert run(*flags).returncode == 0
    for block in sorted((claims / "done").iterdir())[30:]:
        block.unlink()
    status, shown = on_terminal(auk, *flags, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert status == 0 and "\r\x1b[K30 of 40 records, 1 running\r" in shown and " left" not in shown
    assert "auk: 10 records answered in " in shown


def test_the_time_left_is_that_of_the_records_left(auk, run, stories, tmp_path):
    given, out = tmp_path / "in", tmp_path / "out"
    flags = ["-m", stories, "--raw", "-t", "1", "-n", "200", "--ignore-eos", "--parallel", "1", "--map", given,
             "--resume", out]
    given.write_text(f"{TOO_LONG}\n" * 200)  # errors, which take no time
    assert run(*flags).returncode == 1
    with open(given, "a") as file:
        file.write("Once\n" * 200)
    main, terminal = pty.openpty()
    process = subprocess.Popen([*auk, *flags], stdin=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    shown = b""
    while shown.count(b" left") < 2:
        shown += os.read(main, 1 << 16)
    process.send_signal(signal.SIGINT)
    try:
        while piece := os.read(main, 1 << 16):
            shown += piece
    except OSError:
        pass
    os.close(main)
    assert process.wait() == 130
    done, rate, minutes, seconds = re.findall(rb"(\d+) of 400 [^\r]* ([0-9.]+)/s, [^\r]*, (\d+):(\d\d) left", shown)[0]
    left = (400 - int(done)) / float(rate)
    assert abs(left - 60 * int(minutes) - int(seconds)) < left / 5 + 1
    # The summary counts the results that there are now.
    n = out.read_bytes().count(b"\n")
    assert f"auk: {n - 200} records answered in ".encode() in shown and b", 200 were there" in shown
    assert f"auk: interrupted: {out} has {n} of 400 results: the same command goes on".encode() in shown


def test_a_terminal_is_not_steered_by_results(auk, stories, tmp_path):
    (tmp_path / "in").write_bytes(b"x\n")
    main, terminal = pty.openpty()
    process = subprocess.run([*auk, "-m", stories, "--raw", "-p", "{}", "--map", str(tmp_path / "in"),
                              "--choice", "\x1b[2Jred"], stdin=subprocess.DEVNULL, stdout=terminal, timeout=60)
    os.close(terminal)
    shown = os.read(main, 1 << 16)
    os.close(main)
    assert process.returncode == 0
    assert "\u241b[2Jred".encode() in shown and b"\x1b" not in shown


# --- flags
