#!/usr/bin/env python3
"""Masks of auk beside those of llguidance, on the same schemas and texts, in CPU time of one thread.

    python3 scripts/bench_masks.py LINES.jsonl[.xz] --tokenizer DIRECTORY [--auk build/auk] [--first N]

A line is {"name", "schema", "tests": [{"text", "valid"}, ...]}, as `auk schema --jsonl` takes it; the tokenizer is a
directory with tokenizer.json. A mask is computing it and taking the token after it, for each token of each text up to
the first that is refused. Needs the packages llguidance and numpy.
"""
import argparse
import json
import lzma
import subprocess
import time

import llguidance
import llguidance.numpy


def read_lines(path, first):
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    return lines[:first]


def share(times, percent):
    return sorted(times)[(len(times) - 1) * percent // 100] if times else 0


def show(name, n, compiles, masks, judged, right):
    print(f"{name}: {len(compiles)} of {n} schemas compile; {right} of {judged} texts judged as labelled")
    print(f"  compiling, ms: mean {sum(compiles) / max(1, len(compiles)) / 1e3:.2f}, "
          f"median {share(compiles, 50) / 1e3:.2f}, p99 {share(compiles, 99) / 1e3:.2f}, "
          f"max {max(compiles, default=0) / 1e3:.1f}")
    print(f"  masks, us: {len(masks)}, mean {sum(masks) / max(1, len(masks)):.2f}, median {share(masks, 50):.2f}, "
          f"p99 {share(masks, 99):.1f}, max {max(masks, default=0):.0f}")


class Guided:
    """llguidance on one schema after another."""

    def __init__(self, directory):
        with open(f"{directory}/tokenizer.json", encoding="utf-8") as file:
            self.tokenizer = llguidance.LLTokenizer(file.read())
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def take(self, matcher, text, masks):
        """True if the text is accepted."""
        for token in self.tokenizer.tokenize_str(text):
            start = time.thread_time_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, self.mask)
            allowed = self.mask[0, token // 32] >> (token % 32) & 1
            if allowed:
                allowed = matcher.consume_token(token)
            masks.append((time.thread_time_ns() - start) / 1e3)
            if not allowed:
                return False
        return matcher.is_accepting()

    def run(self, lines):
        compiles, masks, judged, right = [], [], 0, 0
        for line in lines:
            it = json.loads(line)
            start = time.thread_time_ns()
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(it["schema"], ensure_ascii=False))
            matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
            took = (time.thread_time_ns() - start) / 1e3
            if matcher.is_error():
                continue
            compiles.append(took)
            for test in it["tests"]:
                matcher.reset()
                right += self.take(matcher, test["text"], masks) == test["valid"]
                judged += 1
        show(f"llguidance {llguidance.__version__}", len(lines), compiles, masks, judged, right)


def run_auk(auk, directory, lines):
    done = subprocess.run([auk, "schema", "-m", directory, "--jsonl", "--times"], input="".join(lines), text=True,
                          capture_output=True, check=True)
    compiles, masks, judged, right = [], [], 0, 0
    for line, found in zip(lines, done.stdout.splitlines()):
        it, got = json.loads(line), json.loads(found)
        if not got["compiled"]:
            continue
        compiles.append(got["compile_us"])
        masks += got["mask_us"]
        right += sum(accepted == test["valid"] for accepted, test in zip(got["accepted"], it["tests"]))
        judged += len(it["tests"])
    show("auk", len(lines), compiles, masks, judged, right)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--auk", default="build/auk")
    parser.add_argument("--first", type=int)
    options = parser.parse_args()
    lines = read_lines(options.lines, options.first)
    run_auk(options.auk, options.tokenizer, lines)
    Guided(options.tokenizer).run(lines)


if __name__ == "__main__":
    main()
