"""kernels_sum.py - one hash of all that CUDA kernels and their tests are made of, without comments and spaces: the
files of cuda/ and test/cuda/, every header that they include, and what makes C++ of kernels.

usage: kernels_sum.py            exit status 0 if the hash is the one in test/cuda/kernels.sum
       kernels_sum.py --write    writes it there; .ci/run does once the kernels have passed

Emulated kernels need longer than all other tests together, and most changes touch none.
"""
import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUM = ROOT / "test" / "cuda" / "kernels.sum"
MADE_BY = ("scripts/emulate.sed", "scripts/compile_emulated.sh", "scripts/test_gpu.sh")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # a string is none, whatever it holds
CODE = {".c", ".h", ".cu", ".cuh", ".cpp", ".def"}


def sources():
    """All files, by name."""
    files = {path for folder in ("cuda", "test/cuda") for path in (ROOT / folder).rglob("*")
             if path.suffix in CODE | {".py"}}
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path.suffix not in CODE:
            continue
        for name in INCLUDE.findall(path.read_text()):
            for folder in (path.parent, ROOT, ROOT / "src", ROOT / "test" / "cuda" / "emulator"):
                found = (folder / name).resolve()
                if found.is_file() and found not in files:
                    files.add(found)
                    waiting.append(found)
    return sorted(files | {ROOT / name for name in MADE_BY})


def hash_of(files):
    whole = hashlib.sha256()
    for path in files:
        text = path.read_text()
        if path.suffix in CODE:
            text = " ".join(COMMENT.sub(r"\1", text).split())
        whole.update(f"{path.relative_to(ROOT)}: {text}\n".encode())
    return whole.hexdigest()


def main():
    found = hash_of(sources())
    if sys.argv[1:] == ["--write"]:
        SUM.write_text(found + "\n")
        return 0
    return 0 if SUM.exists() and SUM.read_text().strip() == found else 1


if __name__ == "__main__":
    sys.exit(main())
