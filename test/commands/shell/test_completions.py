"""`auk completions SHELL`: the scripts, driven in the shells themselves where those are installed."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SHELLS = ("bash", "zsh", "fish")
LIMIT_S = 30


def shell(name):
    return shutil.which(name) or pytest.skip(f"needs {name}")


@pytest.fixture(scope="module")
def commands(auk):
    """Every command's help: its name, and its flags as lists of spellings."""
    def text_of(*arguments):
        return subprocess.run([*auk, *arguments], check=True, capture_output=True, timeout=LIMIT_S).stdout.decode()

    listed = text_of("--help").split("Commands:\n")[1].split("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    assert {"run", "models", "completions", "man"} <= set(names)
    pattern = re.compile(r"^  (-[\w-]+(?:, -[\w-]+)*)", re.MULTILINE)
    flags = {name: [found.split(", ") for found in pattern.findall(text_of(name, "--help", "all"))] for name in names}
    assert ["-s", "--seed"] in flags["run"] and ["-h", "--help"] in flags["man"]
    return flags


@pytest.fixture(scope="module")
def scripts(auk, tmp_path_factory):
    """The three scripts, and a folder for PATH in which `auk` is the program under test."""
    folder = tmp_path_factory.mktemp("completions")
    for name in SHELLS:
        with open(folder / name, "wb") as file:
            subprocess.run([*auk, "completions", name], check=True, stdout=file, timeout=LIMIT_S)
    (folder / "bin").mkdir()
    (folder / "bin" / "auk").symlink_to(auk[-1])
    return folder


@pytest.fixture
def place(tmp_path, stories):
    """A directory to complete in: a file, a folder, a model in it, and a model of the Hugging Face cache."""
    here = tmp_path / "here"
    (here / "folder" / "inner").mkdir(parents=True)
    (here / "file one.txt").touch()
    shutil.copytree(stories, here / "models" / "tiny")
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-8B-AWQ" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    return here


@pytest.fixture
def settings(scripts, place):
    return {**os.environ, "PATH": f"{scripts}/bin:{os.environ['PATH']}", "HF_HUB_CACHE": str(place.parent / "hub"),
            "TERM": "dumb"}


@pytest.mark.parametrize("name", SHELLS)
def test_the_shell_accepts_its_script(name, scripts):
    done = subprocess.run([shell(name), "-n", scripts / name], capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0 and done.stderr == b""


def test_shellcheck_finds_nothing_in_the_bash_script(scripts):
    done = subprocess.run([shell("shellcheck"), "-s", "bash", scripts / "bash"], capture_output=True, timeout=LIMIT_S,
                          check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_a_shell_must_be_named(run):
    process = run("completions", "tcsh")
    assert process.returncode == 2 and b"expected bash|zsh|fish" in process.stderr
    assert run("completions").returncode == 2
    assert run("completions", "bash", "zsh").returncode == 2


def test_every_flag_of_every_command_is_in_zsh(scripts, commands):
    text = (scripts / "zsh").read_text()
    for command, flags in commands.items():
        body = re.search(rf"^_auk_{command}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL).group(1)
        specified = re.findall(r"^    '(?:\*|\([^)]*\))?(-[\w-]+)=?\[(.+)\]", body, re.MULTILINE)
        assert [name for name, _ in specified] == [name for flag in flags for name in flag]
        assert f"'{command}:" in text


def test_zsh_offers_a_flag_again_where_it_may_be_repeated(scripts, helps):
    """Such a flag takes a list, or its help says so."""
    text = (scripts / "zsh").read_text()
    for command, flags in helps.items():
        body = re.search(rf"^_auk_{command}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)[1]
        repeated = {name for names, argument, words in flags for name in names
                    if (argument or "").endswith(",...") or "may be repeated" in " ".join(words)}
        assert set(re.findall(r"^    '\*(-[\w-]+)", body, re.MULTILINE)) == repeated


def test_every_flag_of_every_command_is_in_fish(scripts, commands):
    lines = (scripts / "fish").read_text().splitlines()
    for command, flags in commands.items():
        own = [line for line in lines if line.startswith(f"complete -c auk -n '__auk_is {command}' -")]
        found = []
        for line in own:
            names = re.findall(r" -([slo]) ([\w-]+)", line.split(" -d '")[0])
            if names:
                assert all((kind == "s") == (len(name) == 1) for kind, name in names)  # -o: one dash, several letters
                assert re.search(r" -d '.+'$", line)
                found.append(["--" + name if kind == "l" else "-" + name for kind, name in names])
        assert found == flags


# --- the three scripts say the same of every flag


@pytest.fixture(scope="module")
def helps(auk):
    """For each command: its flags in order as (spellings, argument, the words of the help), and its usage."""
    def of(command):
        done = subprocess.run([*auk, command, "--help", "all"], check=True, capture_output=True, timeout=LIMIT_S)
        flags = []
        for line in done.stdout.decode().splitlines():
            found = re.match(r"  (-[\w-]+(?:, -[\w-]+)*)(?: (\S+))?(?:$|  )(.*)", line)
            if found:
                flags.append([found[1].split(", "), found[2], found[3].split()])
            elif flags and line.startswith("      "):
                flags[-1][2] += line.split()
        return flags

    listed = subprocess.run([*auk, "--help"], check=True, capture_output=True).stdout.decode().split("Commands:\n")[1]
    return {line.split()[0]: of(line.split()[0]) for line in listed.split("\n\n")[0].splitlines()}


def values_in_bash(text, command):
    """Spelling -> (kind, words) of each flag that takes a value, and what an operand is."""
    body = re.search(rf"^  {command}\)\n(.*?)^    ;;$", text, re.MULTILINE | re.DOTALL)[1]
    values = {}
    for names, kind, words in re.findall(r"^    (-.*)\) value='(\w+)'(?: words='([^']*)')? ;;$", body, re.MULTILINE):
        for name in names.split(" | "):
            assert name not in values
            values[name] = (kind, words)
    operand = re.search(r"^    operand='(\w*)'(?: operand_words='([^']*)')?$", body, re.MULTILINE)
    return values, (operand[1], operand[2] or "")


def values_in_zsh(text, command):
    actions = {" ": "text", "_files": "file", "_files -/": "directory", "_auk_checkpoints": "model",
               "_auk_chat_names": "chat", "_auk_prompt_names": "prompt"}
    body = re.search(rf"^_auk_{command}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)[1]
    values, operand = {}, ("", "")

    def kind_of(action):
        if action.startswith("("):
            return "words", action[1:-1]
        if action.startswith("_auk_chat_names "):
            return "chat", action.removeprefix("_auk_chat_names ")
        if action.startswith(" _auk_word_or_file "):
            return "word_or_file", action.removeprefix(" _auk_word_or_file ")
        return actions[action], ""

    for line in re.findall(r"^    '(.*)'(?: \\)?$", body, re.MULTILINE):
        flag = re.match(r"(?:\*|\([^)]*\))?(-[\w-]+)(=?)\[(?:\\.|[^\]\\])*\](?:::?([^:]*):(.*))?$", line)
        if flag and flag[3] is not None:
            values[flag[1]] = kind_of(flag[4])
        assert not flag or (flag[2] == "=") == (flag[3] is not None and flag[1].startswith("--"))
        if not flag:
            operand = kind_of(line.lstrip("*").split(":", 2)[2])
    return values, operand


def values_in_fish(text, command):
    values, operand = {}, ("", "")
    for line in text.splitlines():
        found = re.match(rf"complete -c auk -n '__auk_is {command}'((?: -[slo] [\w-]+)*)(.*)$", line)
        if not found:
            continue
        how, _, _ = found[2].partition(" -d '")
        models, folders = "-a '(__auk_models)'", "-a '(__fish_complete_directories)'"
        words = re.search(r" -a '([^'(]*)'", how) or re.search(r" -a '\(__auk_chats ([^')]*)\)'", how)
        kind = ("chat" if "__auk_chats" in how else "prompt" if "__auk_prompts" in how
                else "model" if models in how else "directory" if folders in how
                else "word_or_file" if words and "-F" in how else "words" if words else "file" if "-F" in how
                else "text" if "-x" in how else "")
        names = ["--" + name if dash == "l" else "-" + name
                 for dash, name in re.findall(r" -([slo]) ([\w-]+)", found[1])]
        if names and kind:
            assert ("-r" in how or "-x" in how) == (kind != "chat")  # it takes a value; a chat's name may be absent
        for name in names:
            if kind:
                values[name] = (kind, words[1] if words else "")
        if not names:
            operand = (kind, words[1] if words else "")
    return values, operand


def test_the_shells_complete_the_same_values(scripts, helps):
    bash, zsh, fish = ((scripts / name).read_text() for name in SHELLS)
    for command, flags in helps.items():
        values, operand = values_in_bash(bash, command)
        operand = ("", "") if operand[0] == "text" else operand  # a prompt: nothing can be proposed
        assert values_in_zsh(zsh, command) == (values, operand), command
        assert values_in_fish(fish, command) == (values, operand), command
        assert set(values) == {name for names, argument, _ in flags if argument for name in names}
        for names, argument, _ in flags:
            kind, words = values.get(names[0], ("", ""))
            assert all(values.get(name, ("", "")) == (kind, words) for name in names)
            if argument and "|" in argument and kind == "words":
                assert words == argument.replace("|", " ")
            if argument in ("FILE", "DIR", "MODEL"):
                assert kind in {"FILE": ("file", "word_or_file"), "DIR": ("directory",), "MODEL": ("model",)}[argument]
            if argument in ("N", "X", "N,...", "TEXT", "SECONDS"):
                assert kind == "text"
    operands = {command: values_in_bash(bash, command)[1] for command in helps}
    assert operands["inspect"] == operands["pack"] == ("model", "") and operands["models"] == ("directory", "")
    assert operands["chats"] == ("chat", "show rm") and operands["schema"] == ("file", "")
    assert operands["completions"] == ("words", "bash zsh fish") and operands["man"] == ("", "")


def test_a_flag_is_described_by_the_beginning_of_its_help(scripts, helps):
    """Up to its first aside, but not before the 13th character."""
    zsh, fish = (scripts / "zsh").read_text(), (scripts / "fish").read_text()
    for command, flags in helps.items():
        body = re.search(rf"^_auk_{command}\(\) {{\n(.*?)^}}", zsh, re.MULTILINE | re.DOTALL)[1]
        in_zsh = dict(re.findall(r"^    '(?:\*|\([^)]*\))?(-[\w-]+)=?\[((?:\\.|[^\]\\])*)\]", body, re.MULTILINE))
        lines = [line for line in fish.splitlines() if line.startswith(f"complete -c auk -n '__auk_is {command}' -")]
        in_fish = [re.sub(r"\\(.)", r"\1", line.split(" -d '")[1][:-1]) for line in lines if " -d '" in line]
        assert len(in_fish) == len(flags)
        for (names, _, words), short in zip(flags, in_fish):
            text = " ".join(words)
            ends = [at for at in range(13, len(text)) if text.startswith(("; ", " ("), at)]
            assert short == text[:ends[0] if ends else None], (command, names)
            for name in names:
                assert re.sub(r"\\(.)", r"\1", in_zsh[name]) == short.replace("'", "`")


# --- bash: the function, called as the shell calls it

DRIVER = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_auk "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash(scripts, place, settings):
    program = shell("bash")

    def complete(*words):
        done = subprocess.run([program, "--norc", "-c", DRIVER, "bash", scripts / "bash", "auk", *words], cwd=place,
                              env=settings, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()
        return sorted(done.stdout.decode().splitlines())

    return complete


def test_bash_completes_commands(bash, commands):
    assert bash("") == sorted(commands)
    assert bash("insp") == ["inspect"]
    assert bash("--vers") == ["--version"]


def test_bash_completes_every_flag_of_every_command(bash, commands):
    for command, flags in commands.items():
        names = sorted(name for flag in flags for name in flag)
        assert bash(command, "-") == names
    assert "--max-new-tokens" in bash("--max")  # no command is run
    assert bash("eval", "--logits") == ["--logits-out"]


def test_bash_completes_values(bash):
    assert bash("--kv", "") == ["f16", "f32", "q8"]
    assert bash("bench", "-m", "x", "--device", "c") == ["cpu", "cuda"]
    assert bash("--kv", "=") == ["f16", "f32", "q8"]  # --kv= comes as words of their own
    assert bash("--kv", "=", "f3") == ["f32"]
    assert bash("completions", "") == ["bash", "fish", "zsh"]
    assert bash("-p", "") == [""] and bash("-n", "") == [""]  # nothing to propose
    assert bash("man", "") == [""]


def test_bash_completes_chats(bash, settings, place):
    kept = place.parent / "state" / "auk" / "chats"
    kept.mkdir(parents=True)
    settings["XDG_STATE_HOME"] = str(place.parent / "state")
    (kept / "2026-11-22-1510-sky.json").write_text("{}")
    assert bash("chats", "") == ["rm", "show"] and bash("chats", "2") == [""]
    assert bash("chats", "show", "") == bash("chats", "rm", "2") == bash("--continue", "") == ["2026-11-22-1510-sky"]


def test_bash_completes_built_in_templates_and_files(bash):
    assert {"chatml", "llama3", "gemma", "phi", "file one.txt", "folder"} <= set(bash("--chat-template", ""))
    assert bash("--chat-template", "lla") == ["llama2", "llama3"]
    assert bash("template", "--chat-template", "=", "f") == ["file one.txt", "folder"]


def test_bash_completes_paths(bash):
    assert bash("-f", "") == ["file one.txt", "folder", "models"]
    assert bash("-f", "file") == ["file one.txt"]
    assert bash("models", "") == ["folder", "models"]
    assert bash("tokenize", "--tokenizer", "=", "fi") == ["file one.txt"]


def test_bash_completes_models(bash):
    assert bash("-m", "Q") == ["Qwen/Qwen3-8B-AWQ"]
    assert set(bash("-m", "")) == {"Qwen/Qwen3-8B-AWQ", "models/tiny", "file one.txt", "folder", "models"}
    assert set(bash("inspect", "models/")) == {"models/tiny"}


# --- the shells as a person uses them, on a terminal


@pytest.mark.parametrize("name,flags,prepare", [
    ("bash", ["--norc", "--noprofile", "-i"], ""),
    ("zsh", ["-f", "-i"], "autoload -U compinit; compinit -u -D; "),
])
def test_a_tab_completes(scripts, place, settings, name, flags, prepare):
    pexpect = pytest.importorskip("pexpect", reason="needs pexpect")
    child = pexpect.spawn(shell(name), flags, cwd=place, env={**settings, "PS1": "> "}, encoding="utf-8",
                          timeout=LIMIT_S, dimensions=(24, 200))
    child.sendline(f"{prepare}source {scripts / name}; echo rea''dy")
    child.expect("ready")
    for text, line in (("auk insp", "auk inspect"),
                       ("auk inspect --tens", "auk inspect --tensors"),
                       ("auk --kv=f3", "auk --kv=f32"),
                       ("auk run --kv f3", "auk run --kv f32"),
                       ("auk -m Qw", "auk -m Qwen/Qwen3-8B-AWQ"),
                       ("auk --chat-template gem", "auk --chat-template gemma"),
                       ("auk --chat-template fi", "auk --chat-template file\\ one.txt"),
                       ("auk completions f", "auk completions fish")):
        # The completed line is echoed, not run: Ctrl-A, echo ', Ctrl-E, '.
        child.send(f"{text}\t\x01echo 'line: \x05'\r")
        child.expect(r"\r\nline: ([^\r]*)\r\n")
        assert child.match.group(1).rstrip() == line
    child.close(force=True)


def test_fish_completes(scripts, place, settings):
    program = shell("fish")

    def complete(line):
        done = subprocess.run([program, "--no-config", "-c", f"source {scripts}/fish; complete -C '{line}'"],
                              cwd=place, env={**settings, "HOME": str(place)}, capture_output=True, timeout=LIMIT_S,
                              check=True)
        return {candidate.split("\t")[0] for candidate in done.stdout.decode().splitlines()}

    assert {"run", "models", "man"} <= complete("auk ")
    assert complete("auk insp") == {"inspect"}
    assert complete("auk inspect --tens") == {"--tensors"}
    assert complete("auk --max-new") == {"--max-new-tokens"}
    assert complete("auk bench --device c") == {"cpu", "cuda"}
    assert complete("auk --chat-template lla") == {"llama2", "llama3"}
    assert complete("auk --chat-template fi") == {"file one.txt"}
    assert complete("auk completions ") == {"bash", "fish", "zsh"}
    assert complete("auk -m Qw") == {"Qwen/Qwen3-8B-AWQ"}
    assert complete("auk models fol") == {"folder/"}
    assert complete("auk -f fi") == {"file one.txt"}


def test_installed_where_shells_and_man_look(root, auk, tmp_path):
    """`make install` with the program as it was built: nothing but what it puts where."""
    build = pathlib.Path(auk[-1]).parent
    if not (root / "Makefile").exists() or len(auk) > 1:
        pytest.skip("needs the program where it was built")
    dry = subprocess.run(["make", "-n", "-C", str(root), f"BUILD={build}", "install", f"DESTDIR={tmp_path}",
                          "PREFIX=/usr"], capture_output=True, timeout=LIMIT_S, check=True).stdout.decode()
    lines = [line for line in dry.splitlines() if str(tmp_path) in line]
    assert lines
    for line in lines:
        subprocess.run(["sh", "-e", "-c", line], cwd=root, check=True, timeout=LIMIT_S)
    found = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    pages = {"usr/share/man/man1/auk.1": ("man",),
             "usr/share/bash-completion/completions/auk": ("completions", "bash"),
             "usr/share/zsh/site-functions/_auk": ("completions", "zsh"),
             "usr/share/fish/vendor_completions.d/auk.fish": ("completions", "fish")}
    assert set(found) >= {"usr/bin/auk", *pages}
    for name, arguments in pages.items():
        said = subprocess.run([*auk, *arguments], capture_output=True, check=True, timeout=LIMIT_S).stdout
        assert found[name].read_bytes() == said and found[name].stat().st_mode & 0o777 == 0o644
    assert found["usr/bin/auk"].stat().st_mode & 0o777 == 0o755
