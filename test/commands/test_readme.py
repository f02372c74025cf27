"""The lines that README.md, the pages to which it leads, --help and the manual page give as examples, typed: each must
end with the status that the page names, write what the page says that it writes, and say nothing else on standard
error.

The lines come from the pages themselves. MODEL is a stand-in made of the tiny model, and for README.md also the demo's
model where `make demo` has put it. The text of a model's answers is not compared, only its form. The lines of a block
are typed in order, in a small repository that has the files they name. NOT_TYPED lists those that cannot run here, and
why.
"""
import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "smollm2-135m-awq"
PAGES = ["README.md", "src/commands/map/README.md", "src/constrain/README.md", "src/engine/drafters/README.md",
         "cuda/several/README.md", "models.md"]
LIMIT_S = 120
SENTENCE = 426  # the id of "." in the tiny model's tokenizer
COMMIT = "0123456789abcdef0123456789abcdef01234567"

NOT_TYPED = {
    r"^sh scripts/bootstrap\.sh ": "installs packages",
    r"^make\b": "builds the program that is tested here",
    r"^(hf download|auk get) ": "downloads",
    r"-p 512,2048|-d 8192,32768": "takes a large model, or minutes",
    r"^auk completions fish": "is typed in fish",
    r"^(srun|mpirun|parallel) |> all\.txt": "is typed by map/test_clusters.py",
    r"^seq 10000 ": "takes a GPU, or minutes",
    r"^auk quantize ": "takes a model that is not quantised; models/test_quantize.py types such lines",
    r"/data/llms": "is a folder outside of this test's",
}
TYPED = re.compile(r"(auk|mkdir|printf|echo|git|find|for|export|source|answer=\$\(auk) ")
CHATS = re.compile(r"auk chat |auk -m \S+$")  # messages are entered there

TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}a: "
            "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}"
            "{% if tools %}{{ ' as {\"name\": function name, \"parameters\": dictionary}' }}{% endif %}")
FILES = {"notes.txt": "We met on Monday and decided to paint the door blue.\n", "text.txt": "Once upon a time.\n" * 9,
         "book.txt": "Once upon a time.\n", "mail.txt": "Buy now.\n", "lines.txt": "One\nTwo\n", "names.txt": "Ann\n",
         "people.jsonl": '{"name": "Ann"}\n',
         "rules.txt": "Be kind.\n", "a.txt": "The door is blue.\n", "b.txt": "The door is red.\n",
         "person.json": json.dumps({"type": "object", "required": ["name"], "additionalProperties": False,
                                    "properties": {"name": {"enum": ["Ann", "Bo"]}, "age": {"enum": [6, 7]}}}),
         "tools.json": '[{"type": "function", "function": {"name": "get_weather"}}]',
         "talk.json": '[{"role": "user", "content": "When?"}]',
         "answer.json": '{"name": "Ann", "age": 7}\n',
         "schemas.jsonl": '{"name": "a", "schema": {"type": "object"}, "tests": ["{}"]}\n',
         "conversations.jsonl": '{"messages": [{"role": "user", "content": "Hi"}]}\n',
         "src/file.h": "", "src/flags.h": "", "src/other.h": ""}

HOME = {"prompts/review.md": "Review this: {}\n", "prompts/translate.md": "In French: {}\n"}  # of ~/.config/auk
# Chats of ten turns.
KEPT = ["2026-11-22-1510-why-is-the-sky", "2026-11-22-1505-what-is-photosynthesis", "2026-11-22-1500-trees"]
COPIED = ["LICENSE", "scripts/bootstrap.sh"]  # the repository's own files that lines name

# --- what is typed


def code(line):
    return re.sub(r"  +", " ", re.sub(r"\s+# .*", "", line.strip()))


def blocks_of_pages():
    """{heading: lines} of what PAGES have in blocks of sh."""
    blocks, heading, inside = {}, "", False
    for line in "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES).splitlines():
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and line:
            assert not line.endswith("\\"), f"a line is a command here: {line}"
            blocks.setdefault(heading, []).append(code(line))
        elif not inside and line.startswith("#"):
            heading = line.lstrip("# ")
    return blocks


def manual(run):
    """The text of auk(1), with roff's names for characters undone."""
    page = run("man").stdout.decode()
    for roff, character in {"\\-": "-", "\\(aq": "'", "\\(ga": "`", "\\(ha": "^", "\\(ti": "~", "\\(rs": "\\"}.items():
        page = page.replace(roff, character)
    return page


def lines_of_help(run):
    """The commands that `auk --help`, "Examples:" of every command's help and the manual page show, once each."""
    first, second = run("--help").stdout.decode().split("Commands:")
    beginnings, commands = re.findall(r"(?m)^  (\w.*?)  ", first), re.findall(r"(?m)^  ([a-z]+)  ", second)
    assert len(beginnings) > 4 and {"run", "chat", "bench", "man"} <= set(commands)
    helped = [run(command, "--help").stdout.decode() for command in commands]
    blocks = ["\n".join(beginnings)]
    blocks += [block for said in helped for block in re.findall(r"(?m)^Examples:\n((?:  .*\n)+)", said)]
    shown = [line for block in re.findall(r"\n\.nf\n(.*?)\.fi", manual(run).split(".SH COMMANDS")[1], re.S)
             for line in block.splitlines() if TYPED.match(code(line))]
    assert len(shown) > 60
    return list(dict.fromkeys([code(line) for block in blocks for line in block.splitlines()] + list(map(code, shown))))


def reasons(line):
    """Why a line is not typed; none where it is."""
    return [why for pattern, why in NOT_TYPED.items() if re.search(pattern, line)]


BLOCKS = {heading: [line for line in lines if not reasons(line)] for heading, lines in blocks_of_pages().items()}
BLOCKS = {heading: lines for heading, lines in BLOCKS.items() if lines}

# --- what is expected of it


def text(out):
    assert out.strip() and not re.search(r"[\0\x1b]", out), out


def nothing(out):
    assert out == ""


def lines(n):
    def check(out):
        text(out)
        assert len(out.splitlines()) == n, out
    return check


def each_of(*words):
    def check(out):
        assert out.split() and set(out.split()) <= set(words), out
    return check


def has(*words):
    def check(out):
        assert all(word in out for word in words), out
    return check


def matching(pattern):
    def check(out):
        assert re.fullmatch(pattern, out), out
    return check


def numbers(out):
    assert re.fullmatch(r"(\d+( \d+)*|-0)\n", out), out


def json_with(*members):
    def check(out):
        for line in out.splitlines() or [out]:
            assert all(member in json.loads(line) for member in members), out
    return check


def pieces_and_the_whole(out):
    *pieces, whole = [json.loads(line) for line in out.splitlines()]
    assert whole["text"] == "".join(piece["text"] for piece in pieces) and whole["ids"]


NO_CODE = r"auk: the answer has no fenced code block \(-x\)|auk: the end came within the code block \(.*\)"
# A pattern of lines, their exit statuses, their standard output, each line of their standard error. The first row that
# matches counts.
EXPECTED = [
    (r"^export|^source|^(printf|echo) .* >>? |^answer=", (0,), nothing, None),
    (r"--json-schema .*jq \.age", (0,), numbers, None),
    (r"--map .*--json-schema .*jq -c \.value", (0,), json_with("name", "age"), None),
    (r"--regex .*\| jq -r", (0,), matching(r"[0-9]{4}-[01][0-9]-[0-3][0-9]\n"), None),
    (r"--grammar .*jq -c", (0,), matching(r'\["[a-z]{3,8}","[a-z]{3,8}","[a-z]{3,8}"\]\n'), None),
    (r"--json-schema '.*jq -r", (0,), each_of("red", "blue"), None),
    (r"--json-schema .*jq \.", (0,), has("name"), None),
    (r"--map reviews\.txt .*--json-schema", (0,), json_with("index", "value"), None),
    (r"--tools tools\.json", (0,), str, None),
    (r"--map reviews\.txt .*--regex", (0,), matching("([1-5]\n){3}"), None),
    (r"--json-schema .form", (0,), json_with("id", "value"), None),
    (r"-x (-n \d+ )?>", (0, 1, 4), nothing, NO_CODE),
    (r"^auk merge|--shard|--claim", (0,), nothing, None),
    (r"--gpu all > ", (0,), nothing, r"auk: .*: computing on the CPU|auk: .*: the answer is cut: .*"),
    (r"--split 2$", (0, 1, 2), str, r"auk: --split .* (on the CPU|visible)"),
    (r"-o (answer|when)\.txt|>decisions\.txt|--resume|completions zsh", (0,), nothing, None),
    (r"--exit-choice > answer", (0,), each_of("10", "11"), None),
    (r"--exit-choice$", (10, 11), each_of("yes", "no"), None),
    (r"--choose praise,complaint,question", (0,), each_of("praise", "complaint", "question"), None),
    (r"--choose mend,new", (0,), each_of("mend", "new"), None),
    (r"--choose yes,no --json", (0,), json_with("choice", "scores"), None),
    (r"--require-stop", (0,), text, r"auk: the answer was cut short by .* \(--require-stop\)"),
    (r"--truncate middle", (0,), text, r"auk: the prompt has .* were cut"),
    (r"--jsonl-stream --ids", (0,), pieces_and_the_whole, None),
    (r"--map-json .*--json", (0,), json_with("index", "id", "text"), None),
    (r"--map reviews\.txt", (0,), lines(3), None),
    (r"-f LICENSE --map -", (0,), lines(2), None),
    (r"--cache .*--map -", (0,), lines(2), r"auk: .*"),
    (r"--think$", (0,), text, r"auk: --think: the chat template of this model knows no thinking"),
    (r"^auk tokenize (?!.*--decode)|^auk inspect .*jq", (0,), numbers, None),
    (r"auk template", (0,), json_with("rendered"), None),
    (r"^auk eval", (0,), has("tokens=", "ppl="), None),
    (r"^auk bench .*-o json", (0,), has('"avg_ts"'), None),
    (r"^auk bench", (0,), has("pp512", "tg128"), None),
    (r"^auk inspect --architectures", (0,), has("Phi3ForCausalLM"), None),
    (r"^auk inspect --program", (0,), has("norm_qkv_rope_append", "lm_head"), None),
    (r"^auk inspect", (0,), has("LlamaForCausalLM", "context", "weights", "kv cache"), None),
    (r"^auk models(?!.*json)", (0,), has("Qwen/Qwen3-8B-AWQ", "yes"), None),
    (r"^auk cache", (0,), has("TOKENS", "MiB"), r"auk: .*/\.cache/auk: .* MiB"),
    (r"^auk pack|^auk chats rm", (0,), nothing, r"auk: .*"),
    (r"^mkdir ", (0,), nothing, ""),
    (r"^auk keep .*--keep|^auk keep --stop", (0,), nothing, r"auk: .*: process \d+ (keeps it on|has ended).*"),
    (r"^auk .* -u$", (0,), text, r"auk: prompt .*"),
    (r"^auk chat --continue", (0,), text, r"auk: goes on: .*"),
    (r"^auk chat -f", (0,), text, r"auk: .*: \d+ tokens, in front of your next message.*"),
    (r"^echo .* > ~/", (0,), nothing, None),
    (r"", (0,), text, None),
]
ENDS = r"auk: the answer is cut: it repeats itself \(give -n N to allow that\)|auk: the context of \d+ tokens is full.*"


def expected(line):
    """The row that a line matches. An answer without -n may end as README.md says that such answers can."""
    _, statuses, out, said = next(row for row in EXPECTED if re.search(row[0], line))
    return statuses, out, "|".join(filter(None, [said, "" if " -n " in line else ENDS]))


# --- typing


@pytest.fixture
def standin(variant):
    """The tiny model with a chat template and a context that has room for the files. It samples, but from one word, and
    ends with its first sentence."""
    return variant(config={"max_position_embeddings": 6144}, name="standin",
                   generation={"do_sample": True, "temperature": 0.2, "top_p": 0.01, "eos_token_id": [1, 2, SENTENCE]},
                   files={"tokenizer_config.json": json.dumps({"chat_template": TEMPLATE})})


@pytest.fixture
def demo(sanitized, tmp_path):
    """The demo's model, which samples from one word here, so that its answers are always the same."""
    if not DEMO.is_dir():
        pytest.skip(f"needs {DEMO.relative_to(ROOT)}: make demo")
    if sanitized:
        pytest.skip("takes minutes with sanitizers")
    (tmp_path / "demo").mkdir()
    for path in DEMO.iterdir():
        (tmp_path / "demo" / path.name).symlink_to(path)
    settings = {**json.loads((DEMO / "generation_config.json").read_text()), "top_p": 0.01}
    (tmp_path / "demo" / "generation_config.json").unlink()
    (tmp_path / "demo" / "generation_config.json").write_text(json.dumps(settings))
    return tmp_path / "demo"


def path_with(auk, folder):
    """A PATH whose first `auk` is the program that is tested: a script in FOLDER/bin."""
    (folder / "bin").mkdir()
    (folder / "bin" / "auk").write_text(f'#!/bin/sh\nexec {shlex.join(map(str, auk))} "$@"\n')
    (folder / "bin" / "auk").chmod(0o755)
    return f"{folder / 'bin'}:{os.environ['PATH']}"


class Place:
    """A home, a repository and a model, and a shell in which lines are typed."""

    def __init__(self, folder, auk, model):
        self.home, self.folder, self.model = folder / "home", folder / "repository", model
        for name, content in FILES.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(content)
        for name, content in HOME.items():
            (self.home / ".config" / "auk" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / ".config" / "auk" / name).write_text(content)
        (self.home / ".local" / "state" / "auk" / "chats").mkdir(parents=True)
        for name in KEPT:
            turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}] * 10
            talk = {"title": name[16:], "turns": 10, "model": str(model), "messages": turns}
            (self.home / ".local" / "state" / "auk" / "chats" / f"{name}.json").write_text(json.dumps(talk))
        for name in COPIED:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        long_times = 1 if model.name == "demo" else 20  # a whole context takes the demo's model too long
        (self.folder / "long.txt").write_text((ROOT / "LICENSE").read_text() * long_times)
        shutil.copy(model / "config.json", self.folder)
        self.link("repository/models/qwen3-8b-awq")
        self.link("home/llms/mine")
        hub = self.link(f"home/.cache/huggingface/hub/models--Qwen--Qwen3-8B-AWQ/snapshots/{COMMIT}").parents[1]
        (hub / "refs").mkdir()
        (hub / "refs" / "main").write_text(COMMIT)
        with gzip.open(ROOT / "test" / "data" / "tokenizers" / "smollm2" / "tokenizer.json.gz") as file:
            (folder / "tokenizer.json").write_bytes(file.read())
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HF_", "GIT_"))}
        self.environment = {**keep, "HOME": str(self.home), "AUK_MODEL": str(model), "GIT_CONFIG_NOSYSTEM": "1",
                            "PATH": path_with(auk, folder)}
        if shutil.which("git"):
            who = "git -c user.name=A -c user.email=a@b"
            self.run(f"git init -q && git add notes.txt && {who} commit -qm 'Add the notes' && git add LICENSE && "
                     f"{who} commit -qm 'Add a licence' && echo More >>notes.txt")

    def link(self, name):
        path = self.home.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.model)
        return path

    def here(self, line):
        """The line with this model's place. Ids in examples are those of a real vocabulary."""
        model = self.home.parent / "tokenizer.json" if "auk tokenize" in line else self.model
        line = re.sub(r"\b(?:MODEL|SMALLER)\b", str(model), line)
        return re.sub(r"\bDIR\b", ".", re.sub(r"\bCOMMIT\b", COMMIT, line))

    def run(self, line):
        options = {"input": "Name a fruit.\n"} if CHATS.match(line) else {"stdin": subprocess.DEVNULL}
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, timeout=LIMIT_S, **options)

    def type(self, line):
        """Types a line: what is wrong with what came of it, or None."""
        if any(not shutil.which(tool) for tool in re.findall(r"(?:^|\| )(git|jq|less|man)\b", line)):
            return None
        done = self.run(self.here(line))
        statuses, check, said = expected(line)
        strange = [told for told in done.stderr.splitlines() if not re.fullmatch(said, told)]
        try:
            check(done.stdout)
        except (AssertionError, ValueError) as wrong:
            strange.append(f"standard output: {wrong or repr(done.stdout)}")
        if done.returncode not in statuses:
            strange.append(f"exit status {done.returncode}")
        written = re.findall(r"(?:>|-o|--logits-out|--resume) ?([\w./-]+\.\w+)", line) if done.returncode == 0 else []
        strange += [f"{name} has nothing" for name in written if not (self.folder / name).stat().st_size]
        return f"$ {line}\n    " + "\n    ".join(strange) if strange else None


@pytest.fixture
def place(auk, tmp_path):
    def make(model):
        return Place(tmp_path / "there", auk, model)
    return make


def test_the_front_page_is_short():
    """scripts/lint.py checks its links."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


@pytest.mark.parametrize("model", ["standin", "demo"])
@pytest.mark.parametrize("heading", BLOCKS)
def test_every_line_of_the_pages_does_what_it_says(place, request, heading, model, sanitized):
    if sanitized:
        pytest.skip("the program without sanitizers has typed these lines")
    shell = place(request.getfixturevalue(model))
    typed = [line for line in BLOCKS[heading] if model == "standin" or not line.startswith("auk bench")]
    wrong = [shell.type(line) for line in typed]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_a_chat_of_the_pages_is_one_on_a_terminal(place, run, standin):
    Terminal = pytest.importorskip("chat_terminal").Terminal
    shell = place(standin)
    every = [line for lines in BLOCKS.values() for line in lines] + lines_of_help(run)
    chats = [line for line in every if CHATS.match(line) and "<" not in line]
    assert len(chats) > 3
    for line in chats:
        typed = f"cd {shlex.quote(str(shell.folder))} && {shell.here(line)}"
        terminal = Terminal(["bash", "-c", typed], {**shell.environment, "NO_COLOR": "1"})
        try:
            terminal.ready()
            assert terminal.say("Name a fruit.").strip(), line
            terminal.type("\x04")
            assert terminal.end() == 0, line
        finally:
            terminal.drop()


@pytest.fixture
def demo_shell(demo, auk, tmp_path):
    """A folder, and an environment in which `auk` is the program and AUK_MODEL the demo's model, greedy, on 2 cores."""
    (tmp_path / ".config/auk").mkdir(parents=True)
    (tmp_path / ".config/auk/config").write_text("temp 0\ndevice cpu\nt 2\n")
    keep = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return tmp_path, {**keep, "HOME": str(tmp_path), "AUK_MODEL": str(DEMO), "NO_COLOR": "1", "TERM": "xterm",
                      "PATH": path_with(auk, tmp_path)}


def typed_and_answered(name, mark):
    """The lines before the first that begins with the mark; then pairs of a line typed after it, and its answer."""
    before, *parts = re.split(f"(?m)^{re.escape(mark)} ", (ROOT / f"scripts/figures/{name}.txt").read_text())
    return before, [part.split("\n", 1) for part in parts]


def test_the_picture_of_a_pipe_is_a_real_run(demo_shell):
    folder, environment = demo_shell
    if not shutil.which("jq"):
        pytest.skip("needs jq")
    before, pairs = typed_and_answered("pipe", "$")
    assert not before and len(pairs) > 3
    for command, came in pairs:
        if command.startswith("cat "):
            (folder / command[4:]).write_text(came)
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True,
                              check=True, timeout=LIMIT_S)
        assert done.stdout == came, command


def test_the_picture_of_a_chat_is_a_real_run(demo_shell):
    Terminal = pytest.importorskip("chat_terminal").Terminal
    folder, environment = demo_shell
    before, pairs = typed_and_answered("chat", ">")
    plain = lambda text: re.sub(r"[\d.]+/s", "N/s", text).strip()  # the speed is another one
    assert before.startswith("$ auk\n") and len(pairs) > 1
    terminal = Terminal(["auk"], environment)
    try:
        assert plain(terminal.ready()).endswith(plain(before.removeprefix("$ auk\n")).replace("\n", "\r\n"))
        for message, came in pairs:
            assert plain(terminal.say(message)) == plain(came)
    finally:
        terminal.drop()


def test_every_line_of_help_and_manual_does_what_it_says(place, run, standin, sanitized):
    if sanitized:
        pytest.skip("the program without sanitizers has typed these lines")
    shell = place(standin)
    known = {line for lines in BLOCKS.values() for line in lines}
    wrong = [shell.type(line) for line in lines_of_help(run) if line not in known and not reasons(line)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_every_line_is_typed_or_in_the_list_of_those_that_are_not(run):
    every = [line for lines in blocks_of_pages().values() for line in lines] + lines_of_help(run)
    assert len(every) > 80
    assert [line for line in every if not reasons(line) and not TYPED.match(line)] == []
    for pattern in NOT_TYPED:
        assert any(re.search(pattern, line) for line in every), f"no line is like {pattern} any more"
