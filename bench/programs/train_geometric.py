"""Classifies graphs with PyTorch Geometric, as its tutorial: `train_geometric.py WORKERS`."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

FEATURES, CLASSES = 7, 2


class Graphs(Dataset):
    """Random ones, of 5 to 24 nodes; each takes a while."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.graphs = [self._graph(random) for _ in range(count)]

    def _graph(self, random: torch.Generator) -> Any:
        nodes = int(torch.randint(5, 25, (1,), generator=random))
        edges = torch.randint(nodes, (2, 3 * nodes), generator=random)
        label = torch.randint(CLASSES, (1,), generator=random)
        return Data(torch.randn(nodes, FEATURES, generator=random) + label, edges, y=label)

    def len(self) -> int:
        return len(self.graphs)

    def get(self, idx: int) -> Any:
        time.sleep(SAMPLE_S)
        return self.graphs[idx]


class GCN(nn.Module):
    """Two convolutions and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(FEATURES, 16), GCNConv(16, 16)
        self.lin = nn.Linear(16, CLASSES)

    def forward(self, x: Any, edge_index: Any, batch: Any) -> torch.Tensor:
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        pooled = nn.functional.dropout(global_mean_pool(x, batch), training=self.training)
        logits: torch.Tensor = self.lin(pooled)
        return logits


begin()
workers = int(sys.argv[1])
train_loader = DataLoader(Graphs(1280, 0), batch_size=8, shuffle=True, num_workers=workers)
test_loader = DataLoader(Graphs(96, 1), batch_size=16)
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for _ in range(2):
    model.train()
    for data in train_loader:
        loss = criterion(model(data.x, data.edge_index, data.batch), data.y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        show("loss", loss)
    model.eval()
    correct = 0
    with torch.no_grad():
        for data in test_loader:
            predicted = model(data.x, data.edge_index, data.batch).argmax(dim=1)
            correct += int((predicted == data.y).sum())
    show("accuracy", correct / 96)
show_parameters(model)
