"""Fine-tunes a small GPT by litgpt's recipe `litgpt finetune_full`: `train_litgpt.py WORKERS`."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from litgpt import GPT, Config
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import JSON
from litgpt.finetune.full import setup
from litgpt.utils import save_config

from bench.programs.language import SPECIAL, WORDS, sentences, tokenizer
from bench.programs.shared import Slow, begin, show, show_parameters


class SlowJSON(JSON):
    """Takes a while for each sample."""

    def train_dataloader(self) -> Any:
        self.train_dataset = Slow(self.train_dataset)  # type: ignore[has-type]  # litgpt's own
        return super().train_dataloader()


begin()
with tempfile.TemporaryDirectory() as folder:
    checkpoint, out = Path(folder) / "checkpoint", Path(folder) / "out"
    tokenizer().save_pretrained(checkpoint)
    config = Config(
        name="tiny",
        block_size=64,
        padded_vocab_size=len(SPECIAL) + len(WORDS),
        n_layer=2,
        n_head=2,
        n_embd=32,
    )
    save_config(config, checkpoint)
    torch.save(GPT(config).state_dict(), checkpoint / "lit_model.pth")
    for part, count in {"train": 640, "val": 32}.items():
        rows = [{"instruction": text, "output": text} for text in sentences(count, len(part))]
        (Path(folder) / f"{part}.json").write_text(json.dumps(rows))
    with redirect_stdout(io.StringIO()):  # it prints how long each iteration took
        setup(
            checkpoint,
            out_dir=out,
            precision="32-true",
            data=SlowJSON(json_path=Path(folder), num_workers=int(sys.argv[1])),
            train=TrainArgs(
                save_interval=None,
                log_interval=1,
                global_batch_size=8,
                micro_batch_size=4,
                lr_warmup_steps=10,
                epochs=2,
                max_seq_length=32,
            ),
            eval=EvalArgs(interval=80, max_new_tokens=8, max_iters=8),
        )
    with next(out.rglob("metrics.csv")).open() as metrics:
        for row in csv.DictReader(metrics):
            show("losses", *(row[name] for name in ("loss", "val_loss") if row.get(name)))
    model = GPT(config)
    model.load_state_dict(torch.load(out / "final" / "lit_model.pth")["model"])
    show_parameters(model)
