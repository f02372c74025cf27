"""Models that think before they answer: the tiny model with a template and marks, which are its "," and its "."."""
import json
import os
import pty

import pytest

from renamed_tokens import renamed

PROMPT = "Once upon a time"
THOUGHT = "there was a little girl named Lily"
ANSWER = "She loved to play outside in the sunshine</think> One day<think> she saw a big<think> red ball in the sky"
OPEN, CLOSE = 432, 426  # the ids of "," and "."

# The content alone, so that the prompt is the one that the story is known for; a switch as Qwen3's template has it.
PLAIN = "{{ bos_token }}{{ messages[-1].content }}{# <think></think> #}"
SWITCH = PLAIN + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
OPENED = PLAIN + "<think>\n"
SYSTEM = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


MARKS = {",": "<think>", ".": "</think>"}
spelled = renamed(MARKS)  # a change of tokenizer.json: the marks are tokens like any other


def marked(special):
    """A change of tokenizer.json: "," and "." are added tokens, the marks of thoughts."""

    def change(it):
        it = spelled(it)
        for name in MARKS.values():
            it["added_tokens"].append({"id": it["model"]["vocab"][name], "content": name, "single_word": False,
                                       "lstrip": False, "rstrip": False, "normalized": False, "special": special})
        it["added_tokens"].sort(key=lambda token: token["id"])
        return it

    return change


@pytest.fixture
def thinker(variant):
    """thinker(template, tokenizer): the model that thinks."""
    made = []

    def make(template=SWITCH, tokenizer=marked(False), **options):
        made.append(template)
        files = {"chat_template.jinja": template, "tokenizer_config.json": json.dumps({"bos_token": "<s>"})}
        return variant(tokenizer=tokenizer, files=files, name=f"thinker{len(made)}", **options)

    return make


@pytest.fixture
def ask(run, thinker):
    models = {}

    def get(*flags, template=SWITCH, tokenizer=marked(False), prompt=PROMPT, **options):
        key = (template, tokenizer.__name__, id(tokenizer) if tokenizer is not spelled else 0)
        if key not in models:
            models[key] = thinker(template, tokenizer)
        return run("-m", models[key], "-p", prompt, "-n", 45, *flags, **options)

    return get


@pytest.fixture
def tell(ask):
    """The function returns the object that --json writes."""

    def get(*flags, **options):
        process = ask("--json", "--ids", *flags, **options)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return get


# --- where thoughts go


@pytest.mark.parametrize("tokenizer", [marked(False), marked(True), spelled], ids=["added", "special", "spelled"])
def test_a_thought_is_not_the_answer(ask, tell, tokenizer):
    """The mark is an added token, a special token (which has no text otherwise), or ordinary text."""
    process = ask(tokenizer=tokenizer)
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.decode().startswith("She loved to play outside in the sunshine")
    it = tell(tokenizer=tokenizer)
    assert it["thinking"] == THOUGHT and it["text"] + "\n" == process.stdout.decode()
    assert it["usage"]["thinking_tokens"] == it["ids"].index(CLOSE) - 1  # all between the marks


def test_marks_behind_the_thought_are_words(ask):
    answer = ask("-n", 40).stdout.decode().removesuffix("\n")
    assert answer == ANSWER[:len(answer)] != ""
    assert "</think> One day<think>" in ask("-n", 40).stdout.decode()


def test_a_pipe_gets_thoughts_when_asked(ask):
    answer = ask().stdout
    assert ask("--show-thinking").stdout == f"<think>\n{THOUGHT}\n</think>\n\n".encode() + answer
    assert ask("--show-thinking", "--no-stream").stdout == ask("--show-thinking").stdout


def test_a_file_gets_what_a_pipe_gets(ask, tmp_path):
    assert ask("-o", tmp_path / "out").stdout == b""
    assert (tmp_path / "out").read_bytes() == ask().stdout


def test_json_tells_thoughts_from_answers(ask, tell):
    it = tell()
    assert (it["thinking"], it["text"]) == (THOUGHT, ask("--no-newline").stdout.decode())
    assert "thinking" not in tell("--hide-thinking")
    *pieces, whole = map(json.loads, ask("--jsonl-stream").stdout.splitlines())
    assert "".join(piece.get("thinking", "") for piece in pieces) == whole["thinking"] == THOUGHT
    assert "".join(piece.get("text", "") for piece in pieces) == whole["text"]
    kinds = [next(iter(piece)) for piece in pieces]
    assert kinds == sorted(kinds, reverse=True)  # "thinking", then "text"
    hidden = ask("--jsonl-stream", "--hide-thinking").stdout
    assert b"thinking\":" not in hidden.replace(b"thinking_tokens\":", b"")


@pytest.fixture
def terminal(start, thinker):
    """terminal(*flags, **environment): what is written to a terminal."""
    model = thinker()

    def get(*flags, **environment):
        main, other = pty.openpty()
        environment = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **environment}
        process = start("-m", str(model), "-p", PROMPT, "-n", "45", *flags, stdout=other, env=environment)
        os.close(other)
        parts = []
        while True:
            try:
                parts.append(os.read(main, 65536))
            except OSError:  # EIO: the other side is gone
                break
        os.close(main)
        assert process.wait(60) == 0
        return b"".join(parts).replace(b"\r\n", b"\n").decode()

    return get


def test_a_thought_is_dim_on_a_terminal(terminal, ask):
    seen, answer = terminal(), ask("--no-newline").stdout.decode()
    assert seen.endswith("\n\n" + answer + "\n")
    thought = seen[:-len(answer) - 3]
    pieces = thought.split("\033[22m")
    assert pieces.pop() == ""  # each write ends what it began
    assert all(piece.lstrip(" ").startswith("\033[2m") for piece in pieces)
    assert "".join(piece.replace("\033[2m", "", 1) for piece in pieces) == THOUGHT


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_without_colours_there_are_marks(terminal, ask, environment):
    assert terminal(**environment) == f"<think>\n{THOUGHT}\n</think>\n\n{ask().stdout.decode()}"


def test_an_empty_no_color_says_nothing(terminal):
    assert "\033[2m" in terminal(NO_COLOR="")  # https://no-color.org: "when present and not an empty string"


def test_a_terminal_can_do_without_thoughts(terminal, ask):
    assert terminal("--hide-thinking") == ask().stdout.decode()


# --- whether it thinks


def test_the_template_is_told(tell):
    plain, no, yes = tell()["prompt_ids"], tell("--no-think")["prompt_ids"], tell("--think")["prompt_ids"]
    assert plain == yes != no
    assert no[:len(plain)] == plain and no[len(plain)] == OPEN and CLOSE in no[len(plain):]
    it = tell("--no-think")
    assert it["usage"]["thinking_tokens"] == 0 and "thinking" not in it


def test_without_a_switch_the_thought_is_closed_at_once(tell):
    it = tell("--no-think", template=PLAIN)
    assert it["prompt_ids"] == tell(template=PLAIN)["prompt_ids"]
    assert it["ids"][0] == OPEN and it["ids"].index(CLOSE) <= 4  # the mark that the model wrote, and what closes it
    assert it["usage"]["thinking_tokens"] == 0 and "thinking" not in it and it["text"]
    it = tell("--no-think", template=OPENED)
    assert it["ids"].index(CLOSE) <= 2 and OPEN not in it["ids"][:3]
    assert it["usage"]["thinking_tokens"] == 0 and it["text"]


def test_a_prompt_may_end_in_a_thought(tell, ask):
    it = tell(template=OPENED)
    assert it["thinking"] and it["usage"]["thinking_tokens"] == it["ids"].index(CLOSE)
    assert ask("--no-newline", template=OPENED).stdout.decode() == it["text"]


def test_text_of_a_person_opens_no_thought(tell):
    """Not special, so they are tokens wherever they stand; but what opens a thought is what the prompt ends in."""
    it = tell(prompt="<think> Once upon a time", template=SYSTEM)
    assert "thinking" not in it or not it["thinking"].startswith("Once")


# --- how long it thinks


@pytest.mark.parametrize("budget", [0, 1, 3, 6])
def test_a_budget_closes_a_thought(tell, budget):
    free, it = tell(), tell("--think-budget", budget)
    n = 1 + budget  # the mark and the thought
    assert it["ids"][:n] == free["ids"][:n]
    end = it["ids"].index(CLOSE)
    assert end == n + 1  # a newline before the mark
    assert it["usage"]["thinking_tokens"] == budget
    words = it.get("thinking", "")
    assert THOUGHT.startswith(words) and (words == "") == (budget == 0)
    assert len(it["ids"]) == 45  # forced ones count as others do
    if budget:  # the answer goes on as from a prompt that holds the closed thought (this tokenizer adds the space)
        want = tell("-n", 10, prompt=f"{PROMPT}<think>{words}\n</think>\n\n")
        n = len(want["prompt_ids"])
        assert (it["prompt_ids"] + it["ids"])[:n + 10] == want["prompt_ids"] + want["ids"]


def test_a_budget_that_is_not_used_up_changes_nothing(tell):
    free = tell()
    assert tell("--think-budget", 100)["ids"] == free["ids"]
    assert tell("--reasoning-budget", -1)["ids"] == free["ids"]


def test_a_budget_holds_where_the_prompt_opened_the_thought(tell):
    it, free = tell("--think-budget", 3, template=OPENED), tell(template=OPENED)
    assert it["ids"][:3] == free["ids"][:3] and CLOSE in it["ids"][3:6]
    assert it["usage"]["thinking_tokens"] == 3


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_records_close_a_thought_within_n_as_a_prompt_does(run, thinker, n):
    flags = ["-m", thinker(OPENED), "-t", 1, "--json", "--ids", "--think-budget", 0, "-n", n]
    alone = json.loads(run(*flags, "-p", PROMPT).stdout)
    assert len(alone["ids"]) == n
    for parallel in (1, 2):  # the second record knows what the first one's thought was closed with
        process = run(*flags, "--map", "-", "--parallel", parallel, input=2 * f"{PROMPT}\n".encode())
        for it in map(json.loads, process.stdout.splitlines()):
            assert (it["ids"], it["finish_reason"]) == (alone["ids"], "length")
            assert it["usage"]["reused_tokens"] <= it["usage"]["prompt_tokens"]


def test_a_thought_in_circles_ends_it_where_no_budget_closes_it(run, thinker, sanitized):
    if sanitized:
        pytest.skip("thousands of tokens take minutes with sanitizers")
    model = thinker(OPENED, config={"max_position_embeddings": 20000}, generation={"eos_token_id": None})
    flags = ["-m", model, "-t", 1, "-p", PROMPT, "--json", "--repeat-penalty", "0.01"]  # its own words are likelier
    process = run(*flags)
    free = json.loads(process.stdout)
    assert free["finish_reason"] == "repetition" and free["usage"]["thinking_tokens"] < 1700
    assert b"the end came within the thought (repetition)" in process.stderr
    process = run(*flags, "--think-budget", 1700, "--stop", "e", "--stop", " ")
    assert json.loads(process.stdout)["usage"]["thinking_tokens"] == 1700
    assert b"within the thought" not in process.stderr


def test_an_end_within_the_thought_is_told(ask, tell):
    process = ask("-n", 5)
    assert (process.returncode, process.stdout) == (0, b"")
    assert b"within the thought" in process.stderr
    process = ask("-n", 5, "--regex", "a*")  # of a form there is no answer then, though it may be empty
    assert (process.returncode, process.stdout) == (4, b"")
    assert process.stderr == b"auk: the end came within the thought (length), there is no answer\n"
    assert ask("-n", 5, "--require-stop").returncode == 4
    it = tell("-n", 5)
    assert it["text"] == "" and THOUGHT.startswith(it["thinking"]) and it["thinking"]
    it = tell("-n", 5, "--think-budget", 3)  # the limit comes among the closing tokens
    assert len(it["ids"]) == 5


def test_stop_strings_are_for_the_answer(ask):
    assert ask("--stop", "Lily").stdout == ask().stdout
    assert ask("--stop", "outside").stdout.decode() == "She loved to play \n"


def test_flags_that_cannot_be_are_refused(ask):
    for flags, said in ((["--think", "--no-think"], b"--no-think"),
                        (["--hide-thinking", "--show-thinking"], b"--show-thinking"),
                        (["--raw", "--think"], b"--raw"), (["--raw", "--no-think"], b"--raw"),
                        (["--think-budget", "-2"], b"-2")):
        process = ask(*flags)
        assert process.returncode == 2 and said in process.stderr


def test_a_model_that_does_not_think_answers_all_the_same(run, stories):
    want = run("-m", stories, "-p", PROMPT, "-n", 5).stdout
    for flags, said in ((["--think"], b"knows no thinking"), (["--no-think"], b""), (["--think-budget", "0"], b"")):
        process = run("-m", stories, "-p", PROMPT, "-n", 5, *flags)
        assert (process.returncode, process.stdout) == (0, want)
        assert said in process.stderr and bool(process.stderr) == bool(said)


# --- system prompts


def test_a_system_prompt_may_be_a_file(tell, ask, tmp_path):
    (tmp_path / "system").write_text("Be kind.\n")
    want = tell("-sys", "Be kind.", template=SYSTEM)["prompt_ids"]
    assert tell("-sysf", tmp_path / "system", template=SYSTEM)["prompt_ids"] == want
    assert tell(template=SYSTEM)["prompt_ids"] != want
    assert ask("-sys", "a", "-sysf", tmp_path / "system").returncode == 2
    assert ask("-sysf", tmp_path / "nothing").returncode == 1
    (tmp_path / "system").write_text("")
    assert ask("-sysf", tmp_path / "system", "-n", 1).stderr.decode().startswith(f"auk: {tmp_path}/system is empty\n")
    empty = tell("-sys", "", template=SYSTEM)["prompt_ids"]  # one that is empty is one
    assert len(empty) > len(tell(template=SYSTEM)["prompt_ids"])
