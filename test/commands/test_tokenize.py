"""`auk tokenize`: what it takes, what it writes, how it ends.

The tokenizer is the tiny model's (byte fallback, BOS)."""

import json
import os
import shutil
import struct
import subprocess

import pytest


@pytest.fixture
def tokenizer(stories):
    return stories / "tokenizer.json"


def answers(done):
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def test_ids_of_a_text_on_one_line(run, tokenizer):
    done = run("tokenize", "-m", tokenizer, "Once upon a time")
    assert done.returncode == 0 and done.stderr == b""
    line = done.stdout.decode()
    assert line.endswith("\n") and line.count("\n") == 1
    ids = [int(word) for word in line.split(" ")]
    assert len(ids) > 2


# The ids of the reference (tokenizers 0.23.3) for a text with BOS, without it, and where special tokens are text too.
TEXTS = [
    ("Once upon a time, \u00e9\U0001f600\n", *["403 407 261 378 432 410 485 243 162 155 131 13"] * 2),
    ("<s>", "1", "410 504 419 505"),
    ("", "", ""),
    ("  a", *["410 410 261"] * 2),
]


@pytest.mark.parametrize("text, plain, as_text", TEXTS)
def test_ids_are_those_of_the_reference(run, tokenizer, text, plain, as_text):
    for flags, ids in [([], f"1 {plain}".strip()), (["--no-bos"], plain),
                       (["--no-add-special", "--no-parse-special"], as_text),
                       (["--no-parse-special"], f"1 {as_text}".strip())]:
        done = run("tokenize", "-m", tokenizer, *flags, input=text.encode())
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, ids + "\n", b"")
    requests = [{"text": text}, {"text": text, "add_special": True}, {"text": text, "parse_special": False}]
    lines = "\n".join(map(json.dumps, requests)).encode()
    got = [line["ids"] for line in answers(run("tokenize", "-m", tokenizer, "--jsonl", input=lines))]
    assert got == [[int(word) for word in ids.split()] for ids in (plain, f"1 {plain}", as_text)]


@pytest.mark.parametrize("skip, text", [(False, "<s> Once<unk></s> ha\ufffd\ufffd\ufffd"),
                                        (True, "Once ha\ufffd\ufffd\ufffd")])
def test_text_is_that_of_the_reference(run, tokenizer, skip, text):
    ids = [1, 403, 0, 2, 300, 5, 198, 198]
    flags = ["--skip-special"] if skip else []
    for arguments in ([str(i) for i in ids], [" ".join(map(str, ids))], ["-p", ",".join(map(str, ids))]):
        done = run("tokenize", "-m", tokenizer, "--decode", *flags, *arguments)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, text, b"")


def test_numbers_of_lines_that_are_no_ids(run, tokenizer):
    requests = [{"ids": [2147483647]}, {"ids": [2147483648]}, {"ids": [-1]}, {"ids": ["1"]}, {"ids": 1},
                {"text": "a", "ids": [1]}]
    got = answers(run("tokenize", "-m", tokenizer, "--jsonl", input="\n".join(map(json.dumps, requests)).encode()))
    refused = {"error": "an id is no integer from 0 to 2147483647"}
    assert got[0] == {"ids": [2147483647], "decoded": "", "decoded_skip": ""}
    assert got[1:4] == [refused] * 3
    assert got[4] == {"error": 'no string "text" and no array "ids"'}
    assert got[5]["decoded"] == "a"  # a text is what counts


def test_every_way_to_give_a_text(run, tokenizer, tmp_path):
    text = "Once upon a time\n"
    (tmp_path / "text").write_text(text)
    expected = run("tokenize", "-m", tokenizer, "-p", text).stdout
    assert run("tokenize", "-m", tokenizer, text).stdout == expected
    assert run("tokenize", "-m", tokenizer, "-f", tmp_path / "text").stdout == expected
    assert run("tokenize", "-m", tokenizer, "-f", "-", input=text.encode()).stdout == expected
    assert run("tokenize", "-m", tokenizer, input=text.encode()).stdout == expected


def test_the_text_is_taken_as_it_is(run, tokenizer):
    with_newline, without = (run("tokenize", "-m", tokenizer, input=t).stdout for t in (b"a\n", b"a"))
    assert with_newline != without
    assert run("tokenize", "-m", tokenizer, "--no-add-special", input=b"").stdout == b"\n"


def test_special_tokens(run, tokenizer):
    plain = run("tokenize", "-m", tokenizer, "--no-add-special", "a").stdout.split()
    added = run("tokenize", "-m", tokenizer, "a").stdout.split()
    assert added[1:] == plain
    bos = run("tokenize", "-m", tokenizer, "--no-bos", "<s>").stdout.split()
    assert bos == added[:1]
    assert len(run("tokenize", "-m", tokenizer, "--no-bos", "--no-parse-special", "<s>").stdout.split()) > 1


def test_there_and_back(run, tokenizer):
    text = "Tim saw \u00e9\u4e2d\U0001f600 \x00\t..."
    ids = run("tokenize", "-m", tokenizer, input=text.encode()).stdout
    back = run("tokenize", "-m", tokenizer, "--decode", "--skip-special", input=ids)
    assert back.stdout.decode() == text
    as_json = str([int(i) for i in ids.split()])
    assert run("tokenize", "-m", tokenizer, "--decode", "--skip-special", as_json).stdout.decode() == text
    assert run("tokenize", "-m", tokenizer, "--decode", input=ids).stdout.decode().startswith("<s>")


@pytest.mark.parametrize("ids", ["x", "1 -2", "1;2", "99999999999"])
def test_decode_refuses_what_is_no_id(run, tokenizer, ids):
    done = run("tokenize", "-m", tokenizer, "--decode", ids)
    assert done.returncode == 2 and done.stdout == b"" and b"expected an id" in done.stderr


def test_decode_refuses_ids_of_no_token(run, tokenizer):
    assert run("tokenize", "-m", tokenizer, "--decode", "511").returncode == 0
    done = run("tokenize", "-m", tokenizer, "--decode", "1 511 512 9999")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"auk: no token has the id 512 (all are below 512)\n"
    line = answers(run("tokenize", "-m", tokenizer, "--jsonl", input=b'{"ids": [9999]}'))[0]
    assert line == {"ids": [9999], "decoded": "", "decoded_skip": ""}


def test_lines_of_json(run, tokenizer):
    requests = [
        {"text": "a"},
        {"text": "a", "add_special": True},
        {"text": "<s>"},
        {"text": "<s>", "parse_special": False},
        {"text": '\u2028\u0000"\\'},
        {"ids": []},
    ]
    done = run(
        "tokenize", "-m", tokenizer, "--jsonl", input="\n".join(map(json.dumps, requests)).encode()
    )  # no newline at the end
    assert done.returncode == 0 and done.stderr == b""
    plain, special, control, text, odd, empty = answers(done)
    assert special["ids"][1:] == plain["ids"] and special["decoded_skip"] == plain["decoded"] == "a"
    assert len(control["ids"]) == 1 and control["decoded"] == "<s>" and control["decoded_skip"] == ""
    assert len(text["ids"]) > 1 and text["decoded_skip"] == "<s>"
    assert odd["decoded"] == '\u2028\u0000"\\'
    assert empty == {"ids": [], "decoded": "", "decoded_skip": ""}
    again = run("tokenize", "-m", tokenizer, "--jsonl", input=json.dumps({"ids": special["ids"] + [10**6]}).encode())
    assert answers(again)[0]["decoded"] == special["decoded"]


def test_broken_lines_are_answered_too(run, tokenizer):
    lines = [
        b'{"text": "a"}',
        b"",
        b"{",
        b"[]",
        b'{"text": 1}',
        b'{"text": "a", "add_special": 1}',
        b'{"ids": [1.5]}',
        b'"\xff"',
        b'{"text": "\\ud800"}',
        b'{"text": "b"}',
    ]
    done = run("tokenize", "-m", tokenizer, "--jsonl", input=b"\n".join(lines) + b"\n")
    assert done.returncode == 1
    assert done.stderr == b"auk: standard input: 8 of 10 lines failed, line 2 first\n"
    got = answers(done)
    assert len(got) == len(lines)
    assert [list(answer) == ["error"] for answer in got] == [False] + [True] * 8 + [False]


@pytest.mark.parametrize("number, taken", [(-1, False), (0, True), (2**31 - 1, True), (2**31, False), (2**63, False)])
def test_an_id_is_a_number_of_31_bits(run, tokenizer, number, taken):
    done = run("tokenize", "-m", tokenizer, "--jsonl", input=json.dumps({"ids": [number]}).encode())
    (answer,) = answers(done)
    assert done.returncode == (0 if taken else 1)
    assert answer.get("ids") == ([number] if taken else None)
    assert answer.get("error") == (None if taken else "an id is no integer from 0 to 2147483647")


def test_lines_are_answered_as_they_come(auk, tokenizer):
    with subprocess.Popen(
        [*auk, "tokenize", "-m", str(tokenizer), "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for text in ("a", "b"):
            process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["decoded"] == text  # before the next one is written
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_every_way_to_name_a_tokenizer(run, stories, tmp_path):
    expected = run("tokenize", "-m", stories / "tokenizer.json", "a").stdout
    assert expected
    assert run("tokenize", "-m", stories, "a").stdout == expected
    shutil.copy(stories / "tokenizer.json", tmp_path)
    packed = tmp_path / "model.ak48"
    packed.write_bytes(struct.pack("<I", 0x616B3438) + bytes(252))  # an ak48 file: only its magic is looked at
    assert run("tokenize", "-m", packed, "a").stdout == expected
    assert run("tokenize", "-m", "model.ak48", "a", cwd=tmp_path).stdout == expected
    assert run("tokenize", "-m", "nowhere", "--tokenizer", stories / "tokenizer.json", "a").stdout == expected
    assert run("tokenize", "a", env=dict(os.environ, AUK_MODEL=str(stories))).stdout == expected


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        (["-m", "nowhere", "a"], 3, "nowhere"),
        (["-m", "EMPTY", "a"], 3, "no EMPTY/tokenizer.json (--tokenizer FILE names one)"),
        (["-m", "TOKENIZER", "a", "-p", "b"], 2, "more than one of TEXT, -p and -f"),
        (["-m", "TOKENIZER", "-f", "a", "-p", "b"], 2, "-p does not go with -f"),
        (["-m", "TOKENIZER", "a", "b"], 2, "b"),
        (["-m", "TOKENIZER", "--jsonl", "a"], 2, "--jsonl takes lines from -f or standard input"),
        (["-m", "TOKENIZER", "--jsonl", "--decode"], 2, "--decode does not go with --jsonl"),
        (["-m", "TOKENIZER", "--decode", "--no-bos"], 2, "--no-bos does not go with --decode"),
        (["-m", "TOKENIZER", "--skip-special"], 2, "--skip-special needs --decode"),
        (["-m", "TOKENIZER", "-f", "nowhere"], 1, "nowhere"),
        (["-m", "TOKENIZER", "--jsonl", "-f", "nowhere"], 1, "cannot open nowhere: No such file or directory"),
        (["-m", "CONFIG", "a"], 3, "model is missing"),
    ],
)
def test_mistakes(run, stories, tmp_path, arguments, status, message):
    names = {"EMPTY": tmp_path, "TOKENIZER": stories / "tokenizer.json", "CONFIG": stories / "config.json"}
    done = run("tokenize", *(names.get(a, a) for a in arguments))
    assert done.returncode == status
    assert done.stdout == b""
    assert done.stderr.decode().startswith("auk: ") and done.stderr.decode().count("\n") == 1
    assert message.replace("EMPTY", str(tmp_path)) in done.stderr.decode()


def test_ranks_of_tiktoken_are_refused_with_what_to_do(run, tmp_path):
    (tmp_path / "tiktoken.model").write_bytes(b"IQ== 0\n")
    done = run("tokenize", "-m", tmp_path, "a")
    assert done.returncode == 3 and done.stdout == b""
    assert b"only tiktoken.model (tiktoken's ranks), expected tokenizer.json; name the same family's" in done.stderr


def test_sentencepiece_is_refused_with_what_to_do(run, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"")
    done = run("tokenize", "-m", tmp_path, "a")
    assert done.returncode == 3 and done.stdout == b""
    assert b"only tokenizer.model (SentencePiece)" in done.stderr and b"save_pretrained" in done.stderr


def test_a_line_without_end_is_refused(auk, tokenizer):
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([*auk, "tokenize", "-m", str(tokenizer), "--jsonl"], stdin=endless, capture_output=True,
                              timeout=60, check=False)
    assert done.returncode == 2 and b"a line has more than 64.0 MiB" in done.stderr


def test_invalid_utf8_is_refused_with_its_place(run, tokenizer):
    done = run("tokenize", "-m", tokenizer, input=b"ab\xff")
    assert done.returncode == 2 and done.stdout == b"" and b"2" in done.stderr


def test_a_model_is_needed(run):
    environment = {k: v for k, v in os.environ.items() if k != "AUK_MODEL"}
    assert run("tokenize", "a", env=environment).returncode == 2


def test_a_full_disk_and_a_closed_pipe(auk, tokenizer):
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*auk, "tokenize", "-m", str(tokenizer), "a"],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert done.returncode == 1 and b"No space left" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*auk, "tokenize", "-m", str(tokenizer), "a"], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""


def test_help(run):
    done = run("tokenize", "--help")
    assert done.returncode == 0 and b"--jsonl" in done.stdout and done.stderr == b""
