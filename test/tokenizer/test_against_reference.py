"""The same as the reference for every code point that is assigned, and for random texts.

Needs the Python package tokenizers 0.23.3 (PyPI).
scripts/fuzz_tokenizer.py does the random part for as long as one likes; here it runs for some seconds."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
tokenizers = pytest.importorskip("tokenizers", reason="needs the Python package tokenizers")
if tokenizers.__version__ != "0.23.3":
    pytest.skip(f"needs tokenizers 0.23.3, not {tokenizers.__version__}", allow_module_level=True)

# Characters are in planes 0 to 3 and at the beginning of plane 14. The others have none, or are for private use.
FULL = [range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE1000)]
CODES = [chr(c) for c in range(0x110000) if any(c in full for full in FULL) or (c > 0xE000 and c % 61 == 0)]


@pytest.fixture
def codes(sanitized):
    """CODES. With sanitizers, which look for wrong accesses and not for wrong answers, one of sixteen: the program of
    the plain tests has answered for all."""
    return CODES[::16] if sanitized else CODES


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(more))]


def decoded(auk, tmp_path, parts, texts):
    """The texts that auk decodes after encoding each text by a byte-level tokenizer with the given parts."""
    path = tmp_path / "tokenizer.json"
    definition = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(alphabet())}, "merges": []},
    }
    path.write_text(json.dumps(definition | parts), encoding="utf-8")
    done = subprocess.run(
        [*auk, "tokenize", "-m", str(path), "--jsonl"],
        capture_output=True,
        timeout=300,
        check=False,
        input="".join(json.dumps({"text": t}) + "\n" for t in texts).encode(),
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line)["decoded"] for line in done.stdout.decode().split("\n") if line]


def chunks(pieces, size=20000):
    return ["".join(pieces[i : i + size]) for i in range(0, len(pieces), size)]


def first_difference(texts, ours, theirs):
    for text, a, b in zip(texts, ours, theirs):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            near = slice(max(0, at - 5), at + 5)
            return f"at {at}: {a[near]!r}, expected {b[near]!r}; the text is about {text[near]!r}"
    return None


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"])
def test_every_character_in_every_form(auk, codes, tmp_path, form):
    reference = getattr(tokenizers.normalizers, form)()
    texts = chunks([c + " " for c in codes])
    if form != "Lowercase":  # beside marks of other classes and a composing letter
        texts += chunks(["a" + c + "\u0334\u0301" for c in codes]) + chunks(["\u0315" + c + "\u0308e" for c in codes])
    ours = decoded(auk, tmp_path, {"normalizer": {"type": form}}, texts)
    assert first_difference(texts, ours, [reference.normalize_str(t) for t in texts]) is None


PATTERNS = [r"\p{L}", r"\p{N}", r"\w", r"[\w]", r"\p{M}", r"\p{Lu}", r"\p{Han}", r"(?i:[a-zà-ï])"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_character_in_sets(auk, codes, tmp_path, pattern):
    reference = tokenizers.normalizers.Replace(tokenizers.Regex(pattern), "#")
    texts = chunks(codes)
    ours = decoded(
        auk, tmp_path, {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": "#"}}, texts
    )
    assert first_difference(texts, ours, [reference.normalize_str(t) for t in texts]) is None


@pytest.mark.parametrize(
    "kind, reference",
    [
        (
            {"type": "Digits", "individual_digits": False},
            lambda: tokenizers.pre_tokenizers.Digits(individual_digits=False),
        ),
        (
            {"type": "Punctuation", "behavior": "Removed"},
            lambda: tokenizers.pre_tokenizers.Punctuation(behavior="removed"),
        ),
        ({"type": "Whitespace"}, tokenizers.pre_tokenizers.Whitespace),
        ({"type": "WhitespaceSplit"}, tokenizers.pre_tokenizers.WhitespaceSplit),
    ],
)
def test_every_character_in_splits(auk, codes, tmp_path, kind, reference):
    """Pieces are known by the mark that Metaspace puts before each."""
    reference = reference()
    texts = chunks([c + "a" for c in codes])
    metaspace = {"type": "Metaspace", "replacement": "\ufdd0", "prepend_scheme": "always", "split": False}
    ours = decoded(
        auk, tmp_path, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [kind, metaspace, BYTE_LEVEL]}}, texts
    )

    def theirs(text):
        pieces = (piece.replace(" ", "\ufdd0") for piece, _ in reference.pre_tokenize_str(text))
        return "".join(p if p.startswith("\ufdd0") else "\ufdd0" + p for p in pieces)

    assert first_difference(texts, ours, [theirs(t) for t in texts]) is None


def test_random_texts(auk, sanitized):
    """Some hundred texts a tokenizer, and some small tokenizers with random options."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts/fuzz_tokenizer.py"),
            "--auk",
            auk[-1],
            "--count",
            "50" if sanitized else "300",
            "--synthetic",
            "20" if sanitized else "60",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
