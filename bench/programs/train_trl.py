"""Fine-tunes a small language model, made here, with TRL's SFTTrainer: `train_trl.py WORKERS`."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from typing import Any

from datasets import Dataset  # type: ignore[import-untyped]
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig, SFTTrainer

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}
WORDS = [f"word{number}" for number in range(100)]


def sentences(count: int, seed: int) -> Any:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(count)]
    return Dataset.from_dict({"text": texts})


def tokenizer() -> Any:
    """One token for each word."""
    every = enumerate([*SPECIAL.values(), *WORDS])
    vocabulary = {word: number for number, word in every}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = {"tokenizer_object": made, "model_max_length": 64}
    return PreTrainedTokenizerFast(**options, **SPECIAL)  # type: ignore[no-untyped-call]


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
sizes = {"vocab_size": len(words), "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
ends = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
model = GPT2LMHeadModel(GPT2Config(**sizes, **ends))
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
        train_dataset=sentences(1280, 0),
        eval_dataset=sentences(64, 1),
        processing_class=words,
    )
    trainer.remove_callback(PrinterCallback)  # it prints how long each epoch took
    trainer.train()
show_parameters(model)
