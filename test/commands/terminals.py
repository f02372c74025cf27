"""Terminals that a test holds the other side of."""
import fcntl
import os
import struct
import termios


def resize(descriptor, columns):
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def read_all(descriptor):
    """All output of a terminal until its other side is closed."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # EIO: the other side is gone
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)
