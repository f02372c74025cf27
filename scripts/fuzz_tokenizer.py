#!/usr/bin/env python3
"""fuzz_tokenizer.py - compares what `auk tokenize --jsonl` and the reference make of random texts.

usage: fuzz_tokenizer.py [--auk PROGRAM] [--count N] [--seed N] [--synthetic N] [TOKENIZER.json ...]

The reference is the Python package `tokenizers` (from PyPI, 0.23.3). Each TOKENIZER.json gets --count texts (default:
the fixtures under test/data/tokenizers); then come --synthetic random small
tokenizers, each with random options in every part, and 200 texts each. Texts are made of what is hard: rare and young
characters, combining marks, kinds of white space, runs, digits, code, control tokens and pieces of them. Every text is
encoded with and without special tokens; ids are also drawn at random and decoded. A difference is printed with all
that is needed to see it again; the exit status is 1 where there was one, or where auk refused a tokenizer for a
reason that is not known (EXPECTED_REFUSALS) or ended otherwise than it should."""

import argparse
import base64
import gzip
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent

SPACES = " \t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\u180e"
MARKS = (
    "\u0301\u0300\u0308\u0323\u0327\u0338\u0345\u1dc0\u1df9\u20d0\u0334\u05b0\u064b\u093c\u094d\u3099\u302a\U0001d165"
)
ODD = (
    "éèñÅÅΩßẞſKİıŉǰﬁﬀﬆǄǅǆΣσς½²³¹¼٣५৪Ⅷⅷ㊿①µªº·–—‘’“”…€£¥§¶†‡•™©®♥★☃😀👍🏽👨‍👩‍👧🇩🇪"
    "中文字日本語한국어각가나각แลาวខ្មែរမြန်မာहिन्दीதமிழ்العربيةעבריתРусскийΕλληνικάἀΰ"
    "\u0958\u0b94\u1e9b\u0344\u2adc\ufb1d\U0001d15e\U00011131\U00010d40\U000105c9\U00016d67\U0001e5f0\u1c89\ua7cb"
    "\u0378\U000e0001\U000e0100\uf900\u2f800\ue000\ufffd\ufffe\x00\x01\x7f\x80\x9f\u0149\u212b\u1100\u11a8\uac01"
)
PIECES = (
    "'s 'S 't 're 'VE 'm 'll 'D 'ſ ’s don't I'M <0x0A> <0xE4> <0x+5> ▁ ▁▁ Ġ Ċ Ã <unk> <s> </s> <pad> [INST] <| |> "
    "<|im_start|> <|im_end|> <|endoftext|> <|begin_of_text|> <|eot_id|> <think> </think> <|im_ <tool_call> "
    "#include #define return def class self. -> => == != <= >= && || // /* */ ++ -- :: 0x1F 1e-9 3.14 12345 "
    "1,234,567 http:// .com _id camelCase snake_case HTTPServer i̇ ... !!! ??? \\n \\t %d {} [] () the The THE ing tion"
).split()
CODE = [
    "    if x == y:\n        return z\n",
    "\tfor (int i = 0; i < n; ++i) {\r\n",
    '{"a": [1, 2.5, null]}',
    "\n\n\n",
    "\r\n\r\n",
]


def random_character(rng):
    kind = rng.randrange(8)
    if kind < 3:
        return chr(rng.randrange(32, 127))
    if kind == 3:
        return rng.choice(ODD)
    if kind == 4:
        return rng.choice(MARKS)
    if kind == 5:
        return rng.choice(SPACES)
    high = (0x300, 0x3000, 0x10000, 0x20000, 0x110000)[rng.randrange(5)]
    code = rng.randrange(high)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ud7ff"


def random_word(rng):
    letters = rng.choice(
        (
            "abcdefghijklmnopqrstuvwxyz",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            "etaoinshrdlu",
            "абвгдежзик",
            "0123456789",
            "aA1é",
            "lesson",
        )
    )
    return "".join(rng.choice(letters) for _ in range(rng.randrange(1, 9)))


def random_text(rng, extra=()):
    """A text of some parts, each hard in its own way."""
    parts = []
    for _ in range(rng.randrange(0, 12)):
        kind = rng.randrange(10)
        if kind < 2:
            parts.append("".join(random_character(rng) for _ in range(rng.randrange(1, 8))))
        elif kind < 4:
            parts.append(random_word(rng) + rng.choice((" ", "", "", "\n", ", ", "  ")))
        elif kind == 4:
            parts.append(rng.choice(PIECES) + rng.choice(("", " ")))
        elif kind == 5:
            parts.append(
                rng.choice(SPACES) * rng.randrange(1, 5) if rng.random() < 0.7 else " " * rng.randrange(1, 70)
            )
        elif kind == 6:
            parts.append(random_character(rng) * rng.randrange(1, rng.choice((4, 12, 150))))
        elif kind == 7:
            parts.append(
                rng.choice("aeoAEO\u1100" + ODD) + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 5)))
            )
        elif kind == 8 and extra:
            piece = rng.choice(extra)
            parts.append(piece if rng.random() < 0.7 else piece[rng.randrange(len(piece)) :])
        else:
            parts.append(rng.choice(CODE))
    return "".join(parts)


# --- synthetic tokenizers


def byte_alphabet():
    """ByteLevel's characters (GPT-2's encoder.py)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(more))]


REGEXES = [
    r"\s+",
    r"\w+|[^\w\s]+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[\p{L}&&[^\p{Han}]]+|\d",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"(?<=\s)\S",
    r"(?<!\d)\d{2}",
    r"^.",
    r".$",
    r"\b",
    r"(?m:.{2,3})",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"a|e",
    r"(?:ab|a)+?b",
    r"[^a-z]",
    r"(?i)[a-c]|x",
    r"",
    r"e*",
    r"\R",
    r"\h+",
    r"[[:punct:]]+",
    r"[[:alpha:]\d_]+",
    r"(?i:k)",
    r"\S+\z",
    r"(?>\p{L}+)\s|\p{M}",
    r"[\s\S]{3}",
    r"\x{41}|B",
    r"a{2}?",
    r"(?:a|b){1,2}+",
    r"[a-c[x-z]]",
    r"[^\P{Lu}]",
    r"\p{^Ll}+",
    r"(a|(?<n>b))c?",
]
LITERALS = [" ", "a", "  ", "e", "\n", ".", "ab", "▁", "é", "(", "\\", ""]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def random_pattern(rng, empty=True):
    if rng.random() < 0.3:
        return {"String": rng.choice([p for p in LITERALS if p or empty])}
    may_be_empty = {"", "e*", r"\b"}
    return {"Regex": rng.choice([p for p in REGEXES if empty or p not in may_be_empty])}


def random_normalizer(rng, depth=0):
    kind = rng.randrange(10 if depth < 2 else 8)
    if kind < 4:
        return {"type": ("NFC", "NFD", "NFKC", "NFKD")[kind]}
    if kind == 4:
        return {"type": "Lowercase"}
    if kind == 5:
        return {"type": "Prepend", "prepend": rng.choice(("▁", " ", "ab", "é"))}
    if kind == 6:
        return {
            "type": "Replace",
            "pattern": random_pattern(rng, empty=False),
            "content": rng.choice(("▁", " ", "", "xy", "é")),
        }
    if kind == 7:
        return {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5}
    return {"type": "Sequence", "normalizers": [random_normalizer(rng, depth + 1) for _ in range(rng.randrange(4))]}


def double_array(keys):
    """The units of a trie of {bytes: value}, as darts-clone lays them out."""
    root, units, taken = {}, {0: 0}, {0}
    for key, value in keys.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    waiting = [(root, 0)]
    for node, at in waiting:
        offset = 1
        while any(at ^ offset ^ (byte or 0) in taken for byte in node):
            offset += 1
        units[at] |= offset << 10 | (None in node) << 8
        for byte, child in node.items():
            place = at ^ offset ^ (byte or 0)
            taken.add(place)
            units[place] = 1 << 31 | child if byte is None else byte
            if byte is not None:
                waiting.append((child, place))
    return [units.get(i, 0) for i in range((max(units) | 255) + 1)]


def random_charsmap(rng):
    """Precompiled: characters and some pairs of them, with shorter and longer replacements."""
    characters = [*"aelt \r\n\t.", "ﬁ", "é", "Å", "\u0301", "\u200d", "½", "\u00a0", "中", "\u0600", "①", "😀", "\u093e"]
    keys = [rng.choice(characters) for _ in range(rng.randrange(1, 12))]
    seconds = ("\u0301", "\u0308", "\n", "a", "\u200d")
    keys += [rng.choice(characters) + rng.choice(seconds) for _ in range(rng.randrange(6))]
    values, texts = {}, b""
    for key in keys:
        values[key.encode()] = len(texts)
        texts += rng.choice(("", " ", "x", "ab", "fi", "é", "▁", "中a", "a\u0301", "1⁄2")).encode() + b"\0"
    units = double_array(values)
    blob = struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def random_unigram_normalizer(rng):
    if rng.random() < 0.5:
        return random_normalizer(rng)
    steps = [random_charsmap(rng), *(random_normalizer(rng, 2) for _ in range(rng.randrange(3)))]
    rng.shuffle(steps)
    return {"type": "Sequence", "normalizers": steps}


def random_pre_tokenizer(rng, depth=0):
    kind = rng.randrange(11 if depth < 2 else 8)
    if kind == 0:
        return {
            "type": "ByteLevel",
            "add_prefix_space": rng.random() < 0.5,
            "trim_offsets": True,
            "use_regex": rng.random() < 0.5,
        }
    if kind in (1, 2):
        return {
            "type": "Split",
            "pattern": random_pattern(rng),
            "behavior": rng.choice(BEHAVIORS),
            "invert": rng.random() < 0.3,
        }
    if kind == 3:
        return {"type": "Digits", "individual_digits": rng.random() < 0.5}
    if kind == 4:
        return {
            "type": "Metaspace",
            "replacement": rng.choice("▁▁▁_é"),
            "prepend_scheme": rng.choice(("always", "first", "never")),
            "split": rng.random() < 0.6,
        }
    if kind == 5:
        return {"type": rng.choice(("Whitespace", "WhitespaceSplit"))}
    if kind == 6:
        return {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)}
    if kind == 7:
        return {"type": "Punctuation"}
    return {
        "type": "Sequence",
        "pretokenizers": [random_pre_tokenizer(rng, depth + 1) for _ in range(rng.randrange(4))],
    }


def random_decoder(rng, depth=0):
    kind = rng.randrange(9 if depth < 2 else 7)
    if kind == 0:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == 1:
        return {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": rng.choice(("always", "first", "never")),
            "split": True,
        }
    if kind == 2:
        return {"type": "Replace", "pattern": random_pattern(rng), "content": rng.choice((" ", "", "xy"))}
    if kind == 3:
        return {"type": "ByteFallback"}
    if kind == 4:
        return {"type": "Fuse"}
    if kind == 5:
        return {"type": "Strip", "content": rng.choice(" ▁a"), "start": rng.randrange(3), "stop": 0}
    if kind == 6:
        return {"type": "Strip", "content": rng.choice(" ▁a"), "start": 0, "stop": rng.randrange(3)}
    return {"type": "Sequence", "decoders": [random_decoder(rng, depth + 1) for _ in range(rng.randrange(5))]}


def random_post_processor(rng, specials):
    if not specials or rng.random() < 0.3:
        return rng.choice(
            (None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True})
        )
    names = rng.sample(specials, min(len(specials), 2))
    pieces = [{"SpecialToken": {"id": n["content"], "type_id": 0}} for n in names]
    pieces.insert(rng.randrange(len(pieces) + 1), {"Sequence": {"id": "A", "type_id": 0}})
    if rng.random() < 0.2:
        pieces.append({"Sequence": {"id": "A", "type_id": 0}})
    template = {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            n["content"]: {"id": n["content"], "ids": [n["id"]] * rng.randrange(1, 3), "tokens": [n["content"]] * 1}
            for n in names
        },
    }
    for special in template["special_tokens"].values():
        special["tokens"] = [special["id"]] * len(special["ids"])
    if rng.random() < 0.5:
        return template
    return {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            template,
        ],
    }


def random_vocabulary(rng, byte_level):
    """(vocab, merges, prefix, suffix): random merges over an alphabet with gaps."""
    alphabet = byte_alphabet() if byte_level else list("abcdefghilmnorstuxyzABCE019 .,!-_'\n▁é中") + ["\u0301", "😀"]
    if rng.random() < 0.5:
        alphabet = [c for c in alphabet if rng.random() < 0.9]
    prefix, suffix = "", ""
    if rng.random() < 0.15:
        prefix = rng.choice(("##", "@"))
    if rng.random() < 0.15:
        suffix = rng.choice(("</w>", "_"))
    tokens = list(
        dict.fromkeys(
            alphabet
            + [prefix + c for c in alphabet]
            + [c + suffix for c in alphabet]
            + [prefix + c + suffix for c in alphabet]
        )
    )
    known, merges = set(tokens), []
    common = [t for t in tokens if any(c in "aetonsi Ġ▁l" for c in t)] or tokens
    for _ in range(rng.randrange(0, 120)):
        left = rng.choice(common)
        right = rng.choice(common)
        if prefix and not right.startswith(prefix):
            continue
        product = left + right[len(prefix) :]
        if [left, right] in merges or len(product) > 14:
            continue
        merges.append([left, right])
        if product not in known:
            known.add(product)
            tokens.append(product)
            common.append(product)
    if rng.random() < 0.4:
        tokens += [f"<0x{b:02X}>" for b in range(256) if rng.random() < rng.choice((1.0, 0.95))]
    if rng.random() < 0.6:
        tokens.insert(rng.randrange(len(tokens)), "<unk>")
    if rng.random() < 0.3:  # words that no merge builds
        tokens += [w for w in ("hello", "Ġthe", "▁in", "test") if w not in known]
    tokens = list(dict.fromkeys(tokens))
    ids = list(range(len(tokens)))
    if rng.random() < 0.2:
        ids = rng.sample(range(len(tokens) * 2), len(tokens))
    return dict(zip(tokens, ids)), merges, prefix, suffix


def random_unigram(rng, byte_level):
    """The model: pieces of few letters, so that there are many ways to cut a text, and scores that are often equal."""
    alphabet = byte_alphabet() if byte_level else list("abcdeos019 .'\n▁é中") + ["\u0301", "😀", "fi"]
    common = [c for c in alphabet if c in "aetonsi Ġ▁l"]
    pieces = [c for c in alphabet if rng.random() < rng.choice((0.5, 0.9))]
    for _ in range(rng.randrange(0, 120)):
        pieces.append("".join(rng.choice(rng.choice((common, alphabet))) for _ in range(rng.randrange(2, 6))))
    pieces += [c * n for c in rng.sample(common, min(len(common), 3)) for n in range(2, rng.choice((3, 9)))]
    if rng.random() < 0.4:
        pieces += [f"<0x{b:02X}>" for b in range(256) if rng.random() < rng.choice((1.0, 0.95))]
    pieces += rng.sample(["<unk>", "<s>", "</s>", "the", "ing", "", "<|im_end|>"], rng.randrange(5))
    pieces = list(dict.fromkeys(pieces)) or ["a"]
    rng.shuffle(pieces)
    kind = rng.randrange(4)
    scores = {
        0: lambda: rng.choice((-1, -2.5, -4, 0, -2.0, -1e1)),
        1: lambda: -struct.unpack("f", struct.pack("f", rng.random() * 15))[0],
        2: lambda: rng.choice((30, 31.5, 29, 1e-3, 25.25)),
        3: lambda: -0.1 * rng.randrange(1, 40),
    }
    unk_id = rng.randrange(len(pieces)) if rng.random() < 0.9 else None
    return {
        "type": "Unigram",
        "unk_id": pieces.index("<unk>") if "<unk>" in pieces and rng.random() < 0.7 else unk_id,
        "byte_fallback": rng.random() < 0.5,
        "vocab": [[piece, scores[kind]()] for piece in pieces],
    }


def random_added(rng, vocab):
    added, next_id = [], len(vocab)
    used = set(vocab.values())
    for content in rng.sample(
        ["<s>", "</s>", "<|im_end|>", "<|im_", "foo", "a", " x", "  ", "é", "<a><b>", "<a>", "▁b", "Day", "\n\n"],
        rng.randrange(7),
    ):
        special = rng.random() < 0.5
        while next_id in used:
            next_id += 1
        token = {
            "id": vocab.get(content, next_id),
            "content": content,
            "single_word": rng.random() < 0.2,
            "lstrip": rng.random() < 0.25,
            "rstrip": rng.random() < 0.25,
            "normalized": rng.random() < 0.3,
            "special": special,
        }
        if content not in vocab:
            next_id += 1
        added.append(token)
    return added


def random_tokenizer(rng):
    pre_tokenizer = random_pre_tokenizer(rng) if rng.random() < 0.85 else None
    unigram = random_unigram(rng, "ByteLevel" in json.dumps(pre_tokenizer)) if rng.random() < 0.5 else None
    vocab, merges, prefix, suffix = random_vocabulary(rng, byte_level="ByteLevel" in json.dumps(pre_tokenizer))
    legacy = rng.random() < 0.5 and not any(" " in side for merge in merges for side in merge)
    if unigram:
        vocab = {piece: i for i, (piece, _) in enumerate(unigram["vocab"])}
    normalizer = (random_unigram_normalizer if unigram else random_normalizer)(rng) if rng.random() < 0.6 else None
    added = random_added(rng, vocab)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": random_post_processor(rng, [a for a in added if a["special"]]),
        "decoder": random_decoder(rng) if rng.random() < 0.9 else None,
        "model": unigram
        or {
            "type": "BPE",
            "dropout": None,
            "unk_token": rng.choice((None, "<unk>")),
            "continuing_subword_prefix": prefix or rng.choice((None, "")),
            "end_of_word_suffix": suffix or None,
            "fuse_unk": rng.random() < 0.5,
            "byte_fallback": rng.random() < 0.5,
            "ignore_merges": rng.random() < 0.3,
            "vocab": vocab,
            "merges": [" ".join(m) for m in merges] if legacy else merges,
        },
    }


# --- comparing


def ask_reference(tokenizer, request):
    """The reference's answer; an exception where it fails (it panics at some of its own options)."""
    if "ids" in request:
        ids = request["ids"]
    else:
        tokenizer.encode_special_tokens = not request["parse_special"]
        ids = tokenizer.encode(request["text"], add_special_tokens=request["add_special"]).ids
    return {
        "ids": ids,
        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
        "decoded_skip": tokenizer.decode(ids, skip_special_tokens=True),
    }


# Refusals of what the reference takes and auk refuses on purpose: options that make texts vanish or tokens meet.
EXPECTED_REFUSALS = re.compile(
    r"is nothing when normalized$"
    r"|are the same when normalized$"
    r"|a pattern that can match no character is not supported$"
)


class Fuzzer:
    def __init__(self, auk):
        self.auk = auk
        self.texts = self.differences = self.unanswered = 0
        self.refused = {}

    def report(self, name, request, theirs, ours):
        self.differences += 1
        if self.differences <= 20:
            print(
                f"DIFFERENCE {name}\n  request   {json.dumps(request)}\n  reference {json.dumps(theirs)}\n"
                f"  auk       {json.dumps(ours)}"
            )
            sys.stdout.flush()

    def compare(self, name, path, tokenizer, requests):
        done = subprocess.run(
            [*self.auk, "tokenize", "-m", path, "--jsonl"],
            capture_output=True,
            check=False,
            input="".join(json.dumps(r) + "\n" for r in requests).encode(),
        )
        answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        status = 1 if any("error" in answer for answer in answers) else 0
        if len(answers) != len(requests) or done.returncode != status:
            self.report(
                name,
                requests[len(answers)] if len(answers) < len(requests) else None,
                None,
                f"status {done.returncode}: {done.stderr.decode()[-400:]}",
            )
            return
        for request, ours in zip(requests, answers):
            self.texts += 1
            try:
                theirs = ask_reference(tokenizer, request)
            except Exception as error:  # what it refuses, we refuse
                theirs = ours if "error" in ours else {"error": str(error)}
            except BaseException as error:  # a panic, at some of its own options, is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                self.unanswered += 1
                continue
            if theirs != ours:
                self.report(name, request, theirs, ours)

    def requests(self, rng, tokenizer, count, extra):
        n_ids = tokenizer.get_vocab_size() + 5
        for _ in range(count):
            if rng.random() < 0.1:
                yield {"ids": [rng.randrange(n_ids) for _ in range(rng.randrange(12))]}
            else:
                yield {
                    "text": random_text(rng, extra),
                    "add_special": rng.random() < 0.3,
                    "parse_special": rng.random() < 0.7,
                }

    def real(self, path, count, rng):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        tokenizer = Tokenizer.from_str(data.decode())
        added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(data)
            file.flush()
            for start in range(0, count, 2000):
                batch = list(self.requests(rng, tokenizer, min(2000, count - start), added))
                self.compare(str(path), file.name, tokenizer, batch)

    def synthetic(self, seed):
        rng = random.Random(seed)
        definition = random_tokenizer(rng)
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(definition, file)
            file.flush()
            try:
                tokenizer = Tokenizer.from_file(file.name)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self.unanswered += 1
                return
            refusal = subprocess.run(
                [*self.auk, "tokenize", "-m", file.name, "x", "--no-add-special"], capture_output=True, check=False
            )
            if refusal.returncode == 3 and b"is needed for" not in refusal.stderr:
                reason = refusal.stderr.decode().strip().split(": ", 2)[-1]
                self.refused[reason] = self.refused.get(reason, 0) + 1
                if not EXPECTED_REFUSALS.search(reason):
                    self.report(f"synthetic {seed}", None, "accepted", reason)
                return
            if refusal.returncode not in (0, 3):
                self.report(f"synthetic {seed}", "x", "accepted", f"status {refusal.returncode}")
                return
            requests = list(self.requests(rng, tokenizer, 200, [a["content"] for a in definition["added_tokens"]]))
            before = self.differences
            self.compare(f"synthetic {seed}", file.name, tokenizer, requests)
            if self.differences > before and self.differences <= 20:
                kept = {k: v for k, v in definition.items()}
                kept["model"] = {k: v for k, v in kept["model"].items() if k not in ("vocab", "merges")}
                print("  tokenizer", json.dumps(kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--auk", default=os.environ.get("AUK", str(ROOT / "build" / "auk")))
    parser.add_argument("--count", type=int, default=10000, help="texts for each tokenizer")
    parser.add_argument("--synthetic", type=int, default=300, help="random tokenizers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    files = options.files or sorted(ROOT.glob("test/data/tokenizers/*/tokenizer.json*"))
    fuzzer = Fuzzer([options.auk])
    for i, path in enumerate(files):
        fuzzer.real(path, options.count, random.Random(f"{options.seed} {i}"))
        print(f"{path}: {options.count} texts, {fuzzer.differences} differences so far")
        sys.stdout.flush()
    for i in range(options.synthetic):
        fuzzer.synthetic(f"{options.seed} {i}")
    print(
        f"{fuzzer.texts} texts, {fuzzer.differences} differences; "
        f"without an answer of the reference: {fuzzer.unanswered}"
    )
    for reason, count in sorted(fuzzer.refused.items()):
        print(f"refused {count} times: {reason}")
    sys.exit(1 if fuzzer.differences else 0)


if __name__ == "__main__":
    main()
