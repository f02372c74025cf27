"""Tokenizers, chat templates and packed files as hostile as they come: each is refused with the message that stands
here, in the time that one test may take."""
import os
import struct

import pytest

from hostile import (ANSWER, ANY, MOST_OF_A_KIND, TOKENIZE, USAGE, became, both, check, gone, kind, members, nested,
                     put, raw, sparse)
import test_hostile_weights

NAME = "tokenizer.json"
DECODE = ["tokenize", "-m", "DIR", "--decode", "403 404 405 406 407 408 409 410 411 412 413 414"]


def tokenizer(**changes):
    return members(NAME, **changes)


def model(**changes):
    """Members of the model in tokenizer.json."""
    return members(NAME, lambda tree: tree["model"].update(changes))


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
    *kind("in place of a tokenizer",
          ("nothing", gone(NAME), "no DIR/tokenizer.json (--tokenizer FILE names one)"),
          ("nothing, but a SentencePiece model", both(gone(NAME), put("tokenizer.model", b"\n")),
           "DIR has only tokenizer.model (SentencePiece), expected tokenizer.json; make it once with:  "
           "python3 -c \"import transformers as t; t.AutoTokenizer.from_pretrained('.').save_pretrained('.')\""
           "  or name another with --tokenizer"),
          ("nothing, but merges", both(gone(NAME), put("vocab.json", "{}"), put("merges.txt", "")),
           "DIR has only merges.txt (GPT-2's way to store it), expected tokenizer.json; make it once with:  "
           "python3 -c \"import transformers as t; t.AutoTokenizer.from_pretrained('.').save_pretrained('.')\""
           "  or name another with --tokenizer"),
          ("nothing, but Mistral's own", both(gone(NAME), put("tekken.json", "{}")),
           "DIR has only tekken.json (Mistral's own), expected tokenizer.json; name one of the same family with "
           "--tokenizer"),
          ("a directory", became(NAME, "directory"),
           "DIR/tokenizer.json is a directory, expected a regular file"),
          ("a fifo", became(NAME, "fifo"), "DIR/tokenizer.json is a fifo, expected a regular file"),
          ("a device", became(NAME, "/dev/zero"), "DIR/tokenizer.json is a device, expected a regular file"),
          ("a link to itself", became(NAME, "loop"),
           "DIR/tokenizer.json: cannot open: Too many levels of symbolic links"),
          ("a link to nothing", became(NAME, "nothing"),
           "DIR/tokenizer.json: cannot open: No such file or directory"),
          ("a gigabyte and a byte", sparse(NAME, 2**30 + 1, b"{}"),
           "DIR/tokenizer.json: 1073741825 bytes of JSON, expected at most 1073741824"),
          command=TOKENIZE),
    *kind("the text of a tokenizer",
          ("nothing", put(NAME, b""), "DIR/tokenizer.json: empty, expected JSON"),
          ("a list", put(NAME, "[]"), "DIR/tokenizer.json: its JSON is an array, expected an object"),
          ("no model", put(NAME, "{}"), "DIR/tokenizer.json: model is missing"),
          ("a model that is text", tokenizer(model="BPE"), 'DIR/tokenizer.json: model is "BPE", expected an object'),
          ("another version", tokenizer(version="2.0"), 'DIR/tokenizer.json: version is "2.0", expected "1.0"'),
          ("cut", put(NAME, '{"model": {"type": "BPE", "vocab": {"a": 0, '),
           "DIR/tokenizer.json:1:45: expected a key in quotes, found the end of the text"),
          ("a million brackets", raw(NAME, "model", nested(500_000)),
           "DIR/tokenizer.json:1:1736: nested deeper than 512"),
          ("a million brackets where merges are",
           put(NAME, '{"model": {"vocab": {}, "merges": ' + nested(500_000) + "}}"),
           "DIR/tokenizer.json:1:545: nested deeper than 512"),
          ("a member twice", put(NAME, '{"model": {"vocab": {}, "vocab": {}, "merges": []}}'),
           'DIR/tokenizer.json:1:26: duplicate key "vocab"'),
          ("bytes that are no UTF-8", put(NAME, b'{"model": {"vocab": {"\xff": 0}, "merges": []}}'),
           "DIR/tokenizer.json:1:23: invalid UTF-8: byte 0xff"),
          command=TOKENIZE),
    *kind("a vocabulary",
          ("a list", model(vocab=[]), "DIR/tokenizer.json: model.vocab is [], expected an object"),
          ("none", model(vocab=None), "DIR/tokenizer.json: model.vocab is null, expected an object"),
          ("an id of -1", model(vocab={"a": -1}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is -1, expected an integer from 0 to 16777215'),
          ("an id of 2^31", model(vocab={"a": 2**31}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is 2147483648, expected an integer from 0 to 16777215'),
          ("an id of 2^32, which is 0 in 32 bits", model(vocab={"a": 2**32}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is 4294967296, expected an integer from 0 to 16777215'),
          ("an id of 2^64", model(vocab={"a": 2**64}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is 18446744073709551616, expected an integer from 0 to '
           "16777215"),
          ("an id of 1.5", model(vocab={"a": 1.5}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is 1.5, expected an integer from 0 to 16777215'),
          ("an id that is text", model(vocab={"a": "0"}),
           'DIR/tokenizer.json: model.vocab: the id of "a" is "0", expected an integer from 0 to 16777215'),
          ("two tokens of one id", model(vocab={"a": 7, "b": 7}),
           'DIR/tokenizer.json: model.vocab: "a" and "b" have the same id 7'),
          ("one token of two ids", put(NAME, '{"model": {"vocab": {"a": 0, "\\u0061": 1}, "merges": []}}'),
           'DIR/tokenizer.json:1:31: duplicate key "\\u0061"'),
          command=TOKENIZE),
    *kind("merges",
          ("an object", model(merges={}), "DIR/tokenizer.json: model.merges is an object, expected an array"),
          ("a number", model(merges=[1]),
           "DIR/tokenizer.json: model.merges: merge 0: merges are all strings or all pairs of strings"),
          ("one token", model(merges=["ab"]),
           'DIR/tokenizer.json: model.merges: merge 0: "ab" is not two tokens with a space between them'),
          ("three tokens", model(merges=["a b c"]),
           'DIR/tokenizer.json: model.merges: merge 0: "a b c" is not two tokens with a space between them'),
          ("a pair of three", model(merges=[["a", "b", "c"]]),
           "DIR/tokenizer.json: model.merges: merge 0 is not a pair of strings"),
          ("a pair with a number", model(merges=[["a", 1]]),
           "DIR/tokenizer.json: model.merges: merge 0 is not a pair of strings"),
          ("text and pairs", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", ["a", "b"]]),
           "DIR/tokenizer.json: model.merges: merge 1: merges are all strings or all pairs of strings"),
          ("of a token that is not there", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", "a c"]),
           'DIR/tokenizer.json: model.merges: merge 1: "c" is not in the vocabulary'),
          ("to a token that is not there", model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b", "b a"]),
           'DIR/tokenizer.json: model.merges: merge 1: "ba" is not in the vocabulary'),
          ("shorter than what continues a word",
           model(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b"], continuing_subword_prefix="##"),
           "DIR/tokenizer.json: model.merges: merge 0: its right side is shorter than "
           "continuing_subword_prefix"),
          command=TOKENIZE),
    *kind("the options of a model",
          ("Unigram", model(type="Unigram"), 'DIR/tokenizer.json: model: type "Unigram" is not supported'),
          ("WordPiece", model(type="WordPiece"),
           'DIR/tokenizer.json: model: type "WordPiece" is not supported'),
          ("a number for a type", model(type=7), "DIR/tokenizer.json: model: type is 7, expected a string"),
          ("chance", model(dropout=0.1),
           "DIR/tokenizer.json: model: dropout is 0.1: its encodings are chance"),
          ("chance of 2", model(dropout=2),
           "DIR/tokenizer.json: model: dropout is 2, expected a number from 0 to 1"),
          ("an option nobody knows", model(alpha=1), "DIR/tokenizer.json: model: alpha is not supported"),
          ("byte_fallback that is text", model(byte_fallback="yes"),
           'DIR/tokenizer.json: model: byte_fallback is "yes", expected true or false'),
          ("an unknown token that is a number", model(unk_token=0),
           "DIR/tokenizer.json: model: unk_token is 0, expected a string"),
          ("a prefix that is a list", model(continuing_subword_prefix=[]),
           "DIR/tokenizer.json: model: continuing_subword_prefix is an array, expected a string"),
          command=TOKENIZE),
    *kind("normalizers",
          ("one nobody knows", tokenizer(normalizer={"type": "BertNormalizer"}),
           'DIR/tokenizer.json: normalizer: type "BertNormalizer" is not supported'),
          ("text", tokenizer(normalizer="NFC"), 'DIR/tokenizer.json: normalizer is "NFC", expected an object'),
          ("no type", tokenizer(normalizer={}), "DIR/tokenizer.json: normalizer: type is missing"),
          ("an option nobody knows", tokenizer(normalizer={"type": "NFC", "form": 1}),
           "DIR/tokenizer.json: normalizer.NFC: form is not supported"),
          ("a pattern that matches nothing at all",
           tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"}),
           "DIR/tokenizer.json: normalizer.Replace: a pattern that can match no character is not supported"),
          ("a literal of nothing", tokenizer(normalizer=replace("", "b")),
           "DIR/tokenizer.json: normalizer.Replace: a pattern that can match no character is not supported"),
          ("a sequence that is an object", tokenizer(normalizer={"type": "Sequence", "normalizers": {}}),
           "DIR/tokenizer.json: normalizer.Sequence: normalizers is an object, expected an array"),
          ("65 in a row", sequence("normalizer", *[{"type": "NFC"}] * 65),
           "DIR/tokenizer.json: normalizer.Sequence[64]: more than 64 normalizers"),
          ("one in a hundred others", deep("normalizer", 100),
           f"DIR/tokenizer.json: normalizer.Sequence[0].{ANY}.Sequence[0]: nested too deep"),
          ("stripping by text", tokenizer(normalizer={"type": "Strip", "strip_left": "yes", "strip_right": True}),
           'DIR/tokenizer.json: normalizer.Strip: strip_left is "yes", expected true or false'),
          command=TOKENIZE),
    *kind("pre-tokenizers",
          ("one nobody knows", tokenizer(pre_tokenizer={"type": "BertPreTokenizer"}),
           'DIR/tokenizer.json: pre_tokenizer: type "BertPreTokenizer" is not supported'),
          ("an option that is missing", tokenizer(pre_tokenizer={"type": "ByteLevel"}),
           "DIR/tokenizer.json: pre_tokenizer.ByteLevel: add_prefix_space is missing"),
          ("a behavior nobody knows", split("a", "Lost"),
           "DIR/tokenizer.json: pre_tokenizer.Split: behavior is Lost, expected Removed, Isolated, "
           "MergedWithPrevious, MergedWithNext or Contiguous"),
          ("a pattern that is text",
           tokenizer(pre_tokenizer={"type": "Split", "pattern": "a", "behavior": "Isolated", "invert": False}),
           'DIR/tokenizer.json: pre_tokenizer.Split: pattern is neither {"String": ...} nor {"Regex": ...}'),
          ("a pattern of two kinds",
           tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": "a", "String": "a"}, "behavior": "Isolated",
                                    "invert": False}),
           'DIR/tokenizer.json: pre_tokenizer.Split: pattern is neither {"String": ...} nor {"Regex": ...}'),
          ("a mark of two characters", tokenizer(pre_tokenizer={"type": "Metaspace", "replacement": "__"}),
           'DIR/tokenizer.json: pre_tokenizer.Metaspace: replacement is "__", expected a string of one character'),
          ("a scheme nobody knows",
           tokenizer(pre_tokenizer={"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}),
           "DIR/tokenizer.json: pre_tokenizer.Metaspace: prepend_scheme is last, expected always, first or "
           "never"),
          ("digits one by one, by text", tokenizer(pre_tokenizer={"type": "Digits", "individual_digits": 1}),
           "DIR/tokenizer.json: pre_tokenizer.Digits: individual_digits is 1, expected true or false"),
          ("65 in a row", sequence("pre_tokenizer", *[BYTE_LEVEL] * 65),
           "DIR/tokenizer.json: pre_tokenizer.Sequence[64]: more than 64 pre-tokenizers"),
          ("one in a hundred others", deep("pre_tokenizer", 100),
           f"DIR/tokenizer.json: pre_tokenizer.Sequence[0].{ANY}.Sequence[0]: nested too deep"),
          command=TOKENIZE),
    *kind("regular expressions",
          ("a group that is open", split("("),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 1: a group without ')'"),
          ("a class that is open", split("[a"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 2: a class without ']'"),
          ("a range the wrong way round", split("[z-a]"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 4: a range that runs "
           "backwards"),
          ("a reference back", split("(a)\\1"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 5: \\1 is not supported"),
          ("a hundred thousand groups", split("(" * 100_000 + ")" * 100_000),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 0: 200000 bytes are more "
           "than 16384"),
          ("a thousand groups", split("(?:" * 1000 + "a" + ")" * 1000),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 600: nested too deep"),
          ("a count of 2^31", split("a{2147483648}"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 13: repeated more than 65535"
           " times"),
          ("counts of counts", split("((((a{99}){99}){99}){99})"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression: regular expression is too large"),
          ("a property nobody knows", split("\\p{Nope}"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression at byte 7: \\p{Nope}: unknown "
           "property"),
          ("looking behind", split("(?<=a+)b"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression: lookbehind assertion is not fixed "
           "length"),
          command=TOKENIZE),
    *kind("regular expressions that do not end",
          ("repeats of repeats", split("(a+?)+?b|^c"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression: matching takes too long"),
          ("choices that mean the same", split("(?:a|a|aa)+?b|^c"),
           "DIR/tokenizer.json: pre_tokenizer.Split: regular expression: matching takes too long"),
          ("repeats of repeats in a normalizer",
           tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "(?:a+?)+?b|^c"}, "content": "x"}),
           "DIR/tokenizer.json: normalizer.Replace: regular expression: matching takes too long"),
          command=["tokenize", "-m", "DIR", "a" * 99 + "!b"]),
    *kind("decoders",
          ("one nobody knows", tokenizer(decoder={"type": "CTC"}),
           'DIR/tokenizer.json: decoder: type "CTC" is not supported'),
          ("a number", tokenizer(decoder=7), "DIR/tokenizer.json: decoder is 7, expected an object"),
          ("no type", tokenizer(decoder={}), "DIR/tokenizer.json: decoder: type is missing"),
          ("stripping less than nothing",
           tokenizer(decoder={"type": "Strip", "content": " ", "start": -1, "stop": 0}),
           "DIR/tokenizer.json: decoder.Strip: start is -1, expected an integer from 0 to 2147483647"),
          ("stripping 2^64", tokenizer(decoder={"type": "Strip", "content": " ", "start": 0, "stop": 2**64}),
           "DIR/tokenizer.json: decoder.Strip: stop is 18446744073709551616, expected an integer from 0 to "
           "2147483647"),
          ("65 in a row", sequence("decoder", *[FUSE] * 65),
           "DIR/tokenizer.json: decoder.Sequence[64]: more than 64 decoders"),
          ("one in a hundred others", deep("decoder", 100),
           f"DIR/tokenizer.json: decoder.Sequence[0].{ANY}.Sequence[0]: nested too deep"),
          ("replacing what is no expression",
           tokenizer(decoder={"type": "Replace", "pattern": {"Regex": "("}, "content": "a"}),
           "DIR/tokenizer.json: decoder.Replace: regular expression at byte 1: a group without ')'"),
          command=DECODE),
    *kind("post-processors",
          ("one nobody knows", tokenizer(post_processor={"type": "RobertaProcessing"}),
           'DIR/tokenizer.json: post_processor: type "RobertaProcessing" is not supported'),
          ("no template", tokenizer(post_processor={"type": "TemplateProcessing"}),
           "DIR/tokenizer.json: post_processor.TemplateProcessing: single is missing"),
          ("a token that is not there",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}],
                                     "special_tokens": {}}),
           'DIR/tokenizer.json: post_processor.TemplateProcessing: special token "<x>" is not in '
           "special_tokens"),
          ("an id of -1",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                                     "special_tokens": {"x": {"ids": [-1]}}}),
           'DIR/tokenizer.json: post_processor.TemplateProcessing: an id of "x" is -1, expected an integer from 0 to '
           "16777215"),
          ("a second text",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}),
           "DIR/tokenizer.json: post_processor.TemplateProcessing: single has a piece that is neither "
           "SpecialToken nor Sequence A"),
          ("257 pieces",
           tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 257}),
           "DIR/tokenizer.json: post_processor.TemplateProcessing: single has more than 256 pieces"),
          ("two templates",
           sequence("post_processor", *[{"type": "TemplateProcessing", "single": [], "special_tokens": {}}] * 2),
           "DIR/tokenizer.json: post_processor.Sequence[1].TemplateProcessing: a second TemplateProcessing "
           "is not supported"),
          ("one in a hundred others", deep("post_processor", 100),
           f"DIR/tokenizer.json: post_processor.Sequence[0].{ANY}.Sequence[0]: nested too deep"),
          command=TOKENIZE),
    *kind("added tokens",
          ("an object", tokenizer(added_tokens={}), "DIR/tokenizer.json: added_tokens is an object, expected an array"),
          ("an array", tokenizer(added_tokens=[[1]]),
           "DIR/tokenizer.json: added_tokens[0] is an array, expected an object"),
          ("no id", tokenizer(added_tokens=[{"content": "x"}]),
           "DIR/tokenizer.json: added_tokens[0]: id is missing"),
          ("an id of -1", added((-1, "x")),
           "DIR/tokenizer.json: added_tokens[3]: id is -1, expected an integer from 0 to 16777215"),
          ("an id of 2^24", added((2**24, "x")),
           "DIR/tokenizer.json: added_tokens[3]: id is 16777216, expected an integer from 0 to 16777215"),
          ("an id of 2^64", added((2**64, "x")),
           "DIR/tokenizer.json: added_tokens[3]: id is 18446744073709551616, expected an integer from 0 to "
           "16777215"),
          ("no options", tokenizer(added_tokens=[{"id": 3, "content": "x"}]),
           "DIR/tokenizer.json: added_tokens[0]: single_word is missing"),
          ("a content that is a number", tokenizer(added_tokens=[{"id": 3, "content": 3}]),
           "DIR/tokenizer.json: added_tokens[0]: content is 3, expected a string"),
          ("one that is nothing when it is normalized",
           both(tokenizer(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
                added((600, "  ", "normalized"))),
           'DIR/tokenizer.json: added_tokens: "  " is nothing when normalized'),
          ("one that grows when it is normalized",
           both(sequence("normalizer", *[replace("a", "aa")] * 40), added((600, "a", "normalized"))),
           "DIR/tokenizer.json: normalizer: makes more than 288 bytes of a text"),
          command=TOKENIZE),
    *kind("texts that a tokenizer lets grow",
          ("doubled 60 times", sequence("normalizer", *[replace("a", "aa")] * 60),
           "DIR/tokenizer.json: normalizer: makes more than 352 bytes of a text"),
          ("doubled 60 times by an expression",
           sequence("normalizer", *[{"type": "Replace", "pattern": {"Regex": "a"}, "content": "aa"}] * 60),
           "DIR/tokenizer.json: normalizer: makes more than 352 bytes of a text"),
          ("a megabyte for a letter, twice", sequence("normalizer", *[replace("a", "a" * 1_000_000)] * 2),
           "DIR/tokenizer.json: normalizer: makes more than 352 bytes of a text"),
          ("a megabyte in front", tokenizer(normalizer={"type": "Prepend", "prepend": "a" * 1_000_000}),
           "DIR/tokenizer.json: normalizer: makes more than 352 bytes of a text"),
          ("bytes of bytes of bytes", sequence("pre_tokenizer", *[BYTE_LEVEL] * 60),
           "DIR/tokenizer.json: pre_tokenizer: makes more than 512 bytes of a text"),
          command=TOKENIZE),
    *kind("answers that a tokenizer lets grow",
          ("doubled 60 times", sequence("decoder", *[replace("e", "ee")] * 60),
           "DIR/tokenizer.json: decoder: makes more than 512 bytes of a text"),
          ("doubled 60 times and gone", sequence("decoder", *[replace("e", "ee")] * 60, replace("e", "")),
           "DIR/tokenizer.json: decoder: makes more than 512 bytes of a text"),
          ("doubled 60 times behind a join", sequence("decoder", FUSE, *[replace("e", "ee")] * 60),
           "DIR/tokenizer.json: decoder: makes more than 512 bytes of a text"),
          ("doubled 60 times behind a join and gone",
           sequence("decoder", FUSE, *[replace("e", "ee")] * 60, replace("e", "")),
           "DIR/tokenizer.json: decoder: makes more than 512 bytes of a text"),
          ("a megabyte for a letter", sequence("decoder", *[replace("e", "e" * 1_000_000)] * 2),
           "DIR/tokenizer.json: decoder: makes more than 512 bytes of a text"),
          command=DECODE),
    *kind("ids outside of the vocabulary",
          ("an added token", added((512, "Hi")),
           "the prompt: token 1 has id 512, expected one below 512, the model's vocabulary: is this the "
           "model's own tokenizer?"),
          ("an added token far away", added((2**24 - 1, "Hi")),
           "the prompt: token 1 has id 512, expected one below 512, the model's vocabulary: is this the "
           "model's own tokenizer?"),
          ("a token of the vocabulary",
           members(NAME, lambda tree: tree["model"]["vocab"].update({"\u2581H": 5000})),
           "the prompt: token 1 has id 5000, expected one below 512, the model's vocabulary: is this the "
           "model's own tokenizer?"),
          ("the beginning",
           members(NAME, lambda tree: tree["post_processor"]["special_tokens"]["<s>"].update(ids=[99999])),
           "the prompt: token 0 has id 99999, expected one below 512, the model's vocabulary: is this the "
           "model's own tokenizer?"),
          command=ANSWER + ["--raw", "--parse-special"]),
    *kind("a config of a tokenizer",
          ("nothing", put("tokenizer_config.json", b""), "DIR/tokenizer_config.json: empty, expected JSON"),
          ("a list", put("tokenizer_config.json", "[]"), "DIR/tokenizer_config.json: its JSON is an array, expected "
                                                         "an object"),
          ("cut", put("tokenizer_config.json", '{"chat_template": "{{ mess'),
           "DIR/tokenizer_config.json:1:19: the string that begins here does not end"),
          ("a million brackets", put("tokenizer_config.json", '{"a": ' + nested(500_000) + "}"),
           "DIR/tokenizer_config.json:1:518: nested deeper than 512"),
          ("a directory", became("tokenizer_config.json", "directory"),
           "DIR/tokenizer_config.json is a directory, expected a regular file"),
          ("a fifo", became("tokenizer_config.json", "fifo"),
           "DIR/tokenizer_config.json is a fifo, expected a regular file"),
          ("a link to itself", became("tokenizer_config.json", "loop"),
           "DIR/tokenizer_config.json: cannot open: Too many levels of symbolic links"),
          ("special tokens that are a list", put("special_tokens_map.json", "[]"),
           "DIR/special_tokens_map.json: its JSON is an array, expected an object"),
          ("special tokens that are a fifo", became("special_tokens_map.json", "fifo"),
           "DIR/special_tokens_map.json is a fifo, expected a regular file"),
          ("a template's file that is text", put("chat_template.json", '"{{ messages }}"'),
           'DIR/chat_template.json: its JSON is "{{ messages }}", expected an object'),
          command=ANSWER),
    *kind("a template in a config",
          ("a number", put("tokenizer_config.json", {"chat_template": 5}),
           "tokenizer_config.json: chat_template is 5, expected a string or an array"),
          ("a named one that is an array",
           put("tokenizer_config.json", {"chat_template": [{"name": "default", "template": [1]}]}),
           'tokenizer_config.json: template "default" of chat_template is an array, expected a string'),
          command=ANSWER),
    *kind("in place of a template",
          ("a directory", became("chat_template.jinja", "directory"),
           "DIR/chat_template.jinja is a directory, expected a regular file"),
          ("a link to itself", became("chat_template.jinja", "loop"),
           "DIR/chat_template.jinja: cannot open: Too many levels of symbolic links"),
          ("a device", became("chat_template.jinja", "/dev/zero"),
           "DIR/chat_template.jinja is a device, expected a regular file"),
          ("a gigabyte", sparse("chat_template.jinja", 2**30, b"{{ x }}"),
           "chat_template.jinja: has 1073741824 bytes, expected at most 1048576"),
          ("a megabyte and a byte", template("a" * (2**20 + 1)),
           "chat_template.jinja: has 1048577 bytes, expected at most 1048576"),
          ("a megabyte and a byte in a config", put("tokenizer_config.json", {"chat_template": "a" * (2**20 + 1)}),
           "tokenizer_config.json: has 1048577 bytes, expected at most 1048576"),
          ("bytes that are no UTF-8", put("chat_template.jinja", b"{{ x }}\xff"),
           "chat_template.jinja: is not valid UTF-8: byte 0xff at offset 7"),
          ("a fifo", became("chat_template.jinja", "fifo"),
           "DIR/chat_template.jinja is a fifo, expected a regular file"),
          command=ANSWER),
    *kind("the text of a template",
          ("a tag that is open", template("{% if x"),
           "chat_template.jinja: line 1: the template ends, expected %}"),
          ("a block that is open", template("{% for m in messages %}"),
           "chat_template.jinja: line 1: the template ends, expected {% endfor %}"),
          ("an end of nothing", template("{% endif %}"),
           "chat_template.jinja: line 1: the tag {% endif %} is not supported here"),
          ("a tag nobody knows", template("{% include 'a' %}"),
           "chat_template.jinja: line 1: the tag {% include %} is not supported here"),
          ("a filter nobody knows", template("{{ messages | nosuch }}"),
           'chat_template.jinja: line 1: there is no filter "nosuch"'),
          ("a string that is open", template("{{ 'a }}"),
           "chat_template.jinja: line 1: a string has no end"),
          ("a hundred thousand brackets", template("{{ " + "(" * 100_000 + ")" * 100_000 + " }}"),
           "chat_template.jinja: line 1: brackets are nested too deep"),
          ("a hundred thousand blocks", template("{% if 1 %}" * 100_000),
           "chat_template.jinja: line 1: expressions are nested too deep"),
          ("a hundred thousand minuses", template("{{ " + "-" * 100_000 + "1 }}"),
           "chat_template.jinja: line 1: expressions are nested too deep"),
          ("a hundred thousand filters", template("{{ x" + "|e" * 100_000 + " }}"),
           "chat_template.jinja: line 1: expressions are nested too deep"),
          command=ANSWER),
    *kind("templates that do not end",
          ("loops in loops", template(FOREVER),
           "chat_template.jinja: line 1: {% for j in range(100000) %}: takes more than 10000000 steps"),
          ("a macro of itself", template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
           "chat_template.jinja: line 1: f(): evaluation is nested too deep"),
          ("a text that doubles",
           template("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
           "chat_template.jinja: line 1: n.s ~ n.s: a text would have more than 64 MB"),
          ("a text times 10^10", template("{{ 'x' * 9999999999 }}"),
           "chat_template.jinja: line 1: 'x' * 9999999999: a text would have more than 64 MB"),
          ("a list times 10^10", template("{{ [1] * 9999999999 }}"),
           "chat_template.jinja: line 1: [1] * 9999999999: a list would have more than 33554432 elements"),
          ("a range of 10^12", template("{% for i in range(999999999999) %}{% endfor %}"),
           "chat_template.jinja: line 1: range(999999999999): Range too big. The sandbox blocks ranges "
           "larger than MAX_RANGE (100000)."),
          ("a thing in itself", template("{% set n = namespace() %}{% set n.a = [n] %}{{ n }}"),
           "chat_template.jinja: line 1: n: values are nested too deep to print"),
          ("a billion blanks", template("{{ '%999999999s' % 1 }}"),
           "chat_template.jinja: line 1: '%999999999s' % 1: a text would have more than 64 MB"),
          ("a loop of itself", template("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"),
           "chat_template.jinja: line 1: [1]: evaluation is nested too deep"),
          ("a search that starts over", template("{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}"),
           "chat_template.jinja: line 1: ('a' * 1000000).rfind('b' ~ 'a' * 500000): takes more than 10000000"
           " steps"),
          command=ANSWER),
    *kind("the header of a packed file",
          ("another version", header(4, value=4), "DIR/m.ak48: version is 4, expected 5"),
          ("no width", header(8), "DIR/m.ak48: dim is 0, expected 1 to 1048576"),
          ("a width of -1", header(12, value=-1), "DIR/m.ak48: hidden_dim is -1, expected 1 to 4194304"),
          ("2^30 layers", header(16, value=2**30), "DIR/m.ak48: n_layers is 1073741824, expected 1 to 4096"),
          ("2^31 - 1 heads", header(20, value=2**31 - 1),
           "DIR/m.ak48: n_heads is 2147483647, expected 1 to 16384"),
          ("heads that do not divide", header(24, value=3),
           "DIR/m.ak48: n_heads is 4, expected a multiple of n_kv_heads, 3"),
          ("-2^31 tokens", header(28, value=-2**31),
           "DIR/m.ak48: vocab_size is -2147483648, expected 1 to 8388608"),
          ("heads of an odd size", header(37, value=13),
           "DIR/m.ak48: head_dim is 13, expected an even number up to 512"),
          ("groups of 0", header(41), "DIR/m.ak48: group_size is 0, expected 1 to 4194304"),
          ("something in what is reserved", header(252, value=1),
           "DIR/m.ak48: byte 252 of the header is 1, expected 0"),
          command=PACKED),
    *kind("a packed file",
          ("nothing", put("m.ak48", b""),
           "DIR/m.ak48 is no packed file: it begins with nothing, expected 0x616b3438 (ak48)"),
          ("its first bytes", put("m.ak48", b"84ka"),
           "DIR/m.ak48: truncated: 4 bytes, expected at least the header's 256"),
          ("a header alone", header(size=256),
           "DIR/m.ak48: 256 bytes, expected 8080 (with q and k norms) or 8048 (without): truncated"),
          ("a terabyte of nothing", sparse("m.ak48", 2**40),
           "DIR/m.ak48 is no packed file: it begins with 0x00000000, expected 0x616b3438 (ak48)"),
          ("a header and a terabyte",
           both(header(), lambda folder: os.truncate(folder / "m.ak48", 2**40)),
           "DIR/m.ak48: 1099511627776 bytes, expected 8080 (with q and k norms) or 8048 (without): too long "
           "or truncated"),
          ("GGUF", put("m.ak48", b"GGUF\x03\0\0\0"),
           "DIR/m.ak48 is a GGUF file, which auk does not read; take the Hugging Face checkpoint, such as: auk "
           "get OWNER/NAME"),
          ("a pickle", put("m.ak48", b"PK\x03\x04" + bytes(1000)),
           "DIR/m.ak48 is no packed file: it begins with 0x04034b50, expected 0x616b3438 (ak48) (a PyTorch "
           "or zip file)"),
          ("JSON", put("m.ak48", "{}"),
           "DIR/m.ak48 is no packed file: it begins with nothing, expected 0x616b3438 (ak48) (a JSON file? "
           "give the directory that it lies in)"),
          ("a fifo", became("m.ak48", "fifo"), "DIR/m.ak48 is a fifo, expected a regular file"),
          ("a link to itself", became("m.ak48", "loop"),
           "DIR/m.ak48: cannot open: Too many levels of symbolic links"),
          command=PACKED),
    *kind("ids of a text",
          ("a word", put("ids", "1 2 three"),
           'DIR/ids: token 2, at byte 4, is "three", expected an id (a number)'),
          ("below 0", put("ids", "1 -2"), 'DIR/ids: token 1, at byte 2, is "-2", expected an id (a number)'),
          ("2^31", put("ids", "2147483648"),
           'DIR/ids: token 0, at byte 0, is "2147483648", expected an id (a number)'),
          ("2^64", put("ids", "18446744073709551616"),
           'DIR/ids: token 0, at byte 0, is "1844674407370955", expected an id (a number)'),
          ("the vocabulary's end", put("ids", "1 511 512"),
           "DIR/ids: token 2 has id 512, expected one below 512, the model's vocabulary"),
          ("half a number", put("ids", "1.5"),
           'DIR/ids: token 0, at byte 0, is "1.5", expected an id (a number)'),
          ("nothing", put("ids", ""), "DIR/ids: no tokens"),
          ("a NUL", put("ids", b"1 2 \0"), 'DIR/ids: token 2, at byte 4, is "", expected an id (a number)'),
          command=["eval", "-m", "DIR", "--ids-file", "DIR/ids"], status=USAGE),
]


@pytest.mark.parametrize("command, status, damage, message", CASES)
def test_it_is_refused(auk, stories, tmp_path, command, status, damage, message):
    check(auk, stories, tmp_path / "model", command, status, damage, message)


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
