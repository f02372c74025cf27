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
    """The text as roff shows it; only the escapes that the page uses are known."""
    escapes = {r"\-": "-", r"\(rs": "\\", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\&": "",
               r"\fB": "", r"\fI": "", r"\fR": ""}
    return re.sub(r"\\(?:\(..|f.|.)", lambda match: escapes[match.group()], text)


def test_every_flag_and_command_is_in_it(auk, page):
    text = plain(page.read_text())
    listed = subprocess.run([*auk, "--help"], check=True, capture_output=True).stdout.decode().split("Commands:\n")[1]
    for command in re.findall(r"^  (\w+)", listed.split("\n\n")[0], re.MULTILINE):
        assert f"\n.SS auk {command}\n" in text
        told = subprocess.run([*auk, command, "--help", "all"], check=True, capture_output=True).stdout.decode()
        flags = re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*(?: \S+)?)(?:$|  )", told, re.MULTILINE)
        assert flags
        for flag in flags:
            assert f"\n.TP\n{flag}\n" in text, f"{command}: {flag}"
        for line in re.search(r"usage: ((?:.|\n)*?)\n\n", told).group(1).splitlines():
            assert f"\n{line.strip()}\n" in text


def helps(auk):
    """The help of each command."""
    def text_of(*arguments):
        return subprocess.run([*auk, *arguments], check=True, capture_output=True, timeout=LIMIT_S).stdout.decode()

    listed = text_of("--help").split("Commands:\n")[1].split("\n\n")[0]
    return {name: text_of(name, "--help", "all") for name in re.findall(r"^  (\w+)", listed, re.MULTILINE)}


def entries(text):
    """Tag -> text of what is listed in a part of the page, in order."""
    parts = re.split(r"^\.TP\n", text, flags=re.MULTILINE)[1:]
    return [tuple(re.split(r"\n\.(?=[A-Z])", part)[0].split("\n", 1)) for part in parts]


def test_every_flag_stands_in_it_once_with_all_of_its_help(auk, page):
    """Flags of a table that several commands share stand in a section of their own; each such command has its
    title."""
    text = plain(page.read_text())
    commands, shared = (text.split(f"\n.SH {title}\n")[1].split("\n.SH ")[0]
                        for title in ("COMMANDS", "FLAGS OF SEVERAL COMMANDS"))
    common = {tag: (title.strip(), " ".join(help_text.split()))
              for title, section in re.findall(r"^\.SS (.*)\n((?:(?!\.SS ).*\n?)*)", shared, re.MULTILINE)
              for tag, help_text in entries(section)}
    parts = dict(re.findall(r"^\.SS auk (\w+)\n((?:(?!\.SS ).*\n?)*)", commands, re.MULTILINE))
    assert list(parts) == list(helps(auk))
    for command, told in helps(auk).items():
        own = dict(entries(parts[command]))
        assert len(own) == len(entries(parts[command]))
        titles, listed = [], {}
        for line in told.split("\n\n", 1)[1].splitlines():
            found = re.match(r"  (-[\w-]+(?:, -[\w-]+)*(?: \S+)?)(?:$|  )(.*)", line)
            if found:
                last = found[1]
                listed[last] = found[2].split()
                title = "" if last in own else common[last][0]
                titles += [title] * (title != "" and title not in titles)
            elif listed and line.startswith("      "):
                listed[last] += line.split()
        assert set(own) <= set(listed) <= {*own, *common}
        for tag, words in listed.items():
            text_of_tag = own[tag] if tag in own else common[tag][1]
            assert " ".join(text_of_tag.split()) == " ".join(words), (command, tag)
        named = re.search(r"^Also the flags, described below, of: (.*)\.$", parts[command], re.MULTILINE)
        titles = [title for title in titles if title != common["-h, --help"][0]]
        assert [re.sub(r" \(.*", "", title) for title in (named[1].split(", ") if named else [])] == titles, command


def test_prose_is_broken_at_76_columns_and_nothing_of_it_lost(auk, page):
    text = plain(page.read_text())
    filled = re.sub(r"^(\.nf\n.*?^\.fi|\.TP\n[^\n]*|Also the flags[^\n]*)\n", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in filled.splitlines() if not re.match(r"\.[A-Za-z]", line)]
    assert max(map(len, lines)) == 76
    words = " ".join(" ".join(lines).split())
    for command, told in helps(auk).items():
        about = told.split("\n\n")[1]
        prose = [line for line in about.splitlines() if line and not line.startswith(" ")]
        assert " ".join(" ".join(prose).split()) in words or "    " in about, command
        examples = re.search(r"\nexamples?:\n((?:  .*\n)+)", told, re.IGNORECASE)
        for line in examples[1].splitlines() if examples else []:
            assert f"\n{line.strip()}\n" in text, command


def test_every_variable_that_is_read_is_in_it(root, page):
    text = page.read_text().split("\n.SH ENVIRONMENT\n")[1].split("\n.SH ")[0]
    sources = "\n".join(path.read_text() for path in (root / "src").rglob("*.c"))
    read = set(re.findall(r'getenv\("(\w+)"\)', sources))
    assert "AUK_MODEL" in read
    assert {name for name in read if not re.search(rf"\b{name}\b", text)} == {"HOME"}  # ~ stands for it
    assert "editrc" in page.read_text()


def test_sections(page):
    titles = re.findall(r"^\.SH (.*)", page.read_text(), re.MULTILINE)
    assert titles == ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "FLAGS OF SEVERAL COMMANDS", "MODELS",
                      "SETTINGS", "CHAT", "PIPES AND SCRIPTS", "BATCHES", "STRUCTURED OUTPUT", "TOOL CALLING",
                      "THINKING", "SPECULATIVE DECODING", "PROMPT CACHE", "KEPT MODELS", "GPU AND CPU",
                      "FLAGS OF OTHER PROGRAMS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"]


def test_every_exit_status_is_in_it(root, page):
    """The exit statuses of base/status.h, and those of --exit-choice."""
    text = plain(page.read_text()).split("\n.SH EXIT STATUS\n")[1].split("\n.SH ")[0]
    tags = re.findall(r"^\.TP\n\.B (.*)$", text, re.MULTILINE)
    header = (root / "src" / "base" / "status.h").read_text()
    numbers = {int(number) for number in re.findall(r"STATUS_\w+ = (\d+)", header)}
    assert numbers and numbers <= {int(tag.split(",")[0]) for tag in tags}
    assert tags == sorted(tags, key=lambda tag: int(tag.split(",")[0]))
    assert text.count(".nf") == text.count(".fi") and page.read_text().count("\n.nf") == page.read_text().count("\n.fi")


def test_nothing_in_it_is_taken_for_roff_by_mistake(page):
    requests = {line.split()[0] for line in page.read_text().splitlines() if line[:1] in ".'"}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".nf", ".fi", ".ad", ".nh"}


def lint(page, *command):
    program = shutil.which(command[0]) or pytest.skip(f"needs {command[0]}")
    done = subprocess.run([program, *command[1:], page], capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_groff_has_no_warning(page):
    status, shown, complaints = lint(page, "groff", "-man", "-Tascii", "-ww", "-b")
    assert status == 0 and complaints == "" and "run quantised language models" in shown


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
