"""A slow loader of photographs, made fast step by step: each change is what loadeval found first.

At first the JPEGs are read without a thought: in the training process, at full size, in double
precision. Each way is measured in one alternating run, which says how fast training is, which
share of its time is lost to loading, and why. The next way changes that.

    python examples/slow_to_fast.py FOLDER

writes the photographs, a run log of each way, and slow-to-fast.png, a plot of the table printed at
the end, to FOLDER. Takes about eight minutes on two cores. Needs torch and Pillow.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval import Estimate

    Array = np.ndarray[Any, Any]
    Sample = tuple[torch.Tensor, int]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDE = (128, 128)
MEAN, DEVIATION, NOISE = 0.4, 0.25, 0.02
MOST_EPOCHS = 100

# ---- Reading: shrink a photograph, shift its tones at random, and add noise.


def decode(path: Path) -> Image.Image:
    """A photograph at full size."""
    with Image.open(path) as file:
        return file.convert("RGB")


def decode_small(path: Path) -> Image.Image:
    """The same at an eighth of its size at least: the decoder skips what shrinking would remove."""
    with Image.open(path) as file:
        file.draft("RGB", SIDE)
        return file.convert("RGB")


def shrink(image: Any) -> Array:
    """To SIDE pixels."""
    if isinstance(image, Image.Image):
        return np.array(image.resize(SIDE, Image.Resampling.BILINEAR))
    tensor = torch.tensor(image).permute(2, 0, 1).unsqueeze(0)
    small = nn.functional.interpolate(tensor, SIDE, mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).numpy()


def shift_tones(image: Any) -> Array:
    """The image in double precision, and normalised."""
    gamma = np.random.default_rng().uniform(0.8, 1.25)
    return np.asarray(((np.asarray(image) / 255) ** gamma - MEAN) / DEVIATION)


def add_noise(image: Array) -> Array:
    """A little, to each pixel."""
    return np.asarray(image + np.random.default_rng().normal(scale=NOISE, size=image.shape))


def to_tensor(image: Array) -> torch.Tensor:
    """Channels first, in single precision."""
    return torch.from_numpy(image).permute(2, 0, 1).float()


AS_FOUND: list[Callable[[Any], Any]] = [shift_tones, add_noise, shrink, to_tensor]
SHRUNK_FIRST: list[Callable[[Any], Any]] = [shrink, shift_tones, add_noise, to_tensor]
WORKERS = {"num_workers": 2}
STAYING = {**WORKERS, "persistent_workers": True}
WAYS: dict[str, tuple[Callable[[Path], Any], list[Callable[[Any], Any]], dict[str, Any]]] = {
    "as found": (decode, AS_FOUND, {}),
    "in two workers": (decode, AS_FOUND, WORKERS),
    "shrink first": (decode, SHRUNK_FIRST, WORKERS),
    "decode in draft mode": (decode_small, SHRUNK_FIRST, WORKERS),
    "workers that stay": (decode_small, SHRUNK_FIRST, STAYING),
}
"""Each has one change more: how it decodes, its transforms, and options of its DataLoader."""


class Photographs(Dataset["Sample"]):
    """Photographs, half of them upside down: the network learns which."""

    def __init__(
        self,
        paths: list[Path],
        loader: Callable[[Path], Any],
        transforms: list[Callable[[Any], Any]],
    ) -> None:
        self.paths, self.loader, self.transforms = paths, loader, transforms

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        image = self.loader(self.paths[index])
        for transform in self.transforms:
            image = transform(image)
        return image, int("turned" in self.paths[index].name)


def make_photographs(folder: Path, count: int, width: int) -> list[Path]:
    """Writes 4:3 JPEGs, cropped from the photograph that matplotlib ships."""
    folder.mkdir(parents=True, exist_ok=True)
    source: Any = get_sample_data("grace_hopper.jpg", asfileobj=False)
    with Image.open(source) as file:
        photograph = file.convert("RGB")
    paths = [folder / f"{n:04d}-{('upright', 'turned')[n % 2]}.jpg" for n in range(count)]
    for number, path in enumerate(paths):
        left, top = np.random.default_rng(number).integers(0, (112, 300)).tolist()
        part = photograph.resize((width, width * 3 // 4), box=(left, top, left + 400, top + 300))
        part.rotate(180 * (number % 2)).save(path, quality=90)
    return paths


# ---- Measuring: each way trains the same network.


@dataclass
class Row:
    """The result of one way: images per second, the lost share, and what was found first."""

    way: str
    rate: Estimate
    free_rate: Estimate
    lost: Estimate
    epoch_start_ms: float
    found: str


def measure(way: str, dataloader: DataLoader[Sample], pairs: int, log_file: Path) -> Row:
    """Train until that many pairs of blocks have been measured."""
    torch.manual_seed(0)
    sizes = ((3, 32), (32, 64), (64, 64))
    layers = [nn.Sequential(nn.Conv2d(*size, 3, stride=2), nn.ReLU()) for size in sizes]
    head = (nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 2))
    model = nn.Sequential(*layers, *head).to(DEVICE)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    options: Any = {"unit": "images", "log_file": log_file, "overwrite": True}
    with LoaderEvaluator(dataloader, mode="alternate", pairs=pairs, **options) as loader:
        for _ in range(MOST_EPOCHS):
            for batch in loader:
                images, labels = (tensor.to(DEVICE) for tensor in batch)
                loss = nn.functional.cross_entropy(model(images), labels)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
                optimiser.step()
            if (loader.headroom().pairs or 0) >= pairs:
                break
    gap, run = loader.headroom(), loader.recorded()
    print(f"{way}: {gap}", flush=True)
    diagnosis = diagnose(run)
    for action in diagnosis.actions[:2]:
        gain = f"{action.speedup:times}" if action.speedup else "not predicted"
        print(f"  {action.says}: {gain}", flush=True)
    size, lost = gap.samples_per_batch, gap.lost_share
    if not (gap.real and gap.ideal and size and lost):
        raise SystemExit("too little was measured")
    rates = size * 1e9 / gap.real, size * 1e9 / gap.ideal
    start_ms = float(run.steps.where(batch=0).wait_ns.mean()) / 1e6
    found = diagnosis.findings[0].rule if diagnosis.findings else "nothing"
    return Row(way, *rates, lost, start_ms, found)


# ---- Reporting: a row for each way, as a line and as bars.


def table(rows: list[Row]) -> str:
    """One line per way."""
    lines = [" " * 21 + "images/s  if free  lost to loading    epoch start  found first"]
    lines += [
        f"{row.way:20}{row.rate.value:9.0f}{row.free_rate.value:9.0f}  {f'{row.lost:.0%}':15}"
        f"{row.epoch_start_ms:11.0f} ms  {row.found}"
        for row in rows
    ]
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    """The same as bars."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    ways, fastest = [row.way for row in rows], max(row.free_rate.value for row in rows)
    free = panels[0].barh(ways, [row.free_rate.value / fastest for row in rows], color="#CFE3F1")
    panels[0].barh(ways, [row.rate.value / fastest for row in rows], color="#0072B2")
    labels = [f"{row.rate.value:.0f} of {row.free_rate.value:.0f}" for row in rows]
    panels[0].bar_label(free, labels, padding=5, fontsize=14)
    bars = panels[1].barh(ways, [row.lost.value for row in rows], color="#E69F00")
    labels = [f"{row.lost:.0%}, {row.found}" for row in rows]
    panels[1].bar_label(bars, labels, padding=5, fontsize=14)
    titles = (
        "images/s (pale: if loading were free)",
        "time lost to loading, and what was found first",
    )
    for axes, title, end in zip(panels, titles, (1.4, 2.2), strict=True):
        axes.set_title(title, loc="left", fontsize=14)
        axes.set_xlim(0, end)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(bottom=False, labelbottom=False, left=False, labelsize=14)
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Measure each way, and print the results."""
    parser = argparse.ArgumentParser(description="A slow loader, made fast step by step.")
    parser.add_argument("folder", type=Path, help="folder for photographs and results")
    parser.add_argument("--photographs", type=int, default=384, help="number of photographs")
    parser.add_argument("--width", type=int, default=800, help="width of a photograph, in pixels")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of blocks for each way")
    options = parser.parse_args()

    torch.set_num_threads(1)  # leaves the other core to the workers
    paths = make_photographs(options.folder / "photographs", options.photographs, options.width)
    rows: list[Row] = []
    for number, (way, (loader, transforms, settings)) in enumerate(WAYS.items(), start=1):
        photographs = Photographs(paths, loader, transforms)
        dataloader = DataLoader(photographs, batch_size=8, shuffle=True, drop_last=True, **settings)
        log_file = options.folder / f"{number}-{way.replace(',', '').replace(' ', '-')}.jsonl"
        # With workers, blocks are shorter and vary more.
        pairs = 4 * options.pairs if "num_workers" in settings else options.pairs
        rows.append(measure(way, dataloader, pairs, log_file))
    draw(rows, options.folder / "slow-to-fast.png")
    print(f"\n{table(rows)}\n\nFigure written to {options.folder / 'slow-to-fast.png'}")


if __name__ == "__main__":
    main()
