#!/bin/sh
# bootstrap.sh - installs what TARGET needs and is not there, then runs `make TARGET`.
#
# usage: sh scripts/bootstrap.sh [TARGET] [VARIABLE=VALUE...]
#
# It looks first: if everything is there, it installs nothing and needs no network. Packages come from the system's own
# manager (apt, dnf, pacman), through sudo unless it runs as root. If it may not install, it prints the names of the
# packages and stops with status 1. Packages that a target can do without (see `want`) never stop it.
set -u
cd "$(dirname "$0")/.." || exit 1

target=all
case ${1:-} in
'' | *=*) ;;
*) target=$1 && shift ;;
esac

grep -qE "^([a-z0-9-]+ )*$target( [a-z0-9-]+)*:" Makefile || case $target in
build/*) ;;
*) echo "bootstrap.sh: the Makefile has no target $target (make help lists them)" >&2 && exit 2 ;;
esac

CC=${CC:-cc} PKG_CONFIG=pkg-config PYTHON='' SANITIZE='' EMULATE='' CUDA='' NVCC=nvcc # the Makefile's
for setting in "$@"; do
  case $setting in
  CC=*) CC=${setting#*=} ;;
  PKG_CONFIG=*) PKG_CONFIG=${setting#*=} ;;
  PYTHON=*) PYTHON=${setting#*=} ;;
  SANITIZE=*) SANITIZE=${setting#*=} ;;
  EMULATE=*) EMULATE=${setting#*=} ;;
  CUDA=*) CUDA=${setting#*=} ;;
  NVCC=*) NVCC=${setting#*=} ;;
  *=*) ;;
  *) echo "bootstrap.sh: '$setting' is no VARIABLE=VALUE" >&2 && exit 2 ;;
  esac
done

manager=
for tool in apt-get dnf pacman; do
  command -v $tool >/dev/null 2>&1 && manager=$tool && break
done

# need and want APT DNF PACMAN TEST...: if the test command fails, they note the names of the packages for the system's
# manager. A needed package that is missing stops the target; with a wanted one it does more. '-': this manager has no
# such package, since it is part of another one.
note() {
  case $manager in
  dnf) names=$2 ;;
  pacman) names=$3 ;;
  *) names=$1 ;;
  esac
  shift 3
  "$@" >/dev/null 2>&1 </dev/null && names=-
  [ "$names" != - ] || names=
}
need() { note "$@" && missing="$missing${names:+ $names}"; }
want() { note "$@" && wanted="$wanted${names:+ $names}"; }

compiles() { # COMPILER FLAG...: a program that uses libc, threads and what src/cpu/vector.h needs (gcc: from 12 on)
  printf '#include <omp.h>\n#include <stdio.h>\n%s\n%s\n' 'typedef int v __attribute__((vector_size(8)));' \
    'int main(void) { v a = {puts(""), 0}; return __builtin_shufflevector(a, a, 1, 0)[1] < omp_get_max_threads(); }' |
    "$@" -fopenmp -x c -o /dev/null -
}
fuzzes() {
  printf '#include <stdint.h>\n#include <stdlib.h>\nint LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);\n%s\n' \
    'int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { return n && abs(*p) > 255; }' |
    clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null -
}
# True if kernels are compiled: by nvcc, which takes g++ for the host's part, or as C++.
compiles_cuda() { [ "$EMULATE" = 1 ] || { [ "$CUDA" != 0 ] && command -v "$NVCC" >/dev/null 2>&1; }; }
has_gnu_make() { make --version | grep -q 'GNU Make'; }
has_library() { "$PKG_CONFIG" --exists "$1"; }

# has_python MODULES: sets PYTHON to the first of python3 and the system's own that has them all. A python3 from
# elsewhere (pyenv, conda) does not see the modules that the package manager installs.
has_python() {
  for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c "import $1" && PYTHON=$python && return
  done
  return 1
}

look() {
  missing='' wanted=''
  case $target in clean | help) return ;; esac
  if [ "$target" != lint ]; then
    need make make make has_gnu_make
    need pkg-config pkgconf-pkg-config pkgconf command -v "$PKG_CONFIG"
    need libcjson-dev cjson-devel cjson has_library libcjson
    need libutf8proc-dev utf8proc-devel libutf8proc has_library libutf8proc
    need libpcre2-dev pcre2-devel pcre2 has_library libpcre2-8
    need libedit-dev libedit-devel libedit has_library libedit
    case $CC in
    *clang*) need 'clang libc6-dev libomp-dev' 'clang libomp-devel' 'clang openmp' compiles "$CC" ;;
    *) need 'gcc libc6-dev' gcc gcc compiles "$CC" ;;
    esac
    ! compiles_cuda || need g++ gcc-c++ gcc command -v g++
    [ "$SANITIZE" != 1 ] || need - 'libasan libubsan' - compiles "$CC" -fsanitize=address,undefined
  fi
  case $target in
  test-gpu)
    need 'python3 python3-pytest python3-numpy' 'python3 python3-pytest python3-numpy' \
      'python python-pytest python-numpy' has_python 'pytest, numpy'
    ;;
  torture*) need python3 python3 python has_python sys ;;
  test | test-*)
    need libcmocka-dev libcmocka-devel cmocka has_library cmocka
    need 'python3 python3-pytest python3-numpy python3-pexpect' 'python3 python3-pytest python3-numpy python3-pexpect' \
      'python python-pytest python-numpy python-pexpect' has_python 'pytest, numpy, pexpect'
    for tool in git jq less; do # which README.md's lines use
      want $tool $tool $tool command -v $tool
    done
    ;;
  demo | bench)
    need 'python3 python3-numpy python3-pip' 'python3 python3-numpy python3-pip' 'python python-numpy python-pip' \
      has_python 'numpy, pip'
    ;;
  lint)
    need make make make has_gnu_make
    need python3 python3 python has_python sys
    want clang-format clang-tools-extra clang command -v clang-format
    want cppcheck cppcheck cppcheck command -v cppcheck
    want shellcheck ShellCheck shellcheck command -v shellcheck
    ;;
  fuzz)
    need clang clang clang command -v clang
    need libomp-dev libomp-devel openmp compiles clang
    want libclang-rt-dev compiler-rt compiler-rt fuzzes # part of clang where there is no such package
    ;;
  esac
}

may_install() { [ -n "$manager" ] && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1; }; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
install() {
  case $manager in
  apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" ;;
  dnf) as_root dnf install -y "$@" ;;
  pacman) as_root pacman -S --needed --noconfirm "$@" || as_root pacman -Sy --needed --noconfirm "$@" ;;
  esac </dev/null
}

case $target in
torture) SANITIZE=${SANITIZE:-1} ;;
gpu-programs | test-gpu | torture-gpu)
  if ! compiles_cuda; then
    echo "bootstrap.sh: make $target needs nvcc, of NVIDIA's CUDA toolkit, or EMULATE=1" >&2
    exit 1
  fi
  ;;
esac
look
# Package managers run one at a time: another call of this script may be installing the same.
if [ -n "$missing$wanted" ] && may_install && command -v flock >/dev/null 2>&1; then
  exec 9>"${TMPDIR:-/tmp}/auk-bootstrap.$(id -u).lock"
  flock 9
  look
fi
if [ -n "$missing$wanted" ] && may_install; then
  echo "bootstrap.sh: installing$missing$wanted"
  [ "$manager" != apt-get ] || as_root apt-get update -q </dev/null
  # Names are split on purpose. Wanted packages come one by one: not every system has each of them.
  # shellcheck disable=SC2086
  [ -z "$missing" ] || install $missing
  for name in $wanted; do install "$name"; done
  look
fi
exec 9>&-
if [ -n "$missing" ]; then
  echo "bootstrap.sh: make $target needs these packages, which could not be installed here:$missing" >&2
  exit 1
fi
[ -z "$wanted" ] || echo "bootstrap.sh: make $target does more where these packages are:$wanted"

exec make -j"$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" "$target" ${PYTHON:+"PYTHON=$PYTHON"} "$@"
