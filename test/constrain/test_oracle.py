"""Random schemas and texts near them: `auk schema` accepts the texts that Python's package jsonschema takes for valid,
says why exactly where it refuses, and refuses no schema but those of the list.

The verdicts in test/data/schemas/verdicts.txt are those of the package, which the tests do not need: see there. The
tokenizer is the tiny model's (512 tokens, byte fallback). Texts without a verdict are compared with texts that have
one: the same members in another order, and keywords that are let go with keywords that say the same."""
import itertools
import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def random_schemas(root):
    sys.path.insert(0, str(root / "scripts"))
    import random_schemas
    sys.path.pop(0)
    return random_schemas


@pytest.fixture(scope="module")
def cases(root, random_schemas):
    """(line of verdicts.txt, schema, texts, verdicts, why the schema is refused) for each schema."""
    rows = (root / "test" / "data" / "schemas" / "verdicts.txt").read_text(encoding="utf-8").splitlines()
    made = []
    for row in rows:
        if row.startswith("#"):
            continue
        number, checksum, marks, why = (row.split(" ", 3) + [""])[:4]
        schema, texts = random_schemas.numbered(int(number))
        assert random_schemas.checksum(schema, texts) == checksum, "scripts/fuzz_schema.py --verdicts, for review"
        asked = [(text, mark == "1") for text, mark in zip(texts, marks, strict=True) if mark != "-"]
        made.append((row, schema, [text for text, _ in asked], [valid for _, valid in asked], why))
    return made


def answers_of(auk, root, cases, *flags):
    """The answers for (schema, texts) in each case from its second part on."""
    tokenizer = root / "test" / "data" / "stories260K-awq" / "tokenizer.json"
    text = "".join(json.dumps({"schema": case[1], "tests": case[2]}) + "\n" for case in cases)
    done = subprocess.run([*auk, "schema", "-m", tokenizer, "--jsonl", *flags], input=text.encode(),
                          capture_output=True, timeout=300)
    assert done.stderr == b"" and done.returncode == 0
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_verdicts_and_reasons_are_those_of_jsonschema(auk, root, cases):
    n_valid = n_texts = 0
    for case, answer in zip(cases, answers_of(auk, root, cases), strict=True):
        row, schema, texts, valid, why = case
        assert (answer["error"] or "") == why, (row, schema)
        if not answer["compiled"]:
            assert "no text satisfies" not in why or not any(valid), (row, schema)
            continue
        n_texts += len(texts)
        n_valid += sum(valid)
        for text, accepted, fits, reasons in zip(texts, answer["accepted"], valid, answer["reasons"], strict=True):
            assert accepted == fits, (row, schema, text, reasons)
            assert bool(reasons) != fits, (row, schema, text, reasons)
    assert 0.3 < n_valid / n_texts < 0.7


# --- members in each order


def orders(value):
    """The value with the members of its objects in each order."""
    if isinstance(value, list):
        for items in itertools.product(*(list(orders(item)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for members in itertools.permutations(value.items()):
            for values in itertools.product(*(list(orders(item)) for _, item in members)):
                yield dict(zip((key for key, _ in members), values, strict=True))
    else:
        yield value


def order_of(schema, known):
    """The keys that a schema and its subschemas of the same value name, first ones first."""
    if not isinstance(schema, dict):
        return []
    rules = {name: rule for name, rule in schema.items() if name in known}
    parts = [*rules.get("allOf", []), *rules.get("anyOf", []), *rules.get("oneOf", [])]
    found = [list(rules.get("properties", {}))] + [order_of(part, known) for part in parts]
    found += [list(value) for value in [*rules.get("enum", []), rules.get("const")] if isinstance(value, dict)]
    found += [order_of(rules[name], known) for name in ("if", "then", "else") if name in rules]
    found += [order_of(rule, known) for name in ("dependencies", "dependentSchemas") for rule in
              rules.get(name, {}).values()]
    return list(dict.fromkeys(key for keys in found for key in keys))


def is_in_order(keys, order):
    ranks = [order.index(key) if key in order else len(order) for key in keys]
    return ranks == sorted(ranks)


def ordered_cases(cases, most=60):
    """(line, schema, texts) of each valid value with its members in each order."""
    made = []
    for row, schema, texts, valid, why in cases:
        if why:
            continue
        for text in [text for text, fits in zip(texts, valid, strict=True) if fits]:
            found = [json.dumps(value, separators=(",", ":")) for value in
                     itertools.islice(orders(json.loads(text)), most + 1)]
            if 1 < len(found) <= most:
                made.append((row, schema, found))
    return made


def test_the_order_of_members_is_that_of_the_schema_or_any(auk, root, cases, random_schemas):
    """Any value can be written in the order of the schema, and the members of the whole value in that order alone."""
    known = {**random_schemas.DRAFTS, None: random_schemas.KEYWORDS}
    made = ordered_cases(cases)
    n_judged = 0
    for case, free, ordered in zip(made, answers_of(auk, root, made), answers_of(auk, root, made, "--key-order",
                                                                                 "schema"), strict=True):
        row, schema, texts = case
        assert all(free["accepted"]), (row, schema, texts)
        assert any(ordered["accepted"]), (row, schema, texts)
        if not isinstance(json.loads(texts[0]), dict) or any(word in json.dumps(schema) for word in ("Ref", "$ref",
                                                                                                     "unevaluated")):
            continue
        order = order_of(schema, known[schema.get("$schema")])
        taken = {tuple(json.loads(text)): False for text in texts}
        for text, accepted in zip(texts, ordered["accepted"], strict=True):
            taken[tuple(json.loads(text))] |= accepted
        assert taken == {keys: is_in_order(keys, order) for keys in taken}, (row, schema, order)
        n_judged += len(taken)
    assert n_judged > 500


def test_an_order_allows_nothing_more(auk, root, cases):
    for case, answer in zip(cases, answers_of(auk, root, cases, "--key-order", "schema"), strict=True):
        row, schema, texts, valid, _ = case
        if answer["compiled"]:
            assert not [text for text, taken, fits in zip(texts, answer["accepted"], valid, strict=True)
                        if taken and not fits], (row, schema)


# --- keywords that are let go

LISTS = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
MAPS = {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
SINGLE = {"additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else",
          "unevaluatedItems", "unevaluatedProperties", "items"}


def with_rule(schema, rule, r, percent):
    """The schema with one more rule in some of its subschemas."""
    if not isinstance(schema, dict):
        return schema
    made = {}
    for name, value in schema.items():
        if name in LISTS and isinstance(value, list):
            value = [with_rule(part, rule, r, percent) for part in value]
        elif name in MAPS and isinstance(value, dict):
            value = {key: with_rule(part, rule, r, percent) for key, part in value.items()}
        elif name in SINGLE:
            value = with_rule(value, rule, r, percent)
        made[name] = value
    if r.chance(percent):
        made["allOf"] = [*made.get("allOf", []), rule]
    return made


def test_what_is_let_go_allows_only_more(auk, root, cases, random_schemas):
    """A pattern that matches nothing, and that is let go, is compared with the rule that no string fits."""
    never, no_string = {"pattern": "\\b\\B"}, {"not": {"type": "string"}}
    strict, loose = [], []
    for number, (row, schema, texts, valid, _) in enumerate(cases):
        for made, rule in ((strict, no_string), (loose, never)):
            made.append((row, with_rule(schema, rule, random_schemas.Draws(number), 30), texts, valid))
    n_let_go = n_alone = 0
    for case, exact, answer in zip(loose, answers_of(auk, root, strict), answers_of(auk, root, loose,
                                                                                   "--schema-lenient"), strict=True):
        row, schema, texts, valid = case
        if not answer["compiled"]:
            assert not any(exact.get("accepted", [])), (row, schema)
            continue
        for text, taken, fits in zip(texts, answer["accepted"], exact.get("accepted", []), strict=False):
            assert taken or not fits, (row, schema, text, answer["let_go"])
        let_go = answer.get("let_go", [])
        n_let_go += bool(let_go)
        if let_go and all("word boundaries" in why for why in let_go): # then nothing else was
            assert answer["accepted"] == valid, (row, schema, let_go)
            n_alone += 1
    assert n_let_go > 200 and n_alone > 50


def test_leniency_changes_nothing_that_can_be_enforced(auk, root, cases):
    for case, answer in zip(cases, answers_of(auk, root, cases, "--schema-lenient"), strict=True):
        row, schema, texts, valid, why = case
        if answer["compiled"] and not answer.get("let_go"):
            assert answer["accepted"] == valid, (row, schema)
        elif answer["compiled"]:
            assert why and not [text for text, taken, fits in zip(texts, answer["accepted"], valid, strict=True)
                                if fits and not taken], (row, schema)
        else:
            assert answer["error"] == why, (row, schema)
