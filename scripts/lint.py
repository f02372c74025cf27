"""lint.py - what every source file must hold, checked in a few seconds.

usage: lint.py [CHECK...]    from anywhere in the repository; called by `make lint`

Without names all checks run; "lint.py includes format" runs check_includes() and check_format().
Each check below is a function that yields one "FILE:LINE: what is wrong" for each offence; its first docstring line
says what it checks. Tools that are not installed are skipped by name. The last line is
"N passed, N failed, N skipped".
"""
import concurrent.futures
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tokenize

import kernels_sum

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 1200  # a file is as long as its idea; one of more has two
MAX_COLUMNS, MAX_COLUMNS_C = 120, 110
MAX_FUNCTION = 100  # lines

# Who may include whom, as "room" or "room/header": a room's own headers and those of the rooms below it. The backends
# implement engine/backend.h, which hands them the sampler, and know nothing else of the engine.
BACKEND = {"engine/backend.h", "engine/probe.h", "engine/sampler.h", "model", "base"}
KERNELS = {"cuda/kernels/" + room
           for room in ("ptx", "cache", "ops", "linear", "attention", "delta", "experts", "fused")}
BELOW_COMMANDS = {"commands", "terminal", "engine", "cuda/one/table.h", "cuda/one/gpu.h", "cuda/several/several.h",
                  "cuda/several/ranks.h", "constrain", "tokenizer", "model", "base"}
KNOWS = {
    "base": {"base"},
    "model": {"model", "base"},
    "tokenizer": {"tokenizer", "base"},
    "constrain": {"constrain", "tokenizer", "base"},
    "engine": {"engine", "model", "base"},
    "cpu": {"cpu"} | BACKEND,
    # Three floors, each with those below it: kernels, one GPU, several GPUs. test/cuda knows all. Kernels are functions
    # of pointers and sizes: they know one another and base, but no model.
    "cuda/kernels/ptx": {"cuda/kernels/ptx", "base"},
    "cuda/kernels/cache": {"cuda/kernels/cache", "cuda/kernels/ptx", "base"},
    "cuda/kernels/ops": {"cuda/kernels/ops", "cuda/kernels/cache", "cuda/kernels/ptx", "base"},
    "cuda/kernels/linear": {"cuda/kernels/linear", "cuda/kernels/ops", "cuda/kernels/cache", "cuda/kernels/ptx",
                            "base"},
    "cuda/kernels/linear/reference": {"cuda/kernels/linear/reference", "cuda/kernels/linear", "cuda/kernels/ptx",
                                      "base"},
    "cuda/kernels/attention": {"cuda/kernels/attention", "cuda/kernels/linear", "cuda/kernels/cache",
                               "cuda/kernels/ptx", "base"},
    "cuda/kernels/delta": {"cuda/kernels/delta", "cuda/kernels/linear", "cuda/kernels/ops", "cuda/kernels/ptx",
                           "base"},
    "cuda/kernels/experts": {"cuda/kernels/experts", "cuda/kernels/linear", "cuda/kernels/ops", "cuda/kernels/ptx",
                             "base"},
    "cuda/kernels/fused": KERNELS | {"base"},
    "cuda/kernels/rounding": {"cuda/kernels/rounding", "cuda/kernels/ptx", "base"},
    "cuda/quantize": {"cuda/quantize", "cuda/kernels/rounding", "cuda/kernels/linear/cublas.h", "cuda/kernels/ptx",
                      "quantize"} | BACKEND,
    "cuda/one": {"cuda/one", "cuda/quantize/quantizer.h", "cpu/products.h", "cpu/team.h",
                 "engine/forward.h"} | KERNELS | BACKEND,
    "cuda/several": {"cuda/several", "cuda/one", "engine/forward.h"} | KERNELS | BACKEND,
    "cuda": {"cuda", "cuda/several", "cuda/one", "cuda/quantize"} | KERNELS | BACKEND,
    "quantize": {"quantize", "cpu/kernels.h", "engine", "model", "base"},
    "terminal": {"terminal", "base"},
    "commands": BELOW_COMMANDS,
    "commands/form": {"commands/form"} | BELOW_COMMANDS,
    "commands/answer": {"commands/answer", "commands/form", "commands/keep"} | BELOW_COMMANDS,
    "commands/keep": {"commands/keep", "commands/answer", "commands/form"} | BELOW_COMMANDS,
    "commands/conversation": {"commands/conversation", "commands/answer", "commands/form"} | BELOW_COMMANDS,
    "commands/chat": {"commands/chat", "commands/conversation", "commands/answer", "commands/form"} | BELOW_COMMANDS,
    "commands/map": {"commands/map", "commands/answer", "commands/form", "commands/ranks"} | BELOW_COMMANDS,
    "commands/ranks": {"commands/ranks", "cuda/several/calls.h"} | BELOW_COMMANDS,
    "commands/merge": {"commands/merge", "commands/map", "commands/answer", "commands/form"} | BELOW_COMMANDS,
    "commands/measure": {"commands/measure", "commands/answer"} | BELOW_COMMANDS,
    "commands/models": {"commands/models", "commands/measure/against.h", "quantize"} | BELOW_COMMANDS,
    "commands/settings": {"commands/settings", "commands/chat", "commands/conversation", "commands/map",
                          "commands/answer", "commands/form"} | BELOW_COMMANDS,
    "commands/shell": {"commands/shell"} | BELOW_COMMANDS,
    "main": {"commands", "base"},
}
# Headers that lie directly in src/commands are for all of its rooms; what lies there and is no header may know these.
ROOMS_OF_COMMANDS = {room for room in KNOWS if room.startswith("commands/")}
# Tests also see what their programs are linked with, and may share helpers.
TESTS_KNOW = {"engine": {"cpu"}, "cpu": {"engine"}, "cuda": {"cpu", "engine"}, "fuzz": set().union(*KNOWS.values())}

# Words of comments in product code that make a stranger read twice: each has a plainer one (after, reports, the field's
# term), and a sentence opens with its subject.
UNCLEAR = {
    r"\bbehind\b": 'say "after", or the place',
    r"\b(nobody|somebody|whoever|anybody|everybody)\b": "name who it is",
    r"\bof (which|these|those)\b": "make it two sentences",
    r"\bwhere there (is|are) none\b": 'say "NULL", "0" or "without one"',
    r"\b(tells?|told)\b": 'say "reports" or "says"',
    r"(?:^|[.:;] )(Of|What|Those|Whether)\b": "open the sentence with its subject; a predicate is \"True if\"",
}

QUIET_ROOMS = {"model", "tokenizer", "constrain", "engine", "cpu", "cuda"}  # of base, output.c writes for all


class Skipped(Exception):
    """The check needs a tool that is not here."""


def run(*command):
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)


def list_files():
    """Every file of the project, as paths from its root: what git does not ignore, or without git what is there."""
    listed = run("git", "ls-files", "-co", "--exclude-standard") if shutil.which("git") else None
    if listed and listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if not name.startswith((".git/", "build/", "models/"))]
    return sorted(name for name in names if (ROOT / name).is_file() and not name.startswith("test/data/"))


FILES = list_files()
C_FILES = [name for name in FILES if name.endswith((".c", ".h", ".cu", ".cuh"))]
PYTHON_FILES = [name for name in FILES if name.endswith(".py")]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8", errors="replace") for name in FILES}
TEXTS = {name: text for name, text in TEXTS.items() if "\0" not in text}
SHELL_FILES = [name for name, text in TEXTS.items() if re.match(r"#!.*\b(ba)?sh\b", text)]


STRING_OR_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def blank(match):
    return "".join("\n" if c == "\n" else " " for c in match[0])


def code_of(name):
    """The text of a C file with comments and strings blanked out, lines where they were."""
    return STRING_OR_COMMENT.sub(blank, TEXTS[name])


def comments_alone(name):
    """The text of a C file with strings blanked out."""
    return STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith("/") else blank(match), TEXTS[name])


def matches(pattern, text, name):
    for match in re.finditer(pattern, text, flags=re.MULTILINE):
        yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}", match


def room_of_folder(folder):
    """The longest beginning of a path that has rules of its own, or the first part: tokenizer of "tokenizer/jinja"."""
    parts = folder.split("/")
    rooms = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((room for room in rooms if room in KNOWS), parts[0])


def room_of(name):
    folder = name.rpartition("/")[0]
    return room_of_folder(re.sub("^(src|test)/", "", folder)) if folder else "main"


def check_includes():
    """a file includes only headers of its own room and of rooms below it"""
    for name in C_FILES:
        room, in_test = room_of(name), name.startswith("test/")
        allowed = KNOWS.get(room, set()) | (TESTS_KNOW.get(room, set()) | {"test"} if in_test else set())
        if room == "commands" and name.endswith(".c"):
            allowed = allowed | ROOMS_OF_COMMANDS
        for place, match in matches(r'^\s*#\s*include\s+"([^"]+)"', TEXTS[name], name):
            header = match[1]
            if "/" not in header:
                if not (ROOT / name).with_name(header).exists():
                    yield f'{place}: "{header}" is not in this folder; headers of a room are named "room/header.h"'
            elif ".." in header.split("/"):
                yield f'{place}: "{header}" climbs; name it from src/ or from the root'
            elif room_of_folder(header.rpartition("/")[0]) not in allowed and header not in allowed:
                yield f'{place}: {room} may not know "{header}"'


def circle_of(edges):
    """The nodes of a circle in a graph {node: nodes}, or None."""
    done = set()

    def walk(node, path):
        if node in path:
            return path[path.index(node):]
        if node in done:
            return None
        found = next(filter(None, (walk(to, path + [node]) for to in sorted(edges.get(node, ())))), None)
        done.add(node)
        return found

    return next(filter(None, (walk(node, []) for node in sorted(edges))), None)


# Rooms in which a source and its header count as one, so that functions of two files do not call each other.
ONE_WITH_HEADER = ("cuda/one/", "cuda/several/")


def check_circles():
    """no files include one another in a circle, and no rooms of cuda know one another in a circle"""
    def node(path):
        return path.rpartition(".")[0] if path.startswith(ONE_WITH_HEADER) else path

    edges = {}
    for name in (name for name in C_FILES if not name.startswith("test/")):
        for header in headers_of(name):
            if header == name or node(header) != node(name):
                edges.setdefault(node(name), set()).add(node(header))
    rooms = {room: {known for known in knows if known != room and known.startswith("cuda/") and known in KNOWS}
             for room, knows in KNOWS.items() if room.startswith("cuda/")}
    for graph in (edges, rooms):
        circle = circle_of(graph)
        if circle:
            yield f"{circle[0]}: knows itself: {' -> '.join(circle + circle[:1])}"


def check_environment():
    """getenv stays in src/commands"""
    for name in C_FILES:
        if not name.startswith(("src/commands/", "test/")):
            for place, match in matches(r"\b(secure_)?getenv\s*\(", code_of(name), name):
                yield f"{place}: getenv belongs in src/commands"


def check_quiet():
    """nothing below src/commands prints or ends the program"""
    for name in C_FILES:
        if room_of(name).split("/")[0] in QUIET_ROOMS and not name.startswith("test/"):
            pattern = r"\b(printf|puts|putchar|perror|v?fprintf|exit|_exit|abort)\s*\(|\b(stdout|stderr)\b"
            for place, match in matches(pattern, code_of(name), name):
                yield f"{place}: {match[0].strip('( ')} below src/commands; return a Status instead"


def check_length():
    """files end by line 1200 (generated tables excepted), lines by column 110 (scripts: 120)"""
    for name in C_FILES + PYTHON_FILES + SHELL_FILES:
        lines = TEXTS[name].splitlines()
        if any(re.search("generated by", line, re.IGNORECASE) for line in lines[:8]):
            continue
        if len(lines) > MAX_LINES:
            yield f"{name}:{len(lines)}: {len(lines)} lines, expected at most {MAX_LINES}"
        for i, line in enumerate(lines, 1):
            if len(line) > (MAX_COLUMNS_C if name in C_FILES else MAX_COLUMNS):
                yield f"{name}:{i}: {len(line)} columns"


def check_pragmas():
    """a pragma stands in braces after else and if constexpr: nvcc may take the next statement, too, for the branch"""
    for name in C_FILES:
        for place, _ in matches(r"(\belse|\bif constexpr \(.*\))\n#pragma", code_of(name), name):
            yield f"{place}: write braces around the loop and its pragma"


def check_functions():
    """no function of product code is longer than 100 lines of code"""
    for name in (name for name in C_FILES if not name.startswith("test/")):
        lines, code = TEXTS[name].splitlines(), code_of(name).splitlines()
        for i, line in enumerate(lines):
            head = re.match(r"( *)(?!if|for|while|switch|else|do\b|struct\b|\})\S.*\{$", line)
            if not head or len(head[1]) > 2 or not line.endswith((") {", ") const {")):
                continue
            end = next((j for j in range(i, len(lines)) if lines[j].startswith(head[1] + "}")), i)
            n = sum(1 for line in code[i:end + 1] if line.strip())  # a picture in it is no fault
            if n > MAX_FUNCTION:
                yield f"{name}:{i + 1}: {n} lines of code in a function, expected at most {MAX_FUNCTION}"


FUNCTION = re.compile(r"^(?!static \w+ __attribute)[A-Za-z_][\w ]*[ *](\w+)\(([^{};]*)\) \{\n(.*?)^\}",
                      re.MULTILINE | re.DOTALL)


def check_parameters():
    """functions read their parameters, except those in tables, which are called alike"""
    texts = {name: code_of(name) for name in C_FILES if not name.startswith("test/")}
    tables = [text for name, text in TEXTS.items() if name.endswith(".def")]
    values = set(re.findall(r"\b[A-Za-z_]\w*\b(?!\s*\()", "\n".join([*texts.values(), *tables])))
    for name in (name for name in texts if name.endswith(".c")):
        for found in FUNCTION.finditer(texts[name]):
            if values & {found[1], found[1].partition("_")[2]}:  # tables paste the name of a backend and an operation
                continue
            words = set(re.findall(r"\w+", found[3])) | {"void"}
            parameters = re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", found[2])
            for parameter in re.findall(r"(\w+)(?:\[[^\]]*\])*(?:,|$)", parameters):
                if parameter not in words:
                    line = texts[name].count("\n", 0, found.start()) + 1
                    yield f"{name}:{line}: {found[1]}() does not read {parameter}"


def check_words():
    """no unfinished work, no paths of one machine, no white space at the end of a line"""
    forbidden = {
        r"\b(TO[D]O|FIX[M]E|X[X]X)\b": "unfinished work; finish it or open an issue",
        r"(?<![\w.~}])/(wor[k]|roo[t]|hom[e]|User[s])/": "a path of one machine",
        r"[ \t]+$": "white space at the end of the line",
        r"^(<{7}|>{7}) ": "a conflict that was not resolved",
    }
    for name, text in TEXTS.items():
        for pattern, reason in forbidden.items():
            if pattern != r"[ \t]+$" or name in C_FILES + PYTHON_FILES + SHELL_FILES:
                for place, match in matches(pattern, text, name):
                    yield f"{place}: {match[0].strip() or 'blanks'}: {reason}"


def comments_of(name):
    """(line, text) of each comment, the marks of its lines left out."""
    for match in STRING_OR_COMMENT.finditer(TEXTS[name]):
        if match[0].startswith("/"):
            text = re.sub(r"\s*\n\s*\*?\s?", " ", match[0].strip("/").strip("*"))
            yield TEXTS[name].count("\n", 0, match.start()) + 1, text.strip()


def python_comments_of(name):
    """(line, text) of each comment and of each string in three quotation marks."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(TEXTS[name]).readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
                yield token.start[0], token.string.strip('#" ')
    except (tokenize.TokenError, SyntaxError):
        return  # check_python() reports it


def check_comments():
    """comments have no unclear words"""
    for name in C_FILES + PYTHON_FILES:
        for line, text in (comments_of if name in C_FILES else python_comments_of)(name):
            for pattern, advice in UNCLEAR.items():
                for match in re.finditer(pattern, text):
                    yield f'{name}:{line}: "{match[0].strip(".:; ")}": {advice}'


def check_names():
    """C files that comments of product code name are there"""
    paths = ["/" + name for name in FILES]
    for name in (name for name in C_FILES if not name.startswith("test/")):
        for line, text in comments_of(name):
            for match in re.finditer(r"(?<![\w*./])[\w/-]*\w\.(?:cuh|cu|c|h)\b(?![*(])", text):
                if not any(path.endswith("/" + match[0]) for path in paths):
                    yield f"{name}:{line}: there is no {match[0]}"


def headers_of(name):
    """Files that a C file includes, as far as they are the project's."""
    found = set()
    for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', TEXTS[name], re.MULTILINE):
        beside = f"{name.rpartition('/')[0]}/{header}"
        found.add(next((path for path in (beside, "src/" + header, header) if path in TEXTS), header))
    return found


DECLARATION = re.compile(r"^(?!typedef |return |else )(static )?(?:[\w<>:]+[ *&]+)+\*?(\w+)\(", re.MULTILINE)


def callers_of(product):
    """The files that call functions of each file, or of the header that it implements."""
    local, public = {}, {}  # the functions that a file declares or defines
    for name in product:
        found = DECLARATION.findall(code_of(name))
        local[name] = {function for static, function in found if static and not name.endswith("h")}
        public[name] = {function for static, function in found if not static or name.endswith("h")}
    calls, callers = {}, {}
    for name in product:
        headers = kernels_sum.reached(name, lambda file: headers_of(file) & set(C_FILES)) - {name}
        known = set().union(*(public[header] for header in headers if header in public))
        calls[name] = known & set(re.findall(r"\w+", code_of(name))) - local[name] - public[name]
    for name in product:
        own = [file for file in product if file.rpartition(".")[0] == name.rpartition(".")[0]]
        functions = set().union(*(public[file] for file in own))
        callers[name] = {file for file in product if file not in own and functions & calls[file]}
    return callers


def check_callers():
    """files whose heads say by which files they are called are called by these, and by no others"""
    product = [name for name in C_FILES if not name.startswith("test/")]
    for name, callers in callers_of(product).items():
        said = re.search(r"Called by:(.*?)\.(?:\s|$)", " ".join(next(comments_of(name), (0, ""))[1].split()))
        if not said or "through" in said[1]:  # a table of functions
            continue
        listed = re.findall(r"[\w/]+\.(?:cuh|cu|c|h)\b", said[1])
        for caller in listed:
            if not any(("/" + file).endswith("/" + caller) for file in callers):
                yield f"{name}: {caller} calls nothing of it"
        for file in sorted(callers):
            if not any(("/" + file).endswith("/" + caller) for caller in listed):
                yield f"{name}: {file} calls it, too; more than three callers need no list"


def headings_of(page):
    """The headings of a page of Markdown, as they are written."""
    text = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"[`*]", "", line).strip() for line in re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE)]


def anchor_of(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page_of(name, pointer):
    """The page that a file means by README.md: of its folder, the folder that a test mirrors, one above, or the only
    one of that name. None: it is no page of the project."""
    folders = [re.sub("^test/", start, name) for start in ("test/", "")] if name.startswith("test/") else [name]
    for folder in folders:
        while folder:
            folder = folder.rpartition("/")[0]
            if (path := f"{folder}/{pointer}".lstrip("/")) in TEXTS:
                return path
    found = [path for path in TEXTS if path.endswith("/" + pointer)]
    return found[0] if len(found) == 1 else None


# A pointer in prose: LOG.md, "Walls", whose heading may go on after the mark of the next line of a comment.
TURN = r"(?:[ \t]*\n[ \t]*(?:\*|#|//)?[ \t]*|[ \t]+)"
POINTER = rf'(?<![\w*~./-])((?:[\w-]+/)*[\w-]+\.md)\b(?!\))(?:,{TURN}"([^"]+)")?'
LONG_PAGE = 3000  # words: a comment that leads to such a page says under which heading


def check_pages():
    """pages, headings and anchors to which comments and pages point are there; of a long page a comment names one"""
    for name in (name for name in TEXTS if name.endswith(".md")):
        for place, match in matches(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", TEXTS[name], name):
            path = os.path.normpath(os.path.join(os.path.dirname(name), match[1])) if match[1] else name
            if not (ROOT / path).exists():
                yield f"{place}: there is no {path}"
            elif match[2] and match[2] not in map(anchor_of, headings_of(path) if path in TEXTS else []):
                yield f"{place}: {path} has no heading #{match[2]}"
    product = [name for name in C_FILES if not name.startswith("test/")]
    for name in C_FILES + PYTHON_FILES + SHELL_FILES + [name for name in TEXTS if name.endswith(".md")]:
        text = comments_alone(name) if name in C_FILES else TEXTS[name]
        for place, match in matches(POINTER, text, name):
            page = page_of(name, match[1])
            if page and match[2] and re.sub(TURN, " ", match[2]) not in headings_of(page):
                yield f'{place}: {page} has no heading "{re.sub(TURN, " ", match[2])}"'
            elif page and name in product and not match[2] and len(TEXTS[page].split()) > LONG_PAGE:
                yield f"{place}: {page} is long: name a heading of it"


def check_figures():
    """tables of figures are those of scripts/figures"""
    if (ROOT / "scripts/figures_page.py").exists():
        done = run(sys.executable, "scripts/figures_page.py", "--check")
        if done.returncode:
            yield done.stdout.strip()


def check_python():
    """every Python file compiles"""
    for name in PYTHON_FILES:
        try:
            compile(TEXTS[name], name, "exec")
        except SyntaxError as error:
            yield f"{name}:{error.lineno}: {error.msg}"


def check_format():
    """C files are as clang-format 14 writes them"""
    for tool in ("clang-format-14", "clang-format"):
        if shutil.which(tool) and re.search(r"version 14\.", run(tool, "--version").stdout):
            n = os.cpu_count() or 1  # a process each: the tool starts more slowly than it reads a file
            with concurrent.futures.ThreadPoolExecutor(n) as cores:
                runs = list(cores.map(lambda i: run(tool, "--dry-run", "--Werror", *C_FILES[i::n]), range(n)))
            for done in runs:
                lines = sorted(set(re.findall(r"^(.+?:\d+):\d+: error", done.stdout, re.MULTILINE)))
                if done.returncode:
                    yield from [f"{line}: would be written otherwise (make format)" for line in lines] or [done.stdout]
            return
    raise Skipped("clang-format 14")


def check_cppcheck():
    """cppcheck finds nothing"""
    if not shutil.which("cppcheck"):
        raise Skipped("cppcheck")
    sources = [name for name in C_FILES if name.endswith(".c") and not name.startswith("test/")]
    done = run("cppcheck", "--quiet", "--std=c11", "--enable=warning,performance,portability", "--inline-suppr",
               # Views into one block of memory are what our buffers are; what it cannot parse is no finding.
               "--suppress=invalidPointerCast", "--suppress=internalAstError",
               "--template={file}:{line}: {severity}: {message} [{id}]", "--error-exitcode=1", "-Isrc", "-I.",
               f"-j{os.cpu_count() or 1}", "-D_GNU_SOURCE", '-DAUK_VERSION=""', *sources)
    if done.returncode:
        yield from done.stdout.splitlines()


def check_shell():
    """shellcheck finds nothing"""
    if not shutil.which("shellcheck"):
        raise Skipped("shellcheck")
    done = run("shellcheck", "--severity=warning", "--format=gcc", *SHELL_FILES)
    if done.returncode:
        yield from done.stdout.splitlines()


def main():
    passed = failed = skipped = 0
    checks = [check_includes, check_circles, check_environment, check_quiet, check_length, check_pragmas,
              check_functions, check_parameters, check_words, check_comments, check_names, check_callers, check_pages,
              check_figures, check_python, check_format, check_shell, check_cppcheck]
    named = ["check_" + name for name in sys.argv[1:]]
    unknown = set(named) - {check.__name__ for check in checks}
    if unknown:
        sys.exit(f"lint.py: no {', no '.join(sorted(unknown))}()")
    checks = [check for check in checks if not named or check.__name__ in named]
    pool = concurrent.futures.ThreadPoolExecutor(len(checks))  # tools run beside what Python reads
    for check, run_of in [(check, pool.submit(lambda check: list(check()), check)) for check in checks]:
        says = check.__doc__.splitlines()[0]
        try:
            offences = run_of.result()
        except Skipped as missing:
            print(f"1 skipped: {missing} is not installed: {says}")
            skipped += 1
            continue
        print("\n".join([f"{'FAILED' if offences else 'ok'}: {says}"] + [f"  {offence}" for offence in offences]))
        failed += bool(offences)
        passed += not offences
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
