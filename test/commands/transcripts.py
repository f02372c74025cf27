"""Golden transcripts of pytests: test/data/transcripts, which `make goldens` (GOLDENS=write) writes anew."""
import os

import pytest

WRITES = os.environ.get("GOLDENS") == "write"


def transcript_fixture(path):
    """A fixture: {name: text} of a file that has a name, and below it the lines of its text after four blanks."""
    @pytest.fixture(scope="module")
    def transcript():
        texts = {}
        for line in path.read_text(encoding="utf-8").splitlines() if not WRITES else ():
            if line.startswith("    "):
                texts[name] += line[4:] + "\n"
            else:
                texts[name := line] = ""
        said = {name: text.removesuffix("\n") for name, text in texts.items()}
        yield said
        if WRITES and said:
            path.write_text("".join(f"{name}\n" + "".join(f"    {line}\n" for line in text.split("\n"))
                                    for name, text in said.items()), encoding="utf-8")
    return transcript


def compare_text(text, transcript, name):
    if WRITES:
        transcript[name] = text
    assert text == transcript.get(name), "`make goldens` writes the transcript anew, for review"
