"""scripts/kernels_sum.py: what each part of the tests of kernels is made of, and what changes its hash."""
import re
import shutil
import subprocess
import sys

import pytest

# A few sources like those of the project. test_add is linked with add.cu, whose header calls what halves.cu defines;
# test_top with everything, as top.c puts the names of functions together, except for alone.cu.
FILES = {
    "cuda/ops/add.h": '#pragma once\n#include "model/tensors.h"\n\nStatus ops_add(const float *x, int n);\n',
    "cuda/ops/add.cu": '#include "cuda/ops/add.h"\n#include "cuda/ops/add.cuh"\n\n/* Adds. */\n'
                       "Status ops_add(const float *x, int n) {\n  return add(x, n);\n}\n",
    "cuda/ops/add.cuh": '#pragma once\n#include "cuda/halves.h"\n#include <math.h>\n\n'
                        "static __device__ Status add(const float *x, int n) {\n  return kHalves.run(x, n);\n}\n",
    "cuda/halves.h": "#pragma once\n\nextern const Kernel kHalves;\nStatus halves_unused(void);\n",
    "cuda/halves.cu": '#include "cuda/halves.h"\n\nnamespace halves {\n'
                      "static int one() { return 1; }\n} // namespace\n\n"
                      "const Kernel kHalves = {halves::one, true};\n",
    "cuda/alone.h": "#pragma once\n\nStatus alone_run(int halves);\n",
    "cuda/alone.cu": '#include "cuda/alone.h"\n\nStatus alone_run(int halves) { return halves; }\n',
    "cuda/top.h": "#pragma once\n\nOperation cuda_first, cuda_second;\nStatus cuda_load(void);\n",
    "cuda/top.c": '#include "cuda/ops/add.h"\n#include "cuda/top.h"\n\n'
                  "#define OPERATION(KIND, name) [KIND] = cuda_##name,\n"
                  'static Operation *const kAll[] = {\n#include "model/operations.def"\n};\n\n'
                  "Status cuda_load(void) { return ops_add(0, 0); }\n",
    "cuda/layers/first.c": '#include "cuda/top.h"\n\nStatus cuda_first(int n) { return n; }\n',
    "src/model/tensors.h": "#pragma once\n\ntypedef struct {\n  int alone_run, halves_unused;\n} Tensors;\n",
    "src/model/operations.def": "OPERATION(FIRST, first)\n",
    "src/commands/device.c": '#include "cuda/top.h"\n',
    "src/commands/ranks/join.c": "",
    "src/engine/batch.c": '#include "model/tensors.h"\n',
    "test/cuda/test_add.cu": '#include "cuda/ops/add.h"\n#include "test/cuda/check.cuh"\n\n'
                             "int main() { return check(ops_add(0, 0)); }\n",
    "test/cuda/check.cuh": "#pragma once\n\nstatic int check(int x) { return !x; }\n",
    "test/cuda/test_top.cu": '#include "cuda/top.h"\n\nint main() { return cuda_load(); }\n',
    "test/cuda/bench_alone.cu": '#include "cuda/alone.h"\n\nint main() { return alone_run(3); }\n',
    "test/cuda/test_plan.c": "int main(void) { return 0; }\n",
    "test/cuda/test_model.py": "def test_it(): pass\n",
    "test/cuda/emulator/emulator.h": "#pragma once\n",
    "test/cuda/emulator/emulator.cpp": '#include "emulator.h"\n',
    "scripts/emulate.sed": "s/a/b/\n",
    "scripts/compile_emulated.sh": "cc\n",
    "scripts/test_gpu.sh": "short='a or b'\n",
    "scripts/lint.py": "pass\n",
}
PROGRAMS = {"test_add", "test_top", "bench_alone", "short", "fused"}
SOURCES = {"add.cu", "halves.cu", "alone.cu"}
PARTS = sorted({*PROGRAMS, *SOURCES, "nvcc-host"})
MODELS = {"short", "fused"}  # made of all of cuda/


@pytest.fixture
def tree(root, tmp_path):
    """A project whose parts have all passed."""
    (tmp_path / "tree" / "scripts").mkdir(parents=True)
    shutil.copy(root / "scripts" / "kernels_sum.py", tmp_path / "tree" / "scripts")
    for name, text in FILES.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    pass_all(tmp_path / "tree")
    return tmp_path / "tree"


def kernels_sum(tree, *arguments, said="", status=0):
    done = subprocess.run([sys.executable, tree / "scripts" / "kernels_sum.py", *arguments], input=said, text=True,
                          capture_output=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines() if not status else done.stderr


def pass_all(tree):
    kernels_sum(tree, "--write", said="".join(f"{row}\n" for row in kernels_sum(tree, *PARTS)))


def changed(tree):
    return {row.split()[0] for row in kernels_sum(tree, *PARTS)}


def change(tree, name, old=None, new=None):
    text = (tree / name).read_text()
    assert old is None or old in text
    (tree / name).write_text(text.replace(old, new) if old else text + "int more;\n")


@pytest.mark.parametrize("name, parts", [
    ("cuda/ops/add.cu", {"test_add", "test_top", "add.cu", *MODELS}),
    ("cuda/ops/add.h", {"test_add", "test_top", "add.cu", "nvcc-host", *MODELS}),
    ("cuda/halves.cu", {"test_add", "test_top", "halves.cu", *MODELS}),
    ("cuda/halves.h", {"test_add", "test_top", "add.cu", "halves.cu", *MODELS}),
    ("cuda/alone.cu", {"bench_alone", "alone.cu", *MODELS}),
    ("cuda/alone.h", {"bench_alone", "alone.cu", *MODELS}),
    ("cuda/layers/first.c", {"test_top", "nvcc-host", *MODELS}),
    ("cuda/top.c", {"test_top", "nvcc-host", *MODELS}),
    ("src/model/operations.def", {"test_top", "nvcc-host", *MODELS}),
    ("src/model/tensors.h", {"test_add", "test_top", "add.cu", "nvcc-host", *MODELS}),
    ("src/commands/device.c", {"nvcc-host"}),
    ("test/cuda/test_add.cu", {"test_add"}),
    ("test/cuda/check.cuh", {"test_add"}),
    ("test/cuda/test_model.py", MODELS),
    ("test/cuda/emulator/emulator.h", PROGRAMS),
    ("test/cuda/emulator/emulator.cpp", PROGRAMS),
    ("scripts/emulate.sed", PROGRAMS),
    ("scripts/compile_emulated.sh", PROGRAMS),
    ("scripts/test_gpu.sh", PROGRAMS),
    ("test/cuda/test_plan.c", set()),
    ("src/engine/batch.c", set()),
    ("scripts/lint.py", set()),
])
def test_a_part_counts_what_it_is_made_of(tree, name, parts):
    assert not changed(tree)
    change(tree, name)
    assert changed(tree) == parts


def test_a_new_source_counts_where_something_refers_to_it(tree):
    (tree / "cuda" / "second.c").write_text('#include "cuda/top.h"\n\nStatus cuda_second(int n) { return n; }\n')
    assert changed(tree) == {"test_top", "nvcc-host", *MODELS}  # a macro begins a word with cuda_
    pass_all(tree)
    change(tree, "test/cuda/test_add.cu", "ops_add(0, 0)", "alone_run(0)")
    change(tree, "test/cuda/test_add.cu", '#include "cuda/ops', '#include "cuda/alone.h"\n#include "cuda/ops')
    pass_all(tree)
    change(tree, "cuda/alone.cu")
    assert "test_add" in changed(tree)


def test_a_source_counts_where_a_macro_ends_the_names_of_a_list(tree):
    """As dispatch.h's LINEAR_KERNELS, whose kernels no header declares by name."""
    (tree / "cuda" / "list.h").write_text("#define KERNEL(name) extern const Kernel name##_kernel;\nKERNEL(plus)\n")
    (tree / "cuda" / "plus.cu").write_text('#include "cuda/list.h"\n\nconst Kernel plus_kernel = {3};\n')
    pass_all(tree)
    change(tree, "cuda/top.h", "#pragma once\n", '#pragma once\n#include "cuda/list.h"\n')
    pass_all(tree)
    change(tree, "cuda/plus.cu")
    assert changed(tree) == {"test_top", *MODELS}


def test_a_source_counts_whose_function_is_declared_after_a_macro(tree):
    change(tree, "cuda/alone.h", "once\n", "once\n#define LIST(name) extern int name##_size;\nLIST(one)\n")
    pass_all(tree)
    change(tree, "cuda/top.h", "#pragma once\n", '#pragma once\n#include "cuda/alone.h"\n')
    change(tree, "cuda/top.c", "{", "{ alone_run(0);")
    pass_all(tree)
    change(tree, "cuda/alone.cu")
    assert "test_top" in changed(tree)


def test_comments_and_spaces_do_not_count(tree):
    change(tree, "cuda/ops/add.cu", "/* Adds. */", "/* It's another // comment */ // of two\n\n\n")
    change(tree, "cuda/ops/add.cu", "  return add", "return    add")
    change(tree, "cuda/ops/add.cu", ") {", ")\n{ // a body")
    change(tree, "cuda/halves.cu", "{halves::one, true}", "{halves::one,\n      true}")
    assert not changed(tree)
    change(tree, "cuda/ops/add.cu", "{ // a body", '{ puts("// a string");')
    assert "test_add" in changed(tree)


def test_a_macro_ends_where_its_line_ends(tree):
    change(tree, "test/cuda/check.cuh", "static", "#define ONE \\\n  1\nint one;\nstatic")
    first = kernels_sum(tree, "test_add")
    change(tree, "test/cuda/check.cuh", "\\\n  1", "1")
    assert kernels_sum(tree, "test_add") == first
    change(tree, "test/cuda/check.cuh", "ONE 1\n", "ONE 1 ")
    assert kernels_sum(tree, "test_add") != first


def test_places_and_the_order_of_what_is_included_do_not_count(tree):
    for name in ("cuda/ops/add.h", "cuda/ops/add.cu", "cuda/ops/add.cuh"):
        (tree / "cuda" / "sums").mkdir(exist_ok=True)
        (tree / name).rename(tree / name.replace("ops/add", "sums/add"))
    for name in ("cuda/sums/add.cu", "cuda/top.c", "test/cuda/test_add.cu"):
        change(tree, name, "cuda/ops/add", "cuda/sums/add")
    change(tree, "cuda/top.c", '#include "cuda/sums/add.h"\n#include "cuda/top.h"',
           '#include "cuda/top.h"\n#include "cuda/sums/add.h"')
    assert not changed(tree)
    change(tree, "cuda/sums/add.cuh", "<math.h>", "<tgmath.h>")
    assert changed(tree) == {"test_add", "test_top", "add.cu", *MODELS}
    change(tree, "cuda/sums/add.cuh", "<tgmath.h>", "<math.h>")
    assert not changed(tree)
    change(tree, "cuda/top.c", '#include "model/operations.def"\n', "")
    change(tree, "cuda/top.c", '#include "cuda/top.h"', '#include "model/operations.def"\n#include "cuda/top.h"')
    assert changed(tree) == {"test_top", "nvcc-host", *MODELS}  # here the place means something


def test_rows_of_parts_that_are_no_more_are_left_out(tree):
    kernels_sum(tree, "--write", said="emulated-80/test_add 1\nemulated-80/test_gone 2\n")
    names = [line.split()[0] for line in (tree / "test" / "cuda" / "kernels.sum").read_text().splitlines()]
    assert names == sorted([*PARTS, "emulated-80/test_add"])
    assert kernels_sum(tree, "test_add", "emulated-80/test_add")[0].startswith("emulated-80/test_add ")
    assert "no part test_gone" in kernels_sum(tree, "test_gone", status=1)
    kernels_sum(tree, status=1)


def test_what_is_linked_is_counted(tree, tmp_path):
    """A program that holds a name of an object that its hash does not count."""
    def compiled(text, *flags):
        (tmp_path / "x.c").write_text(text)
        subprocess.run(["cc", *flags, tmp_path / "x.c"], check=True)

    (tmp_path / "cuda").mkdir()
    (tmp_path / "test" / "cuda").mkdir(parents=True)
    compiled("int kHalves = 1;\n", "-c", "-o", tmp_path / "cuda" / "halves.o")
    compiled("int alone_run = 1;\n", "-c", "-o", tmp_path / "cuda" / "alone.o")
    for names, status in (("halves",), 0), (("halves", "alone"), 1):
        compiled("int main(void) { return 0; }\n", "-o", tmp_path / "test" / "cuda" / "test_add",
                 *(tmp_path / "cuda" / f"{name}.o" for name in names))
        said = kernels_sum(tree, "--linked", tmp_path, "test_add", "short", status=status)
        assert not status or re.fullmatch("test_add is linked with cuda/alone.cu, which .*\n", said)


def test_every_part_has_a_hash(root):
    """Programs that are linked with few sources have another than those of whole models."""
    parts = [path.stem for path in (root / "test" / "cuda").glob("*.cu")] + ["short", "nvcc-host"]
    parts += [path.name for path in (root / "cuda").rglob("*.cu")]
    tree_rows = kernels_sum(root, *(f"nowhere/{part}" for part in parts))
    assert len({row.split()[1] for row in tree_rows}) == len(tree_rows) == len(parts)
