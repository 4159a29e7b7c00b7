"""Starts a program once for each of two ranks: `launcher.py PROGRAM ARGUMENTS...`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

RANKS = 2


def main() -> int:
    """Wait for all; the code of one that failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    started = [
        subprocess.Popen(
            [sys.executable, *sys.argv[1:]], env={**os.environ, **place, "RANK": str(rank)}
        )
        for rank in range(RANKS)
    ]
    return max(abs(process.wait()) for process in started)


if __name__ == "__main__":
    sys.exit(main())
