#!/bin/sh
# bench_map.sh - what --map costs beside the tokens themselves, and its memory, on the demo model: FIGURES.md's figures.
#
# usage: sh scripts/bench_map.sh [RECORDS]       1000 short records by default; `make demo` first
#
# The cost is the time of the whole run over the time of its tokens, which is taken in two ways: from the times of
# prefill and decode that each result reports, and from `auk bench` for as many tokens in steps of the same size at the
# same place of the context.
set -eu
cd "$(dirname "$0")/.."
auk=${AUK:-build/auk} python=${PYTHON:-python3} threads=${THREADS:-2}
model=models/smollm2-135m-awq
[ -d $model ] || { echo "bench_map: $model is not there: make demo" >&2; exit 1; }

"$python" - "$auk" $model "$threads" "${1:-1000}" <<'PROGRAM'
import json, pathlib, statistics, subprocess, sys, time

auk, model, threads, n_records = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ANSWER = 8
machine = ["-m", model, "--device", "cpu", "-t", threads]
subjects = ["the weather", "a parcel", "the waiter", "our room", "the train", "his answer", "the manual", "a refund",
            "the garden", "her phone"]
states = ["was late", "came early", "is broken", "looks new", "was rude", "made us laugh", "costs too much",
          "works again", "is lost", "was fine"]
words = "today,again,at last,as ever,of course,for once,by far,it seems,they say,I think".split(",")
records = [f"{subjects[i % 10]} {states[i // 10 % 10]} {words[i // 100 % 10]}" for i in range(n_records)]
prompt = ("Sort what customers write into praise, complaint or question, and say in a few words why. "
          "Customer: {}\nAnswer:")

def resident(pid):
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1e3

start = time.monotonic()
process = subprocess.Popen([auk, *machine, "--map", "-", "--parallel", "1", "-p", prompt, "-n", str(ANSWER),
                            "--ignore-eos", "--temp", "0", "--json"],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
process.stdin.write("".join(record + "\n" for record in records))
process.stdin.flush()
results, sizes = [], []
for i in range(n_records):
    results.append(json.loads(process.stdout.readline()))
    if i + 1 in (100, n_records):
        sizes.append(resident(process.pid))
wall = time.monotonic() - start
process.stdin.close()
process.wait()

def total(group, *names):
    return sum(result[group][name] for result in results for name in names)

inside = total("timings", "first_token_ms", "decode_ms") / 1e3
print(f"{n_records} records in {wall:.2f} s, {wall / inside:.3f} times the {inside:.2f} s within prefill and decode")
n_prompt, n_reused = total("usage", "prompt_tokens"), total("usage", "reused_tokens")
print(f"prompts of {n_prompt} tokens, {n_prompt - n_reused} of them prefilled")
print(f"resident {sizes[0]:.1f} MB at record 100, {sizes[-1]:.1f} MB at record {n_records}")

# The same from bench: prompts of the median size after a beginning of the median size, then the steps of the answer.
new = round(statistics.median(r["usage"]["prompt_tokens"] - r["usage"]["reused_tokens"] for r in results[1:]))
kept = round(statistics.median(r["usage"]["reused_tokens"] for r in results[1:]))

def rate(*flags):
    said = subprocess.run([auk, "bench", *machine, "-r", "20", "-o", "json", *map(str, flags)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return json.loads(said)[0]["avg_ts"]

prefill, decode = rate("-p", new, "-n", 0, "-d", kept), rate("-p", 0, "-n", ANSWER, "-d", kept + new)
pure = (n_prompt - n_reused) / prefill + n_records * ANSWER / decode
print(f"auk bench: {prefill:.0f} tokens/s for {new} after {kept}, {decode:.0f} for {ANSWER} more: {pure:.2f} s, "
      f"{wall / pure:.3f} times that")
PROGRAM
