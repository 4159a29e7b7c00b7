"""Texts of very different lengths, padded, before a step that takes longer for longer batches."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset

from bench.faults.programs import BATCHES, SIZE, STEP_MS, Program, Step, Training, train

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

LONGEST = 512
TOKEN_MS = STEP_MS / 100
"""What a step takes for each position of its batch's sequences."""


def lengths_drawn() -> list[int]:
    """As texts on the web have them: most are short, and a few very long."""
    drawn = np.random.default_rng(0).lognormal(3.2, 0.9, BATCHES * SIZE)
    lengths: list[int] = np.clip(drawn.astype(int), 3, LONGEST).tolist()
    return lengths


class Texts(Dataset[Any]):
    """Token ids."""

    def __init__(self) -> None:
        self.lengths = lengths_drawn()
        self.tokens = np.arange(LONGEST) % 1000 + 5

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Numbers:
        return self.tokens[: self.lengths[index]]


def padded(texts: list[Numbers]) -> dict[str, Numbers]:
    """A batch as a tokeniser gives it."""
    length = max(map(len, texts))
    ids = np.zeros((len(texts), length), dtype=np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


def batches_of(window: int) -> list[list[int]]:
    """Indices for each batch: texts in random order, sorted by length in windows of batches."""
    draw, lengths = np.random.default_rng(1), np.array(lengths_drawn())
    order = draw.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), window * SIZE):
        texts = order[start : start + window * SIZE]
        if window > 1:
            texts = texts[np.argsort(lengths[texts], kind="stable")]
        batches += texts.reshape(-1, SIZE).tolist()
    return [batches[place] for place in draw.permutation(len(batches)).tolist()]


class StepByLength(Step):
    """A step whose products are as many as its batch is long; without a batch, as the mean one."""

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        super().__init__(TOKEN_MS)
        lengths = lengths_drawn()
        self.mean = sum(max(lengths[text] for text in batch) for batch in batches) / len(batches)

    def __call__(self, batch: Any) -> None:
        length = self.mean if batch is None else batch["input_ids"].shape[1]
        for _ in range(round(length)):
            super().__call__(None)


def train_on_texts(window: int) -> Training:
    batches = batches_of(window)
    training = train(Texts(), batch_size=1, batch_sampler=batches, collate_fn=padded)
    return Training(training.loader, StepByLength(batches))


WORDS = 2000
"""The words of a text."""


@cache
def bpe() -> Tokenizer:
    """A tokeniser with a small vocabulary, trained on a few texts."""
    made = Tokenizer(models.BPE(unk_token="?"))  # noqa: S106 - no password
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["?"], show_progress=False)
    made.train_from_iterator(map(text, range(20)), trainer)
    return made


def text(index: int) -> str:
    """Words of one to nine letters, some of which come often."""
    draw = np.random.default_rng(index)
    letters = bytes(draw.choice(list(b"etaoinshrdlucmfw"), 5 * WORDS).tolist()).decode()
    ends = np.sort(draw.choice(5 * WORDS, WORDS))
    return " ".join(letters[start:end] for start, end in pairwise(ends.tolist()))


class Written(Dataset[Any]):
    """Texts that are tokenised as they are asked for, or all of them before."""

    def __init__(self, *, before: bool) -> None:
        self.tokenizer = bpe()
        self.texts = [text(index) for index in range(SIZE)]
        self.ids = [self.encoded(text) for text in self.texts] if before else None

    def __len__(self) -> int:
        return BATCHES // 2 * SIZE

    def __getitem__(self, index: int) -> Numbers:
        number = index % len(self.texts)
        return self.encoded(self.texts[number]) if self.ids is None else self.ids[number]

    def encoded(self, text: str) -> Numbers:
        return np.array(self.tokenizer.encode(text).ids[:LONGEST])


class Raw(Written):
    """Texts as they are, for who tokenises a batch at once.

    The tokeniser has threads for that, but not in a process that is forked once they were used.
    """

    def __getitem__(self, index: int) -> Any:
        return self.texts[index % len(self.texts)]

    def collate(self, texts: list[str]) -> Numbers:
        encoded = self.tokenizer.encode_batch(texts)
        return np.stack([one.ids[:LONGEST] for one in encoded])


def train_on_raw(start: str = "fork") -> Training:
    texts = Raw(before=False)
    return train(texts, epochs=2, collate_fn=texts.collate, multiprocessing_context=start)


PROGRAMS = (
    Program(
        "texts that are tokenised in each epoch",
        "tokenising",
        "tokenizer.encode",
        faulty=lambda _: train(Written(before=False), epochs=2),
        healthy=lambda _: train(Written(before=True), epochs=2),
    ),
    Program(
        "texts that are tokenised batch by batch",
        "tokenising",
        "tokenizer.encode_batch",
        faulty=lambda _: train_on_raw(),
        healthy=lambda _: train(Written(before=True), epochs=2),
    ),
    Program(
        "texts that threads of each spawned worker tokenise",
        "tokenising",
        "tokenizer.encode_batch",
        faulty=lambda _: train_on_raw("spawn"),
        healthy=lambda _: train(Written(before=True), epochs=2, multiprocessing_context="spawn"),
    ),
    Program(
        "texts of all lengths in a batch",
        "padding",
        "like length",
        faulty=lambda _: train_on_texts(window=1),
        healthy=lambda _: train_on_texts(window=BATCHES),
        fixed=lambda _: train_on_texts(window=BATCHES // 4),
    ),
)
