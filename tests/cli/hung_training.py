"""A training whose samples come from a server, which does not answer for one of them."""

import socket

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset[torch.Tensor]):
    def __init__(self, port: int) -> None:
        self.port = port

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 137:
            with socket.create_connection(("127.0.0.1", self.port)) as server:
                server.sendall(b"GET 137\n")
                server.recv(1_000)
        return torch.full((8,), float(index))


if __name__ == "__main__":
    torch.set_num_threads(1)
    server = socket.create_server(("127.0.0.1", 0))
    loader = DataLoader(Remote(server.getsockname()[1]), batch_size=8, num_workers=2)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
