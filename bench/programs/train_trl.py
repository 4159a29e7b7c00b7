"""Fine-tunes a language model with TRL's SFTTrainer: `train_trl.py WORKERS`."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

from datasets import Dataset  # type: ignore[import-untyped]
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback
from trl import SFTConfig, SFTTrainer

from bench.programs.language import sentences, tokenizer
from bench.programs.shared import SAMPLE_S, begin, show, show_parameters


class SlowTrainer(SFTTrainer):
    """Takes a while for each sentence, and prints each loss."""

    def get_train_dataloader(self) -> Any:
        collate = self.data_collator  # type: ignore[has-type]  # the trainer's own

        def slowly(rows: list[Any]) -> Any:
            time.sleep(SAMPLE_S * len(rows))
            return collate(rows)

        self.data_collator = slowly
        return super().get_train_dataloader()

    def compute_loss(self, model: Any, *arguments: Any, **options: Any) -> Any:
        result = super().compute_loss(model, *arguments, **options)
        show("loss", (result[0] if isinstance(result, tuple) else result).detach())
        return result


begin()
words = tokenizer()
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(words),
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
)
with tempfile.TemporaryDirectory() as folder:
    trainer = SlowTrainer(
        model=model,
        args=SFTConfig(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=16,
            dataloader_num_workers=int(sys.argv[1]),
            max_length=32,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=Dataset.from_dict({"text": sentences(1280, 0)}),
        eval_dataset=Dataset.from_dict({"text": sentences(64, 1)}),
        processing_class=words,
    )
    trainer.remove_callback(PrinterCallback)  # it prints how long each epoch took
    trainer.train()
show_parameters(model)
