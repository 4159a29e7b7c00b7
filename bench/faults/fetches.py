"""Datasets whose own code takes too long: decoding, decompressing, parsing."""

from __future__ import annotations

import io
import json
import random
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from bench.faults.programs import BATCHES, SIZE, Program, train
from tests.images import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SAMPLES = BATCHES * SIZE
KEPT = 16
"""Different samples; they come again and again."""
FILES = 20
"""Images of a batch."""


def jpegs(side: int) -> list[bytes]:
    """JPEGs of a photograph in so many different sizes."""
    (whole,) = crops((0, 40, 512, 552))
    encoded = []
    with Image.open(io.BytesIO(whole)) as image:
        for number in range(KEPT):
            file = io.BytesIO()
            image.resize((side + number, side)).save(file, "JPEG", quality=30)
            encoded.append(file.getvalue())
    return encoded


class Files(Dataset[Any]):
    """Reads files of a folder, image by image."""

    def __init__(self, folder: Path, side: int, decode: Callable[[bytes], Any]) -> None:
        self.paths = []
        for number, file in enumerate(jpegs(side)):
            self.paths.append(folder / f"{number}.jpg")
            self.paths[-1].write_bytes(file)
        self.decode = decode

    def __len__(self) -> int:
        return BATCHES * FILES

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index % KEPT]
        return self.decode(path.read_bytes())


def decode_photograph(file: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(file)) as image:
        pixels = np.asarray(image.convert("RGB").resize((24, 24), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.copy())


def decode_reduced(file: bytes) -> torch.Tensor:
    """An eighth of the size, which JPEG can decode directly."""
    with Image.open(io.BytesIO(file)) as image:
        image.draft("RGB", (80, 80))
        pixels = np.asarray(image.convert("RGB").resize((24, 24), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.copy())


class Compressed(Dataset[Any]):
    def __init__(self, *, packed: bool) -> None:
        noise = np.random.default_rng(0).integers(0, 24, (KEPT, 320 * 1024), dtype=np.uint8)
        self.blobs = [zlib.compress(row.tobytes()) if packed else row.tobytes() for row in noise]
        self.packed = packed

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        blob = self.blobs[index % KEPT]
        values = unpack(blob) if self.packed else blob
        return torch.frombuffer(bytearray(values), dtype=torch.uint8)[::256]


def unpack(blob: bytes) -> bytes:
    return zlib.decompress(blob)


class Records(Dataset[Any]):
    """Annotations as lines of JSON, of which only the first box is used."""

    def __init__(self, boxes: int) -> None:
        draw = random.Random(0)
        box = [{"box": [draw.random() for _ in range(4)], "label": "x"} for _ in range(boxes)]
        self.lines = [json.dumps({"number": number, "boxes": box}) for number in range(KEPT)]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        record = self.parse_annotations(self.lines[index % KEPT])
        return torch.tensor(record["boxes"][0]["box"])

    def parse_annotations(self, line: str) -> Any:
        return json.loads(line)


WORD = re.compile(r"\b(?:[a-z]+[- ]?)+?\b(?=[^.]*\.)", re.IGNORECASE)


class Texts(Dataset[Any]):
    """Sentences, as the numbers of their words."""

    def __init__(self, split: Callable[[str], list[str]]) -> None:
        draw = random.Random(0)
        words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(500)]
        self.numbers = {word: number for number, word in enumerate(words)}
        self.texts = [" ".join(draw.choices(words, k=800)) + "." for _ in range(KEPT)]
        self.split = split

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        words = self.split(self.texts[index % KEPT])
        return torch.tensor([self.numbers.get(word, 0) for word in words[:100]])


def words_by_regex(text: str) -> list[str]:
    return [word.strip(" .") for word in WORD.findall(text)]


def words_by_spaces(text: str) -> list[str]:
    return text.rstrip(".").split()


class Rows(IterableDataset[Any]):
    """Rows of numbers as text, such as a CSV file has."""

    def __init__(self, columns: int) -> None:
        draw = random.Random(0)
        self.rows = [",".join(f"{draw.random():.6f}" for _ in range(columns)) for _ in range(KEPT)]

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, SAMPLES, workers):
            yield torch.tensor(parse_row(self.rows[index % KEPT])[:64])


def parse_row(row: str) -> list[float]:
    return [float(cell) for cell in row.split(",")]


PROGRAMS = (
    Program(
        "big JPEGs",
        "slow fetch",
        "decode_photograph",
        faulty=lambda folder: train(Files(folder, 640, decode_photograph), batch_size=FILES),
        healthy=lambda folder: train(Files(folder, 64, decode_photograph), batch_size=FILES),
        fixed=lambda folder: train(Files(folder, 640, decode_reduced), batch_size=FILES),
    ),
    Program(
        "compressed arrays",
        "data format",
        "unpack",
        faulty=lambda _: train(Compressed(packed=True)),
        healthy=lambda _: train(Compressed(packed=False)),
    ),
    Program(
        "long annotations as JSON",
        "data format",
        "parse_annotations",
        faulty=lambda _: train(Records(boxes=1200)),
        healthy=lambda _: train(Records(boxes=10)),
    ),
    Program(
        "a regular expression that looks ahead",
        "slow fetch",
        "words_by_regex",
        faulty=lambda _: train(Texts(words_by_regex)),
        healthy=lambda _: train(Texts(words_by_spaces)),
    ),
    Program(
        "wide rows of text in a stream",
        "slow fetch",
        "parse_row",
        faulty=lambda _: train(Rows(columns=20_000)),
        healthy=lambda _: train(Rows(columns=64)),
    ),
)
