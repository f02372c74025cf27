"""Real tokenizers give the ids and texts that the reference gave (Hugging Face's tokenizers 0.23.3).

Three tokenizers and their cases are committed, packed. The others, the whole files and llama.cpp's cases are larger
than what is committed: they are looked for in a folder `shared` beside the repository, and skipped by name. A tokenizer
answers all its cases in one process (auk tokenize --jsonl).
"""

import gzip
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMITTED = ["gpt2", "mistral_v0_1", "smollm2"]
ALL = ["gpt2", "llama3", "mistral_nemo", "mistral_v0_1", "qwen2_5", "qwen3", "smollm2"]
LIMIT_S = 120


def shared_file(*parts):
    path = ROOT.parent.joinpath("shared", *parts)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(parts)}, which is not committed")
    return path


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory):
    """tokenizer_path(NAME): a tokenizer.json, unpacked where it is committed."""
    unpacked = {}

    def path_of(name):
        if name not in COMMITTED:
            return shared_file("tokenizers", name, "tokenizer.json")
        if name not in unpacked:
            unpacked[name] = tmp_path_factory.mktemp(name) / "tokenizer.json"
            with gzip.open(ROOT / "test/data/tokenizers" / name / "tokenizer.json.gz") as packed:
                with open(unpacked[name], "wb") as plain:
                    shutil.copyfileobj(packed, plain)
        return unpacked[name]

    return path_of


def golden_rows(name):
    if name in COMMITTED:
        data = gzip.decompress((ROOT / "test/data/tokenizers" / name / "goldens.jsonl.gz").read_bytes())
    else:
        data = shared_file("goldens", "tokenizer", f"{name}.jsonl").read_bytes()
    return [json.loads(line) for line in data.decode().split("\n") if line]  # not splitlines(): texts hold U+2028


def ask(auk, path, requests):
    done = subprocess.run(
        [*auk, "tokenize", "-m", str(path), "--jsonl"],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        input="".join(json.dumps(r) + "\n" for r in requests).encode(),
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


@pytest.mark.parametrize("name", ALL)
def test_cases(auk, tokenizer_path, name):
    cases = [row for row in golden_rows(name) if "text" in row]
    assert len(cases) > 600
    answers = ask(
        auk,
        tokenizer_path(name),
        [{"text": c["text"], "add_special": special} for c in cases for special in (False, True)],
    )
    for case, plain, special in zip(cases, answers[::2], answers[1::2]):
        place = f"{case['tag']} {case['text'][:100]!r}"
        assert plain["ids"] == case["ids"], place
        assert special["ids"] == case["ids_special"], place
        assert plain["decoded"] == case["decoded"], place
        assert plain["decoded_skip"] == case["decoded_skip"], place


@pytest.mark.parametrize("name", ALL)
def test_whole_files(auk, tokenizer_path, sanitized, name):
    files = [row for row in golden_rows(name) if "file" in row]
    assert files
    for row in files:
        text = shared_file("text", row["file"])
        if sanitized and text.stat().st_size > 300000:
            continue
        done = subprocess.run(
            [*auk, "tokenize", "-m", str(tokenizer_path(name)), "-f", str(text), "--no-add-special"],
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
        ids = [int(word) for word in done.stdout.split()]
        assert len(ids) == row["n_ids"], row["file"]
        assert hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest() == row["sha256_u32le"], row["file"]


@pytest.mark.parametrize("name, cases", [("llama3", "llama-bpe"), ("gpt2", "gpt-2"), ("qwen2_5", "qwen2")])
def test_cases_of_llama_cpp(auk, tokenizer_path, name, cases):
    stem = shared_file("tokenizer_cases", f"ggml-vocab-{cases}.gguf.inp")
    texts = stem.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = [[int(word) for word in line.split()] for line in stem.with_suffix(".out").read_text().split("\n")]
    answers = ask(auk, tokenizer_path(name), [{"text": text} for text in texts])
    for text, ids, answer in zip(texts, expected, answers):
        assert answer["ids"] == ids, repr(text)


def long_texts(n):
    """Texts of one kind each, of about n characters or bytes: {kind: text}."""
    return {
        "letters": "a" * n,
        "spaces": " " * n,
        "spaces and a letter": " " * (n - 1) + "a",
        "newlines": "\n" * n,
        "no white space": "aB3$xyz" * (n // 7),
        "capitals": "A" * n,
        "ideographs": "\u4e2d" * (n // 3),
        "marks": "e" + "\u0301\u0323" * (n // 4),
        "digits": "7" * n,
        "words in rows": "word " * (n // 5) + "\n \n" * (n // 10),
        "beginnings of control tokens": "<|im_" * (n // 5),
    }


@pytest.mark.parametrize("name", COMMITTED + ["qwen2_5", "mistral_nemo"])
def test_a_million_of_one_kind(auk, tokenizer_path, sanitized, name):
    """Linear time: a million steps take a second, a million times a million would take days."""
    texts = long_texts(100000 if sanitized else 1000000)
    answers = ask(auk, tokenizer_path(name), [{"text": text} for text in texts.values()])
    for (kind, text), answer in zip(texts.items(), answers):
        if kind != "marks":  # which NFC puts in order
            assert answer["decoded"] == text, kind
