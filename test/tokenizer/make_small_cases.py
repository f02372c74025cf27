#!/usr/bin/env python3
"""make_small_cases.py - what the reference makes of texts by small random tokenizers, for test_small.c.

usage: make_small_cases.py > test/data/tokenizers/small.txt

The reference is the Python package tokenizers 0.23.3. A line is a letter, a blank and JSON; it holds until another
line of that letter comes. V M: vocabulary and merges. O: the model's other options, each with a ',' after it.
A N P X D: added tokens, normalizer, pre-tokenizer, post-processor, decoder. T begins the cases of the tokenizer so far,
each [add_special + 2 * parse_special, text, ids, decoded, decoded without special tokens]; decoded texts that are the
text are null, and ids are null where the reference fails. I: [ids, decoded, decoded without special tokens].
"""

import itertools
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import fuzz_tokenizer as fuzz  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

PARTS = {"A": "added_tokens", "N": "normalizer", "P": "pre_tokenizer", "X": "post_processor", "D": "decoder"}
ODD_BYTES = "<0x0a> <0xaB> <0xAb> <0x+5> <0x-5> <0x5+> <0xG1> <0x1G> <0X41> <0x41 <0x411>".split()
written = {}


def compact(value, rng=None):
    """JSON with and without escapes and white space."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" ,\t", "\r : "))) if rng else (",", ":")
    return json.dumps(value, ensure_ascii=bool(rng and rng.random() < 0.3), separators=separators)


def write(letter, text):
    if written.get(letter) != text:
        print(letter, text)
        written[letter] = text


def without_some(rng, definition):
    """Options that can be left out are left out at times, so that their defaults count."""
    if isinstance(definition, list):
        return [without_some(rng, item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    optional = {"use_regex", "split", "prepend_scheme"}
    if definition.get("type") == "Punctuation":
        optional.add("behavior")
    return {k: without_some(rng, v) for k, v in definition.items() if k not in optional or rng.random() < 0.7}


def reference(definition):
    try:
        return Tokenizer.from_str(json.dumps(definition))
    except BaseException:  # its panics are no Exception
        return None


def ask(tokenizer, request):
    """The reference's answer, "fails", or None where it panics."""
    try:
        return fuzz.ask_reference(tokenizer, request)
    except Exception:
        return "fails"
    except BaseException:
        return None


def write_tokenizer(rng, definition, requests):
    tokenizer = reference(definition)
    if tokenizer is None:
        return
    answers = [(request, ask(tokenizer, request)) for request in requests]
    if not any(isinstance(answer, dict) for _, answer in answers):
        return
    model = definition["model"]
    write("V", compact(model["vocab"], rng if "V" not in written else None))
    write("M", compact(model.get("merges"), None))
    options = {k: v for k, v in model.items() if k not in ("type", "vocab", "merges")}
    write("O", "".join(f"{compact(k)}: {compact(v)}, " for k, v in options.items()))
    for letter, part in PARTS.items():
        write(letter, compact(definition[part], rng))
    print("T")
    for request, answer in answers:
        if answer is None:
            continue
        if "ids" in request:
            print("I", compact([" ".join(map(str, request["ids"])), answer["decoded"], answer["decoded_skip"]]))
            continue
        flags = request["add_special"] + 2 * request["parse_special"]
        if answer == "fails":
            print("C", compact([flags, request["text"], None, None, None]))
            continue
        ids = " ".join(map(str, answer["ids"]))
        texts = [None if answer[k] == request["text"] else answer[k] for k in ("decoded", "decoded_skip")]
        print("C", compact([flags, request["text"], ids, *texts]))


def added_again(rng, added):
    """At times a token comes twice, with other flags."""
    if added and rng.random() < 0.3:
        again = dict(rng.choice(added))
        for flag in rng.sample(["single_word", "lstrip", "rstrip", "normalized", "special"], 2):
            again[flag] = not again[flag]
        added = [*added, again]
    return added


def short_text(rng, extra):
    while True:
        text = fuzz.random_text(rng, extra)
        if len(text.encode()) <= rng.choice((8, 8, 16, 16, 30, 30, 50, 150)):
            return text


def random_tokenizers(rng, n_vocabularies, n_tokenizers, n_texts):
    """Random everything, some tokenizers of each of a few vocabularies."""
    for number in range(n_vocabularies):
        byte_level = number % 2 == 0
        while True:
            vocab, merges, prefix, suffix = fuzz.random_vocabulary(rng, byte_level)
            if len(vocab) < 450 and bool(prefix or suffix) == (number % 4 == 3):
                break
        for token in rng.sample(ODD_BYTES, 5):
            vocab.setdefault(token, max(vocab.values()) + 1)
        if merges and number % 3 == 0:  # pairs that come twice
            merges += rng.sample(merges, min(len(merges), 4))
        if number % 3 == 1 and not any(" " in side for merge in merges for side in merge):
            merges = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
        for _ in range(n_tokenizers):
            while True:
                pre_tokenizer = fuzz.random_pre_tokenizer(rng) if rng.random() < 0.85 else None
                if ("ByteLevel" in json.dumps(pre_tokenizer)) == byte_level:
                    break
            added = fuzz.random_added(rng, vocab)
            model = {
                "type": "BPE",
                "unk_token": rng.choice((None, "<unk>")),
                "fuse_unk": rng.random() < 0.5,
                "byte_fallback": rng.random() < 0.5,
                "ignore_merges": rng.random() < 0.3,
            }
            model = {k: v for k, v in model.items() if k == "type" or rng.random() < 0.8}
            if prefix:
                model["continuing_subword_prefix"] = prefix
            if suffix:
                model["end_of_word_suffix"] = suffix
            definition = {
                "version": "1.0",
                "added_tokens": added_again(rng, added),
                "normalizer": fuzz.random_normalizer(rng) if rng.random() < 0.6 else None,
                "pre_tokenizer": without_some(rng, pre_tokenizer),
                "post_processor": fuzz.random_post_processor(rng, [a for a in added if a["special"]]),
                "decoder": without_some(rng, fuzz.random_decoder(rng)) if rng.random() < 0.9 else None,
                "model": model | {"vocab": vocab, "merges": merges},
            }
            extra = [a["content"] for a in added]
            requests = []
            for _ in range(n_texts):
                requests.append(
                    {
                        "text": short_text(rng, extra),
                        "add_special": rng.random() < 0.4,
                        "parse_special": rng.random() < 0.7,
                    }
                )
            high = max(vocab.values()) + 8
            odd = [vocab[token] for token in vocab if token.startswith("<0")]
            for _ in range(2):
                ids = [rng.choice(odd) if rng.random() < 0.3 else rng.randrange(high) for _ in range(rng.randrange(9))]
                requests.append({"ids": ids})
            write_tokenizer(rng, definition, requests)


CHARACTER_PIECES = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False},
    ],
}
BEGINNINGS = ["é", "e\u0301", "\u1e69", "s\u0323\u0307", "ﬃ", "\u0344", "İ", "Å", "\uac01"]
BEGINNINGS += [" ", "  ", "a", "ab", "\u01d5"]


def origins(rng, n_tokenizers, n_texts):
    """The place that "first" of Metaspace takes for the beginning of a text, whatever normalizers did to it."""
    letters = [*"_abesiuABfI012 \n", *map(chr, range(0x300, 0x330)), "é", "\uac00", "\u11a8", "\u1100", "\u1161"]
    vocab = {letter: i for i, letter in enumerate(dict.fromkeys(letters))} | {"<unk>": 99}
    for _ in range(n_tokenizers):
        steps = [fuzz.random_normalizer(rng, depth=2) for _ in range(rng.randrange(1, 4))]
        definition = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": CHARACTER_PIECES,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": []},
        }
        requests = []
        for _ in range(n_texts):
            text = rng.choice(BEGINNINGS) + rng.choice(BEGINNINGS) + rng.choice(("", "a", "\u0301"))
            requests.append({"text": text, "add_special": False, "parse_special": True})
        write_tokenizer(rng, definition, requests)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def forms(rng):
    """Runs of marks of all lengths up to some that are sorted in another way."""
    classes = [0x334, 0x301, 0x323, 0x327, 0x345, 0x35C, 0x360, 0x5B0, 0x93C, 0x94D, 0x3099, 0x302A, 0x1D165]
    vocab = {c: i for i, c in enumerate(fuzz.byte_alphabet())}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        requests = []
        for n in (0, 1, 2, 3, 5, 8, 31, 32, 33, 34, 70):
            marks = "".join(chr(rng.choice(classes)) for _ in range(n))
            text = rng.choice(("e", "\u1ea1", "ﬁ", "", "\uac00")) + marks + rng.choice(("a", "\u1e69", "\u11a8", ""))
            requests.append({"text": text, "add_special": False, "parse_special": True})
        definition = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": form},
            "pre_tokenizer": BYTES,
            "post_processor": None,
            "decoder": BYTES,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        }
        write_tokenizer(rng, definition, requests)


def behaviors(rng):
    """Every behavior with matches at all places: first, last, in a row, empty ones."""
    vocab = {c: i for i, c in enumerate("ab_")} | {
        "".join(w): 3 + i
        for i, w in enumerate(w for n in range(2, 5) for w in itertools.product("ab_", repeat=n))
    }
    patterns = [{"String": "a"}, {"String": "aa"}, {"Regex": "a"}, {"Regex": "a+"}, {"Regex": "a*"}, {"Regex": "\\b"},
                {"Regex": ""}]
    texts = ["", "a", "b", "aa", "ab", "ba", "bb", "aab", "aba", "baa", "abb", "bab", "aaa", "baab", "abba", "_aa_"]
    for behavior, pattern, invert in itertools.product(fuzz.BEHAVIORS, patterns, (False, True)):
        definition = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": []},
        }
        requests = [{"text": t, "add_special": False, "parse_special": True} for t in texts]
        write_tokenizer(None, definition, requests)


CHANGED = ["\r\n", "e\u0301", "½\u0308a", "é\u0301", "ﬁ\u0301ﬁ", "\u0600a", "a\u200d", "①", "\u00a0"]


def unigrams(rng, n_vocabularies, n_tokenizers, n_texts):
    """The model Unigram, with all kinds of the other parts."""
    for number in range(n_vocabularies):
        byte_level = number % 6 == 5
        model = fuzz.random_unigram(rng, byte_level)
        while len(json.dumps(model)) > (8000 if number % 4 == 0 else 3000):
            model = fuzz.random_unigram(rng, byte_level)
        vocab = {piece: i for i, (piece, _) in enumerate(model["vocab"])}
        for _ in range(n_tokenizers):
            while True:
                pre_tokenizer = fuzz.random_pre_tokenizer(rng) if rng.random() < 0.6 else None
                if ("ByteLevel" in json.dumps(pre_tokenizer)) == byte_level:
                    break
            added = fuzz.random_added(rng, vocab)
            definition = {
                "version": "1.0",
                "added_tokens": added,
                "normalizer": fuzz.random_unigram_normalizer(rng) if rng.random() < 0.6 else None,
                "pre_tokenizer": pre_tokenizer,
                "post_processor": fuzz.random_post_processor(rng, [a for a in added if a["special"]]),
                "decoder": fuzz.random_decoder(rng) if rng.random() < 0.8 else None,
                "model": model | {"byte_fallback": rng.random() < 0.5},
            }
            requests = []
            for _ in range(n_texts):
                text = short_text(rng, [*vocab, *(a["content"] for a in added), *CHANGED])
                requests.append({"text": text, "add_special": rng.random() < 0.4, "parse_special": rng.random() < 0.7})
            requests += [{"ids": [rng.randrange(len(vocab) + 4) for _ in range(rng.randrange(9))]}]
            write_tokenizer(rng, definition, requests)


def main():
    rng = random.Random("small tokenizers")
    random_tokenizers(rng, 14, 16, 7)
    origins(rng, 60, 8)
    forms(rng)
    behaviors(rng)
    unigrams(random.Random("small Unigram tokenizers"), 7, 3, 6)


if __name__ == "__main__":
    main()
