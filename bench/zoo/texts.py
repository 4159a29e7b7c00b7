"""Texts: parsed, tokenised, padded, and of very different lengths."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bench.zoo.costs import Products
from bench.zoo.programs import (
    BATCHES,
    SAMPLES,
    SIZE,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

KEPT = 16
"""Different samples; they come again and again."""
LONGEST = 512
TOKEN_MS = STEP_MS / 100
"""What a step takes for each position of its batch's sequences."""
WORDS = 2000
"""The words of a text that is tokenised."""
WORD = re.compile(r"\b(?:[a-z]+[- ]?)+?\b(?=[^.]*\.)", re.IGNORECASE)


def annotated(boxes: int) -> Training:
    """Lines of JSON, of which only the first box is used."""
    draw = random.Random(0)
    box = [{"box": [draw.random() for _ in range(4)], "label": "x"} for _ in range(boxes)]
    lines = [json.dumps({"number": number, "boxes": box}) for number in range(KEPT)]

    def parse_annotations(index: int) -> torch.Tensor:
        record = json.loads(lines[index % KEPT])
        return torch.tensor(record["boxes"][0]["box"])

    return train(Samples(parse_annotations))


def split_by(split: Callable[[str], list[str]]) -> Training:
    """Sentences, as the numbers of their words."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(500)]
    numbers = {word: number for number, word in enumerate(words)}
    texts = [" ".join(draw.choices(words, k=800)) + "." for _ in range(KEPT)]

    def read(index: int) -> torch.Tensor:
        found = split(texts[index % KEPT])
        return torch.tensor([numbers.get(word, 0) for word in found[:100]])

    return train(Samples(read))


def words_by_regex(text: str) -> list[str]:
    return [word.strip(" .") for word in WORD.findall(text)]


def words_by_spaces(text: str) -> list[str]:
    return text.rstrip(".").split()


def rows_of_text(columns: int) -> Training:
    """A stream of rows of numbers as text, such as a CSV file has."""
    draw = random.Random(0)
    rows = [",".join(f"{draw.random():.6f}" for _ in range(columns)) for _ in range(KEPT)]
    return train(Stream(lambda index: torch.tensor(parse_row(rows[index % KEPT])[:64])))


def parse_row(row: str) -> list[float]:
    return [float(cell) for cell in row.split(",")]


def sentences(collate: Callable[[list[list[int]]], Any]) -> Training:
    """Lists of numbers of words, of different lengths."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(450, 900, KEPT).tolist()
    kept = [draw.integers(0, 30_000, length).tolist() for length in lengths]
    return train(Samples(lambda index: list(kept[index % KEPT])), collate_fn=collate)


def pad_word_by_word(sentences: list[list[int]]) -> npt.NDArray[np.int32]:
    padded = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.int32)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            padded[row, column] = word
    return padded.numpy()[:, ::4]


def pad_by_rows(sentences: list[list[int]]) -> npt.NDArray[np.int32]:
    padded = np.zeros((len(sentences), max(map(len, sentences))), dtype=np.int32)
    for row, sentence in zip(padded, sentences, strict=True):
        row[: len(sentence)] = sentence
    return padded[:, ::4]


def lengths_drawn() -> list[int]:
    """As texts on the web have them: most are short, and a few very long."""
    drawn = np.random.default_rng(0).lognormal(3.2, 0.9, SAMPLES)
    lengths: list[int] = np.clip(drawn.astype(int), 3, LONGEST).tolist()
    return lengths


def padded(texts: list[Numbers]) -> dict[str, Numbers]:
    """A batch as a tokeniser gives it."""
    ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
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


class StepByLength(Products):
    """A step whose products are as many as its batch is long; without a batch, as the mean one."""

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        super().__init__(TOKEN_MS)
        lengths = lengths_drawn()
        self.mean = sum(max(lengths[text] for text in batch) for batch in batches) / len(batches)

    def __call__(self, batch: Any) -> None:
        length = self.mean if batch is None else batch["input_ids"].shape[1]
        for _ in range(round(length)):
            super().__call__(None)


def of_all_lengths(window: int) -> Training:
    """Token ids, padded, before a step that takes longer for longer batches."""
    batches, lengths, tokens = batches_of(window), lengths_drawn(), np.arange(LONGEST) % 1000 + 5
    training = train(
        Samples(lambda index: tokens[: lengths[index]]),
        batch_size=1,
        batch_sampler=batches,
        collate_fn=padded,
    )
    return Training(training.loader, StepByLength(batches))


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


class Written(Samples):
    """Texts that are tokenised as they are asked for, or all of them before."""

    def __init__(self, *, before: bool) -> None:
        self.tokenizer = bpe()
        self.texts = [text(index) for index in range(SIZE)]
        self.ids = [self.encoded(text) for text in self.texts] if before else None
        self.count = SAMPLES // 2

    def read(self, index: int) -> Any:
        number = index % len(self.texts)
        return self.encoded(self.texts[number]) if self.ids is None else self.ids[number]

    def encoded(self, text: str) -> Numbers:
        return np.array(self.tokenizer.encode(text).ids[:LONGEST])


class Raw(Written):
    """Texts as they are, for who tokenises a batch at once.

    The tokeniser has threads for that, but not in a process that is forked once they were used.
    """

    def read(self, index: int) -> Any:
        return self.texts[index % len(self.texts)]

    def collate(self, texts: list[str]) -> Numbers:
        encoded = self.tokenizer.encode_batch(texts)
        return np.stack([one.ids[:LONGEST] for one in encoded])


def tokenised(**options: Any) -> Training:
    """All texts are tokenised before they are asked for."""
    return train(Written(before=True), epochs=2, **options)


def tokenised_by_batch(start: str) -> Training:
    texts = Raw(before=False)
    return train(texts, epochs=2, collate_fn=texts.collate, multiprocessing_context=start)


PROGRAMS = (
    Program(
        "long annotations as JSON",
        "data format",
        "parse_annotations",
        faulty=lambda _: annotated(boxes=1200),
        healthy=lambda _: annotated(boxes=10),
    ),
    Program(
        "a regular expression that looks ahead",
        "slow fetch",
        "words_by_regex",
        faulty=lambda _: split_by(words_by_regex),
        healthy=lambda _: split_by(words_by_spaces),
    ),
    Program(
        "wide rows of text in a stream",
        "slow fetch",
        "parse_row",
        faulty=lambda _: rows_of_text(columns=20_000),
        healthy=lambda _: rows_of_text(columns=64),
    ),
    Program(
        "padding word by word",
        "slow collate",
        "pad_word_by_word",
        faulty=lambda _: sentences(pad_word_by_word),
        healthy=lambda _: sentences(pad_by_rows),
    ),
    Program(
        "texts that are tokenised in each epoch",
        "tokenising",
        "tokenizer.encode",
        faulty=lambda _: train(Written(before=False), epochs=2),
        healthy=lambda _: tokenised(),
    ),
    Program(
        "texts that are tokenised batch by batch",
        "tokenising",
        "tokenizer.encode_batch",
        faulty=lambda _: tokenised_by_batch("fork"),
        healthy=lambda _: tokenised(),
    ),
    Program(
        "texts that threads of each spawned worker tokenise",
        "tokenising",
        "tokenizer.encode_batch",
        faulty=lambda _: tokenised_by_batch("spawn"),
        healthy=lambda _: tokenised(multiprocessing_context="spawn"),
    ),
    Program(
        "texts of all lengths in a batch",
        "padding",
        "like length",
        faulty=lambda _: of_all_lengths(window=1),
        healthy=lambda _: of_all_lengths(window=BATCHES),
        fixed=lambda _: of_all_lengths(window=BATCHES // 4),
    ),
)
