"""`auk --split auto`: several processes, a GPU each, share a model by NCCL. Here they are processes of this machine,
with the emulated GPU and its stand-in for NCCL (emulator/nccl); started by hand as mpirun would start them, by mpirun,
and by srun on a Slurm of the test's own. A process that differs, ends or hangs ends them all, with one line that names
it.
"""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import test_one_kernel as random_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data"
ERNIE = DATA / "miniatures" / "ernie-awq"  # two KV heads
HYBRID = DATA / "miniatures" / "qwen3_5"  # its states go back after a wrong guess
sys.path.insert(0, str(ROOT / "test" / "commands" / "map"))
from test_clusters import find, slurm  # noqa: E402, F401  (slurm: a fixture)

LIMIT_S = 60
TIMEOUT_S = 8  # until all are connected, and without a sign of life
SHORT = ["--raw", "-p", "12 dogs", "-n", "6", "--temp", "0", "--ignore-eos", "-c", "64"]
LONG = ["--raw", "-p", "12 dogs", "-n", "110", "--temp", "0", "--ignore-eos", "-c", "128"]


@pytest.fixture(scope="module", autouse=True)
def emulated(auk):
    if b"EMULATED_UUID" not in pathlib.Path(auk[-1]).read_bytes():
        pytest.skip("needs the emulated GPU")


@pytest.fixture
def environment(auk, tmp_path):
    stand_in = str(pathlib.Path(auk[-1]).parent / "nccl")
    return {**os.environ, "LD_LIBRARY_PATH": stand_in, "XDG_CONFIG_HOME": str(tmp_path / "settings"),
            "AUK_RANKS_TIMEOUT": str(TIMEOUT_S), "OMP_NUM_THREADS": "1", "EMULATED_GPUS": "1"}


class Ranks:
    """Processes with the names of mpirun; each may have flags and variables of its own, and a machine: a command that
    runs the rest of its line there."""

    def __init__(self, auk, environment, n, *flags, own=None, variables=None, job="1", machines=None):
        self.processes = []
        for rank in [*range(1, n), 0]:
            more = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": n, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
                    "OMPI_COMM_WORLD_LOCAL_SIZE": n, "PMIX_NAMESPACE": f"{os.getpid()} {job}",
                    **(variables or {}).get(rank, {})}
            line = [*(machines or {}).get(rank, []), *auk, *map(str, (own or {}).get(rank, flags)),
                    "--split", "auto", "--device", "cuda"]
            self.processes.append(subprocess.Popen(
                line, env={**environment, **{key: str(value) for key, value in more.items()}},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        self.processes.insert(0, self.processes.pop())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def end(self):
        """[status], [standard output], [standard error] of all."""
        done = [process.communicate(timeout=LIMIT_S) for process in self.processes]
        return ([process.returncode for process in self.processes], [out.decode(errors="replace") for out, _ in done],
                [said.decode(errors="replace") for _, said in done])


def one_process(auk, environment, n, *flags):
    done = subprocess.run([*auk, *map(str, flags), "--split", str(n), "--split-by", "nccl", "--device", "cuda"],
                          env={**environment, "EMULATED_GPUS": str(n)}, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(errors="replace")


def test_processes_answer_as_one(auk, environment, tmp_path):
    """One prompt with and without guesses, also with recurrent states, records, and logits."""
    (tmp_path / "in").write_text("1 dog\n2 cats\n3 cows\n")
    (tmp_path / "ids").write_text("5 6 7 8 9 10")
    logits = tmp_path / "logits.npy"
    for job, flags in enumerate([
            ["-m", ERNIE, *SHORT], ["-m", ERNIE, *SHORT, "--guess", "3"], ["-m", HYBRID, *SHORT, "--guess", "3"],
            ["-m", ERNIE, *SHORT[:1], "--map", tmp_path / "in", "-p", "{}", "-n", "4", "-s", "5", *SHORT[-3:]],
            ["eval", "-m", ERNIE, "--ids-file", tmp_path / "ids", "--logits-out", logits]]):
        with Ranks(auk, environment, 2, *flags, job=job) as ranks:
            status, out, said = ranks.end()
        assert status == [0, 0] and out[1] == said[1] == "", said
        computed = logits.read_bytes() if logits.exists() else None
        assert out[0] == one_process(auk, environment, 2, *flags)
        assert computed == (logits.read_bytes() if computed else None)


def test_processes_of_torchrun(auk, environment):
    """Its own process listens on the port that it names; mpirun may have started it on each machine."""
    flags = ["-m", ERNIE, *SHORT]
    with socket.create_server(("", 0)) as taken:
        names = {rank: {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2,
                        "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "no.such.host",
                        "MASTER_PORT": taken.getsockname()[1], "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 1,
                        "OMPI_COMM_WORLD_LOCAL_RANK": 0} for rank in range(2)}
        with Ranks(auk, {**environment, "EMULATED_GPUS": "2"}, 2, *flags, variables=names) as ranks:
            status, out, said = ranks.end()
    assert status == [0, 0] and said == ["", ""] and out == [one_process(auk, environment, 2, *flags), ""], said


def test_three_processes(auk, environment, tmp_path, monkeypatch):
    monkeypatch.setitem(random_models.KINDS, "three", (random_models.QWEN3, 128))
    monkeypatch.setattr(random_models, "LAYERS", 1)
    monkeypatch.setattr(random_models, "KV_HEADS", 3)
    model = random_models.make_model(tmp_path / "model", "three")
    flags = ["-m", model, "--raw", "--ids", "--json", "-p", "ab cd", "-n", "3", "--temp", "0", *SHORT[-3:]]
    with Ranks(auk, environment, 3, *flags) as ranks:
        status, out, said = ranks.end()
    assert status == [0, 0, 0] and out[1:] == ["", ""] and said[1:] == ["", ""], said
    assert json.loads(out[0])["ids"] == json.loads(one_process(auk, environment, 3, *flags))["ids"]


def assert_one_line(said, pattern):
    lines = "".join(said).splitlines()
    assert len(lines) == 1 and re.fullmatch(pattern, lines[0]), said


def test_processes_that_differ(auk, environment, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ERNIE, other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-8] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    flags = ["-m", ERNIE, *SHORT]
    with Ranks(auk, environment, 2, *flags, own={1: ["-m", other, *SHORT]}) as ranks:
        status, out, said = ranks.end()
    assert status[0] == 1 and out == ["", ""]
    assert_one_line(said, r"auk: rank 1 on \S+ differs from rank 0 in its weights: \w+ in place of \w+")
    with Ranks(auk, environment, 2, *flags, own={1: [*flags, "--act", "int8"]}, job="2") as ranks:
        status, _, said = ranks.end()
    assert status[0] == 1
    assert_one_line(said, r"auk: rank 1 on \S+ differs from rank 0 in its flags: --act 1 .* in place of --act 0 .*")
    with Ranks(auk, environment, 2, *flags, own={1: ["-m", tmp_path / "nothing", *SHORT]}, job="3") as ranks:
        status, _, said = ranks.end()
    assert status[0] == 1
    assert_one_line(said, r"auk: rank 1 on \S+: .*nothing.*")
    alike = {rank: {"EMULATED_UUID": "7"} for rank in (0, 1)}
    with Ranks(auk, environment, 2, *flags, variables=alike, job="4") as ranks:
        status, _, said = ranks.end()
    assert status[0] == 1
    assert_one_line(said, r"auk: ranks 0 and 1 use the same GPU of \S+: .*")


def test_a_process_that_is_missing_or_has_another_key(auk, environment):
    flags = ["-m", ERNIE, *SHORT]
    variables = {0: {"AUK_RANKS_KEY": "one"}, 1: {"AUK_RANKS_KEY": "another"}}
    with Ranks(auk, environment, 2, *flags, variables=variables) as ranks:
        status, out, said = ranks.end()
    assert status == [1, 1] and out == ["", ""]
    assert re.fullmatch(rf"auk: --split auto: rank 1 did not connect to rank 0, port \d+, within {TIMEOUT_S} s; "
                        r"\d+ connections? had another key or job \(AUK_RANKS_KEY\)\n", said[0]), said
    assert re.fullmatch(r"auk: rank 1: rank 0 at 127.0.0.1, port \d+, (has not taken this rank|did not answer) for "
                        rf"{TIMEOUT_S} s.*\n", said[1]), said


@pytest.mark.parametrize("victim, number", [(1, signal.SIGKILL), (1, signal.SIGSTOP), (0, signal.SIGKILL)],
                         ids=["killed", "stopped", "rank 0 killed"])
def test_a_process_that_is_lost_in_the_middle(auk, environment, victim, number):
    with Ranks(auk, environment, 2, "-m", ERNIE, *LONG) as ranks:
        assert ranks.processes[0].stdout.read(1)  # of the answer
        ranks.processes[victim].send_signal(number)
        lost = time.monotonic()
        other = ranks.processes[1 - victim]
        said = other.communicate(timeout=LIMIT_S)[1].decode()
        assert other.returncode == 1 and time.monotonic() - lost < TIMEOUT_S + 10
        reason = rf"no sign of life for {TIMEOUT_S} s" if number == signal.SIGSTOP else "it has ended"
        assert re.fullmatch(rf"auk: (rank 1: )?rank {victim} on \S+: {reason}\n", said), said


class Network:
    """Two machines of this one, each with a network of its own, and a cable between them. Where auk may not make them
    (they need root and iproute2), the test is skipped."""

    def __init__(self, name, addresses):
        self.names, self.addresses = [f"{name}-{i}" for i in range(2)], addresses
        self.machines = {i: ["ip", "netns", "exec", name] for i, name in enumerate(self.names)}

    def __enter__(self):
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", "cable", "netns", self.names[0], "type", "veth", "peer", "cable", "netns",
                    self.names[1])
            for name, address in zip(self.names, self.addresses):
                self.ip("-n", name, "address", "add", address, "dev", "cable", *["nodad"] * (":" in address))
                self.ip("-n", name, "link", "set", "cable", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"no networks can be made here: {error}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                self.ip("netns", "delete", name)

    def pull_the_cable(self):
        self.ip("-n", self.names[0], "link", "set", "cable", "down")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def variables(self):
        return {rank: {"OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_LOCAL_SIZE": 1,
                       "MASTER_ADDR": self.addresses[0].split("/")[0]} for rank in range(2)}


@pytest.mark.parametrize("addresses", [("10.7.0.1/24", "10.7.0.2/24"), ("fd07::1/64", "fd07::2/64")],
                         ids=["IPv4", "IPv6"])
def test_processes_of_two_machines(auk, environment, addresses):
    flags = ["-m", ERNIE, *SHORT]
    with Network(f"auk-{os.getpid()}", addresses) as network:
        with Ranks(auk, environment, 2, *flags, machines=network.machines, variables=network.variables()) as ranks:
            status, out, said = ranks.end()
        assert status == [0, 0] and said == ["", ""] and out == [one_process(auk, environment, 2, *flags), ""], said


def test_a_cable_that_is_pulled_in_the_middle(auk, environment):
    """Neither machine hears that the other is gone."""
    with Network(f"auk-{os.getpid()}", ("10.7.0.1/24", "10.7.0.2/24")) as network:
        with Ranks(auk, environment, 2, "-m", ERNIE, *LONG, machines=network.machines,
                   variables=network.variables()) as ranks:
            assert ranks.processes[0].stdout.read(1)  # of the answer
            network.pull_the_cable()
            lost = time.monotonic()
            status, _, said = ranks.end()
        assert time.monotonic() - lost < TIMEOUT_S + 10 and status[0] == 1 and status[1] != 0
        assert re.fullmatch(rf"auk: (rank 1: )?rank 1 on \S+: no sign of life for {TIMEOUT_S} s\n", said[0]), said
        assert re.fullmatch(rf"auk: rank 1: rank 0 on \S+: no sign of life for {TIMEOUT_S} s\n", said[1]), said


def test_an_interruption_ends_all_and_leaves_whole_records(auk, environment, tmp_path):
    (tmp_path / "in").write_text("".join(f"{i} dogs\n" for i in range(400)))
    flags = ["-m", ERNIE, "--raw", "--map", tmp_path / "in", "-p", "{}", "-n", "4", "--temp", "0", "--ignore-eos", "-c",
             "64", "--parallel", "4", "--resume", tmp_path / "out"]
    with Ranks(auk, environment, 2, *flags) as ranks:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and not (tmp_path / "out").exists() or not (tmp_path / "out").stat().st_size:
            time.sleep(0.05)
        for process in ranks.processes:  # as a terminal sends it
            process.send_signal(signal.SIGINT)
        status, _, said = ranks.end()
    assert status == [130, 0], said
    written = (tmp_path / "out").read_bytes()
    assert written and written.endswith(b"\n")


def typed(auk, environment, folder, line):
    """Types a line in a folder with a model MODEL of four KV heads, and `auk` in the path."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "auk").write_text(f'#!/bin/sh\nexec {shlex.join(auk)} "$@" --device cuda\n')
    (folder / "bin" / "auk").chmod(0o755)
    more = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "AUK_RANKS_TIMEOUT": "30"}
    return subprocess.run(["bash", "-c", line], cwd=folder, env={**environment, **more}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=2 * LIMIT_S)


@pytest.mark.parametrize("starter", ["srun", "mpirun"])
def test_the_lines_of_the_readme(auk, environment, tmp_path, request, monkeypatch, starter):
    if not find(starter):
        pytest.skip(f"{starter} is not installed")
    if starter == "srun":
        environment = {**request.getfixturevalue("slurm"), **environment}
        environment["SLURM_CONF"] = request.getfixturevalue("slurm")["SLURM_CONF"]
    text = (ROOT / "cuda" / "ranks" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(rf"(?m)^{starter} .*--split auto.*", text)
    assert lines
    monkeypatch.setitem(random_models.KINDS, "four", ({**random_models.QWEN3, "num_attention_heads": 4}, 128))
    monkeypatch.setattr(random_models, "LAYERS", 1)
    monkeypatch.setattr(random_models, "KV_HEADS", 4)
    monkeypatch.setattr(random_models, "INTERMEDIATE", 512)
    random_models.make_model(tmp_path / "MODEL", "four")
    for line in lines:
        # The model has no chat template, and long answers would take long: these are the only changes.
        line = re.sub(r"  +#.*", "", line).replace(" --split ", " --raw -n 3 -s 1 -c 64 --ignore-eos --split ")
        done = typed(auk, environment, tmp_path, line)
        assert done.returncode == 0, (line, done.stderr)
        flags = shlex.split(line[line.index("auk ") + 4:].replace(" --split auto", ""))
        flags[flags.index("MODEL")] = tmp_path / "MODEL"
        # mpirun gives its processes a terminal, whose newline has a carriage return.
        assert done.stdout.rstrip("\r\n") == one_process(auk, environment, 4, *flags).rstrip("\n")
