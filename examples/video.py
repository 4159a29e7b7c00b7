"""Video clips: how many videos per second, and how many if loading were free?

A batch is five-dimensional, and the rate of interest is videos/s: `unit="videos"`. Each video is a
folder of JPEGs, as in many video data sets. A clip is sixteen frames, every second one from a
random start.

    python examples/video.py FOLDER

writes the frames, run.jsonl and comparison.png to FOLDER. Takes half a minute on two cores. Needs
torch and Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, plot_comparison

FRAMES, SIDE = 64, 128
"""A video has so many frames, each of SIDE by SIDE pixels."""
CLIP, EVERY = 16, 2
BATCH_SIZE = 4


class Clips(Dataset[tuple[torch.Tensor, int]]):
    """One clip of 3 x CLIP x SIDE x SIDE bytes per video; the label is the direction of motion."""

    def __init__(self, videos: list[Path]) -> None:
        self.videos = videos

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        first = int(torch.randint(FRAMES - CLIP * EVERY + 1, ()))
        frames = []
        for number in range(first, first + CLIP * EVERY, EVERY):
            with Image.open(self.videos[index] / f"{number:03d}.jpg") as frame:
                frames.append(np.asarray(frame))
        return torch.from_numpy(np.stack(frames)).permute(3, 0, 1, 2), index % 2


def make_videos(folder: Path, count: int) -> list[Path]:
    """Writes folders of frames, in which a bright disc moves right or left."""
    videos = [folder / f"{number:03d}" for number in range(count)]
    y, x = np.mgrid[:SIDE, :SIDE]
    for number, video in enumerate(videos):
        video.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(number)
        scene = random.integers(0, 160, (8, 8, 3), dtype=np.uint8)
        background = np.array(Image.fromarray(scene).resize((SIDE, SIDE)))
        for frame in range(FRAMES):
            place = frame * (1, -1)[number % 2] * SIDE / FRAMES % SIDE
            disc = (x - place) ** 2 + (y - SIDE / 2) ** 2 < (SIDE / 8) ** 2
            picture = np.where(disc[..., None], np.uint8(255), background)
            Image.fromarray(picture).save(video / f"{frame:03d}.jpg", quality=90)
    return videos


def train_one_epoch(loader: LoaderEvaluator, model: nn.Module) -> None:
    """An ordinary training loop."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for clips, labels in loader:
        loss = nn.functional.cross_entropy(model(clips / 255), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimiser.step()


def main() -> None:
    """Make the videos, train on their clips and compare."""
    parser = argparse.ArgumentParser(description="Measure a loader of clips, in videos/s.")
    parser.add_argument("folder", type=Path, help="folder for frames, run log and figure")
    parser.add_argument("--videos", type=int, default=160, help="number of videos")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()

    torch.set_num_threads(1)  # leaves the other core to the worker
    clips = Clips(make_videos(options.folder / "videos", options.videos))
    dataloader = DataLoader(clips, BATCH_SIZE, shuffle=True, num_workers=1, drop_last=True)
    model = nn.Sequential(
        nn.Conv3d(3, 8, kernel_size=(3, 5, 5), stride=(1, 4, 4)),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(4),
        nn.Flatten(),
        nn.Linear(8 * 4**3, 2),
    )
    log_file = options.folder / "run.jsonl"
    with LoaderEvaluator(
        dataloader, mode="alternate", unit="videos", log_file=log_file, overwrite=True
    ) as loader:
        for _ in range(options.epochs):
            train_one_epoch(loader, model)
    gap = loader.headroom()
    print(gap)
    if gap.real and gap.ideal:
        real, ideal = (BATCH_SIZE * 1e9 / time_ns.value for time_ns in (gap.real, gap.ideal))
        print(f"{real:.0f} videos/s, {ideal:.0f} if loading were free; {CLIP} frames each")
    print(
        f"Figure written to {plot_comparison(log_file, output=options.folder / 'comparison.png')}"
    )


if __name__ == "__main__":
    main()
