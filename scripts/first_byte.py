"""first_byte.py - how long a program takes from its start to the first byte on its standard output.

usage: first_byte.py [-r RUNS] PROGRAM [ARGUMENT ...]   e.g. first_byte.py build/auk -m MODEL -p "Why is the sky blue?"

Starts the program RUNS times (11 unless said), reads one byte of each, ends it, and prints the median, the least and
the most in milliseconds. The first run only warms the page cache and is not counted.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time


def measure(command):
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet) as process:
        first = os.read(process.stdout.fileno(), 1)
        elapsed = time.perf_counter() - start
        process.kill()
    if not first:
        sys.exit(f"first_byte.py: {command[0]} wrote nothing")
    return elapsed * 1e3


def main():
    parser = argparse.ArgumentParser(description="Time from start to the first byte.")
    parser.add_argument("-r", "--runs", type=int, default=11)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.runs < 1 or not options.command:
        parser.error("a program, and one run at least")
    measure(options.command)
    times = [measure(options.command) for _ in range(options.runs)]
    print(f"median {statistics.median(times):.0f} ms, least {min(times):.0f}, most {max(times):.0f}")


if __name__ == "__main__":
    main()
