"""Calls and processes that keep a model, in a runtime directory of their own; and the messages between them (wire.h).
"""
import json
import os
import socket
import struct
import subprocess
import tempfile
import time

LIMIT_S = 40
HELLO, WELCOME, REFUSED, ASK, LOOK, STATE, STOP = 1, 2, 3, 4, 10, 11, 12


class Keeper:
    """Runs calls with a runtime directory of their own."""

    def __init__(self, auk, model):
        self.auk, self.model = auk, model
        self.folder = tempfile.mkdtemp(prefix="auk")  # a socket's path has at most 107 bytes
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.folder}
        self.environment.pop("AUK_KEEP")

    def run(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   "env": self.environment, "timeout": LIMIT_S, **options}
        if "input" in options:
            del options["stdin"]
        return subprocess.run([*self.auk, *map(str, arguments)], **options)

    def ask(self, *arguments, **options):
        return self.run("-m", self.model, *arguments, **options)

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = [*self.auk, "-m", str(self.model), *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment, **options)

    def list(self):
        return json.loads(self.run("keep", "--json").stdout)

    def pid(self):
        kept, = self.list()
        return kept["pid"]

    def wait_for(self, what, limit_s=20):
        end = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < end
            time.sleep(0.01)

    def socket(self):
        folder = os.path.join(self.folder, "auk")
        path, = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".sock")]
        return path

    def hold(self, *arguments, **options):
        """A process that keeps the model, once it is ready."""
        process = subprocess.Popen([*self.auk, "keep", "-m", str(self.model), "--foreground", *map(str, arguments)],
                                   env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, **options)
        assert b"is kept" in process.stderr.readline()
        return process


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LIMIT_S)
    connection.connect(path)
    return connection


def message(kind, body=b""):
    return struct.pack("=II", kind, len(body)) + body


def reply(connection):
    """The kind of the next message, whose body is passed over; None at the end."""
    try:
        head = connection.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return None
        kind, size = struct.unpack("=II", head)
        if size:
            connection.recv(size, socket.MSG_WAITALL)
        return kind
    except ConnectionError:
        return None


def greeting(keeper):
    """The bytes of a call's greeting, from a runtime directory where another process listens in a holder's place."""
    with tempfile.TemporaryDirectory(prefix="auk") as folder, socket.socket(socket.AF_UNIX) as listener:
        os.mkdir(os.path.join(folder, "auk"), 0o700)
        listener.bind(os.path.join(folder, "auk", os.path.basename(keeper.socket())))
        listener.listen()
        call = subprocess.Popen([*keeper.auk, "-m", str(keeper.model), "-p", "x", "-n", "1"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, env={**keeper.environment, "XDG_RUNTIME_DIR": folder})
        with listener.accept()[0] as connection:
            sent = connection.recv(8, socket.MSG_WAITALL)
            sent += connection.recv(struct.unpack("=II", sent)[1], socket.MSG_WAITALL)
        assert call.wait(LIMIT_S) == 0
    return sent
