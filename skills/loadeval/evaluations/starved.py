"""Trains a small network on compressed recordings."""

import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, SHORT, CLASSES = 80_000, 2_000, 4


class Recordings(Dataset):
    """Noise of a loudness for each class, compressed."""

    def __init__(self, samples):
        random = np.random.default_rng(0)
        waves = [random.normal(0, 200 * (1 + number), LENGTH) for number in range(CLASSES)]
        self.recordings = [zlib.compress(wave.astype(np.int16).tobytes()) for wave in waves]
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        label = index % CLASSES
        wave = np.frombuffer(zlib.decompress(self.recordings[label]), np.int16)
        wave = wave.reshape(SHORT, -1).mean(axis=1).astype(np.float32) / 1000
        return torch.from_numpy(wave), label


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(SHORT, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Recordings(1280), batch_size=16, shuffle=True)
    for epoch in range(6):
        for waves, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(waves), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
