"""Where the system gives a program little - processes, memory, stack - it computes with that, or says in a line of its
own what is missing; it never dies of it."""
import os
import resource
import shutil
import subprocess
import tempfile

import pytest

PROMPT = ["--raw", "-p", "Once upon a time", "-n", "4", "--temp", "0"]
NOBODY = 20000 + os.getpid() % 40000  # root's processes have no limit; those of tests beside this one do not count
MIB = 1 << 20
REASON = "Resource temporarily unavailable"


@pytest.fixture(scope="module")
def place(auk, stories):
    """A folder with the program and the model, which an ordinary user may read: tmp_path is the owner's alone."""
    folder = tempfile.mkdtemp(prefix="auk-test-")
    os.chmod(folder, 0o755)
    shutil.copy(auk[-1], os.path.join(folder, "auk"))
    shutil.copytree(stories, os.path.join(folder, "model"))
    yield folder
    shutil.rmtree(folder)


def may_run_as_nobody(program):
    """True if root can become another user, and that user can run the program."""
    try:
        return subprocess.run([program, "--version"], preexec_fn=lambda: os.setuid(NOBODY), capture_output=True,
                              timeout=60, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.fixture
def limited(place):
    """limited(arguments, limits, environment): status, standard output and standard error under these limits."""
    if os.getuid() == 0 and not may_run_as_nobody(os.path.join(place, "auk")):
        pytest.skip("needs another user who can reach the program: root has no limits")

    def run_it(arguments, limits=(), environment=None):
        def prepare():
            for limit, value in limits:
                resource.setrlimit(limit, value if isinstance(value, tuple) else (value, value))
            if os.getuid() == 0:
                os.setuid(NOBODY)

        names = ("OMP_STACKSIZE", "GOMP_STACKSIZE")
        variables = {**{k: v for k, v in os.environ.items() if k not in names}, **(environment or {})}
        process = subprocess.run([os.path.join(place, "auk"), *arguments], preexec_fn=prepare, env=variables,
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        told = process.stderr.decode().splitlines(keepends=True)
        said = ("auk: /dev/null: what is packed runs only with ", "auk: /dev/null is written\n")
        told = [line for line in told if not line.startswith(said)]
        return process.returncode, process.stdout.decode(), "".join(told)

    return run_it


@pytest.fixture
def commands(place):
    model = os.path.join(place, "model")
    return {"run": (["-m", model, *PROMPT, "--device", "cpu", "-t", "2"], ", there was a\n"),
            "pack": (["pack", model, "-o", "/dev/null"], "")}


FEW = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
NO_CUDA = b"this build has no CUDA"  # which only such a build says
SANITIZED = "needs more memory than it is given with sanitizers"


def skip_if_sanitized(sanitized):
    if sanitized:
        pytest.skip(SANITIZED)


def skip_if_larger(auk, limit):
    """A build with CUDA has more than these limits allow for before it begins."""
    with open(auk[-1], "rb") as program:
        if limit[0] != resource.RLIMIT_NPROC and NO_CUDA not in program.read():
            pytest.skip("needs a build without CUDA")


@FEW
@pytest.mark.parametrize("limit", [(resource.RLIMIT_NPROC, 1), (resource.RLIMIT_AS, 14 * MIB),
                                   (resource.RLIMIT_DATA, 4 * MIB)], ids=["processes", "addresses", "data"])
def test_fewer_threads_than_cores_compute_all_the_same(auk, limited, commands, sanitized, limit):
    skip_if_sanitized(sanitized)
    skip_if_larger(auk, limit)
    for arguments, want in commands.values():
        cores = [word for word in arguments if word not in ("-t", "2")]
        status, out, told = limited(cores, [limit])
        assert (status, out) == (0, want)
        assert told.startswith("auk: 1 thread in place of ") and told.endswith(f": {REASON}\n")
        assert told.count("\n") == 1


@pytest.mark.parametrize("limit", [(resource.RLIMIT_NPROC, 1), (resource.RLIMIT_AS, 14 * MIB),
                                   (resource.RLIMIT_DATA, 4 * MIB)], ids=["processes", "addresses", "data"])
def test_threads_that_were_asked_for_are_had_or_refused(auk, limited, commands, sanitized, limit):
    skip_if_sanitized(sanitized)
    skip_if_larger(auk, limit)
    assert limited(commands["run"][0], [limit]) == (1, "", f"auk: -t 2: only 1 thread can be made: {REASON}\n")


@pytest.mark.parametrize("name", ["run", "pack"])
@pytest.mark.parametrize("environment", [{"OMP_STACKSIZE": "100G"}, {"OMP_STACKSIZE": "16K"}, {"OMP_STACKSIZE": "much"},
                                         {"GOMP_STACKSIZE": "100000000"}], ids=str)
def test_threads_have_a_stack_of_their_size(limited, commands, environment, name):
    arguments, want = commands[name]
    status, out, told = limited(arguments, environment=environment)
    assert (status, out) == (0, want)
    assert "auk" not in told and "Thread creation failed" not in told


@pytest.mark.parametrize("name", ["run", "pack"])
@pytest.mark.parametrize("kib", [64, 96, 128, (64, resource.RLIM_INFINITY), (10**9, resource.RLIM_INFINITY)], ids=str)
def test_the_limit_of_the_stack_is_no_matter(limited, commands, sanitized, name, kib):
    if sanitized and kib == 64:
        pytest.skip(SANITIZED)
    arguments, want = commands[name]
    limit = tuple(part if part < 0 else part * 1024 for part in kib) if isinstance(kib, tuple) else kib * 1024
    assert limited(arguments, [(resource.RLIMIT_STACK, limit)]) == (0, want, "")


def test_a_stack_that_cannot_be_had_is_told(limited, commands, sanitized):
    skip_if_sanitized(sanitized)
    limits = [(resource.RLIMIT_STACK, 64 * 1024), (resource.RLIMIT_NPROC, 1)]
    assert limited(commands["run"][0], limits) == (
        1, "", f"auk: the stack may not have more than 64 KiB, and a thread with more: {REASON} (ulimit -s 8192)\n")


def test_the_manual_page_says_which_stacks_threads_have(run):
    """A variable that is set does not decide it: test_threads_have_a_stack_of_their_size."""
    page = " ".join(run("man").stdout.decode().replace("\\-", "-").split())
    assert "Where it is set, whatever it says, threads have stacks of 1 MiB; so they have where ulimit" in page
