"""The file of settings: what a line may say, which commands take it, and what it never changes."""
import json
import os

import pytest

USAGE = 2


@pytest.fixture
def settings(tmp_path, run, stories):
    """settings(text): a function that runs auk with this file. Its member `path` is the file."""
    folder = tmp_path / "config" / "auk"
    folder.mkdir(parents=True)

    def write(text):
        path = folder / "config"
        if isinstance(text, str):
            text = text.encode()
        path.write_bytes(text.replace(b"STORIES", str(stories).encode()))
        clean = {name: value for name, value in os.environ.items() if name != "AUK_MODEL"}

        def call(*arguments, env=None, **options):
            environment = {**clean, "XDG_CONFIG_HOME": str(tmp_path / "config"), **(env or {})}
            return run(*arguments, env=environment, **options)

        call.path = path
        return call

    return write


def refused(process, message):
    assert (process.returncode, process.stdout, process.stderr.decode()) == (USAGE, b"", f"auk: {message}\n")


def answer(process):
    assert process.returncode == 0, process.stderr
    return process.stdout.decode()


def test_lines_are_flags(settings, run, stories):
    call = settings("\ufeffn 6\r\n# a comment\n\n  m = STORIES  \n--temp 0\nkv=f32\nno_status\n")
    want = answer(run("-m", stories, "--raw", "-p", "Once", "-n", 6, "--temp", 0, "--kv", "f32"))
    assert answer(call("--raw", "-p", "Once")) == want
    assert answer(call("--raw", "-p", "Once", "-n", 2)) != want  # the command line wins
    assert answer(call("--raw", "-p", "Once", "-n", 6, "--no-config", "-m", stories, "--kv", "f32")) == want


def test_a_quoted_value_is_a_json_string(settings, stories):
    call = settings('m STORIES\nstop ","\nn 40\n')
    assert "," not in answer(call("--raw", "-p", "Once upon a time"))
    call = settings('m STORIES\nsys "a\\nb"\n')
    process = call("chat", "-v", input=b"/system\n")
    assert b"a\nb" in process.stdout + process.stderr or process.returncode == USAGE  # the model may have no template


@pytest.mark.parametrize("line, message", [
    ("tempp 1", "there is no setting tempp: did you mean temp?"),
    ("bananas 1", "there is no setting bananas (a flag of auk run without its dashes)"),
    ("model: foo", "a setting is NAME VALUE, without a colon: model VALUE"),
    ("temp:0.5", "a setting is NAME VALUE, without a colon: temp VALUE"),
    ("bananas: 1", "there is no setting bananas: (a flag of auk run without its dashes)"),
    ("temp hot", 'temp is "hot", expected a number from 0 to 1000'),
    ("n", "n needs a value (N)"),
    ("kv f61", 'kv is "f61", expected f16|f32|q8: did you mean f16?'),
    ("no-history yes", 'no-history takes no value, found "yes"'),
    ("keep soon", 'keep is "soon", expected a time such as 90s, 10m or 2h, from 0 (not at all) to 11574d'),
    ("gpu-memory 12Q", 'gpu-memory is "12Q", expected a size such as 12G or 800M'),
    ("cache-limit 10X", 'cache-limit is "10X", expected a size such as 12G or 800M'),
    ("gpu x", '--gpu is "x", expected a number from 0 to 1023, several with commas between them, or all'),
    ('stop ""', "stop is empty (is a variable unset?)"),
    ("rope-theta 1e4", "this belongs to one model: a section [NAME] holds it"),
    ("[coder", "a section is [NAME]"),
    ("[ ]", "a section without a name"),
    ('stop "a', 'a value that begins with " is a JSON string, in " to its end'),
    ('stop "a\\u0000"', 'a value that begins with " is a JSON string, in " to its end'),
    (b"m a\0b", "a NUL"),
    (b"m a\xff", "no valid UTF-8"),
    *((name, f"{name} is for one call and cannot be set") for name in (
        "o", "output", "p", "-p", "f", "json", "map", "resume", "choose", "x", "s", "seed", "show-thinking", "raw",
        "messages", "tools", "json-schema", "parallel", "parse-special", "no-stream", "require-stop")),
], ids=lambda value: value if isinstance(value, str) else None)
def test_mistakes_have_file_and_line(settings, stories, line, message):
    lines = b"m STORIES\n\n" + (line.encode() if isinstance(line, str) else line) + b"\ntemp 0\n"
    call = settings(lines)
    for arguments in (["-m", stories, "--raw", "-p", "Once"], ["bench", stories], ["models"], ["inspect", stories]):
        refused(call(*arguments), f"{call.path}:3: {message} (--no-config goes without)")
    assert answer(call("inspect", "--no-config", stories))
    for arguments in (["man"], ["cache"], ["completions", "bash"], ["--version"], ["bench", "--help"]):
        assert call(*arguments).returncode == 0  # they take no settings


def test_what_is_no_file(settings, stories):
    call = settings("")
    call.path.unlink()
    assert answer(call("inspect", stories))
    call.path.mkdir()
    assert call("inspect", stories).returncode == 1
    call.path.rmdir()
    call.path.write_bytes(b"\x89PNG\r\n\x1a\n\0")
    refused(call("inspect", stories), f"{call.path} is a PNG image, expected text")
    call.path.unlink()
    os.mkfifo(call.path)
    refused(call("inspect", stories), f"{call.path} is a fifo, expected a regular file")


def test_sections_are_aliases_and_settings_of_a_model(settings, stories, talker):
    other = talker()
    call = settings(f"m STORIES\nn 3\n[mine]\nm {other}\nn 5\n[{other}]\nn 2\n[default]\nm STORIES\nn 1\n")

    def name_and_tokens(*arguments, **options):
        process = call(*arguments, "--raw", "-p", "Once", "--json", "--ignore-eos", **options)
        result = json.loads(answer(process))
        return result["model"], result["usage"]["completion_tokens"]

    assert name_and_tokens() == (stories.name, 3)
    assert name_and_tokens("-m", "mine") == ("talker", 5)
    assert name_and_tokens("-m", "mine", "-n", 4) == ("talker", 4)
    assert name_and_tokens("-m", other) == ("talker", 2)
    assert name_and_tokens("-m", stories) == (stories.name, 3)
    assert name_and_tokens(env={"AUK_MODEL": "mine"}) == (stories.name, 3)  # the file is before the environment
    assert b"talker" in call("inspect", "mine").stdout
    assert call("models", "--names").stdout.decode().split("\n")[-4:-1] == ["mine", str(other), "default"]
    call = settings(f"[mine]\nm {other}\nn 5\n")
    assert name_and_tokens(env={"AUK_MODEL": "mine"}) == ("talker", 5)
    call = settings(f"[mine]\nm {other}\ntokenizer {stories}/tokenizer.json\nplain\nno-wrap\n")
    assert name_and_tokens("-m", "mine", "-n", 2) == ("talker", 2)
    call = settings(f"m mine\n[mine]\nm {other}\nn 5\n")
    assert name_and_tokens() == ("talker", 5)


def test_a_name_that_is_no_model_is_probably_a_section(settings, stories):
    call = settings(f"m STORIES\n[coder]\nm STORIES\nn 3\n[brief]\nn 2\n[{stories}]\nn 2\n")
    arguments = ("--raw", "-p", "Once")
    refused(call("-m", "brief", *arguments),
            f'{call.path}: the section [brief] needs a line "m MODEL": no model is named brief')
    process = call("-m", "codr", *arguments)
    assert (process.returncode, process.stderr.decode()) == (
        3, f"auk: codr: no model, and no section of {call.path}; did you mean coder?\n")
    assert b"codr" in call("inspect", "codr").stderr
    assert answer(call("-m", "coder", *arguments)) != answer(call("-m", stories, *arguments))


def test_a_line_that_names_no_model_is_named(settings, stories):
    call = settings("m Qwen/nothing\n[coder]\nm /nonexistent\n[lily]\nm STORIES\n")
    for name, line, said in (("coder", 3, "/nonexistent: cannot open"), (None, 1, "Qwen/nothing: no such")):
        for arguments in ([*(["-m", name] if name else []), "-p", "Hi"], ["inspect", *([name] if name else [])]):
            process = call(*arguments)
            assert process.returncode == 3
            assert process.stderr.decode().startswith(f"auk: {call.path}:{line}: m {said}"), process.stderr
    other = call("-m", "/nonexistent", "-p", "Hi").stderr.decode()
    assert other.startswith("auk: /nonexistent: cannot open")
    broken = call("-m", "lily", "--tokenizer", call.path, "-p", "Hi").stderr.decode()  # the model is there
    assert broken.startswith("auk: ") and f"{call.path}:5" not in broken


def test_the_device_the_drafter_and_keeping_can_be_set(settings, stories, tmp_path):
    call = settings("m mine\ngpu-memory 1G\ntemp 0\nn 8\n[mine]\nm STORIES\ndraft STORIES\n")
    assert b"draft" in call("--raw", "-p", "Once", "-v", "--device", "cpu").stderr
    assert answer(call("--raw", "-p", "Once", "--device", "cpu"))  # where 1G means nothing
    assert b"no vocabulary" in call("--raw", "-p", "Once", "--draft", "no vocabulary").stderr
    refused(call("--raw", "-p", "Once", "--gpu-memory", "1G", "--device", "cpu"),
            "--gpu-memory is for GPUs, but this would compute on the CPU")
    call = settings("m STORIES\nguess 0\n")
    assert answer(call("--raw", "-p", "Once", "-n", 4, "--temp", 0))
    settings("m STORIES\nguess x\n")
    refused(call("--raw", "-p", "Once"), f'{call.path}:2: guess is "x", expected a whole number from 0 to 15 '
            "(--no-config goes without)")
    call = settings("m mine\n[mine]\nm STORIES\ninvariant\n")
    said = call("--raw", "-p", "Once", "-n", 1, "-v", "--device", "cpu").stderr
    assert b"invariant" in said and b"left out" not in said
    assert b"left out beside" in call("--raw", "-p", "Once", "-n", 1, "-v", "--cache").stderr
    call = settings("m mine\nno-invariant\n[mine]\nm STORIES\n")
    records = ["--raw", "--map", "-", "-n", 1, "-v"]
    said = call(*records, input=b"a\n").stderr
    assert b"no-invariant\n" in said and b"left out" not in said
    assert b"no-invariant (left out beside" in call(*records, "--invariant", input=b"a\n").stderr
    assert b"no-invariant (left out beside" in call("--raw", "-p", "Once", "-n", 1, "-v").stderr
    call = settings("m mine\nno-invariant\n[mine]\nm STORIES\ninvariant\n")
    assert b":2: no-invariant (left out beside" in call(*records, input=b"a\n").stderr
    assert b":5: invariant (left out beside" in call(*records, "--no-invariant", input=b"a\n").stderr
    place = {"XDG_RUNTIME_DIR": str(tmp_path)}
    call = settings("m STORIES\nkeep = 20s\ngpu-memory 1G\ndevice cpu\n")
    try:
        answer(call("--raw", "-p", "Once", "-n", 1, env=place))
        assert json.loads(answer(call("keep", "--json", env=place)))[0]["keep_seconds"] == 20
    finally:
        call("keep", "--stop", env=place)


def test_paths_begin_at_the_file_or_the_home(settings, talker, stories, tmp_path):
    model = talker()
    call = settings(f"m {model}\nsysf rules.txt\nchat-template chatml\n")
    (call.path.parent / "rules.txt").write_text("be kind\n")
    want = answer(call("-p", "Hi", "-n", 4, "--json", "--ids", cwd=tmp_path))
    got = answer(call("-p", "Hi", "-n", 4, "--json", "--ids", "-sys", "be kind", "--no-config", "-m", model,
                      "--chat-template", "chatml"))
    assert json.loads(want)["prompt_ids"] == json.loads(got)["prompt_ids"]
    os.symlink(stories, tmp_path / "model")
    call = settings("m ~/model\n")
    assert answer(call("--raw", "-p", "Once", "-n", 2, env={"HOME": str(tmp_path)}))


@pytest.mark.parametrize("lines, arguments", [
    ("n 5", ["--raw", "-p", "Once", "--choose", "a,b"]),
    ("temp 0.7\ntop-k 4", ["--raw", "-p", "Once", "--choose", "a,b"]),
    ("top-k 4\ntop-p 0.5\nmin-p 0.1", ["--raw", "-p", "Once", "-n", "4", "--temp", "0"]),
    ("sys Be kind.\nthink", ["--raw", "-p", "Once", "-n", "4"]),
    ("sys Be kind.", ["-p", "Once", "-n", "4"]),  # it has no template
    ("c 1000000", ["--raw", "-p", "Once", "-n", "4"]),
    ("context-overflow slide\nno-status", ["--raw", "-p", "Once", "-n", "4"]),
    ("cache-limit 1G", ["--raw", "-p", "Once", "-n", "4"]),
    ("stop a", ["--raw", "-p", "Once", "-n", "4", "--regex", "[ab]*"]),
    ("gpu 1", ["--raw", "-p", "Once", "-n", "4", "--device", "cpu"]),
], ids=lambda value: value if isinstance(value, str) else None)
def test_what_a_script_gives_is_what_it_gets(settings, run, stories, lines, arguments):
    """A setting gives way to the flags of a call, and to a model that has no use for it, without a word."""
    want = run("-m", stories, *arguments)
    assert want.returncode == 0, want.stderr
    got = settings(lines + "\n")("-m", stories, *arguments)
    assert (got.returncode, got.stdout, got.stderr) == (0, want.stdout, want.stderr)


def test_other_commands_keep_their_own_flags(settings, run, stories):
    """-n of bench counts other tokens, and its answers are greedy; tokenize has an operand that is text."""
    call = settings("m STORIES\nn 300\ntemp 0.9\nsys Hello\n[lily]\nm nowhere\n")
    tables = call("bench", stories, "-p", "4", "-r", "1").stdout.decode()
    assert "tg128" in tables and "temp" not in tables
    assert call("tokenize", "lily").stdout == run("tokenize", "-m", stories, "lily").stdout
    process = call("schema", "--schema", "-", input=b"{}")
    assert b"nowhere" not in process.stderr


def test_a_cache_that_is_set_does_not_put_records_in_line(settings, stories, tmp_path):
    call = settings("m STORIES\ncache\n")
    process = call("--map", "-", "--raw", "-n", 2, "-v", input=b"a\nb\n", env={"XDG_CACHE_HOME": str(tmp_path / "c")})
    assert process.returncode == 0 and b"sequences at once" in process.stderr
    assert not (tmp_path / "c").exists()


def test_v_says_what_came_from_where(settings, stories):
    call = settings("m STORIES\nn 3\ntop-k 4\n")
    lines = call("--raw", "-p", "Once", "--temp", 0, "-v").stderr.decode().splitlines()
    assert lines[:3] == [f"auk: {call.path}:1: m {stories}", f"auk: {call.path}:2: n 3",
                         f"auk: {call.path}:3: top-k 4 (left out beside the flags of this call)"]
    call = settings("v\n")
    lines = call("--raw", "-p", "Once", "-n", 1, env={"AUK_MODEL": str(stories)}).stderr.decode().splitlines()
    assert lines[:2] == [f"auk: AUK_MODEL: m {stories}", f"auk: {call.path}:1: v"]


def test_models_marks_the_default(settings, stories):
    call = settings("m STORIES\n")
    assert b"(default: settings)" in call("models", env={"AUK_MODEL": "elsewhere"}).stdout
    assert b"the settings' model: " in settings("m elsewhere\n")("models").stderr
