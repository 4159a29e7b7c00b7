"""Inside Hugging Face's Trainer: how much faster would training be if data loading were free?

The Trainer builds its DataLoader when training begins, so it is measured in place, in
`get_train_dataloader`.

    python examples/trainer.py FOLDER

writes run.jsonl and comparison.png to FOLDER. Takes about ten seconds. Needs transformers and
accelerate; no model is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from loadeval import LoaderEvaluator, evaluate_in_place, plot_comparison

LETTERS = 26


class Ciphers(Dataset[dict[str, torch.Tensor]]):
    """Texts, each shifted by a number of letters, which the model learns to predict."""

    def __init__(self, count: int, length: int = 256) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        random = torch.Generator().manual_seed(index)
        shift = index % LETTERS
        frequent = torch.arange(LETTERS, 0, -1).float()
        letters = torch.multinomial(frequent, self.length, replacement=True, generator=random)
        # Letter by letter, in Python: the costly transform.
        shifted = [(int(letter) + shift) % LETTERS for letter in letters]
        return {"letters": torch.tensor(shifted), "labels": torch.tensor(shift)}


class Decipherer(nn.Module):
    """A small network that returns its loss, as the Trainer requires."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LETTERS, 128)
        self.layers = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, LETTERS))

    def forward(self, letters: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of a batch of texts, and the predicted shifts."""
        scores = self.layers(self.embed(letters)).mean(dim=1)
        return {"loss": nn.functional.cross_entropy(scores, labels), "scores": scores}


class MeasuredTrainer(Trainer):
    """A Trainer that measures its training loader; `evaluator` exists once it trains."""

    log_file: Path
    evaluator: LoaderEvaluator

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The Trainer's own, which is measured from now on.

        A second `train()`, and each attempt of `auto_find_batch_size`, calls this again: the log
        is that of the last.
        """
        if hasattr(self, "evaluator"):
            self.evaluator.close()
        dataloader = super().get_train_dataloader()
        self.evaluator = evaluate_in_place(
            dataloader, mode="alternate", unit="texts", log_file=self.log_file, overwrite=True
        )
        return dataloader


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description="Measure the loader that a Trainer builds.")
    parser.add_argument("folder", type=Path, help="folder for the run log and the figure")
    parser.add_argument("--texts", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    torch.set_num_threads(1)  # steadier times if other programs use the CPU
    trainer = MeasuredTrainer(
        model=Decipherer(),
        args=TrainingArguments(
            output_dir=str(options.folder / "trainer"),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=8,
            learning_rate=1e-2,
            dataloader_pin_memory=torch.cuda.is_available(),
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Ciphers(options.texts),
    )
    trainer.log_file = options.folder / "run.jsonl"
    trainer.train()
    trainer.evaluator.close()
    print(trainer.evaluator.headroom())
    figure = plot_comparison(trainer.log_file, output=options.folder / "comparison.png")
    print(f"Figure written to {figure}")


if __name__ == "__main__":
    main()
