"""The Makefile's choices, with compilers that only say where libraries are and which chips they know."""
import os
import re
import subprocess

import pytest


# A make around this test hands its own settings down.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if "MAKE" not in name and name not in ("MFLAGS", "BUILD", "SANITIZE", "EMULATE", "CUDA", "STATIC")}


@pytest.fixture
def make(root, tmp_path):
    """make(arguments): standard output. The machine has no GPU, an nvcc that knows four chips, and no libcmocka."""
    tools = {"nvidia-smi": "exit 9",
             "nvcc": "echo compute_75; echo compute_80; echo compute_90; echo compute_120",
             "cc": 'case "$*" in -print-file-name=libcmocka.*) echo ${1#*=} ;;'
                   " -print-file-name=*.so) echo /lib/${1#*=} ;; -print-file-name=*) echo ${1#*=} ;; esac"}
    (tmp_path / "bin").mkdir()
    for name, body in tools.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    def run(*arguments):
        done = subprocess.run(["make", "-C", root, f"BUILD={tmp_path}/build", "CC=cc", *arguments], capture_output=True,
                              text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
                              env={**ENVIRONMENT, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def chips(flags):
    return re.findall(r"code=(\S+)", flags)


def test_without_a_gpu_few_chips_and_ptx_are_built_and_it_is_said(make, tmp_path):
    flags = tmp_path / "build" / "flags.cuda"
    said = make("CUDA=1", str(flags))
    assert re.search(r"^\d+ CUDA sources for sm_75 sm_80 sm_90a and PTX for other chips: CUDA_ARCHS=\"86 90a\" builds "
                     "for these, CUDA_ARCHS=all for all, CUDA=0 without CUDA$", said, re.MULTILINE), said
    assert chips(flags.read_text()) == ["sm_75", "sm_80", "sm_90a", "compute_80", "compute_90"]
    assert "CUDA sources" not in make("CUDA=1", str(flags)), "said again, though nothing is built anew"


@pytest.mark.parametrize("archs, built", [("90a", ["sm_90a"]), ("86 89", ["sm_86", "sm_89"]),
                                          ("all", ["sm_75", "sm_80", "sm_90a", "sm_120"])])
def test_named_chips_are_built_alone(make, tmp_path, archs, built):
    flags = tmp_path / "build" / "flags.cuda"
    assert "PTX" not in make("CUDA=1", f"CUDA_ARCHS={archs}", str(flags))
    assert chips(flags.read_text()) == built


def test_a_library_that_is_missing_is_not_copied_beside_the_program(make):
    """A static build without libcmocka, which only tests need; cJSON, whose archive is missing, is copied."""
    said = make("-n", "STATIC=1", "CUDA=0", "all")
    assert "cp -L /lib/libcjson.so" in said and "cmocka" not in said


def test_each_emulated_chip_has_a_folder_of_its_own(root):
    for arch in "80", "90":
        done = subprocess.run(["make", "-C", root, "-n", "help", "EMULATE=1", f"EMULATED_ARCH={arch}"], timeout=60,
                              capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        assert f"build/emulated-{arch}/auk" in done.stdout


def test_objects_that_know_nothing_of_cuda_are_the_same_in_every_build(make):
    """They are made once, for the program with CUDA and without, for emulated chips, and for static programs."""
    shown = [make("--no-print-directory", "--eval", "show: ; @echo '$(FLAGS)'", "show", *settings)
             for settings in (["CUDA=0"], ["CUDA=0", "STATIC=1"], ["CUDA=1", "CUDA_ARCHS=90a"],
                              ["EMULATE=1"], ["EMULATE=1", "EMULATED_ARCH=90"])]
    assert "-std=c11" in shown[0] and len(set(shown)) == 1, shown


def test_programs_are_linked_anew_with_other_libraries(make, tmp_path):
    flags = tmp_path / "build" / "flags.link"
    make("CUDA=0", str(flags))
    plain = flags.read_text()
    make("CUDA=0", "LDLIBS=-lother", str(flags))
    assert "-lother" in flags.read_text() and "-lother" not in plain
    assert f"{flags}" in make("CUDA=0", "-np", "all").split(f"{tmp_path}/build/auk: ")[1].split("\n")[0]


def kernels_command(make, tmp_path, isa, *settings):
    said = make("-n", "V=1", "CUDA=0", *settings, f"{tmp_path}/build/src/cpu/kernels.{isa}.o")
    return next(line for line in said.splitlines() if "-DKERNELS_ISA=" in line)


def test_sanitizers_check_the_kernels_of_one_set_whole(make, tmp_path):
    whole, wider = (kernels_command(make, tmp_path, isa, "SANITIZE=1") for isa in ("baseline", "avx2"))
    assert "-fsanitize=address,undefined" in whole and "-fno-sanitize=null" not in whole
    assert "-fsanitize=address,undefined" in wider and "-fno-sanitize=null" in wider


@pytest.mark.parametrize("parts, built", [("", True), ("programs short", True), ("sweep-1", True), ("fused", False),
                                          ("test_linear fused", False)])
def test_programs_of_the_named_parts_alone_are_built(make, parts, built):
    shown = make("--no-print-directory", "--eval", "show: ; @echo 'are: $(GPU_PROGRAMS)'", "show", "EMULATE=1",
                 f"PARTS={parts}")
    assert ("test_sample" in shown) == built and ("test_linear" in shown) == (built or "test_linear" in parts)
