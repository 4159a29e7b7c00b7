"""A training that a build measures: short, and in the training process alone."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dataset = TensorDataset(torch.randn(4096, 512), torch.randint(0, 2, (4096,)))
dataloader = DataLoader(dataset, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    for inputs, targets in dataloader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
