import os
import signal
import shutil

import pytest

from keeper import Keeper


@pytest.fixture
def keeper(auk, stories):
    keeper = Keeper(auk, stories)
    yield keeper
    for kept in keeper.list():
        os.kill(kept["pid"], signal.SIGKILL)
    shutil.rmtree(keeper.folder)
