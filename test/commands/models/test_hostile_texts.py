"""Tokenizers, chat templates and packed files as hostile as they come: each is refused with the message in
test/data/transcripts/hostile, in the time that one test may take."""
import base64
import os
import struct

import pytest

from hostile import (ANSWER, MOST_OF_A_KIND, TOKENIZE, USAGE, became, both, check, gone, kind, members, nested,
                     put, raw, sparse, transcript_fixture)
import test_hostile_weights

NAME = "tokenizer.json"
DECODE = ["tokenize", "-m", "DIR", "--decode", "403 404 405 406 407 408 409 410 411 412 413 414"]


def tokenizer(**changes):
    return members(NAME, **changes)


def model(**changes):
    """Members of the model in tokenizer.json."""
    return members(NAME, lambda tree: tree["model"].update(changes))


def unigram(pieces, **options):
    return tokenizer(model={"type": "Unigram", "vocab": pieces, **options})


def charsmap(*units, texts=b"x\0", size=None):
    """A normalizer by a table: the units of a trie, and texts that replace its strings."""
    table = struct.pack(f"<{1 + len(units)}I", 4 * len(units) if size is None else size, *units) + texts
    return precompiled(base64.b64encode(table).decode())


def precompiled(table):
    return tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": table})


def every_byte(value, texts):
    """A trie in which each byte by itself is a string, whose replacement begins at `value`."""
    units = [256 << 10, *[0] * 255, *(768 << 10 | 256 | 256 ^ at for at in range(256, 512)), *[value] * 256]
    return charsmap(*units, texts=texts)


def raw_score(text):
    return put(NAME, '{"model": {"type": "Unigram", "vocab": [["a", %s]]}}' % text)


def sequence(name, *steps):
    """A normalizer, a pre-tokenizer, ... that does these steps in a row."""
    plural = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders",
              "post_processor": "processors"}[name]
    return tokenizer(**{name: {"type": "Sequence", plural: list(steps)}})


def deep(name, depth):
    """A step in a Sequence in a Sequence ..."""
    step = {"type": "ByteLevel"}
    plural = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders",
              "post_processor": "processors"}[name]
    for _ in range(depth):
        step = {"type": "Sequence", plural: [step]}
    return tokenizer(**{name: step})


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def split(regex, behavior="Isolated"):
    """A pre-tokenizer by a regular expression."""
    return tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior,
                                    "invert": False})


def added(*tokens):
    """Further added tokens: (id, content, ...)"""

    def change(tree):
        for number, content, *flags in tokens:
            tree["added_tokens"].append({"id": number, "content": content, "single_word": False, "lstrip": False,
                                         "rstrip": False, "normalized": bool(flags), "special": True})

    return members(NAME, change)


def template(text):
    """The model's chat template."""
    return put("chat_template.jinja", text)


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
FUSE = {"type": "Fuse"}
FOREVER = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"


def header(offset=None, value=0, size=3256):
    """A packed file, of zeros but for its header: that of a model of one layer, and one field of another value."""
    fields = bytearray(256)
    struct.pack_into("<4s9i", fields, 0, b"84ka", 5, 32, 48, 1, 4, 2, 40, 64, 0)
    struct.pack_into("<B", fields, 36, 1)
    struct.pack_into("<ii", fields, 37, 8, 16)
    if offset is not None:
        struct.pack_into("<i", fields, offset, value)
    return put("m.ak48", bytes(fields) + bytes(size - 256))


PACKED = ["inspect", "-m", "DIR/m.ak48"]

CASES = [
    *kind("a pointer of Git LFS in place of",
          *((name, put(name, test_hostile_weights.LFS)) for name in (NAME, "chat_template.jinja")), command=ANSWER),
    *kind("in place of a tokenizer",
          ("nothing", gone(NAME)),
          ("nothing, but a SentencePiece model", both(gone(NAME), put("tokenizer.model", b"\n"))),
          ("nothing, but merges", both(gone(NAME), put("vocab.json", "{}"), put("merges.txt", ""))),
          ("nothing, but Mistral's own", both(gone(NAME), put("tekken.json", "{}"))),
          ("a directory", became(NAME, "directory")),
          ("a fifo", became(NAME, "fifo")),
          ("a device", became(NAME, "/dev/zero")),
          ("a link to itself", became(NAME, "loop")),
          ("a link to nothing", became(NAME, "nothing")),
          ("a gigabyte and a byte", sparse(NAME, 2**30 + 1, b"{}")),
          command=TOKENIZE),
    *kind("the text of a tokenizer",
          ("nothing", put(NAME, b"")),
          ("a list", put(NAME, "[]")),
          ("no model", put(NAME, "{}")),
          ("a model that is text", tokenizer(model="BPE")),
          ("another version", tokenizer(version="2.0")),
          ("cut", put(NAME, '{"model": {"type": "BPE", "vocab": {"a": 0, ')),
          ("a million brackets", raw(NAME, "model", nested(500_000))),
          ("a million brackets where merges are",
           put(NAME, '{"model": {"vocab": {}, "merges": ' + nested(500_000) + "}}")),
          ("a member twice", put(NAME, '{"model": {"vocab": {}, "vocab": {}, "merges": []}}')),
          ("bytes that are no UTF-8", put(NAME, b'{"model": {"vocab": {"\xff": 0}, "merges": []}}')),
          command=TOKENIZE),
    *kind("a vocabulary",
          ("a list", model(vocab=[])),
          ("none", model(vocab=None)),
          ("an id of -1", model(vocab={"a": -1})),
          ("an id of 2^31", model(vocab={"a": 2**31})),
          ("an id of 2^32, which is 0 in 32 bits", model(vocab={"a": 2**32})),
          ("an id of 2^64", model(vocab={"a": 2**64})),
          ("an id of 1.5", model(vocab={"a": 1.5})),
          ("an id that is text", model(vocab={"a": "0"})),
          ("two tokens of one id", model(vocab={"a": 7, "b": 7})),
          ("one token of two ids", put(NAME, '{"model": {"vocab": {"a": 0, "\\u0061": 1}, "merges": []}}')),
          command=TOKENIZE),
    *kind("merges",
          ("an object", model(merges={})),
          ("a number", model(merges=[1])),
          ("one token", model(merges=["ab"])),
          ("three tokens", model(merges=["a b c"])),
          ("a pair of three", model(merges=[["a", "b", "c"]])),
          ("a pair with a number", model(merges=[["a", 1]])),
          ("text and pairs", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", ["a", "b"]])),
          ("of a token that is not there", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", "a c"])),
          ("to a token that is not there", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", "b a"])),
          ("shorter than what continues a word",
           model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b"], continuing_subword_prefix="##")),
          command=TOKENIZE),
    *kind("the options of a model",
          ("WordPiece", model(type="WordPiece")),
          ("a number for a type", model(type=7)),
          ("chance", model(dropout=0.1)),
          ("chance of 2", model(dropout=2)),
          ("an option nobody knows", model(alpha=1)),
          ("byte_fallback that is text", model(byte_fallback="yes")),
          ("an unknown token that is a number", model(unk_token=0)),
          ("a prefix that is a list", model(continuing_subword_prefix=[])),
          command=TOKENIZE),
    *kind("pieces of Unigram",
          ("an object", unigram({"a": 0})),
          ("none", unigram([])),
          ("text", unigram(["a"])),
          ("a piece alone", unigram([["a"]])),
          ("three in a piece", unigram([["a", 1, 1]])),
          ("a piece that is a number", unigram([[1, 1]])),
          ("a score that is text", unigram([["a", "-1"]])),
          ("a score that is null", unigram([["a", None]])),
          ("NaN", raw_score("NaN")),
          ("a score beyond what a double holds", raw_score("-1e309")),
          command=TOKENIZE),
    *kind("a table of characters",
          ("none", precompiled(None)),
          ("a number", precompiled(1)),
          ("no base64", precompiled("AAA-")),
          ("cut within a byte", precompiled("AAAAB")),
          ("cut within its size", precompiled("AAA=")),
          ("without a trie", charsmap()),
          ("cut within its trie", charsmap(0, texts=b"", size=2**32 - 4)),
          ("a trie of 5 bytes", charsmap(0, size=5)),
          ("texts that are no UTF-8", charsmap(0, texts=b"\xff\0")),
          command=TOKENIZE),
    *kind("what a table of characters does",
          ("a trie that leads out of itself", charsmap(2**31 - 1)),
          ("a replacement beyond the texts", every_byte(3, b"x\0")),
          ("a replacement within a character", every_byte(1, "é\0".encode())),
          ("a megabyte for each character", every_byte(0, b"x" * 2**20)),
          command=TOKENIZE),
    *kind("the options of Unigram",
          ("the same piece twice", unigram([["b", 0], ["a", 0], ["a", 0]])),
          ("unk_id beyond the pieces", unigram([["a", 0]], unk_id=1)),
          ("unk_id of -1", unigram([["a", 0]], unk_id=-1)),
          ("unk_id that is text", unigram([["a", 0]], unk_id="a")),
          ("no unk_id where it is needed", unigram([["a", 0]])),
          ("byte_fallback that is text", unigram([["a", 0]], byte_fallback="yes")),
          ("an option nobody knows", unigram([["a", 0]], alpha=1)),
          command=TOKENIZE),
    *kind("normalizers",
          ("one nobody knows", tokenizer(normalizer={"type": "BertNormalizer"})),
          ("text", tokenizer(normalizer="NFC")),
          ("no type", tokenizer(normalizer={})),
          ("an option nobody knows", tokenizer(normalizer={"type": "NFC", "form": 1})),
          ("a pattern that matches nothing at all",
           tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"})),
          ("a literal of nothing", tokenizer(normalizer=replace("", "b"))),
          ("a sequence that is an object", tokenizer(normalizer={"type": "Sequence", "normalizers": {}})),
          ("65 in a row", sequence("normalizer", *[{"type": "NFC"}] * 65)),
          ("one in a hundred others", deep("normalizer", 100)),
          ("stripping by text", tokenizer(normalizer={"type": "Strip", "strip_left": "yes", "strip_right": True})),
          command=TOKENIZE),
    *kind("pre-tokenizers",
          ("one nobody knows", tokenizer(pre_tokenizer={"type": "BertPreTokenizer"})),
          ("an option that is missing", tokenizer(pre_tokenizer={"type": "ByteLevel"})),
          ("a behavior nobody knows", split("a", "Lost")),
          ("a pattern that is text",
           tokenizer(pre_tokenizer={"type": "Split", "pattern": "a", "behavior": "Isolated", "invert": False})),
          ("a pattern of two kinds",
           tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": "a", "String": "a"}, "behavior": "Isolated",
                                    "invert": False})),
          ("a mark of two characters", tokenizer(pre_tokenizer={"type": "Metaspace", "replacement": "__"})),
          ("a scheme nobody knows",
           tokenizer(pre_tokenizer={"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})),
          ("digits one by one, by text", tokenizer(pre_tokenizer={"type": "Digits", "individual_digits": 1})),
          ("65 in a row", sequence("pre_tokenizer", *[BYTE_LEVEL] * 65)),
          ("one in a hundred others", deep("pre_tokenizer", 100)),
          command=TOKENIZE),
    *kind("regular expressions",
          ("a group that is open", split("(")),
          ("a class that is open", split("[a")),
          ("a range the wrong way round", split("[z-a]")),
          ("a reference back", split("(a)\\1")),
          ("a hundred thousand groups", split("(" * 100_000 + ")" * 100_000)),
          ("a thousand groups", split("(?:" * 1000 + "a" + ")" * 1000)),
          ("a count of 2^31", split("a{2147483648}")),
          ("counts of counts", split("((((a{99}){99}){99}){99})")),
          ("a property nobody knows", split("\\p{Nope}")),
          ("looking behind", split("(?<=a+)b")),
          command=TOKENIZE),
    *kind("regular expressions that do not end",
          ("repeats of repeats", split("(a+?)+?b|^c")),
          ("choices that mean the same", split("(?:a|a|aa)+?b|^c")),
          ("repeats of repeats in a normalizer",
           tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "(?:a+?)+?b|^c"}, "content": "x"})),
          command=["tokenize", "-m", "DIR", "a" * 99 + "!b"]),
    *kind("decoders",
          ("one nobody knows", tokenizer(decoder={"type": "CTC"})),
          ("a number", tokenizer(decoder=7)),
          ("no type", tokenizer(decoder={})),
          ("stripping less than nothing",
           tokenizer(decoder={"type": "Strip", "content": " ", "start": -1, "stop": 0})),
          ("stripping 2^64", tokenizer(decoder={"type": "Strip", "content": " ", "start": 0, "stop": 2**64})),
          ("65 in a row", sequence("decoder", *[FUSE] * 65)),
          ("one in a hundred others", deep("decoder", 100)),
          ("replacing what is no expression",
           tokenizer(decoder={"type": "Replace", "pattern": {"Regex": "("}, "content": "a"})),
          command=DECODE),
    *kind("post-processors",
          ("one nobody knows", tokenizer(post_processor={"type": "RobertaProcessing"})),
          ("no template", tokenizer(post_processor={"type": "TemplateProcessing"})),
          ("a token that is not there",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}],
                                     "special_tokens": {}})),
          ("an id of -1",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                                     "special_tokens": {"x": {"ids": [-1]}}})),
          ("a second text",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})),
          ("257 pieces",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 257})),
          ("two templates",
           sequence("post_processor", *[{"type": "TemplateProcessing", "single": [], "special_tokens": {}}] * 2)),
          ("one in a hundred others", deep("post_processor", 100)),
          command=TOKENIZE),
    *kind("added tokens",
          ("an object", tokenizer(added_tokens={})),
          ("an array", tokenizer(added_tokens=[[1]])),
          ("no id", tokenizer(added_tokens=[{"content": "x"}])),
          ("an id of -1", added((-1, "x"))),
          ("an id of 2^24", added((2**24, "x"))),
          ("an id of 2^64", added((2**64, "x"))),
          ("no options", tokenizer(added_tokens=[{"id": 3, "content": "x"}])),
          ("a content that is a number", tokenizer(added_tokens=[{"id": 3, "content": 3}])),
          ("one that is nothing when it is normalized",
           both(tokenizer(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
                added((600, "  ", "normalized")))),
          ("one that grows when it is normalized",
           both(sequence("normalizer", *[replace("a", "aa")] * 40), added((600, "a", "normalized")))),
          command=TOKENIZE),
    *kind("texts that a tokenizer lets grow",
          ("doubled 60 times", sequence("normalizer", *[replace("a", "aa")] * 60)),
          ("doubled 60 times by an expression",
           sequence("normalizer", *[{"type": "Replace", "pattern": {"Regex": "a"}, "content": "aa"}] * 60)),
          ("a megabyte for a letter, twice", sequence("normalizer", *[replace("a", "a" * 1_000_000)] * 2)),
          ("a megabyte in front", tokenizer(normalizer={"type": "Prepend", "prepend": "a" * 1_000_000})),
          ("bytes of bytes of bytes", sequence("pre_tokenizer", *[BYTE_LEVEL] * 60)),
          command=TOKENIZE),
    *kind("answers that a tokenizer lets grow",
          ("doubled 60 times", sequence("decoder", *[replace("e", "ee")] * 60)),
          ("doubled 60 times and gone", sequence("decoder", *[replace("e", "ee")] * 60, replace("e", ""))),
          ("doubled 60 times behind a join", sequence("decoder", FUSE, *[replace("e", "ee")] * 60)),
          ("doubled 60 times behind a join and gone",
           sequence("decoder", FUSE, *[replace("e", "ee")] * 60, replace("e", ""))),
          ("a megabyte for a letter", sequence("decoder", *[replace("e", "e" * 1_000_000)] * 2)),
          command=DECODE),
    *kind("ids outside of the vocabulary",
          ("an added token", added((512, "Hi"))),
          ("an added token far away", added((2**24 - 1, "Hi"))),
          ("a token of the vocabulary",
           members(NAME, lambda tree: tree["model"]["vocab"].update({"\u2581H": 5000}))),
          ("the beginning",
           members(NAME, lambda tree: tree["post_processor"]["special_tokens"]["<s>"].update(ids=[99999]))),
          command=ANSWER + ["--raw", "--parse-special"]),
    *kind("a config of a tokenizer",
          ("nothing", put("tokenizer_config.json", b"")),
          ("a list", put("tokenizer_config.json", "[]")),
          ("cut", put("tokenizer_config.json", '{"chat_template": "{{ mess')),
          ("a million brackets", put("tokenizer_config.json", '{"a": ' + nested(500_000) + "}")),
          ("a directory", became("tokenizer_config.json", "directory")),
          ("a fifo", became("tokenizer_config.json", "fifo")),
          ("a link to itself", became("tokenizer_config.json", "loop")),
          ("special tokens that are a list", put("special_tokens_map.json", "[]")),
          ("special tokens that are a fifo", became("special_tokens_map.json", "fifo")),
          ("a template's file that is text", put("chat_template.json", '"{{ messages }}"')),
          command=ANSWER),
    *kind("a template in a config",
          ("a number", put("tokenizer_config.json", {"chat_template": 5})),
          ("a named one that is an array",
           put("tokenizer_config.json", {"chat_template": [{"name": "default", "template": [1]}]})),
          command=ANSWER),
    *kind("in place of a template",
          ("a directory", became("chat_template.jinja", "directory")),
          ("a link to itself", became("chat_template.jinja", "loop")),
          ("a device", became("chat_template.jinja", "/dev/zero")),
          ("a gigabyte", sparse("chat_template.jinja", 2**30, b"{{ x }}")),
          ("a megabyte and a byte", template("a" * (2**20 + 1))),
          ("a megabyte and a byte in a config", put("tokenizer_config.json", {"chat_template": "a" * (2**20 + 1)})),
          ("bytes that are no UTF-8", put("chat_template.jinja", b"{{ x }}\xff")),
          ("a NUL", put("chat_template.jinja", b"{{ x }}\0")),
          ("a fifo", became("chat_template.jinja", "fifo")),
          command=ANSWER),
    *kind("the text of a template",
          ("a tag that is open", template("{% if x")),
          ("a block that is open", template("{% for m in messages %}")),
          ("an end of nothing", template("{% endif %}")),
          ("a tag nobody knows", template("{% include 'a' %}")),
          ("a filter nobody knows", template("{{ messages | nosuch }}")),
          ("a string that is open", template("{{ 'a }}")),
          ("a hundred thousand brackets", template("{{ " + "(" * 100_000 + ")" * 100_000 + " }}")),
          ("a hundred thousand blocks", template("{% if 1 %}" * 100_000)),
          ("a hundred thousand minuses", template("{{ " + "-" * 100_000 + "1 }}")),
          ("a hundred thousand filters", template("{{ x" + "|e" * 100_000 + " }}")),
          command=ANSWER),
    *kind("templates that do not end",
          ("loops in loops", template(FOREVER)),
          ("a macro of itself", template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")),
          ("a text that doubles",
           template("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}")),
          ("a text times 10^10", template("{{ 'x' * 9999999999 }}")),
          ("a list times 10^10", template("{{ [1] * 9999999999 }}")),
          ("a range of 10^12", template("{% for i in range(999999999999) %}{% endfor %}")),
          ("a thing in itself", template("{% set n = namespace() %}{% set n.a = [n] %}{{ n }}")),
          ("a billion blanks", template("{{ '%999999999s' % 1 }}")),
          ("a loop of itself", template("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}")),
          ("a search that starts over", template("{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}")),
          command=ANSWER),
    *kind("the header of a packed file",
          ("another version", header(4, value=4)),
          ("no width", header(8)),
          ("a width of -1", header(12, value=-1)),
          ("2^30 layers", header(16, value=2**30)),
          ("2^31 - 1 heads", header(20, value=2**31 - 1)),
          ("heads that do not divide", header(24, value=3)),
          ("-2^31 tokens", header(28, value=-2**31)),
          ("heads of an odd size", header(37, value=13)),
          ("groups of 0", header(41)),
          ("something in what is reserved", header(252, value=1)),
          command=PACKED),
    *kind("a packed file",
          ("nothing", put("m.ak48", b"")),
          ("its first bytes", put("m.ak48", b"84ka")),
          ("a header alone", header(size=256)),
          ("a terabyte of nothing", sparse("m.ak48", 2**40)),
          ("a header and a terabyte",
           both(header(), lambda folder: os.truncate(folder / "m.ak48", 2**40))),
          ("GGUF", put("m.ak48", b"GGUF\x03\0\0\0")),
          ("a pickle", put("m.ak48", b"PK\x03\x04" + bytes(1000))),
          ("JSON", put("m.ak48", "{}")),
          ("a fifo", became("m.ak48", "fifo")),
          ("a link to itself", became("m.ak48", "loop")),
          command=PACKED),
    *kind("ids of a text",
          ("a word", put("ids", "1 2 three")),
          ("below 0", put("ids", "1 -2")),
          ("2^31", put("ids", "2147483648")),
          ("2^64", put("ids", "18446744073709551616")),
          ("the vocabulary's end", put("ids", "1 511 512")),
          ("half a number", put("ids", "1.5")),
          ("nothing", put("ids", "")),
          ("a NUL", put("ids", b"1 2 \0")),
          command=["eval", "-m", "DIR", "--ids-file", "DIR/ids"], status=USAGE),
]


transcript = transcript_fixture("texts")


@pytest.mark.parametrize("name, command, status, damage", CASES)
def test_it_is_refused(auk, stories, tmp_path, transcript, name, command, status, damage):
    check(auk, stories, tmp_path / "model", transcript, name, command, status, damage)


LETTERS = ["", "a", "b", "c", "ab", "bc", "abc", "aa", "aaa", "aaaa", "##", "##a", "##b"]


@pytest.mark.parametrize("merges, options, expected", [
    pytest.param(merges, options, expected, id=name) for name, merges, options, expected in [
        ("a rule twice", ["a b", "b c", "a b", "ab c"], {}, "1 5 1 4 5 3 1 5 1 1 1 1"),
        ("a rule before those that it needs", ["ab c", "a b", "b c", "a bc"], {}, "6 1 4 5 3 6 1 1 1 1"),
        ("two ways to one token", ["a b", "b c", "a bc", "ab c"], {}, "6 1 4 5 3 6 1 1 1 1"),
        ("tokens of nothing", [["", "a"], ["a", ""], ["a", "b"]], {}, "4 3 1 4 2 3 3 4 3 1 1 1 1"),
        ("rules that give what they take", ["a ##", "a ##b", "## ##"], {"continuing_subword_prefix": "##"},
         "4 11 11 12 12 11 12 11 11 11 11"),
        ("the longest first", ["aa aa", "a aaa", "aaa a", "a aa", "aa a", "a a"], {}, "1 2 3 7 2 2 3 3 1 2 3 9"),
    ]])
def test_merges_that_contradict_each_other_end(run, tmp_path, merges, options, expected):
    """They are taken as Hugging Face's tokenizers 0.23.3 takes them."""
    tree = {"model": {"vocab": {token: i for i, token in enumerate(LETTERS)}, "merges": merges, **options}}
    put(NAME, tree)(tmp_path)
    process = run("tokenize", "-m", tmp_path / NAME, "abcaabbccabcaaaa")
    assert (process.returncode, process.stdout.decode().strip(), process.stderr) == (0, expected, b"")


def test_there_are_enough_of_them_and_of_many_kinds():
    kinds = [case.id.split(":")[0] for case in CASES + test_hostile_weights.CASES]
    assert len(kinds) >= 200 and max(map(kinds.count, kinds)) <= MOST_OF_A_KIND
    assert len({case.id for case in CASES + test_hostile_weights.CASES}) == len(kinds)
