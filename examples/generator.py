"""The loader is a generator function: does it keep up with training?

It reads a file of documents, splits them into tokens, and packs these into batches. A generator has
one epoch, so wrap the function, not what it returns: each epoch calls it anew. `samples=` counts
the tokens of a batch, and `unit=` names them.

    python examples/generator.py FOLDER

writes documents.txt, run.jsonl and comparison.png to FOLDER. Takes about ten seconds. Needs torch.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from loadeval import LoaderEvaluator, plot_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

SYLLABLES = [first + second for first, second in product("bcdfghjklmnpqrstvwxyz", "aeiou")]
VOCABULARY = {piece: number for number, piece in enumerate([*SYLLABLES, *"aeioubcdfgstxyz", " "])}
ROWS, TOKENS = 16, 64
"""A batch has so many rows, and so many tokens of each are predicted."""


def write_documents(file: Path, count: int) -> Path:
    """One made-up document per line; lengths vary as in real ones."""
    random = np.random.default_rng(0)
    pieces, lengths = list(VOCABULARY), random.lognormal(mean=5, sigma=1, size=count).astype(int)
    lines = ("".join(random.choice(pieces, length)) for length in lengths)
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def tokens_of(document: str) -> Iterator[int]:
    """Split into the longest pieces of VOCABULARY, from left to right."""
    place = 0
    while place < len(document):
        length = 2 if document[place : place + 2] in VOCABULARY else 1
        yield VOCABULARY[document[place : place + length]]
        place += length


def token_batches(file: Path) -> Iterator[torch.Tensor]:
    """One epoch: batches of ROWS x (TOKENS + 1). The remainder is dropped."""
    tokens: list[int] = []
    with file.open(encoding="utf-8") as documents:
        for document in documents:
            tokens += tokens_of(document.rstrip("\n"))
            while len(tokens) >= ROWS * (TOKENS + 1):
                batch = tokens[: ROWS * (TOKENS + 1)]
                del tokens[: len(batch)]
                yield torch.tensor(batch).view(ROWS, TOKENS + 1)


def predicted(batch: torch.Tensor) -> int:
    """The number of tokens trained on: all but the first of each row."""
    return batch.numel() - len(batch)


def train_one_epoch(loader: LoaderEvaluator, model: nn.Module) -> None:
    """Learn to predict each token from the one before it."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimiser.step()


def main() -> None:
    """Train on a generator's batches and compare."""
    parser = argparse.ArgumentParser(description="Measure a loader that is a generator function.")
    parser.add_argument("folder", type=Path, help="folder for the results")
    parser.add_argument("--documents", type=int, default=1000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file = write_documents(options.folder / "documents.txt", options.documents)
    log_file = options.folder / "run.jsonl"

    torch.set_num_threads(1)  # steadier times if other programs use the CPU
    model = nn.Sequential(nn.Embedding(len(VOCABULARY), 128), nn.Linear(128, len(VOCABULARY)))
    with LoaderEvaluator(
        partial(token_batches, file),  # not token_batches(file), which has one epoch
        mode="alternate",
        samples=predicted,
        unit="tokens",
        log_file=log_file,
        overwrite=True,
    ) as loader:
        for _ in range(3):
            train_one_epoch(loader, model)
    print(loader.headroom())
    print(
        f"Figure written to {plot_comparison(log_file, output=options.folder / 'comparison.png')}"
    )


if __name__ == "__main__":
    main()
