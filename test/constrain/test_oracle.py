"""Random schemas and texts near them: `auk schema` accepts the texts that Python's package jsonschema takes for valid,
says why exactly where it refuses, and refuses no schema but those of the list.

The verdicts in test/data/schemas/verdicts.txt are those of the package, which the tests do not need: see there. The
tokenizer is the tiny model's (512 tokens, byte fallback)."""
import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def cases(root):
    """(line of verdicts.txt, schema, texts, verdicts, why the schema is refused) for each schema."""
    sys.path.insert(0, str(root / "scripts"))
    import random_schemas
    sys.path.pop(0)
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
    tokenizer = root / "test" / "data" / "stories260K-awq" / "tokenizer.json"
    text = "".join(json.dumps({"schema": schema, "tests": texts}) + "\n" for _, schema, texts, _, _ in cases)
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
