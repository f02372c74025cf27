"""`auk man`: the manual page holds every flag, and man's tools find nothing wrong with it."""
import re
import shutil
import subprocess

import pytest

LIMIT_S = 30


@pytest.fixture(scope="module")
def page(auk, tmp_path_factory):
    path = tmp_path_factory.mktemp("man") / "auk.1"
    path.write_bytes(subprocess.run([*auk, "man"], check=True, capture_output=True, timeout=LIMIT_S).stdout)
    return path


def plain(text):
    """What roff shows of the page's text: only the escapes that it uses."""
    escapes = {r"\-": "-", r"\(rs": "\\", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\&": "",
               r"\fB": "", r"\fI": "", r"\fR": ""}
    return re.sub(r"\\(?:\(..|f.|.)", lambda match: escapes[match.group()], text)


def test_every_flag_and_command_is_in_it(auk, page):
    text = plain(page.read_text())
    listed = subprocess.run([*auk, "--help"], check=True, capture_output=True).stdout.decode().split("Commands:\n")[1]
    for command in re.findall(r"^  (\w+)", listed.split("\n\n")[0], re.MULTILINE):
        assert f"\n.SS auk {command}\n" in text
        told = subprocess.run([*auk, command, "--help"], check=True, capture_output=True).stdout.decode()
        flags = re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*(?: \S+)?)(?:$|  )", told, re.MULTILINE)
        assert flags
        for flag in flags:
            assert f"\n.TP\n{flag}\n" in text, f"{command}: {flag}"
        for line in re.search(r"usage: ((?:.|\n)*?)\n\n", told).group(1).splitlines():
            assert f"\n{line.strip()}\n" in text


def test_every_variable_that_is_read_is_in_it(root, page):
    text = page.read_text().split("\n.SH ENVIRONMENT\n")[1].split("\n.SH ")[0]
    sources = "\n".join(path.read_text() for path in (root / "src").rglob("*.c"))
    read = set(re.findall(r'getenv\("(\w+)"\)', sources))
    assert "AUK_MODEL" in read
    assert {name for name in read if not re.search(rf"\b{name}\b", text)} == {"HOME"}  # ~ stands for it
    assert "editrc" in page.read_text()


def test_sections(page):
    titles = re.findall(r"^\.SH (.*)", page.read_text(), re.MULTILINE)
    assert titles == ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "FLAGS OF SEVERAL COMMANDS", "EXIT STATUS",
                      "ENVIRONMENT", "FILES", "EXAMPLES"]


def test_nothing_in_it_is_taken_for_roff_by_mistake(page):
    requests = {line.split()[0] for line in page.read_text().splitlines() if line[:1] in ".'"}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".nf", ".fi", ".ad", ".nh"}


def lint(page, *command):
    program = shutil.which(command[0]) or pytest.skip(f"needs {command[0]}")
    done = subprocess.run([program, *command[1:], page], capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_groff_has_no_warning(page):
    status, shown, complaints = lint(page, "groff", "-man", "-Tascii", "-ww", "-b")
    assert status == 0 and complaints == "" and "run AWQ-quantised language models" in shown


def test_man_has_no_warning(page):
    status, _, complaints = lint(page, "man", "--warnings", "-l")
    if "unrecognized option" in complaints or "illegal option" in complaints:
        pytest.skip("this man has no --warnings")
    assert status == 0 and complaints == ""


def test_mandoc_has_no_warning(page):
    status, shown, complaints = lint(page, "mandoc", "-Tlint", "-Wwarning")
    assert status == 0 and shown == "" and complaints == ""


def test_it_takes_no_arguments(run):
    assert run("man", "x").returncode == 2
