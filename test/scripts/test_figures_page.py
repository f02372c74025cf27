"""scripts/figures_page.py on a small project: what it prints between the marks, and when --check refuses a page."""
import shutil
import subprocess
import sys

import pytest

SPEED = """what,date,commit,card,command,auk,llama.cpp
GPU,2026-11-26,0d16afb9,H200,auk bench,849,314*
"CPU, decode",2026-11-20,,2 cores,auk bench,264,
many,2026-11-20,,2 cores,"(by hand, twice)",a; b,
"""
TILES = """kernel,date,commit,card,command,tokens,us
wide,2026-11-20,,H200,auk bench,128,7.5
wide,2026-11-21,,H200,auk bench,256,
"""
FLIGHT = """at once,date,commit,card,command,1,"1,024"
8B,2026-11-29,,H200,bench_many,128,"32,768"
30B,2026-11-29,,H200,bench_many,256,"2,048"
"""
PAGE = ("before\n<!-- figures: speed{} -->\nold\n<!-- end of figures -->\nafter "
        "[tiles.csv](figures/tiles.csv) and [in-flight.csv](figures/in-flight.csv)\n")


@pytest.fixture
def project(root, tmp_path):
    (tmp_path / "scripts/figures").mkdir(parents=True)
    (tmp_path / "cuda/kernels/linear").mkdir(parents=True)
    (tmp_path / "scripts/figures/tiles.csv").write_text(TILES)
    (tmp_path / "scripts/figures/in-flight.csv").write_text(FLIGHT)
    shutil.copy(root / "scripts/figures_page.py", tmp_path / "scripts")
    (tmp_path / "scripts/figures/speed.csv").write_text(SPEED)
    (tmp_path / "README.md").write_text(PAGE.format(": CPU, decode; GPU"))
    (tmp_path / "scripts/FIGURES.md").write_text(PAGE.format(""))

    def run(*flags):
        return subprocess.run([sys.executable, tmp_path / "scripts/figures_page.py", *flags], capture_output=True,
                              text=True)

    return tmp_path, run


def test_tables_come_between_the_marks_with_how_they_were_measured(project):
    """Rows of different commands: a link to the file that has them."""
    folder, run = project
    assert run().returncode == 0
    assert (folder / "scripts/FIGURES.md").read_text() == PAGE.format("").replace("old\n", """\
|  | auk | llama.cpp |
| --- | --- | ---: |
| GPU | 849 | 314* |
| CPU, decode | 264 |  |
| many | a; b |  |

2026-11-20 to 2026-11-26; H200; 2 cores. Commands: [speed.csv](figures/speed.csv).
""")
    assert (folder / "README.md").read_text() == PAGE.format(": CPU, decode; GPU").replace("old\n", """\
|  | auk | llama.cpp |
| --- | ---: | ---: |
| CPU, decode | 264 |  |
| GPU | 849 | 314* |
""")
    drawn = (folder / "scripts/figures/speed.svg").read_text()
    assert '<rect x="270" y="40" width="400"' in drawn and '<rect x="270" y="56" width="148"' in drawn
    assert "CPU" not in drawn and run("--check").returncode == 0


def test_lines_go_from_the_least_to_the_most_at_once(project):
    """Both axes are logarithmic; names stand in the order of the lines' ends."""
    folder, run = project
    assert run().returncode == 0
    drawn = (folder / "scripts/figures/in-flight.svg").read_text()
    assert 'points="70,340 540,30"' in drawn and 'points="70,301 540,185"' in drawn
    assert drawn.index('y="45" fill="#2f6f9f">8B 32,768<') < drawn.index('y="65" fill="#b8b8b8">30B 2,048<')


def test_a_screen_has_the_lines_of_its_text(project):
    """Typed lines have a colour of their own."""
    folder, run = project
    (folder / "scripts/figures/pipe.txt").write_text("$ auk < a\nb & c\n")
    assert run().returncode == 0
    drawn = (folder / "scripts/figures/pipe.svg").read_text()
    assert 'fill="#9fd28f" xml:space="preserve">$ auk &lt; a</text>' in drawn and ">b &amp; c</text>" in drawn
    (folder / "scripts/figures/pipe.txt").write_text("$ auk < a\nd\n")
    assert run("--check").returncode == 1


def test_rows_of_one_command_have_it_below_them(project):
    folder, run = project
    (folder / "scripts/figures/other.csv").write_text("n,date,commit,card,command,ms\n1,2026-11-20,,H200,auk bench,7\n")
    (folder / "scripts/FIGURES.md").write_text("<!-- figures: other -->\n<!-- end of figures -->\n")
    assert run().returncode == 0
    assert (folder / "scripts/FIGURES.md").read_text() == """\
<!-- figures: other -->
| n | ms |
| ---: | ---: |
| 1 | 7 |

Repeated by: 2026-11-20, H200, `auk bench`
<!-- end of figures -->
"""


def test_a_table_may_be_named_in_place_of_printed(project):
    folder, run = project
    (folder / "scripts/figures/other.csv").write_text("what,date,commit,card,command\n")
    with (folder / "scripts/FIGURES.md").open("a") as page:
        page.write("[other.csv](figures/other.csv)\n")
    assert (run().returncode, run("--check").returncode) == (0, 0)
    (folder / "scripts/figures/other.csv").write_text("what,date,commit,card,command\na,,,,auk bench\n")
    assert "other.csv:2: expected a value" in run("--check").stderr


@pytest.mark.parametrize("file, old, new, says", [
    ("scripts/figures/speed.csv", "849", "850", "README.md is not what scripts/figures give"),
    ("scripts/figures/speed.svg", "849", "850", "speed.svg is not what"),
    ("README.md", "CPU, decode; GPU", "decode", "speed.csv has no row decode"),
    ("scripts/figures/speed.csv", "2026-11-26", "", "speed.csv:2: expected a value"),
    ("scripts/figures/speed.csv", ",264,", ",264", "speed.csv:3: expected a value"),
    ("scripts/figures/other.csv", "", "what\n", "other.csv: no page prints or names it"),
])
def test_other_tables_than_the_files_give_are_refused(project, file, old, new, says):
    folder, run = project
    assert run().returncode == 0
    path = folder / file
    path.write_text(path.read_text().replace(old, new) if path.exists() else new)
    done = run("--check")
    assert done.returncode == 1 and says in done.stderr
