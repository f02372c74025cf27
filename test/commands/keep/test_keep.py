"""Processes that keep a model (--keep, auk keep): what comes from them is what comes without, and neither calls nor
processes that are killed do harm to others.

AUK_KEEP_CALLS=200 makes so many calls in the soak (default 30), AUK_KEEP_SEED=N draws other moments.
"""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from keeper import LIMIT_S, LOOK, STATE, STOP, Keeper, connect, is_there, message, reply

N_CALLS = int(os.environ.get("AUK_KEEP_CALLS", "30"))
SEED = int(os.environ.get("AUK_KEEP_SEED", "20261122"))

SCHEMA = json.dumps({"type": "object", "required": ["n"], "additionalProperties": False,
                     "properties": {"n": {"enum": ["a", "bc", "bd"]}}})
# Figures of a run: times, keys that were known, guesses.
TIMES = re.compile(rb'"((\w+_ms)|(\w+_per_second)|(\w+_per_step)|((reused|guessed|accepted)_tokens))": [0-9.]+')

LONG = "Once upon a time there was a little dog, who had a red ball and a friend. "
CALLS = [
    ["-p", "Once", "-n", "12", "-s", "3", "--temp", "0.9", "--json", "--logprobs", "2", "--ids"],
    ["-p", "Once", "-n", "20", "-s", "3", "--temp", "0.9", "--top-k", "9", "--repeat-penalty", "1.3"],
    ["-p", "Once", "-n", "12", "--temp", "0", "-s", "1", "--jsonl-stream", "--logprobs", "1"],
    ["-p", "Once", "-n", "0", "--json", "-s", "1"],
    ["-p", "Once", "--temp", "0", "--stop", "a", "-n", "30"],
    ["-p", "Once upon", "-c", "12", "--temp", "0", "--raw", "-n", "-1"],
    ["-p", "Once upon a time there was", "-c", "3", "--raw"],  # too long
    ["-p", "Once", "--json-schema", SCHEMA, "-s", "2", "--temp", "1", "--json", "--logprobs", "1"],
    ["-p", "When?", "--regex", "[0-9]{4}-[01][0-9]", "-s", "4", "--temp", "1"],
    ["-p", "Is it?", "--choose", "yes,no,maybe so", "--json"],
    ["-p", "Is it?", "--choose", "yes,no", "--exit-choice"],
    ["-p", "One", "-p", "Two", "-n", "5", "--temp", "0"],
    ["-p", "One", "--n-best", "3", "--temp", "1", "-s", "1", "-n", "6", "--json"],
    ["--map", "-", "-p", "A {} and", "-n", "6", "-s", "7", "--temp", "1", "--json", "--logprobs", "1"],
    ["--map", "-", "-p", "A {} and", "-n", "6", "--temp", "0", "--parallel", "1"],
    ["--map", "-", "-p", "A {} and", "--choose", "dog,cat"],
    ["--map", "-", "-p", "A {}", "--json-schema", SCHEMA, "--temp", "1", "-s", "5"],
    ["-p", "Once", "-n", "3", "--require-stop", "--temp", "0"],
]


@pytest.mark.parametrize("arguments", CALLS, ids=lambda a: " ".join(a)[:40])
def test_bytes_are_those_without(keeper, arguments):
    records = b"dog\ncat\nbig red ball\nLily\n\nTim\n" if "-" in arguments else b""
    alone, first, second = (keeper.ask(*arguments, "--keep", time, input=records) for time in ("0", "20s", "20s"))
    for kept in (first, second):
        assert kept.returncode == alone.returncode
        assert TIMES.sub(b"", kept.stdout) == TIMES.sub(b"", alone.stdout)
        assert kept.stderr == alone.stderr
    assert len(keeper.list()) == 1


@pytest.mark.parametrize("arguments", [
    ["--map", "-", "-p", LONG + "{}", "-n", "6", "--temp", "0"],
    ["--map", "-", "-p", LONG + "{}", "--choose", "dog,cat"],
    ["-p", LONG, "-p", "Two", "-n", "5", "--temp", "0"],
    ["-p", LONG, "--n-best", "2", "--temp", "1", "-s", "1", "-n", "6"],
    ["-p", LONG, "--choose", "yes,no"],
    ["-p", LONG, "-n", "6", "--temp", "0"],
], ids=lambda a: " ".join(a).replace(LONG, "LONG"))
def test_a_shorter_context_than_a_call_needs_is_not_used(keeper, arguments):
    """Prompts that fit the model fit, although a process keeps it with a context of 20 tokens."""
    records = b"dog\ncat\n" if "-" in arguments else b""
    process = keeper.hold("-c", 20)
    alone, beside = (keeper.ask(*arguments, *keep, input=records) for keep in (["--keep", "0"], []))
    assert (beside.returncode, beside.stdout, beside.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert alone.returncode == 0
    process.terminate()
    assert process.wait() == 0


def test_many_prompts_leave_a_process_with_a_shorter_context_alone(keeper):
    """With --keep, too: a process of their own would take its name, and it would end."""
    process = keeper.hold("-c", 20)
    for _ in range(2):
        done = keeper.ask("--map", "-", "-n", "3", "--temp", "0", "--keep", "30s", input=b"dog\ncat\n")
        assert done.returncode == 0 and not done.stderr
    assert [one["pid"] for one in keeper.list()] == [process.pid]
    process.terminate()
    assert process.wait() == 0


@pytest.fixture
def short_template(tmp_path):
    """A chat template of few tokens: miniatures have a context of 128."""
    path = tmp_path / "short.jinja"
    path.write_text("{% for message in messages %}{{ message.content }}.{% endfor %}")
    return path


@pytest.mark.parametrize("model", ["falcon-h1-bf16", "granite4-h-awq", "lfm2-awq", "qwen3_5-awq"])
def test_recurrent_states_go_on(keeper, root, short_template, model):
    """A lone call is computed in a session, whose guesses, masks, forced tokens and scores are those of a call by
    itself; what begins as the last text did goes on from it."""
    keeper.model = root / "test" / "data" / "miniatures" / model
    text = "Once upon a time there was a dog. " * 2
    short = ["--chat-template", short_template]
    calls = [CALLS[i] for i in (0, 1, 3, 4, 7, 8, 9, 12, 14)] + [["-p", text, "-n", "20", "--json", "-s", "1"]]
    for call in calls:
        records = b"dog\ncat\n" if "-" in call else b""
        alone, first, second = (keeper.ask(*call, *([] if "--raw" in call else short), "--keep", time, input=records)
                                for time in ("0", "20s", "20s"))
        for kept in (first, second):
            assert TIMES.sub(b"", kept.stdout) == TIMES.sub(b"", alone.stdout), call
            assert (kept.returncode, kept.stderr) == (alone.returncode, alone.stderr)
    said = keeper.ask("-p", text, "-n", "1", "-v", "--temp", "0", *short).stderr.decode()
    known = re.search(r"prompt (\d+) tokens \((\d+) known\)", said)
    assert known, said
    assert int(known[2]) > int(known[1]) // 2, said
    assert len(keeper.list()) == 1


def test_a_chat_with_a_recurrent_state_is_kept(keeper, root, short_template):
    keeper.model = root / "test" / "data" / "miniatures" / "lfm2-awq"
    chat = [*keeper.auk, "chat", "-m", str(keeper.model), "--chat-template", str(short_template), "-n", "9",
            "--temp", "0", "-v"]
    alone, kept = (subprocess.run([*chat, "--keep", time], input=b"Once\nTwice\n", env=keeper.environment,
                                  capture_output=True, timeout=LIMIT_S) for time in ("0", "20s"))
    assert kept.returncode == 0 and kept.stdout == alone.stdout
    assert b"keeps the model" in kept.stderr
    assert keeper.list()[0]["answers"] == 2


def test_a_later_call_finds_it_and_says_so(keeper):
    keeper.ask("-p", "Once upon a time", "-n", "4", "--keep", "20s", "--temp", "0")
    said = keeper.ask("-p", "Once upon a time", "-n", "4", "-v", "--temp", "0").stderr.decode()
    assert f"process {keeper.pid()} keeps the model" in said
    assert re.search(r"prompt \d+ tokens \(\d+ known\)", said)  # keys of the last prompt
    kept, = keeper.list()
    assert kept["answers"] == 2 and kept["keep_seconds"] == 20 and kept["device"] == "cpu"
    assert "stories260K-awq" in keeper.run("keep").stdout.decode()


@pytest.mark.parametrize("flags", [["--keep", "0"], ["-t", "1"], ["--kv", "f32"], ["--cache-dir", "/nowhere"],
                                   ["--invariant"]])
def test_other_flags_do_not_use_it(keeper, flags):
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    assert "keeps the model" not in keeper.ask("-p", "x", "-n", "1", "-v", *flags).stderr.decode()


@pytest.mark.parametrize("flags", [["--invariant"], ["-t", "1"], ["--kv", "q8"], ["--device", "cpu"], ["-c", "100"]])
def test_it_has_the_flags_of_the_call_that_started_it(keeper, flags):
    """So that the next call with these flags finds it."""
    for said in (b"", b"keeps the model"):
        done = keeper.ask("-p", "x", "-n", "1", "--keep", "20s", "-v", *flags)
        assert done.returncode == 0, done.stderr
        assert said in done.stderr
    assert f"process {keeper.pid()} keeps the model" in done.stderr.decode()


def test_a_gpu_that_it_does_not_use_is_told(keeper):
    for why in ("computing on the CPU", "the process that keeps the model computes on the CPU"):
        said = keeper.ask("-p", "x", "-n", "1", "--keep", "20s", "--gpu", "0").stderr.decode()
        assert keeper.list()[0]["device"] != "cpu" or (said.startswith("auk: --gpu 0: ") and why in said)


@pytest.mark.parametrize("flags", [["-n", "5"], ["--stop", "a"], ["--regex", "[a-z ]{3}"]])
def test_what_was_there_already_is_counted_however_an_answer_ends(keeper, flags):
    counts = [json.loads(keeper.ask("--raw", "-p", "One day, Tim went to the", "--temp", "0", "--json", "--keep", "20s",
                                    *flags).stdout)["usage"] for _ in range(2)]
    assert [usage["reused_tokens"] for usage in counts] == [0, counts[0]["prompt_tokens"] - 1]


def test_records_go_to_the_process_with_and_without_no_invariant(keeper):
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    for flags in ([], ["--no-invariant"]):
        said = keeper.ask("--map", "-", "-n", "1", "-v", *flags, input=b"a\n").stderr.decode()
        assert f"process {keeper.pid()} keeps the model" in said


def test_a_checkpoint_that_changed_is_loaded_anew(keeper, stories, tmp_path):
    keeper.model = tmp_path / "model"
    shutil.copytree(stories, keeper.model)
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    old = keeper.pid()
    os.utime(keeper.model / "model.safetensors")
    assert "keeps the model" not in keeper.ask("-p", "x", "-n", "1", "-v").stderr.decode()
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    assert any(kept["pid"] != old for kept in keeper.list())


def test_it_lets_go_of_the_call(keeper):
    """A reader of the first call's output sees its end, and nothing else of the call is held."""
    first = keeper.ask("-p", "x", "-n", "1", "--keep", "20s")  # returns: both pipes ended
    assert first.returncode == 0
    pid = keeper.pid()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    held = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # a connection that has ended since it was listed
            held.add(os.readlink(f"/proc/{pid}/fd/{name}").split(":")[0])
    own = keeper.socket().replace(".sock", ".lock")
    assert {name for name in held if not name.startswith("/memfd")} <= {"/dev/null", "socket", "pipe", own}
    assert os.getsid(pid) != os.getsid(0)
    mode = os.stat(os.path.join(keeper.folder, "auk")).st_mode & 0o777
    assert mode == 0o700


def test_it_ends_when_unused(keeper):
    said = keeper.ask("-p", "x", "-n", "1", "--keep", "1s", "-v").stderr.decode()
    pid = int(re.search(r"process (\d+) keeps the model", said)[1])
    keeper.wait_for(lambda: not is_there(pid))
    assert not [name for name in os.listdir(os.path.join(keeper.folder, "auk")) if name.endswith(".sock")]
    assert keeper.ask("-p", "x", "-n", "1").returncode == 0


def test_its_time_begins_anew_after_each_call(keeper):
    keeper.ask("-p", "x", "-n", "1", "--keep", "3s")
    pid = keeper.pid()
    time.sleep(2)
    assert keeper.ask("-p", "x", "-n", "1", "--keep", "3s").returncode == 0
    time.sleep(1.5)  # longer than was left before
    assert is_there(pid) and keeper.pid() == pid


def test_room_is_made_by_who_has_no_calls(keeper, endless):
    """Where memory is short, processes are asked to end if they are idle."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    call = endless()
    keeper.wait_for(lambda: keeper.list()[0]["calls"] == 1)
    pid = keeper.pid()
    for idle in (False, True):
        with connect(keeper.socket()) as asks:
            asks.sendall(message(STOP, b"\x01"))
            assert reply(asks) == STATE
        if not idle:
            assert keeper.pid() == pid and call.poll() is None
            call.kill()
            keeper.wait_for(lambda: keeper.list()[0]["calls"] == 0)
    keeper.wait_for(lambda: not is_there(pid))


def test_it_ends_when_told(keeper):
    assert keeper.run("keep", "-m", keeper.model).returncode == 0
    kept, = keeper.list()
    assert kept["keep_seconds"] == 600
    assert keeper.run("keep", "--stop").returncode == 0
    assert keeper.list() == []
    keeper.wait_for(lambda: not is_there(kept["pid"]))  # it closes its socket, and then ends
    assert b"no model is kept" in keeper.run("keep", "--stop").stderr


@pytest.fixture
def other_version(keeper):
    """A process of another version of auk, whose state has another size: this one."""
    os.mkdir(os.path.join(keeper.folder, "auk"), 0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(keeper.folder, "auk", "0123456789abcdef.sock"))
        listener.listen()

        def serve():
            kind = LOOK
            while kind == LOOK:
                with listener.accept()[0] as connection:
                    kind = reply(connection)
                    connection.sendall(message(STATE, bytes(100)))
            listener.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(LIMIT_S)


def test_a_process_of_another_version_is_shown_and_ended(keeper, other_version):
    assert keeper.list() == [{"model": None, "pid": os.getpid(), "other_version": True}]
    shown = keeper.run("keep").stdout.decode().splitlines()
    assert shown[1:] == [f"{os.getpid():9}  is of another version of auk (auk keep --stop ends it)"]
    stopped = keeper.run("keep", "--stop")
    assert stopped.stderr.decode() == f"auk: another version of auk: process {os.getpid()} has ended\n"
    assert keeper.list() == []


def test_a_stale_socket_is_none(keeper):
    expected = keeper.ask("-p", "Once", "-n", "5", "--temp", "0", "--keep", "20s").stdout
    pid = keeper.pid()
    os.kill(pid, signal.SIGKILL)
    keeper.wait_for(lambda: not is_there(pid))
    for flags in ([], ["--keep", "20s"]):
        again = keeper.ask("-p", "Once", "-n", "5", "--temp", "0", *flags)
        assert (again.returncode, again.stdout, again.stderr) == (0, expected, b"")
    assert keeper.pid() != pid


@pytest.fixture
def endless(keeper):
    """endless(flag, ...): a call in the middle of its many answers."""
    calls = []

    def begin(*flags):
        n_before = keeper.list()[0]["answers"]
        call = keeper.start("--map", "-", "-p", "{}", "-n", "40", "--temp", "0", *flags, stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL)
        calls.append(call)
        call.stdin.write(b"x\n" * 20000)
        call.stdin.flush()
        keeper.wait_for(lambda: keeper.list()[0]["answers"] > n_before)
        return call

    yield begin
    for call in calls:
        call.kill()
        call.stdin.close()
        call.stderr.close()
        call.wait()


def test_its_death_in_the_middle_is_an_error(keeper, endless):
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    pid = keeper.pid()
    call = endless()
    os.kill(pid, signal.SIGKILL)
    assert call.wait(LIMIT_S) == 1
    assert f"({pid}) has ended in the middle of an answer" in call.stderr.read().decode()


@pytest.mark.parametrize("number,status", [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_call_that_ends_frees_its_place(keeper, endless, number, status):
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    call = endless()
    call.send_signal(number)
    assert call.wait(LIMIT_S) == status
    keeper.wait_for(lambda: keeper.list()[0]["calls"] == 0 and keeper.list()[0]["running"] == 0)
    assert keeper.ask("-p", "x", "-n", "1").returncode == 0


def fill_and_stop(keeper, sleepers):
    """Stops these calls in lockstep once they have all places."""
    while True:
        keeper.wait_for(lambda: (kept := keeper.list()[0])["running"] == kept["parallel"])  # all have asked
        for sleeper in sleepers:
            sleeper.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        kept = keeper.list()[0]
        if kept["running"] == kept["parallel"]:
            return  # else an answer has just ended, and its place would serve without a call that is dropped
        for sleeper in sleepers:
            sleeper.send_signal(signal.SIGCONT)


def test_a_call_that_sleeps_keeps_nobody(keeper, endless):
    """In lockstep the process waits for what a call allows next: for that call alone. Calls that sleep with all places
    are dropped when another needs one."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    sleepers = [endless("--regex", "[a-z ]{40,}", "--parallel", "2")]
    sleepers[0].send_signal(signal.SIGSTOP)
    assert keeper.ask("-p", "Once", "-n", "20", "--temp", "0").returncode == 0
    assert keeper.ask("-p", "Once", "--json-schema", SCHEMA).returncode == 0
    sleepers[0].send_signal(signal.SIGCONT)
    sleepers += [endless("--regex", "[a-z ]{40,}") for _ in range(2)]
    fill_and_stop(keeper, sleepers)
    assert keeper.ask("-p", "Once", "-n", "20", "--temp", "0").returncode == 0
    for sleeper in sleepers:
        sleeper.send_signal(signal.SIGCONT)
    keeper.wait_for(lambda: any(sleeper.poll() is not None for sleeper in sleepers))
    dropped, *_ = [sleeper for sleeper in sleepers if sleeper.poll() is not None]
    assert dropped.returncode == 1 and b"gave the places of this call to others" in dropped.stderr.read()


def test_its_end_is_waited_for(keeper, endless):
    """It makes its answers first, however long they take: here the call sleeps that says how one goes on."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    pid = keeper.pid()
    calls = [endless("--regex", "[a-z ]{40,}") for _ in range(2)]
    fill_and_stop(keeper, calls)
    stop = subprocess.Popen([*keeper.auk, "keep", "--stop"], env=keeper.environment, stderr=subprocess.PIPE)
    time.sleep(2.7)
    assert stop.poll() is None and is_there(pid)
    for call in calls:
        call.kill()
    _, said = stop.communicate(timeout=LIMIT_S)
    assert stop.returncode == 0 and f"process {pid} has ended" in said.decode()
    keeper.wait_for(lambda: not is_there(pid))


def test_a_call_that_replies_late_keeps_its_places(keeper, endless):
    """It is dropped after five seconds, not after one."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    sleepers = [endless("--regex", "[a-z ]{40,}") for _ in range(2)]
    fill_and_stop(keeper, sleepers)
    call = keeper.start("-p", "Once", "-n", "20", "--temp", "0")
    keeper.wait_for(lambda: keeper.list()[0]["calls"] == 3)
    time.sleep(1)
    kept, = keeper.list()
    assert kept["calls"] == 3 and kept["running"] == kept["parallel"]
    for sleeper in sleepers:
        sleeper.send_signal(signal.SIGCONT)
    assert call.communicate(timeout=LIMIT_S) and call.returncode == 0
    assert [sleeper.poll() for sleeper in sleepers] == [None, None]


def test_a_spinner_turns_while_a_process_loads(keeper):
    """Here it waits for the lock of another call that starts one."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "1s")
    keeper.wait_for(lambda: keeper.list() == [])
    folder = os.path.join(keeper.folder, "auk")
    lock, = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".lock")]
    screen, terminal = os.openpty()
    environment = {**keeper.environment, "TERM": "xterm"}
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        call = subprocess.Popen([*keeper.auk, "-m", str(keeper.model), "-p", "x", "-n", "1", "--keep", "2s"],
                                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        while b"loading" not in shown:
            shown += os.read(screen, 1000)
    answer, _ = call.communicate(timeout=LIMIT_S)
    assert call.returncode == 0 and answer
    try:
        while more := os.read(screen, 1000):
            shown += more
    except OSError:  # the other end is closed
        pass
    os.close(screen)
    assert shown.rpartition(b"loading")[2].count(b"\r\x1b[K") == 1, shown  # and nothing is left


OTHER_USER = 65534
AS_ANOTHER = "import os, socket, sys; os.setuid(%d); s = socket.socket(socket.AF_UNIX); " % OTHER_USER


@pytest.fixture
def open_place(keeper):
    """The path of a holder's socket to which every user may connect, and its directory, to which every user may
    write."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "20s")
    folder = os.path.join(keeper.folder, "auk")
    path, = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".sock")]
    os.chmod(keeper.folder, 0o755)
    os.chmod(folder, 0o777)
    os.chmod(path, 0o666)
    yield path, folder
    os.chmod(folder, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_gets_no_answer(keeper, open_place):
    look = """
s.connect(sys.argv[1])
try:
    s.sendall(bytes([10, 0, 0, 0, 0, 0, 0, 0]))
    print(len(s.recv(9999)))
except ConnectionError:
    print(0)
"""
    for other, n in ((OTHER_USER, b"0\n"), (0, None)):
        code = (AS_ANOTHER if other else "import socket, sys; s = socket.socket(socket.AF_UNIX); ") + look
        got = subprocess.run([sys.executable, "-c", code, open_place[0]], capture_output=True, timeout=LIMIT_S)
        assert got.returncode == 0 and (got.stdout == n if n else int(got.stdout) > 100), got


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_users_process_is_not_asked(keeper, open_place):
    path, folder = open_place
    os.chmod(folder, 0o700)
    os.kill(keeper.pid(), signal.SIGKILL)
    os.chmod(folder, 0o777)
    os.unlink(path)
    wait = "s.bind(sys.argv[1]); s.listen(9); print('ready', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", AS_ANOTHER + wait, path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        os.chmod(path, 0o666)
        os.chmod(folder, 0o700)
        call = keeper.ask("-p", "x", "-n", "1", "--temp", "0", "-v")
        assert call.returncode == 0 and call.stdout and b"another user's process listens there" in call.stderr
    finally:
        other.communicate(b"\n")


def test_a_directory_that_others_may_enter_is_refused(keeper):
    folder = os.path.join(keeper.folder, "auk")
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    call = keeper.ask("-p", "x", "-n", "1", "--temp", "0", "--keep", "20s")
    assert call.returncode == 0 and b"not kept: " in call.stderr and b"mode 0700" in call.stderr
    assert keeper.run("keep").returncode == 1
    os.chmod(folder, 0o700)


def test_a_chat_goes_on_where_it_ended(keeper):
    """The process ends between two messages: the next one starts another."""
    chat = subprocess.Popen([*keeper.auk, "chat", "-m", str(keeper.model), "--chat-template", "chatml", "--keep", "20s",
                             "-n", "5", "--temp", "0"], env=keeper.environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    chat.stdin.write(b"Once\n")
    chat.stdin.flush()
    first = chat.stdout.readline()
    assert first.strip()
    pid = keeper.pid()
    os.kill(pid, signal.SIGTERM)
    keeper.wait_for(lambda: not is_there(pid))
    answer, said = chat.communicate(b"Twice\n", timeout=LIMIT_S)
    assert chat.returncode == 0 and answer.strip(), said
    assert keeper.pid() != pid


@pytest.fixture
def on_a_terminal(keeper):
    """on_a_terminal(argument, ...): a call whose first words are on its terminal, and whose process is killed."""
    terminals = []

    def begin(*arguments, line=""):
        terminal_of = pytest.importorskip("chat_terminal").Terminal
        flags = ["--keep", "20s", "--no-history", "-n", "400", "--ignore-eos", "--temp", "0"]
        terminal = terminal_of([*keeper.auk, *arguments, "-m", str(keeper.model), *flags],
                               {**keeper.environment, "TERM": "dumb"})
        terminals.append(terminal)
        if line:
            terminal.wait("> ")
            terminal.type(line + "\r")
            terminal.wait("\r\n")
        terminal.wait(" ")
        os.kill(keeper.pid(), signal.SIGKILL)
        return terminal

    yield begin
    for terminal in terminals:
        terminal.drop()


def test_a_chat_goes_on_after_an_answer_that_broke_off(on_a_terminal, keeper):
    """The answer's process is killed: its message is taken back, and another process answers the next one."""
    terminal = on_a_terminal("chat", "--chat-template", "chatml", line="Once")
    terminal.wait("\nthe process that keeps the model (")
    terminal.wait(") has ended in the middle of an answer: the message is taken back\r\n> ")
    terminal.type("/tokens\r")
    terminal.wait(" 0  in the messages")
    for line in ("/set n 3", "Twice"):
        terminal.wait("\n> ")
        terminal.type(line + "\r")
    terminal.wait("[3 tokens")
    assert keeper.list()[0]["answers"] == 1
    terminal.wait("\n> ")
    terminal.type("/exit\r")
    assert terminal.end() == 0


def test_why_an_answer_broke_off_stands_on_a_line(on_a_terminal):
    terminal = on_a_terminal("run", "-p", "Once")
    assert terminal.end() == 1
    assert "\nauk: the process that keeps the model (" in terminal.seen


def test_memory_is_given_to_who_needs_it(keeper, variant):
    """A context of a terabyte, which does not fit afterwards either."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "60s")
    pid = keeper.pid()
    large = variant(config={"max_position_embeddings": 1 << 30})
    refused = keeper.run("-m", large, "-p", "x", "-c", "0", "--kv", "f32")
    assert refused.returncode == 1 and b"not enough memory" in refused.stderr
    keeper.wait_for(lambda: not is_there(pid))  # the memory is free before the process ends


def test_many_calls_killed_at_random(keeper):
    """Each call that lived has the bytes it would have without; none hangs; in the end no call is connected."""
    draw = random.Random(SEED)
    kinds = [CALLS[i] for i in (1, 4, 7, 8, 9, 12, 13)]
    records = b"dog\ncat\nbig red ball\nLily\nTim\n"
    wanted = {" ".join(kind): keeper.ask(*kind, "--keep", "0", input=records) for kind in kinds}
    keeper.ask("-p", "x", "-n", "1", "--keep", "60s")

    def call(kind, kill_after_s, number):
        process = keeper.start(*kind, stdin=subprocess.PIPE)
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            process.send_signal(number)
        out, said = process.communicate(records, timeout=LIMIT_S)
        if process.returncode in (-signal.SIGKILL, -signal.SIGINT, 130):  # SIGINT: before it is caught
            return "killed"
        want = wanted[" ".join(kind)]
        assert process.returncode == want.returncode, (SEED, kind, said)
        assert TIMES.sub(b"", out) == TIMES.sub(b"", want.stdout), (SEED, kind)
        return "lived"

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        jobs = [pool.submit(call, draw.choice(kinds), draw.choice([None, None, draw.uniform(0, 0.1)]),
                            draw.choice([signal.SIGKILL, signal.SIGINT])) for _ in range(N_CALLS)]
        ends = [job.result() for job in jobs]
    assert ends.count("lived") >= N_CALLS // 3
    keeper.wait_for(lambda: keeper.list()[0]["calls"] == 0 and keeper.list()[0]["running"] == 0)


@pytest.mark.parametrize("arguments,message", [
    (["-m", "x", "-p", "y", "--keep", "soon"], b'--keep is "soon", expected a time such as 90s, 10m or 2h'),
    (["-m", "x", "-p", "y", "--keep", "10x"], b'--keep is "10x"'),
    (["-m", "x", "-p", "y", "--keep", "5m", "--cache"], b"--cache does not go with --keep"),
    (["-m", "x", "-p", "y", "--keep", "-1"], b'--keep is "-1", expected a time such as 90s, 10m or 2h, from 0 (not at'),
    (["keep", "-m", "x", "--keep", "11575d"], b"to 11574d"),
    (["keep", "list"], b"no model is named list: auk keep lists what is kept"),
    (["keep", "ls", "--json"], b"auk keep lists what is kept"),
    (["keep", "stop"], b"no model is named stop: auk keep --stop ends all that is kept"),
    (["keep", "stop", "smollm2"], b"no model is named stop: auk keep --stop ends all that is kept"),
    (["keep", "unload", "--keep", "5m"], b"auk keep --stop ends all that is kept"),
    (["keep", "start", "smollm2"], b"no model is named start: auk keep MODEL keeps one"),
    (["keep", "one", "two"], b'unexpected argument "two" (auk keep MODEL keeps one model)'),
    (["keep", "--stop", "smollm2"], b"--stop ends all that is kept: it goes with no model"),
    (["keep", "--stop", "--json"], b"--stop does not go with --json"),
    (["keep", "-m", "/nowhere/model"], b"/nowhere/model"),
])
def test_mistakes(keeper, arguments, message):
    if arguments[1] == "x":
        arguments[1] = keeper.model
    call = keeper.run(*arguments)
    assert call.returncode in (2, 3) and message in call.stderr, call.stderr


@pytest.mark.parametrize("how,stream,said", [("--foreground", "stderr", "is kept on cpu"),
                                             ("--detached", "stdout", "ready")])
def test_a_service_manager_can_be_its_parent(keeper, how, stream, said):
    process = subprocess.Popen([*keeper.auk, "keep", "-m", str(keeper.model), "--keep", "30s", how],
                               env=keeper.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert said in getattr(process, stream).readline().decode()
    assert f"process {process.pid} keeps the model" in keeper.ask("-p", "x", "-n", "1", "-v").stderr.decode()
    process.terminate()
    assert process.wait(LIMIT_S) == 0 and keeper.list() == []
    process.communicate()


def test_an_interrupted_form_has_the_status_of_an_interruption(keeper):
    keeper.hold()
    for wait_s in (0, 0.02, 0.1):
        call = keeper.start("--raw", "-p", "Once", "--temp", 1, "--regex", "[a-z ]{9999}")
        assert os.read(call.stdout.fileno(), 10)
        time.sleep(wait_s)
        call.send_signal(signal.SIGINT)
        assert call.wait(10) == 130
        assert call.stderr.read() == b""
        call.stdout.close()
        call.stderr.close()
