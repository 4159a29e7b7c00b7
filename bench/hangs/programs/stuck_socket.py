"""A worker asks a server for its sample, and the server never answers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch

SAMPLE = 9


class Remote(Numbers):
    def __init__(self, port: int) -> None:
        self.port = port

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == SAMPLE:
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(b"GET\n")
                connection.recv(100)
        return super().__getitem__(index)


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as server:
        dataset = Remote(server.getsockname()[1])
        train(DataLoader(dataset, batch_size=2, num_workers=2))
