"""kernels_sum.py - hashes of what the tests of CUDA kernels are made of, a row for each part of them in
test/cuda/kernels.sum: .ci/run repeats the parts whose row is another or missing, and most changes touch none.

usage: kernels_sum.py PART...                  prints "PART HASH" for each PART that has another row, or none
       kernels_sum.py --write                  puts such rows there, read from standard input
       kernels_sum.py --linked BUILD PART...   fails if a program in BUILD holds an object that PART does not count

A PART has one of the names below, which may follow a place and a slash, as in emulated-80/test_linear:
  test_NAME, bench_NAME   a program of test/cuda: its source and those of cuda/ that it is linked with
  short, fused            whole models: all of cuda/ and test/cuda/*.py
  NAME.cu                 a source that nvcc compiles for auk
  nvcc-host               everything else that is compiled with CUDA's own headers

A source counts with all that it includes, without comments and spaces, and wherever it lies: paths are no part of a
hash, and the lines that include a file stand for what is in it. A part that runs on the emulated GPU counts the
emulator, too.

Before anything is compiled, a program is linked with the sources that define a name which another of its sources
mentions; a header's declaration of a function is no mention. That may be more than the linker takes. --linked shows
that it is not less.
"""
import functools
import hashlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUM = ROOT / "test" / "cuda" / "kernels.sum"
KERNELS, TESTS = ROOT / "cuda", ROOT / "test" / "cuda"
EMULATOR = TESTS / "emulator"
MADE_BY = ("scripts/emulate.sed", "scripts/compile_emulated.sh", "scripts/test_gpu.sh")
KNOW_CUDA = ("src/commands/device.c", "src/commands/ranks/join.c")  # as in the Makefile
INCLUDE = re.compile(r'#\s*include\s+"([^"]+)"')
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # a string is none, whatever it holds
BRACES = re.compile(r"[{}]")
OPEN_SCOPE = re.compile(r'\b(?:extern\s+"C"|namespace(?:\s+[\w:]+)?)\s*\{')
STATEMENT = re.compile(r"[^;{}]+[;{]")
MACRO_CALL = re.compile(r"[A-Z_]+\([^()]*\)")  # a line of it is no statement: no semicolon need follow
LOCAL = re.compile(r"\b(static|typedef|constexpr)\b")
FUNCTION = re.compile(r"\w[\w\s*&<>:]*?\b([A-Za-z_]\w*)\s*\(")
VARIABLE = re.compile(r"\b([A-Za-z_]\w*)\s*(?=[;,[])")
WORD = re.compile(r"\w+")
PASTED = re.compile(r"(\w+)\s*##")
PASTED_END = re.compile(r"##\s*(\w+)")
MACRO = re.compile(r"#\s*define \w+\(([^)]*)\)(.*)")


def sources_in(folder, *suffixes):
    return [path for path in folder.rglob("*") if path.suffix in suffixes]


@functools.lru_cache(maxsize=None)
def lines_of(path):
    """Lines of code, each with single spaces. Lines that a backslash continues are one."""
    text = COMMENT.sub(lambda found: found.group(1) or " ", path.read_text()).replace("\\\n", " ")
    return [line for line in (" ".join(line.split()) for line in text.split("\n")) if line]


@functools.lru_cache(maxsize=None)
def found_as(name, folder):
    """The file that a source in `folder` includes by this name; None if it is the system's."""
    for where in (folder, ROOT, ROOT / "src", EMULATOR):
        if (where / name).is_file():
            return (where / name).resolve()
    return None


def included(path):
    names = (INCLUDE.match(line) for line in lines_of(path))
    return [found for found in (found_as(name.group(1), path.parent) for name in names if name) if found]


def reached(start, next_of):
    """`start`, what it leads to, and what that leads to in turn."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(next_of(waiting.pop())) - found
        found |= new
        waiting += new
    return found


@functools.lru_cache(maxsize=None)
def with_headers(path):
    """A source and all that it includes."""
    return reached(path, included)


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=None)
def hash_of(path):
    """The hash of a source with all that it includes. Files included at one place count in any order: clang-format
    sorts them by path."""
    pieces, block = [], []
    for line in [*lines_of(path), ""]:
        if INCLUDE.match(line) or line.startswith("#include"):
            name = INCLUDE.match(line)
            file = name and found_as(name.group(1), path.parent)
            block.append(hash_of(file) if file else line)
            continue
        pieces += sorted(block)
        block = []
        pieces.append(line + "\n" if line.startswith("#") else line)  # other lines may be broken anywhere
    return sha(" ".join(pieces))


# --- what a program is linked with

def bodies_and_scope(text):
    """The text in braces, and the text outside. Braces of a namespace and of extern "C" do not count."""
    bodies, scope, depth, at = [], [], 0, 0
    text = OPEN_SCOPE.sub(" ", text)
    for brace in BRACES.finditer(text):
        (bodies if depth else scope).append(text[at:brace.end()])
        depth = depth + 1 if brace.group() == "{" else max(depth - 1, 0)
        at = brace.end()
    (bodies if depth else scope).append(text[at:])
    return " ".join(bodies), scope


def endings(directives):
    """Ends of words that macros put together, as _kernel in name##_kernel. A macro's parameter is no end."""
    macros = [found for found in map(MACRO.match, directives) if found]
    return tuple(end for macro in macros for end in PASTED_END.findall(macro.group(2))
                 if end not in WORD.findall(macro.group(1)))


@functools.lru_cache(maxsize=None)
def own_mentions(path):
    """Words, and beginnings and ends of words that a macro puts together. Rooms below cuda know nothing of it."""
    if KERNELS not in path.parents and ROOT / "test" not in path.parents:
        return set(), (), ()
    code, directives = [], []
    for line in lines_of(path):
        (directives if line.startswith("#") else code).append(line)
    if path.suffix in (".h", ".cuh"):
        code = [bodies_and_scope("\n".join(code))[0]]
    text = "\n".join(code + [line for line in directives if not line.startswith("#include")])
    return set(WORD.findall(text)), tuple(PASTED.findall(text)), endings(directives)


@functools.lru_cache(maxsize=None)
def mentions(path):
    """The mentions in a source and in all that it includes."""
    found = [own_mentions(file) for file in with_headers(path)]
    return (set().union(*(words for words, *_ in found)), sum((begin for _, begin, _ in found), ()),
            sum((end for *_, end in found), ()))


@functools.lru_cache(maxsize=None)
def global_statements(path):
    """Declarations and heads of definitions outside of braces, but for those that only this object knows."""
    lines = [line for line in lines_of(path) if not line.startswith("#") and not MACRO_CALL.fullmatch(line)]
    scope = bodies_and_scope("\n".join(lines))[1]
    return [part for part in STATEMENT.findall("".join(scope)) if not LOCAL.search(part)]


def names_declared(statement):
    if "(" not in statement and " " in statement:
        return VARIABLE.findall(statement)
    found = FUNCTION.match(statement)
    return [found.group(1)] if found else []


@functools.lru_cache(maxsize=None)
def declared_in(path):
    """Names of functions and variables that headers of a source declare: two sources know no others."""
    return {name for file in with_headers(path) if file != path for part in global_statements(file)
            if part.endswith(";") for name in names_declared(part.strip())}


@functools.lru_cache(maxsize=None)
def defined_in(path):
    """A few that are only mentioned outside of all bodies may be among them."""
    words, ends = set(WORD.findall(" ".join(global_statements(path)))), mentions(path)[2]
    return declared_in(path) & words | {word for word in words if ends and word.endswith(ends)}


@functools.lru_cache(maxsize=None)
def neighbours(path):
    """The sources of cuda/ that one of them, or a test, refers to."""
    words, begin, end = mentions(path)
    words &= declared_in(path)
    return {other for other in sources_in(KERNELS, ".c", ".cu") if other != path and
            any(name in words or name.startswith(begin) or name.endswith(end) for name in defined_in(other))}


def linked(path):
    found, waiting = {path}, [path]
    while waiting:
        for other in neighbours(waiting.pop()) - found:
            found.add(other)
            waiting.append(other)
    return found


# --- parts

def program_of(part):
    path = TESTS / (part + ".cu")
    return path if part.startswith(("test_", "bench_")) and path.is_file() else None


def hash_of_part(name):
    part = name.rpartition("/")[2]
    emulated = {hash_of(path) for path in sources_in(EMULATOR, ".h", ".cpp")}
    emulated |= {sha((ROOT / script).read_text()) for script in MADE_BY}
    if program_of(part):
        hashes = {hash_of(path) for path in linked(program_of(part))} | emulated
    elif part in ("short", "fused"):
        hashes = {hash_of(path) for path in sources_in(KERNELS, ".c", ".cu")} | emulated
        hashes |= {sha(path.read_text()) for path in sources_in(TESTS, ".py")}
    elif part == "nvcc-host":
        hashes = {hash_of(path) for path in [*sources_in(KERNELS, ".c"), *(ROOT / name for name in KNOW_CUDA)]}
    else:
        hashes = {hash_of(path) for path in sources_in(KERNELS, ".cu") if path.name == part}
        if not hashes:
            return None
    return sha("\n".join(sorted(hashes)))


def rows():
    lines = SUM.read_text().splitlines() if SUM.exists() else []
    return dict(line.split() for line in lines if len(line.split()) == 2)  # a conflict's marks are no rows


def print_changed(parts):
    passed = rows()
    for part in parts:
        found = hash_of_part(part)
        if not found:
            sys.exit(f"kernels_sum.py: there is no part {part}")
        if passed.get(part) != found:
            print(part, found)


def write(lines):
    """Rows of parts that are no more are left out."""
    new = {**rows(), **dict(line.split() for line in lines)}
    SUM.write_text("".join(f"{part} {new[part]}\n" for part in sorted(new) if hash_of_part(part)))


def defined_by(objects):
    """The files, programs or objects, that define a name: by name."""
    out = subprocess.run(["nm", "-A", "--defined-only", *map(str, objects)], capture_output=True, text=True,
                         check=True).stdout
    found = {}
    for line in out.splitlines():
        file, _, symbol = line.partition(":")
        kind, name = symbol.split()[-2:]
        if kind in "TDBR":
            found.setdefault(name, set()).add(pathlib.Path(file))
    return found


def check_linked(build, parts):
    """A name that an object of cuda/ defines is in a program if the linker took that object."""
    objects = {build / path.relative_to(ROOT).with_suffix(".o"): path for path in sources_in(KERNELS, ".c", ".cu")}
    holders = defined_by([path for path in objects if path.exists()])
    wrong = []
    for source in filter(None, map(program_of, parts)):
        held = {objects[file] for name in defined_by([build / "test" / "cuda" / source.stem])
                for file in holders.get(name, ())}
        wrong += [f"{source.stem} is linked with {path.relative_to(ROOT)}, which its hash does not count"
                  for path in sorted(held - linked(source))]
    if wrong:
        sys.exit("\n".join(wrong))


def main(arguments):
    if arguments == ["--write"]:
        write(sys.stdin)
    elif len(arguments) > 1 and arguments[0] == "--linked":
        check_linked(pathlib.Path(arguments[1]).resolve(), arguments[2:])
    elif arguments and not arguments[0].startswith("-"):
        print_changed(arguments)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
