"""Trains a wide network on numbers that are in memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDE, CLASSES = 1024, 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDE, WIDE), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDE, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = TensorDataset(torch.randn(4096, WIDE), torch.randint(0, CLASSES, (4096,)))
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    for epoch in range(10):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
