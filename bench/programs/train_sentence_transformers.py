"""Trains embeddings with the trainer of sentence-transformers.

`train_sentence_transformers.py WORKERS`
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset  # type: ignore[import-untyped]
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback

from bench.programs.language import saved_bert, sentences
from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

if TYPE_CHECKING:
    import torch


class ShowingLoss(MultipleNegativesRankingLoss):
    """Prints each loss."""

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = super().forward(*arguments, **options)
        show("loss", loss.detach())
        return loss


def slowly(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """Take a while for each pair of sentences."""
    time.sleep(SAMPLE_S * len(next(iter(rows.values()))))
    return rows


begin()
with tempfile.TemporaryDirectory() as folder:
    model = SentenceTransformer(saved_bert(Path(folder) / "bert"), device="cpu")
    train_dataset, eval_dataset = (
        Dataset.from_dict(
            {"anchor": sentences(count, seed), "positive": sentences(count, seed, 20)}
        ).with_transform(slowly)
        for seed, count in enumerate((1280, 64))
    )
    args = SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        dataloader_num_workers=int(sys.argv[1]),
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        loss=ShowingLoss(model),
    )
    trainer.remove_callback(PrinterCallback)  # it prints how long each epoch took
    trainer.train()
    show_parameters(model)
