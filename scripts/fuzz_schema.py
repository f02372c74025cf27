#!/usr/bin/env python3
"""Random JSON Schemas with random texts: what `auk schema` accepts is compared with Python's package jsonschema.

    python3 scripts/fuzz_schema.py --tokenizer test/data/stories260K-f32/tokenizer.json --schemas 20000 --seed 1

Prints each disagreement as a line of JSON, then counts; exit status 1 if there was one. A refused schema counts as
such. Formats are left out: what they mean differs between versions of the package."""
import argparse
import json
import random
import subprocess
import sys

import jsonschema

KEYS = ["a", "b", "ab", "c d", "\u00e9", ""]
STRINGS = ["", "a", "ab", "abc", "b", "ba", "x-1", "12", "a\nb", "\u00e9", "\U0001f600z", 'q"\\', "aaaaaaaaaaaaab"]
PATTERNS = ["^a", "b$", "^[a-c]*$", "a|x", "^.{2,3}$", "[0-9]+", "^(ab?)+$", "^(?!a)", "^x-\\d{1,2}$"]
PATTERNS.append("(a{1,70}b){1,80}$")
NUMBERS = [0, 1, -1, 2, 3, 7, 10, 99, 1.5, -0.5, 1.0, 12.25, 1e3, 100]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def value(r, depth=0):
    kind = r.randrange(5 if depth > 2 else 8)
    if kind == 0:
        return r.choice([None, True, False])
    if kind in (1, 2):
        return r.choice(NUMBERS)
    if kind in (3, 4):
        return r.choice(STRINGS)
    if kind == 5:
        return [value(r, depth + 1) for _ in range(r.randrange(4))]
    return {r.choice(KEYS): value(r, depth + 1) for _ in range(r.randrange(4))}


def schemas(r, depth, most=3):
    return [schema(r, depth + 1) for _ in range(r.randrange(1, most + 1))]


def one_schema(r, depth):
    return schema(r, depth + 1)


KEYWORDS = {
    "type": lambda r, d: r.choice([r.choice(TYPES), r.sample(TYPES, 2)]),
    "enum": lambda r, d: [value(r, 1) for _ in range(r.randrange(1, 4))],
    "const": lambda r, d: value(r, 1),
    "minimum": lambda r, d: r.choice(NUMBERS),
    "exclusiveMaximum": lambda r, d: r.choice(NUMBERS),
    "multipleOf": lambda r, d: r.choice([1, 2, 3, 7, 0.5, 0.25]),
    "minLength": lambda r, d: r.randrange(4),
    "maxLength": lambda r, d: r.randrange(5),
    "pattern": lambda r, d: r.choice(PATTERNS),
    "items": one_schema,
    "prefixItems": schemas,
    "contains": one_schema,
    "minContains": lambda r, d: r.randrange(3),
    "maxContains": lambda r, d: r.randrange(3),
    "minItems": lambda r, d: r.randrange(3),
    "maxItems": lambda r, d: r.randrange(4),
    "uniqueItems": lambda r, d: True,
    "properties": lambda r, d: {k: schema(r, d + 1) for k in r.sample(KEYS, r.randrange(1, 4))},
    "patternProperties": lambda r, d: {r.choice(PATTERNS): schema(r, d + 1)},
    "additionalProperties": one_schema,
    "propertyNames": one_schema,
    "required": lambda r, d: r.sample(KEYS, r.randrange(1, 3)),
    "minProperties": lambda r, d: r.randrange(3),
    "maxProperties": lambda r, d: r.randrange(4),
    "dependentRequired": lambda r, d: {r.choice(KEYS): r.sample(KEYS, 1)},
    "dependentSchemas": lambda r, d: {r.choice(KEYS): schema(r, d + 1)},
    "allOf": schemas,
    "anyOf": schemas,
    "oneOf": schemas,
    "not": one_schema,
    "if": one_schema,
    "then": one_schema,
    "else": one_schema,
    "unevaluatedItems": lambda r, d: False,
    "unevaluatedProperties": lambda r, d: False,
}


def schema(r, depth=0):
    if depth > 3 or r.random() < 0.06:
        return r.choice([True, True, False, {}, {"type": r.choice(TYPES)}])
    names = r.sample(sorted(KEYWORDS), r.randrange(1, 5 if depth < 2 else 3))
    made = {name: KEYWORDS[name](r, depth) for name in names}
    if depth == 0 and r.random() < 0.2:
        made["$defs"] = {"x": schema(r, 1)}
        made.setdefault("anyOf", []).append({"$ref": "#/$defs/x"})
    return made


def texts(r, n):
    return [json.dumps(value(r), ensure_ascii=r.random() < 0.3) for _ in range(n)]


def expected(validator, text):
    return validator.is_valid(json.loads(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--auk", default="build/auk")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--schemas", type=int, default=10000)
    parser.add_argument("--texts", type=int, default=10, help="for each schema")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    command = [args.auk, "schema", "--jsonl", "--ignore-formats", "-m", args.tokenizer]
    n_pairs = n_refused = n_wrong = n_valid = 0
    for start in range(0, args.schemas, 1000):
        r = random.Random(args.seed * 1000003 + start)
        lines = [{"name": str(start + i), "schema": schema(r), "tests": texts(r, args.texts)} for i in range(1000)]
        source = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
        for line, answer in zip(lines, map(json.loads, done.stdout.splitlines())):
            if not answer["compiled"]:
                n_refused += 1
                continue
            validator = jsonschema.Draft202012Validator(line["schema"])
            for text, accepted in zip(line["tests"], answer["accepted"]):
                valid = expected(validator, text)
                n_pairs += 1
                n_valid += valid
                if accepted != valid:
                    n_wrong += 1
                    print(json.dumps({"schema": line["schema"], "text": text, "jsonschema": valid}))
    print(f"{n_pairs} pairs, {n_valid} valid, {n_wrong} disagreements; {n_refused} of {args.schemas} schemas refused")
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
