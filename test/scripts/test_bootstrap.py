"""scripts/bootstrap.sh against package managers, compilers and a make that only say how they were called."""
import concurrent.futures
import shutil
import subprocess

import pytest

NAMES = {
    "apt-get": "make pkg-config libcjson-dev libutf8proc-dev libpcre2-dev libedit-dev gcc libc6-dev libcmocka-dev "
               "python3 python3-pytest python3-numpy python3-pexpect",
    "dnf": "make pkgconf-pkg-config cjson-devel utf8proc-devel pcre2-devel libedit-devel gcc libcmocka-devel "
           "python3 python3-pytest python3-numpy python3-pexpect",
    "pacman": "make pkgconf cjson libutf8proc pcre2 libedit gcc cmocka "
              "python python-pytest python-numpy python-pexpect",
}
WANTED = {"lint": "clang-format cppcheck shellcheck", "test": "git jq less"}


class Machine:
    """A PATH with the tools that a bare system has, and what was called on it."""

    def __init__(self, folder, root, manager=None, user=0, sudo=False):
        self.bin, self.log, self.repository = folder / "bin", folder / "log", root
        self.bin.mkdir()
        for tool in ("sh", "dirname", "env", "grep", "cat", "chmod", "touch"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        for tool in WANTED["test"].split():
            self.tool(tool, "exit 0")
        self.tool("id", f"echo {user}")
        self.tool("getconf", "echo 2")
        if manager:
            # Installing anything brings everything: compiler, libraries, make and Python.
            working = ""
            for name in ("cc", "pkg-config", "make", "python3"):
                path = self.bin / name
                working += f'printf "#!/bin/sh\\n{self.body(name)}\\n" >{path}; chmod +x {path};'
            self.tool(manager, f'echo "{manager} $*" >>{self.log}; case "$*" in *install*|*-S*) {working} esac')
        if sudo:
            self.tool("sudo", f'echo "sudo" >>{self.log}; exec "$@"')

    def body(self, name):
        """The script of a tool that an installation brings, quoted for a double-quoted string of the shell."""
        make = f'echo GNU Make; [ \\"\\$1\\" = --version ] || echo make \\"\\$@\\" >>{self.log}'
        return make if name == "make" else "exit 0"

    def tool(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def everything(self):
        for name in ("cc", "pkg-config", "python3"):
            self.tool(name, "exit 0")
        self.tool("make", f'echo GNU Make; [ "$1" = --version ] || echo make "$@" >>{self.log}')

    def run(self, *arguments):
        # PYTHON keeps /usr/bin/python3 out of the picture, which this PATH cannot hide.
        return subprocess.run(["sh", str(self.repository / "scripts/bootstrap.sh"), *arguments, "PYTHON=python3"],
                              env={"PATH": str(self.bin)}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=60, check=False)

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


def test_installs_nothing_where_all_is_there(tmp_path, root):
    machine = Machine(tmp_path, root, "apt-get")
    machine.everything()
    done = machine.run("test", "CUDA=0")
    assert done.returncode == 0, done.stderr
    assert machine.calls() == ["make -j2 test PYTHON=python3 CUDA=0 PYTHON=python3"]


@pytest.mark.parametrize("manager", NAMES)
def test_installs_what_is_missing_then_makes_the_target(tmp_path, root, manager):
    machine = Machine(tmp_path, root, manager)
    done = machine.run("test", "CUDA=0")
    assert done.returncode == 0, done.stderr
    calls = machine.calls()
    assert calls[-1] == "make -j2 test PYTHON=python3 CUDA=0 PYTHON=python3"
    assert len(calls) == (3 if manager == "apt-get" else 2), calls  # apt-get updates its lists first
    assert calls[-2].endswith(NAMES[manager])


def test_two_calls_at_once_install_once(tmp_path, root):
    """Package managers refuse to run beside one another."""
    machine = Machine(tmp_path, root, "apt-get")
    for tool in ("flock", "sleep"):
        (machine.bin / tool).symlink_to(shutil.which(tool))
    manager = machine.bin / "apt-get"
    manager.write_text(manager.read_text().replace("\n", "\nsleep 0.2\n", 1))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        done = [future.result() for future in [pool.submit(machine.run, "test") for _ in range(2)]]
    assert [one.returncode for one in done] == [0, 0], done
    assert sum("install" in call for call in machine.calls()) == 1
    assert sum(call.startswith("make ") for call in machine.calls()) == 2


def test_uses_sudo_where_it_is_not_root(tmp_path, root):
    machine = Machine(tmp_path, root, "dnf", user=1000, sudo=True)
    assert machine.run("all").returncode == 0
    assert machine.calls()[0] == "sudo"


@pytest.mark.parametrize("manager, user", [(None, 0), ("apt-get", 1000)])
def test_names_the_packages_and_stops_where_it_may_not_install(tmp_path, root, manager, user):
    machine = Machine(tmp_path, root, manager, user)
    done = machine.run("test")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(NAMES["apt-get"])
    assert machine.calls() == []


@pytest.mark.parametrize("target", WANTED)
def test_goes_on_without_what_is_only_wanted(tmp_path, root, target):
    machine = Machine(tmp_path, root)
    machine.everything()
    for tool in WANTED[target].split():
        (machine.bin / tool).unlink(missing_ok=True)
    done = machine.run(target)
    assert done.returncode == 0, done.stderr
    assert f": {WANTED[target]}\n" in done.stdout
    assert machine.calls() == [f"make -j2 {target} PYTHON=python3 PYTHON=python3"]


def test_an_install_that_does_not_help_is_a_failure(tmp_path, root):
    machine = Machine(tmp_path, root, "dnf")
    machine.tool("dnf", "exit 1")
    done = machine.run("all")
    assert done.returncode == 1
    assert "cjson-devel" in done.stderr


def test_refuses_what_is_no_setting(tmp_path, root):
    machine = Machine(tmp_path, root)
    assert machine.run("test", "fast").returncode == 2


LIBRARIES = "make pkg-config libcjson-dev libutf8proc-dev libpcre2-dev libedit-dev gcc libc6-dev"


@pytest.mark.parametrize("arguments, names", [
    (["install"], LIBRARIES),
    (["gpu-programs", "EMULATE=1", "STATIC=1"], f"{LIBRARIES} g++"),
    (["test-gpu", "EMULATE=1"], f"{LIBRARIES} g++ python3 python3-pytest python3-numpy"),
    (["torture"], f"{LIBRARIES} python3"),
    (["torture-gpu", "EMULATE=1"], f"{LIBRARIES} g++ python3"),
    (["fuzz"], f"{LIBRARIES} clang libomp-dev"),
])
def test_each_target_needs_what_it_uses(tmp_path, root, arguments, names):
    done = Machine(tmp_path, root, "apt-get", user=1000).run(*arguments)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"which could not be installed here: {names}")


def test_kernels_compiled_by_nvcc_need_its_host_compiler(tmp_path, root):
    for arguments, needs in (["all"], True), (["all", "CUDA=0"], False), (["gpu-programs", "STATIC=1"], True):
        (tmp_path / "-".join(arguments)).mkdir()
        machine = Machine(tmp_path / "-".join(arguments), root, "apt-get", user=1000)
        machine.tool("nvcc", "exit 0")
        done = machine.run(*arguments)
        assert done.returncode == 1 and ("g++" in done.stderr.split()) == needs, done.stderr


@pytest.mark.parametrize("target", ["gpu-programs", "test-gpu", "torture-gpu"])
def test_targets_of_gpus_name_nvcc_where_there_is_none(tmp_path, root, target):
    machine = Machine(tmp_path, root, "apt-get")
    done = machine.run(target, "STATIC=1")
    assert done.returncode == 1 and machine.calls() == []
    assert done.stderr == f"bootstrap.sh: make {target} needs nvcc, of NVIDIA's CUDA toolkit, or EMULATE=1\n"
