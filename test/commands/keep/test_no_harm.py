"""No process that keeps a model does harm to a call: it keeps its name while it lives, one that is stopped or lacks
descriptors costs a call seconds at most, and of the call that happened to start it others suffer nothing.

AUK_KEEP_STARTS=5000 starts so many processes beside loops of `auk keep` (default 40).
"""
import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from keeper import (ASK, HELLO, LIMIT_S, LOOK, REFUSED, STATE, WELCOME, connect, cpu_ticks, greeting, is_there, message,
                    reply)

N_STARTS = int(os.environ.get("AUK_KEEP_STARTS", "40"))
SHORT = ["-p", "Once", "-n", "5", "--temp", "0", "--raw"]
SILENT = r"the process that keeps the model \((\d+)\) does not answer \(auk keep --stop ends it\)"


@pytest.fixture
def hold(keeper):
    """hold(flag, ...): a process that keeps the model, which does not outlive the test."""
    processes = []

    def start(*arguments, **options):
        processes.append(keeper.hold(*arguments, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture
def kept(keeper):
    """The process that a call has left."""
    keeper.ask("-p", "x", "-n", "1", "--keep", "60s")
    return keeper.pid()


# --- names


def descriptors(pid):
    """The paths of a process's open descriptors."""
    folder = f"/proc/{pid}/fd"
    paths = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            paths.append(os.readlink(os.path.join(folder, name)))
    return paths


def test_a_name_is_removed_and_given_under_one_lock(keeper, kept):
    """A name without a listener is looked at again with the lock, and a process takes its name with it."""
    folder, path = os.path.join(keeper.folder, "auk"), keeper.socket()
    os.kill(kept, signal.SIGKILL)
    keeper.wait_for(lambda: not is_there(kept))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    keeper.run("keep")
    assert os.path.exists(path)
    os.unlink(path)
    process = subprocess.Popen([*keeper.auk, "keep", "-m", str(keeper.model), "--keep", "30s", "--foreground"],
                               env=keeper.environment, stderr=subprocess.PIPE)
    keeper.wait_for(lambda: folder in descriptors(process.pid))
    time.sleep(0.2)  # it waits for a second
    assert not os.path.exists(path) and not os.path.exists(f"{path}.{process.pid}")
    os.close(lock)
    assert b"is kept" in process.stderr.readline() and os.path.exists(path)
    process.kill()
    process.communicate()
    keeper.run("keep")
    assert not os.path.exists(path)


def test_a_living_process_keeps_its_name(keeper, hold):
    ended = threading.Event()

    def look():
        while not ended.is_set():
            keeper.run("keep")

    loops = [threading.Thread(target=look) for _ in range(3)]
    for loop in loops:
        loop.start()
    try:
        for _ in range(N_STARTS):
            process = hold("-t", "1", "-c", "64")
            time.sleep(0.002)
            assert keeper.socket()
            process.kill()
            process.wait()
    finally:
        ended.set()
        for loop in loops:
            loop.join()


@pytest.mark.parametrize("clean", ["start", "list"])
def test_names_that_killed_starts_leave_are_removed(keeper, hold, clean):
    """Names that no process listens at, before and after a socket was renamed."""
    folder = os.path.join(keeper.folder, "auk")
    os.mkdir(folder, 0o700)
    for name in ("0123456789abcdef.sock.99", "0123456789abcdef.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.path.join(folder, name))
    hold() if clean == "start" else keeper.run("keep")
    assert not [name for name in os.listdir(folder) if ".sock." in name]
    assert len(keeper.list()) == (clean == "start")


def test_one_that_no_call_can_find_ends(keeper, hold):
    """Another process has its name, or its directory was cleaned."""
    process, path = hold(), keeper.socket()
    os.rename(path, path + ".aside")
    connect(path + ".aside").close()  # it looks again after each call, and every ten seconds
    assert process.wait(LIMIT_S) == 0


# --- processes that do not answer


def test_a_stopped_one_costs_a_call_two_seconds(keeper, kept):
    alone = keeper.ask(*SHORT, "--keep", "0")
    os.kill(kept, signal.SIGSTOP)
    start = time.monotonic()
    calls = [keeper.start(*SHORT, *flags) for flags in ([], ["--keep", "60s"])]
    lists = [subprocess.Popen([*keeper.auk, "keep", *flags], env=keeper.environment, stdout=subprocess.PIPE)
             for flags in (["--json"], [])]
    for call in calls:
        out, said = call.communicate(timeout=LIMIT_S)
        assert (call.returncode, out) == (0, alone.stdout)
        assert re.fullmatch(rf"auk: {SILENT}\n", said.decode())[1] == str(kept)
    assert json.loads(lists[0].communicate()[0]) == [{"model": None, "pid": kept, "silent": True}]
    assert f"{kept}  does not answer" in lists[1].communicate()[0].decode()
    assert time.monotonic() - start < 4  # 2, and the answers
    stopped = keeper.run("keep", "--stop")
    assert stopped.returncode == 0 and f"process {kept} did not answer and was ended" in stopped.stderr.decode()
    keeper.wait_for(lambda: not is_there(kept))
    assert keeper.list() == []


def fill(path):
    """So many calls wait that the process at a socket takes no other; they are gone."""
    with pytest.raises(BlockingIOError):
        while True:
            with socket.socket(socket.AF_UNIX) as call:
                call.setblocking(False)
                call.connect(path)


def test_a_stopped_one_that_takes_no_more_calls_is_named_too(keeper, kept):
    alone = keeper.ask(*SHORT, "--keep", "0")
    os.kill(kept, signal.SIGSTOP)
    fill(keeper.socket())
    start = time.monotonic()
    calls = [keeper.start(*SHORT, *flags) for flags in ([], ["--keep", "60s"])]
    assert keeper.list() == [{"model": None, "pid": kept, "silent": True}]
    for call in calls:
        out, said = call.communicate(timeout=LIMIT_S)
        assert (call.returncode, out) == (0, alone.stdout)
        assert re.fullmatch(rf"auk: {SILENT}\n", said.decode())[1] == str(kept)
    assert time.monotonic() - start < 4  # 2, and the answers
    stopped = keeper.run("keep", "--stop")
    assert stopped.returncode == 0 and f"process {kept} did not answer and was ended" in stopped.stderr.decode()
    keeper.wait_for(lambda: not is_there(kept))
    assert keeper.list() == []


def test_a_chat_says_so(keeper):
    chat = subprocess.Popen([*keeper.auk, "chat", "-m", str(keeper.model), "--chat-template", "chatml", "--keep", "60s",
                             "-n", "5", "--temp", "0"], env=keeper.environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    chat.stdin.write(b"Once\n")
    chat.stdin.flush()
    assert chat.stdout.readline().strip()
    os.kill(keeper.pid(), signal.SIGSTOP)
    _, said = chat.communicate(b"Twice\n", timeout=LIMIT_S)
    assert chat.returncode == 1 and re.search(SILENT, said.decode()), said


@pytest.mark.parametrize("n", [1, 40])
def test_one_that_stops_in_the_middle_ends_the_answer(keeper, kept, n):
    call = keeper.start("--map", "-", "-p", "{}", "-n", "40", "--temp", "0", "--parallel", n, stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL)
    threading.Thread(target=lambda: (call.stdin.write(b"x\n" * 50000), call.stdin.close())).start()
    keeper.wait_for(lambda: keeper.list()[0]["answers"] > 1)
    os.kill(kept, signal.SIGSTOP)
    start = time.monotonic()
    assert call.wait(LIMIT_S) == 1
    assert time.monotonic() - start < 6  # 3
    assert re.search(SILENT, call.stderr.read().decode())[1] == str(kept)
    call.stderr.close()


LISTENER = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(200)
print("ready", flush=True)
%s
"""


@pytest.fixture
def listener(keeper, kept):
    """listener(code): a process of this user that listens in a holder's place and does that."""
    processes = []

    def start(code):
        path = keeper.socket()
        os.kill(kept, signal.SIGKILL)
        os.unlink(path)
        process = subprocess.Popen([sys.executable, "-c", LISTENER % code, path], stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_one_that_hangs_is_killed(keeper, listener):
    """It sleeps, and heeds no SIGTERM."""
    process = listener("time.sleep(100)")
    call = keeper.ask(*SHORT)
    assert call.returncode == 0 and re.search(SILENT, call.stderr.decode())[1] == str(process.pid)
    assert keeper.run("keep", "--stop").returncode == 0
    assert process.wait(LIMIT_S) == -signal.SIGKILL


def test_all_others_are_ended_where_one_cannot_be(keeper, kept):
    """Sockets whose queue of connections is full, and whose processes have left no mark."""
    folder = os.path.dirname(keeper.socket())
    with contextlib.ExitStack() as stack:
        paths = [os.path.join(folder, f"{i:016x}.sock") for i in range(2)]
        for path in paths:
            listener, call = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
            listener.bind(path)
            listener.listen(0)
            call.connect(path)
        stopped = keeper.run("keep", "--stop")
        assert stopped.returncode == 1 and b"auk: 2 processes could not be ended\n" in stopped.stderr
        for path in paths:
            assert f"the process at {path} does not answer, and cannot be ended" in stopped.stderr.decode()
        assert not is_there(kept)
    assert keeper.list() == []


COMPUTE = """
import threading
def compute():
    while time.monotonic() < end: pass
c = s.accept()[0]
end = time.monotonic() + 3.5
thread = threading.Thread(target=compute)
thread.start()
thread.join()
c.close()
"""


def test_one_that_computes_is_waited_for(keeper, listener):
    """A step may take longer than a silent process is waited for; its first thread may wait for the others."""
    listener(COMPUTE)
    start = time.monotonic()
    call = keeper.ask(*SHORT)
    assert time.monotonic() - start > 3
    assert (call.returncode, call.stderr) == (0, b"")


def test_a_stopped_call_that_starts_one_stops_no_other(keeper):
    """It holds the lock, and the process that it has started is there."""
    process = keeper.hold("--keep", "60s")
    folder = os.path.join(keeper.folder, "auk")
    try:
        path = keeper.socket()
        with open(path.replace(".sock", ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(path, path + ".aside")  # not yet
            call = keeper.start(*SHORT, "--keep", "60s", "-v")
            time.sleep(0.3)
            assert call.poll() is None
            os.rename(path + ".aside", path)
            _, said = call.communicate(timeout=LIMIT_S)
        assert call.returncode == 0 and f"process {process.pid} keeps the model" in said.decode(), os.listdir(folder)
    finally:
        process.kill()
        process.communicate()


# --- descriptors, messages


def test_without_descriptors_it_neither_spins_nor_keeps_calls_waiting(keeper, hold):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))  # noqa: E731
    process = hold(preexec_fn=limit)
    idle = [connect(keeper.socket()) for _ in range(12)]
    before = cpu_ticks(process.pid)
    assert keeper.ask(*SHORT).returncode == 0
    assert cpu_ticks(process.pid) - before < 40  # of 200 and more
    keeper.wait_for(lambda: all(reply(connection) is None for connection in idle))  # they never greeted
    call = keeper.ask(*SHORT, "-v")
    assert f"process {process.pid} keeps the model and answers" in call.stderr.decode()
    for connection in idle:
        connection.close()


def test_who_does_not_greet_is_dropped(keeper, kept):
    """Who has greeted may be silent; who announces more than a greeting is dropped at once."""
    hello, path = greeting(keeper), keeper.socket()
    with connect(path) as mute, connect(path) as greeted, connect(path) as halting, connect(path) as large:
        large.sendall(message(HELLO)[:4] + (1 << 28).to_bytes(4, sys.byteorder))
        start = time.monotonic()
        assert reply(large) is None and time.monotonic() - start < 1
        greeted.sendall(hello)
        halting.sendall(hello[:20])
        assert reply(greeted) == WELCOME
        assert reply(mute) is None and reply(halting) is None
        assert 1 < time.monotonic() - start < 5
        greeted.sendall(message(LOOK))
        assert reply(greeted) == STATE
        greeted.sendall(message(ASK)[:4] + (2 << 20).to_bytes(4, sys.byteorder))  # a long prompt
        greeted.settimeout(0.3)
        with pytest.raises(TimeoutError):
            greeted.recv(1)


def test_a_model_that_has_just_changed_is_not_promised(keeper, stories, tmp_path):
    """A call has opened the files as they were, and greets after they changed, while another call is connected."""
    keeper.model = tmp_path / "model"
    shutil.copytree(stories, keeper.model)
    keeper.ask("-p", "x", "-n", "1", "--keep", "60s")
    hello = greeting(keeper)
    with connect(keeper.socket()) as first, connect(keeper.socket()) as second:
        first.sendall(hello)
        assert reply(first) == WELCOME
        os.utime(keeper.model / "model.safetensors")
        second.sendall(hello)
        assert reply(second) == REFUSED


# --- what belongs to the call that starts one


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def test_it_inherits_nothing_that_others_suffer_from(keeper):
    """Soft limits are raised, signals are taken, and the environment has no secrets."""

    def low():
        resource.setrlimit(resource.RLIMIT_CPU, (20, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)

    keeper.environment.update(AUK_RANKS_KEY="secret", HF_TOKEN="secret", PASSWORD="secret", HOMEPAGE="secret",
                              OMP_WAIT_POLICY="passive")
    keeper.ask("-p", "x", "-n", "1", "--keep", "60s", preexec_fn=low)
    pid = keeper.pid()
    with open(f"/proc/{pid}/environ") as file:
        variables = dict(item.split("=", 1) for item in file.read().split("\0") if item)
    assert "secret" not in variables.values()
    assert {"PATH", "XDG_RUNTIME_DIR", "OMP_WAIT_POLICY"} <= variables.keys()
    with open(f"/proc/{pid}/limits") as file:
        limits = file.read()
    assert re.search(r"Max cpu time +unlimited", limits) and re.search(r"Max open files +200", limits)
    with open(f"/proc/{pid}/comm") as file:
        assert file.read() == "auk\n"
    with open(f"/proc/{pid}/status") as file:
        ignored = int(re.search(r"SigIgn:\s+(\w+)", file.read())[1], 16)
    assert not [number for number in ENDS if ignored >> number - 1 & 1]
    os.kill(pid, signal.SIGTERM)
    keeper.wait_for(lambda: not is_there(pid))


def test_a_limit_of_cpu_time_keeps_no_model(keeper):
    """It cannot be raised, and would end the process in another call's answer."""
    call = keeper.ask(*SHORT, "--keep", "60s",
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (50, 50)))
    assert call.returncode == 0 and b"not kept: the CPU time of processes is limited here to 50 s each" in call.stderr
    assert keeper.list() == []


def take_one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize("change", [lambda: os.nice(3), take_one_core], ids=["nice", "cores"])
def test_a_call_computes_with_its_own_niceness_on_its_own_cores(keeper, kept, change):
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core")
    assert "keeps the model" not in keeper.ask(*SHORT, "-v", preexec_fn=change).stderr.decode()
    assert "keeps the model" in keeper.ask(*SHORT, "-v").stderr.decode()


# --- flags


@pytest.mark.parametrize("flags", [["--keep", "30s"], ["-c", "100"], ["-t", "1"]])
def test_flags_of_a_process_start_the_usual_model(keeper, flags):
    keeper.environment["AUK_MODEL"] = str(keeper.model)
    said = keeper.run("keep", *flags)
    assert said.returncode == 0 and b"keeps it on cpu" in said.stderr
    assert len(keeper.list()) == 1
    del keeper.environment["AUK_MODEL"]
    refused = keeper.run("keep", *flags)
    assert refused.returncode == 2 and b"no model: give -m MODEL or set AUK_MODEL" in refused.stderr
    assert keeper.run("keep", "--json", *flags).returncode == 2


def test_numbers_reach_a_process_whole(keeper, stories, packed_alone):
    """They are a part of the key, so that one that was rounded would keep another model."""
    keeper.model = packed_alone(stories)
    flags = ["--rope-theta", "12345.6789", "--norm-eps", "1.23456789e-5", "--tokenizer", stories / "tokenizer.json"]
    assert keeper.ask(*SHORT, *flags, "--keep", "60s").returncode == 0
    assert f"process {keeper.pid()} keeps the model" in keeper.ask(*SHORT, *flags, "-v").stderr.decode()


def test_no_process_beside_a_cache(keeper, tmp_path):
    cache = ["--cache-dir", tmp_path / "cache"]
    assert keeper.ask(*SHORT, *cache, "--keep", "0").returncode == 0
    refused = keeper.ask(*SHORT, *cache, "--keep", "5s")
    assert refused.returncode == 2 and b"--cache-dir does not go with --keep" in refused.stderr
