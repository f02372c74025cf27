#!/bin/sh
# bench.sh - the figures of FIGURES.md that a CPU can make, on this machine: speed and memory of the demo model, and the
# speed of tokenizers.
#
# usage: sh scripts/bench.sh [TEXT [TOKENIZER.json...]]       `make demo` first
#
# LLAMA_BENCH=path/to/llama-bench times llama.cpp beside it, on the same GGUF file. TEXT is what tokenizers encode.
set -eu
cd "$(dirname "$0")/.."
auk=${AUK:-build/auk} python=${PYTHON:-python3} threads=${THREADS:-2}
model=models/smollm2-135m-awq gguf=models/SmolLM2-135M-Instruct.Q4_1.gguf
[ -d $model ] || { echo "bench: $model is not there: make demo" >&2; exit 1; }

echo "## Speed, $threads threads"
"$auk" bench -m $model --device cpu -t "$threads" -p 512 -n 128 -r 5
[ -z "${LLAMA_BENCH:-}" ] || "$LLAMA_BENCH" -m $gguf -t "$threads" -p 512 -n 128 -r 5

echo "## Memory: what is resident at most, beside the mapped file and the KV cache"
"$python" - "$auk" $model "$threads" <<'PROGRAM'
import json, os, resource, subprocess, sys

auk, model, threads = sys.argv[1:]
mapped = os.path.getsize(f"{model}/model.safetensors") + os.path.getsize(f"{model}/tokenizer.json")
context = 2048
said = json.loads(subprocess.run([auk, "inspect", model, "--json"], check=True, capture_output=True).stdout)
cache = said["kv_bytes_per_token"]["f16"] * context
words = " word" * 1000
subprocess.run([auk, "-m", model, "-p", words, "-n", "64", "-c", str(context), "--ignore-eos", "--temp", "0",
                "--device", "cpu", "-t", threads],
               check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(f"resident {peak / 1e6:.1f} MB = files {mapped / 1e6:.1f} + KV cache of {context} tokens {cache / 1e6:.1f} + "
      f"{(peak - mapped - cache) / 1e6:.1f} MB")
PROGRAM

[ $# -gt 0 ] || exit 0
echo "## Tokenizers over $1"
"$python" - "$auk" "$@" <<'PROGRAM'
import os, statistics, subprocess, sys, time

auk, text, *tokenizers = sys.argv[1:]

def seconds(*arguments):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([auk, "tokenize", "-m", tokenizer, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)

print("| tokenizer.json | load ms | MB/s |\n| --- | ---: | ---: |")
for tokenizer in tokenizers:
    load = seconds("x")
    print(f"| {tokenizer} | {load * 1e3:.0f} | {os.path.getsize(text) / (seconds('-f', text) - load) / 1e6:.1f} |")
PROGRAM
