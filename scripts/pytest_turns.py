"""pytest_turns.py - a plugin by which several pytests over the same tests take them in turns: each runs the next that
none of them has taken, until there is none left.

Called by run_tests.py, as `pytest -p pytest_turns`. To take a test is to create its file in the folder PYTEST_TURNS,
which only one of them can do. A test is taken before the one ahead of it runs, since pytest must know which fixtures
the next one needs too.
"""
import hashlib
import os
import pathlib


def taken(items):
    """Yields the items that no other pytest has taken, and takes each when it is asked for."""
    folder = pathlib.Path(os.environ["PYTEST_TURNS"])
    for item in items:
        try:
            (folder / hashlib.sha256(item.nodeid.encode()).hexdigest()).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield item


def pytest_runtestloop(session):
    """As pytest's own loop, which still reports tests that could not be collected."""
    if session.testsfailed or session.config.option.collectonly:
        return None
    items = taken(session.items)
    item = next(items, None)
    while item:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
