"""Trains a small network on records that a server keeps."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ANSWERS_AFTER_S = 0.002
NUMBERS, WIDE, CLASSES = 512, 1024, 4
WORKERS = 0


class Records(Dataset):
    """Noise of a loudness for each class, from a server that is far away."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        label = index % CLASSES
        return self.answer(index) * (1 + label), label

    def answer(self, index):
        """What the server sends; this stand-in takes as long."""
        time.sleep(ANSWERS_AFTER_S)
        return torch.randn(NUMBERS, generator=torch.Generator().manual_seed(index))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = nn.Linear(NUMBERS, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU()
    model = nn.Sequential(*layers, nn.Linear(WIDE, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Records(2560),
        batch_size=16,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=WORKERS > 0,
    )
    for epoch in range(4):
        for records, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(records), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
