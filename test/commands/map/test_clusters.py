"""Records over many processes as clusters start them: tasks of Slurm (some are killed), Open MPI's mpirun and
GNU parallel; and the lines of cuda/several/README.md with these programs, as they stand there. The test starts a Slurm
of its own: a controller and a node with four pretended GPUs, on the loopback interface.
"""
import getpass
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_S = 60
N_RECORDS = 2000

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CryptoType=crypto/none
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SelectType=select/cons_tres
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory, sanitized):
    """The variables with which srun finds a Slurm started here."""
    if sanitized:
        pytest.skip("what a task does under sanitizers is what test_shards.py shows")
    missing = [name for name in ("slurmctld", "slurmd", "srun", "sinfo") if not find(name)]
    if missing:
        pytest.skip(f"Slurm is not installed (no {missing[0]}; Debian: slurmctld slurmd slurm-client)")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    names = {"host": socket.gethostname().split(".")[0], "user": getpass.getuser(), "folder": folder,
             "port": free_port(), "node_port": free_port()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**names))
    devices = ("null", "zero", "full", "random")  # which are no GPUs
    (folder / "gres.conf").write_text("".join(f"Name=gpu File=/dev/{name}\n" for name in devices))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    with open(folder / "log", "w") as log:
        servers = [subprocess.Popen([find(name), "-D", *flags], env=environment, stdout=log, stderr=log)
                   for name, flags in (("slurmctld", ["-i"]), ("slurmd", []))]
    try:
        end = time.monotonic() + 30
        while "idle" not in subprocess.run(["sinfo", "-h"], env=environment, capture_output=True, text=True).stdout:
            if time.monotonic() > end:
                pytest.skip("Slurm does not start here: " + (folder / "log").read_text()[-500:])
            time.sleep(0.2)
        yield environment
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait()


def find(name):
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


@pytest.fixture
def cluster(auk, stories, tmp_path):
    """A folder with records and a model in which lines are typed with `auk` in the path: cluster(line, environment)."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "auk").write_text(f'#!/bin/sh\nexec {shlex.join(auk)} "$@"\n')
    (tmp_path / "bin" / "auk").chmod(0o755)
    (tmp_path / "MODEL").symlink_to(stories)
    (tmp_path / "lines.txt").write_text("".join(f"dog {i}{' and so' * (i % 5)}\n" for i in range(60)))

    def start(line, environment=os.environ):
        keep = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return subprocess.Popen(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env={**environment, **keep},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True)

    def run(line, environment=os.environ):
        process = start(line, environment)
        try:
            out, said = process.communicate(timeout=LIMIT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(line, process.returncode, out, said)

    run.start, run.folder = start, tmp_path
    return run


def tasks_of(folder):
    """The processes that answer records in this folder, and which of srun's tasks each is."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"--shard" in words and not words[0].endswith((b"srun", b"bash", b"sh")):
                    task = re.search(rb"(?:^|\0)SLURM_PROCID=(\d+)", (entry / "environ").read_bytes())
                    if task:
                        found[int(entry.name)] = int(task[1])
        except OSError:
            continue
    return found


def test_tasks_of_slurm_that_are_killed_go_on_when_they_are_started_again(slurm, cluster):
    (cluster.folder / "lines.txt").write_text("".join(f"dog {i}\n" for i in range(N_RECORDS)))
    job = "auk -m MODEL --raw -t 1 --map lines.txt -p 'One day {} went' -n 12 --temp 1 -s 3 --ignore-eos"
    whole = cluster(f"{job} --parallel 16").stdout
    assert whole.count(b"\n") == N_RECORDS
    tasks = f"srun -n 4 {job} --parallel 4 --resume out --shard auto"
    process = cluster.start(tasks, slurm)
    stopped = {}  # until all four have begun
    while len(stopped) < 4 and process.poll() is None:
        for pid, task in tasks_of(cluster.folder).items():
            if pid not in stopped:
                os.kill(pid, signal.SIGSTOP)
                stopped[pid] = task
        time.sleep(0.005)
    chance = random.Random()
    victims = chance.sample(sorted(stopped), 2)
    for pid in victims:  # each alone, and by and by, so that it does not end before: of 500 records it has some
        results, n = cluster.folder / f"out.{stopped[pid] + 1}-of-4", chance.randrange(60)
        while not results.exists() or results.read_bytes().count(b"\n") < n:
            os.kill(pid, signal.SIGCONT)
            time.sleep(chance.uniform(0, 0.02))
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
    for pid in stopped.keys() - set(victims):
        os.kill(pid, signal.SIGCONT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    lost = cluster("auk merge out.*")
    assert lost.returncode == 1 and lost.stdout == b"", lost.stderr
    assert lost.stderr.count(b"with --shard") == 2, lost.stderr  # also those that were killed before their first result
    again = cluster(tasks, slurm)
    assert again.returncode == 0, again.stderr
    merged = cluster("auk merge out.*")
    assert merged.returncode == 0 and merged.stdout == whole


def test_the_script_of_a_slurm_job_is_no_task(slurm, cluster):
    if not find("sbatch"):
        pytest.skip("sbatch is not installed")
    script = "#!/bin/sh\nauk -m MODEL --raw --map lines.txt -n 2 --resume out --shard auto\n"
    (cluster.folder / "script").write_text(script)
    done = cluster("sbatch --wait -n 4 -o said script", slurm)
    assert done.returncode == 2
    assert "is the script of a Slurm job" in (cluster.folder / "said").read_text()


def lines_of_readme():
    text = (ROOT / "cuda" / "several" / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^(?:srun|mpirun|parallel|auk merge) .*", text)
    # test/cuda/test_ranks.py types those of --split.
    return [re.sub(r"  +#.*", "", line) for line in found if "--split" not in line]


@pytest.mark.parametrize("starter", ["srun", "mpirun", "parallel"])
def test_the_lines_of_the_readme_answer_all_records(cluster, request, starter):
    if not find(starter):
        pytest.skip(f"{starter} is not installed")
    environment = request.getfixturevalue("slurm") if starter == "srun" else os.environ
    lines = [line for line in lines_of_readme() if line.startswith(f"{starter} ")]
    assert lines
    for line in lines:
        for path in cluster.folder.glob("out.txt.*"):
            path.unlink()
        # The model has no chat template, and long answers would take long: these are the only changes.
        done = cluster(line.replace(" --map ", " --raw -n 4 -s 1 --map "), environment)
        assert done.returncode == 0, (line, done.stderr)
        pattern = re.search(r'-p "[^"]*"', line)[0]
        one = cluster(f"auk -m MODEL --raw -n 4 -s 1 --map lines.txt {pattern}")
        assert one.returncode == 0 and one.stdout.count(b"\n") == 60
        kind = "auk merge claims " if "--claim" in line else "auk merge out.txt"
        merge = next(other for other in lines_of_readme() if other.startswith(kind))
        merged = cluster(merge)
        assert merged.returncode == 0, (line, merged.stderr)
        assert (cluster.folder / "all.txt").read_bytes() == one.stdout
