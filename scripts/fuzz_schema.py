#!/usr/bin/env python3
"""Random JSON Schemas with random texts: what `auk schema` accepts is compared with Python's package jsonschema.

    python3 scripts/fuzz_schema.py --tokenizer test/data/stories260K-f32/tokenizer.json --schemas 20000 --seed 1

Prints each disagreement as a line of JSON, then counts, among them those of refused schemas by reason; exit status 1
if there was a disagreement. The texts of a schema that is refused because no text satisfies it must all be
invalid. Half of the schemas are 2020-12, the others of earlier drafts. Formats are left out: what they mean differs
between versions of the package."""
import argparse
import collections
import json
import random
import re
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


def key_schemas(r, depth):
    return {k: schema(r, depth + 1) for k in r.sample(KEYS, r.randrange(1, 4))}


def dependency(r, depth):
    return {r.choice(KEYS): r.choice([r.sample(KEYS, 1), schema(r, depth + 1)])}


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
    "properties": key_schemas,
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


# Keywords of earlier drafts: those of 2020-12 without some, with others.
SINCE_6 = {"const", "contains", "propertyNames"}
SINCE_7 = {"if", "then", "else"}
SINCE_2019 = {"minContains", "maxContains", "dependentRequired", "dependentSchemas", "unevaluatedItems",
              "unevaluatedProperties"}
EARLIER = {"items": lambda r, d: schemas(r, d) if r.random() < 0.5 else schema(r, d + 1), "additionalItems": one_schema}
BEFORE_2019 = {**EARLIER, "dependencies": dependency}


def keywords_but(absent, others):
    return {**{name: make for name, make in KEYWORDS.items() if name not in absent | {"prefixItems"}}, **others}


DRAFTS = {
    "https://json-schema.org/draft/2020-12/schema": KEYWORDS,
    # There the package takes items for evaluated that `contains` accepts, but not members that additionalProperties
    # accepts.
    "https://json-schema.org/draft/2019-09/schema": keywords_but({"unevaluatedItems", "unevaluatedProperties"},
                                                                 EARLIER),
    "http://json-schema.org/draft-07/schema#": keywords_but(SINCE_2019, BEFORE_2019),
    "http://json-schema.org/draft-06/schema#": keywords_but(SINCE_2019 | SINCE_7, BEFORE_2019),
    "http://json-schema.org/draft-04/schema#": keywords_but(
        SINCE_2019 | SINCE_7 | SINCE_6, {**BEFORE_2019, "exclusiveMaximum": lambda r, d: r.random() < 0.5}),
}
used = {"draft": KEYWORDS}  # those of the schema that is being made


def boolean(r, value):
    """A boolean schema, which draft 4 has not."""
    return value if "const" in used["draft"] else {} if value else {"not": {}}


def schema(r, depth=0):
    if depth > 3 or (depth and r.random() < 0.06):
        return r.choice([boolean(r, True), boolean(r, True), boolean(r, False), {}, {"type": r.choice(TYPES)}])
    keywords = used["draft"]
    names = r.sample(sorted(keywords), r.randrange(1, 5 if depth < 2 else 3))
    made = {name: keywords[name](r, depth) for name in names}
    if "const" not in keywords and "exclusiveMaximum" in made:
        made["maximum"] = r.choice(NUMBERS)
    if isinstance(made.get("items"), bool):
        made.pop("additionalItems", None)  # the package fails there
    return made


def whole_schema(r):
    draft = r.choice(sorted(DRAFTS)) if r.random() < 0.5 else None
    used["draft"] = DRAFTS[draft] if draft else KEYWORDS
    made = schema(r)
    if r.random() < 0.2:
        made["$defs"] = {"x": schema(r, 1)}
        made.setdefault("anyOf", []).append({"$ref": "#/$defs/x"})
    return {"$schema": draft, **made} if draft else made


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
    n_pairs = n_wrong = n_valid = 0
    refused = collections.Counter()
    for start in range(0, args.schemas, 1000):
        r = random.Random(args.seed * 1000003 + start)
        lines = [{"name": str(start + i), "schema": whole_schema(r), "tests": texts(r, args.texts)}
                 for i in range(1000)]
        source = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
        for line, answer in zip(lines, map(json.loads, done.stdout.splitlines())):
            judged = answer.get("accepted")
            if not answer["compiled"]:
                refused[re.sub(r"^schema: |#\S*/", "", answer["error"])] += 1
                if "no text satisfies" not in answer["error"]:
                    continue
                judged = [False] * len(line["tests"])
            draft = jsonschema.validators.validator_for(line["schema"], jsonschema.Draft202012Validator)
            validator = draft(line["schema"])
            for text, accepted in zip(line["tests"], judged):
                valid = expected(validator, text)
                n_pairs += 1
                n_valid += valid
                if accepted != valid:
                    n_wrong += 1
                    print(json.dumps({"schema": line["schema"], "text": text, "jsonschema": valid}))
    print(f"{n_pairs} pairs, {n_valid} valid, {n_wrong} disagreements; {sum(refused.values())} of {args.schemas} "
          "schemas refused")
    for reason, n in refused.most_common():
        print(f"  {n} refused: {reason}")
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
