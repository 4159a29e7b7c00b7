"""A local server that is slow to answer, or limited in bandwidth, and how to read from it."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any


@dataclass(frozen=True)
class Server:
    """A server that answers after `latency_s`, or gives all together `bytes_per_s`."""

    latency_s: float = 0.0
    bytes_per_s: float | None = None


def fetch(port: int, size: int) -> None:
    """Read so many bytes, with the system call that the kernel counts."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(size.to_bytes(8, "big"))
        left = size
        while left:
            left -= len(os.read(connection.fileno(), min(left, 1 << 16)))


def serve(listener: socket.socket, server: Server) -> None:
    gate = threading.Lock()

    def answer(connection: socket.socket) -> None:
        with connection:
            size = int.from_bytes(connection.recv(8), "big")
            time.sleep(server.latency_s)
            if server.bytes_per_s is not None:
                with gate:
                    time.sleep(size / server.bytes_per_s)
            connection.sendall(bytes(size))

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def started(server: Server) -> tuple[Any, int]:
    """A process that serves, and its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    process = get_context("fork").Process(target=serve, args=(listener, server), daemon=True)
    process.start()
    port: int = listener.getsockname()[1]
    listener.close()
    return process, port
