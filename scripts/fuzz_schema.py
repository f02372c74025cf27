#!/usr/bin/env python3
"""Random JSON Schemas with random texts: what `auk schema` accepts is compared with Python's package jsonschema.

    python3 scripts/fuzz_schema.py --tokenizer test/data/stories260K-f32/tokenizer.json --schemas 20000 --seed 1
    python3 scripts/fuzz_schema.py --tokenizer ... --verdicts test/data/schemas/verdicts.txt

Prints each disagreement as a line of JSON, then counts, among them those of refused schemas by reason; exit status 1
if there was a disagreement. The texts of a schema that is refused because no text satisfies it must all be
invalid. A text has reasons exactly if it is invalid. Half of the schemas are 2020-12, the others of earlier drafts.
Formats are left out: what they mean differs between versions of the package. --near takes keywords that say something
together, and texts near the schema. --verdicts writes what the package says of such schemas, for
test/constrain/test_oracle.py."""
import argparse
import collections
import importlib.metadata
import json
import re
import subprocess
import sys

import jsonschema
import random_schemas
from random_schemas import Draws

N_VERDICTS = 400
N_TEXTS = 6  # of each verdict, for a schema
HEAD = """\
# Verdicts of Python's package jsonschema {version} about the texts of scripts/random_schemas.py, and what auk refuses.
# Written by scripts/fuzz_schema.py --verdicts, read by test/constrain/test_oracle.py.
# number of the schema, checksum, for each of its texts 1: valid, 0: invalid, -: not asked; why auk refuses the schema
"""


def validator_of(schema):
    return jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)


def verdicts(schema, texts):
    """None where the package fails."""
    validator = validator_of(schema)
    try:
        return [validator.is_valid(json.loads(text)) for text in texts]
    except (jsonschema.exceptions._WrappedReferencingError, RecursionError, TypeError):
        return None


def answers_of(args, lines):
    command = [args.auk, "schema", "--jsonl", "--ignore-formats", "-m", args.tokenizer]
    done = subprocess.run(command, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True,
                          text=True, check=True)
    return map(json.loads, done.stdout.splitlines())


def chosen(found):
    """One character for each text: up to N_TEXTS of each verdict are asked, and more where the other has fewer."""
    rest = {True: 2 * N_TEXTS - min(N_TEXTS, found.count(False)), False: 2 * N_TEXTS - min(N_TEXTS, found.count(True))}
    marks = ""
    for valid in found:
        marks += "-" if rest[valid] == 0 else "1" if valid else "0"
        rest[valid] -= rest[valid] > 0
    return marks


def write_verdicts(args):
    rows, number, n_poor = [], 0, 0
    while len(rows) < N_VERDICTS:
        schema, texts = random_schemas.numbered(number)
        found = verdicts(schema, texts)
        is_poor = found is not None and min(found.count(True), found.count(False)) < 4
        n_poor += is_poor
        if found is not None and (not is_poor or n_poor % 10 == 0):
            rows.append((number, schema, texts, chosen(found)))
        number += 1
    lines = [{"schema": schema, "tests": texts[:1]} for _, schema, texts, _ in rows]
    with open(args.verdicts, "w", encoding="utf-8") as file:
        file.write(HEAD.format(version=importlib.metadata.version("jsonschema")))
        for (number, schema, texts, marks), answer in zip(rows, answers_of(args, lines), strict=True):
            why = "" if answer["compiled"] else " " + answer["error"]
            file.write(f"{number} {random_schemas.checksum(schema, texts)} {marks}{why}\n")
    asked = "".join(row[3] for row in rows)
    print(f"{N_VERDICTS} of {number} schemas, {asked.count('0') + asked.count('1')} texts, {asked.count('1')} valid")


def some_schemas(args, start, n):
    if args.near:
        numbered = [random_schemas.numbered(args.seed * 1000003 + start + i) for i in range(n)]
    else:
        r = Draws(args.seed * 1000003 + start)
        numbered = [(random_schemas.whole_schema(r), random_schemas.texts(r, args.texts)) for _ in range(n)]
    return [{"name": str(start + i), "schema": schema, "tests": texts} for i, (schema, texts) in enumerate(numbered)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--auk", default="build/auk")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--schemas", type=int, default=10000)
    parser.add_argument("--texts", type=int, default=10, help="for each schema (without --near)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="keywords that belong together, texts near the schema")
    parser.add_argument("--verdicts", metavar="FILE", help="write the package's verdicts, and compare nothing")
    args = parser.parse_args()
    if args.verdicts:
        return write_verdicts(args)
    n_pairs = n_wrong = n_valid = n_failed = 0
    refused = collections.Counter()
    for start in range(0, args.schemas, 1000):
        lines = some_schemas(args, start, min(1000, args.schemas - start))
        for line, answer in zip(lines, answers_of(args, lines), strict=True):
            judged, reasons = answer.get("accepted"), answer.get("reasons")
            if not answer["compiled"]:
                refused[re.sub(r"^schema: |#\S*/", "", answer["error"])] += 1
                if "no text satisfies" not in answer["error"]:
                    continue
                judged, reasons = [False] * len(line["tests"]), [["refused"]] * len(line["tests"])
            expected = verdicts(line["schema"], line["tests"])
            n_failed += expected is None
            for text, accepted, why, valid in zip(line["tests"], judged, reasons, expected or []):
                n_pairs += 1
                n_valid += valid
                if accepted != valid or bool(why) == valid:
                    n_wrong += 1
                    print(json.dumps({"schema": line["schema"], "text": text, "jsonschema": valid, "reasons": why}))
    print(f"{n_pairs} pairs, {n_valid} valid, {n_wrong} disagreements; {sum(refused.values())} of {args.schemas} "
          f"schemas refused; the package fails with {n_failed}")
    for reason, n in refused.most_common():
        print(f"  {n} refused: {reason}")
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
