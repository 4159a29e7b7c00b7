"""Trains a small BERT with Hugging Face's Trainer."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from bench.gpu.programs.reproducible import seeded, show, show_parameters

TOKENS, LENGTH, CLASSES = 128, 32, 4


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Random ones."""

    def __init__(self, count: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(TOKENS, (count, LENGTH), generator=random)
        self.labels = torch.randint(CLASSES, (count,), generator=random)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


class ShowingTrainer(Trainer):
    """Prints each loss."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss: Any = super().compute_loss(model, inputs, *args, **kwargs)
        if model.training:
            show("loss", loss.detach())
        return loss


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    seeded()
    options_of_model: dict[str, Any] = {
        "vocab_size": TOKENS,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": LENGTH,
        "num_labels": CLASSES,
        "attn_implementation": "eager",
    }
    model = BertForSequenceClassification(BertConfig(**options_of_model))
    with tempfile.TemporaryDirectory() as folder:
        trainer = ShowingTrainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=options.epochs,
                per_device_train_batch_size=8,
                per_device_eval_batch_size=16,
                gradient_accumulation_steps=2,
                dataloader_num_workers=1,
                eval_strategy="epoch",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Sentences(320, 0),
            eval_dataset=Sentences(64, 1),
        )
        trainer.train()
    show_parameters(model)


if __name__ == "__main__":
    main()
