"""Texts: parsed, tokenised, padded, and of very different lengths."""

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bench.zoo.costs import Products
from bench.zoo.programs import BATCHES, SAMPLES, SIZE, STEP_MS, Program, Samples, Training, train

Numbers = npt.NDArray[np.int64]

KEPT = 16
"""Different samples; they come again and again."""
LONGEST = 512
TOKEN_MS = STEP_MS / 100
"""What a step takes for each position of its batch's sequences."""
WORDS = 2000
"""The words of a text that is tokenised."""
WORD = re.compile(r"\b(?:[a-z]+[- ]?)+?\b(?=[^.]*\.)", re.IGNORECASE)


def annotated(_: Path, *, faulty: bool) -> Training:
    """Lines of JSON, of which only the first box is used."""
    drawn = np.random.default_rng(0).random((1200 if faulty else 10, 4)).tolist()
    boxes = [{"box": box, "label": "x"} for box in drawn]
    lines = [json.dumps({"number": number, "boxes": boxes}) for number in range(KEPT)]

    def parse_annotations(index: int) -> torch.Tensor:
        return torch.tensor(json.loads(lines[index % KEPT])["boxes"][0]["box"])

    return train(Samples(parse_annotations))


def split_by(_: Path, *, faulty: bool) -> Training:
    """Sentences, as the numbers of their words."""
    split, draw = words_by_regex if faulty else str.split, random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(500)]
    numbers = {word: number for number, word in enumerate(words)}
    texts = [" ".join(draw.choices(words, k=800)) + " ." for _ in range(KEPT)]

    def read(index: int) -> torch.Tensor:
        found = split(texts[index % KEPT])
        return torch.tensor([numbers.get(word, 0) for word in found[:100]])

    return train(Samples(read))


def words_by_regex(text: str) -> list[str]:
    return [word.strip(" .") for word in WORD.findall(text)]


def sentences(_: Path, *, faulty: bool) -> Training:
    draw = np.random.default_rng(0)
    lengths = draw.integers(450, 900, KEPT).tolist()
    collate = pad_word_by_word if faulty else pad_thinly
    kept = [draw.integers(0, 30_000, length).tolist() for length in lengths]
    return train(Samples(lambda index: list(kept[index % KEPT])), collate_fn=collate)


def pad_word_by_word(sentences: list[list[int]]) -> npt.NDArray[np.int32]:
    padded = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.int32)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            padded[row, column] = word
    return padded.numpy()[:, ::4]


def pad_by_rows(sentences: Sequence[Sequence[int] | Numbers]) -> Numbers:
    padded = np.zeros((len(sentences), max(map(len, sentences))), dtype=np.int64)
    for row, sentence in zip(padded, sentences, strict=True):
        row[: len(sentence)] = sentence
    return padded


def pad_thinly(sentences: list[list[int]]) -> Any:
    return pad_by_rows(sentences)[:, ::4].astype(np.int32)


def as_a_tokeniser_does(texts: list[Numbers]) -> dict[str, Numbers]:
    ids = pad_by_rows(texts)
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


def batches_of(lengths: npt.NDArray[np.int64], window: int) -> list[list[int]]:
    """Indices for each batch: texts in random order, sorted by length in windows of batches."""
    draw = np.random.default_rng(1)
    order = draw.permutation(len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), window * SIZE):
        texts = order[start : start + window * SIZE]
        if window > 1:
            texts = texts[np.argsort(lengths[texts], kind="stable")]
        batches += texts.reshape(-1, SIZE).tolist()
    return [batches[place] for place in draw.permutation(len(batches)).tolist()]


class StepByLength(Products):
    """A step whose products are as many as its batch is long; without a batch, `mean`."""

    def __init__(self, mean: float) -> None:
        super().__init__(TOKEN_MS)
        self.mean = mean

    def __call__(self, batch: Any) -> None:
        length = self.mean if batch is None else batch["input_ids"].shape[1]
        for _ in range(round(length)):
            super().__call__(None)


def of_all_lengths(_: Path, window: int) -> Training:
    """Token ids, padded, before a step that takes longer for longer batches.

    Lengths are as texts on the web have them: most are short, and a few very long.
    """
    drawn = np.random.default_rng(0).lognormal(3.2, 0.9, 3 * SAMPLES).astype(int)
    lengths, tokens = np.clip(drawn, 3, LONGEST), np.arange(LONGEST) % 1000 + 5
    batches = batches_of(lengths, window)
    mean = float(np.mean([lengths[batch].max() for batch in batches]))
    samples = Samples(lambda index: tokens[: lengths[index]], 3 * SAMPLES)
    options = {"batch_sampler": batches, "collate_fn": as_a_tokeniser_does}
    return Training(train(samples, batch_size=1, **options).loader, StepByLength(mean))


@cache
def bpe() -> Tokenizer:
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
    """Texts that are tokenised as they are asked for, or all of them before.

    Or they are served as they are, for who tokenises a batch at once. The tokeniser has threads for
    that, but not in a process that is forked once they were used.
    """

    def __init__(self, when: str) -> None:
        self.when, self.count, self.tokenizer = when, SAMPLES // 2, bpe()
        self.texts = [text(index) for index in range(SIZE)]
        self.ids = list(map(self.encoded, self.texts)) if when == "before" else []

    def read(self, index: int) -> Any:
        number = index % len(self.texts)
        if self.when == "sample":
            return self.encoded(self.texts[number])
        return self.ids[number] if self.ids else self.texts[number]

    def encoded(self, text: str) -> Numbers:
        return np.array(self.tokenizer.encode(text).ids[:LONGEST])

    def collate(self, texts: list[str]) -> Numbers:
        encoded = self.tokenizer.encode_batch(texts)
        return np.stack([one.ids[:LONGEST] for one in encoded])


def tokenised(_: Path, when: str) -> Training:
    texts = Written(when)
    options = {"collate_fn": texts.collate} if when == "batch" else {}
    return train(texts, epochs=2, multiprocessing_context="fork", **options)


PROGRAMS = {
    "long annotations as JSON": Program("data format", "parse_annotations", annotated),
    "a regular expression that looks ahead": Program("slow fetch", "words_by_regex", split_by),
    "padding word by word": Program("slow collate", "pad_word_by_word", sentences),
    "texts that are tokenised in each epoch": Program(
        "tokenising", "tokenizer.encode", tokenised, {"when": "sample"}, {"when": "before"}
    ),
    "texts that are tokenised batch by batch": Program(
        "tokenising", "tokenizer.encode_batch", tokenised, {"when": "batch"}, {"when": "before"}
    ),
    "texts of all lengths in a batch": Program(
        "padding",
        "like length",
        of_all_lengths,
        {"window": 1},
        {"window": 3 * BATCHES},
        {"window": 40},
    ),
}
