"""From DALI's LoaderEvaluator to this one: change one import, keep the rest.

    from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator

becomes the import below. `log_and_replay` is written for DALI's class and works with either: a log
run, a replay run, get_metrics() and save_metrics(). What loadeval adds comes after: a figure of the
two files, and one alternating run, whose result has a confidence interval.

    python examples/migrate_from_dali.py FOLDER

writes the photographs, real.json, ideal.json, two-runs.png and alternate.jsonl to FOLDER. Takes
about twenty seconds on two cores. Needs torch, Pillow and nvidia-dali-cuda120; the pipeline runs
on the CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.pytorch import DALIClassificationIterator
from torch import nn

from loadeval import LoaderEvaluator, plot_comparison
from loadeval.demo.run import make_photographs, small_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Train = Callable[[Iterable[Any]], None]

BATCH_SIZE, SIDE = 16, 224


def dali_iterator(photographs: Path) -> DALIClassificationIterator:
    """Reads, decodes and shrinks on the CPU; each subfolder is a class."""

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1)
    def read_and_resize() -> tuple[Any, Any]:
        files, labels = fn.readers.file(
            name="files", file_root=str(photographs), random_shuffle=True
        )
        images: Any = fn.resize(fn.decoders.image(files), size=(SIDE, SIDE))
        return fn.transpose(images, perm=[2, 0, 1]), labels

    pipeline = read_and_resize(device_id=None)
    return DALIClassificationIterator(pipeline, reader_name="files", auto_reset=True)


def training() -> Train:
    """A training loop over one epoch of any loader."""
    torch.manual_seed(0)
    model = small_network(classes=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train_one_epoch(loader: Iterable[Any]) -> None:
        for (batch,) in loader:
            scores = model(batch["data"] / 255)
            loss = nn.functional.cross_entropy(scores, batch["label"].squeeze(1).long())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            optimiser.step()

    return train_one_epoch


def log_and_replay(
    iterator: DALIClassificationIterator, train_one_epoch: Train, folder: Path
) -> None:
    """Unchanged: works with either LoaderEvaluator."""
    seconds = {}
    for mode, file in (("log", "real.json"), ("replay", "ideal.json")):
        loader = LoaderEvaluator(iterator, mode=mode, num_cached_batches=10)
        train_one_epoch(loader)
        metrics = loader.get_metrics()
        seconds[mode] = metrics["total_time"]
        print(
            f"{mode}: {metrics['total_batches']} batches in {metrics['total_time']:.2f} s, "
            f"waited {1000 * metrics['avg_batch_time']:.2f} ms for each"
        )
        loader.save_metrics(str(folder / file))
    print(f"log / replay: {seconds['log'] / seconds['replay']:.2f}")


def main() -> None:
    """Run the old way, and the new way."""
    parser = argparse.ArgumentParser(description="From DALI's LoaderEvaluator to loadeval's.")
    parser.add_argument("folder", type=Path, help="folder for photographs and results")
    parser.add_argument("--photographs", type=int, default=640, help="number of photographs")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of the alternating run")
    options = parser.parse_args()

    torch.set_num_threads(1)  # the other core is for DALI's thread
    photographs = options.folder / "photographs"
    make_photographs(photographs, options.photographs)
    train_one_epoch = training()

    log_and_replay(dali_iterator(photographs), train_one_epoch, options.folder)

    files = (options.folder / "real.json", options.folder / "ideal.json")
    print(f"Figure written to {plot_comparison(*files, output=options.folder / 'two-runs.png')}")
    with LoaderEvaluator(
        dali_iterator(photographs),  # a new one: replay left the other within an epoch
        mode="alternate",
        unit="images",
        log_file=options.folder / "alternate.jsonl",
        overwrite=True,
    ) as loader:
        for _ in range(options.epochs):
            train_one_epoch(loader)
    print(f"alternate: {loader.headroom()}")


if __name__ == "__main__":
    main()
