"""What is to be done with each text, such as "tokenize gpt2, length 128"; and lines of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.analysis.choice import DataDifference
from loadeval.backends.transforms import parse
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

LINES = ".jsonl"
FIELDS = ("text", "content", "document", "sentence")
"""Where a line of JSON may have its text."""
EXAMPLE = '"tokenize bert-base-uncased, length 128"'
KNOWN = (
    "tokenize bert-base-uncased or tokenize tokenizer.json (a file), and length 128 (tokens, to "
    "which texts are truncated or padded)"
)
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done with a text: `tokenizer` is a name or the path of a file."""

    tokenizer: str = ""
    length: int = 128

    def values(self) -> dict[str, Any]:
        """What templates need of them."""
        is_file = self.tokenizer.endswith(".json")
        name = str(Path(self.tokenizer).absolute()) if is_file else self.tokenizer
        return {"tokenizer": name, "is_file": is_file, "length": self.length}

    def difference(self, samples: npt.NDArray[Any], reference: npt.NDArray[Any]) -> DataDifference:
        """How many token ids differ from those of the reference, of the same shape, in percent."""
        differ = PERCENT * (samples != reference)
        each = differ.mean(axis=1)
        return DataDifference(
            float(differ.mean()), float(differ.max()), float(each.max()), len(samples)
        )


def parse_transforms(text: str) -> Transforms:
    """The transforms that `text` names, with commas between them.

    Raises UsageError for one that is not known, stands twice or in another order, and where there
    is no tokenizer.
    """
    transforms = parse(text, Transforms(), PARSERS, KNOWN, EXAMPLE)
    if not transforms.tokenizer:
        raise UsageError(f"the transforms {text!r} do not tokenize; expected such as {EXAMPLE}")
    return transforms


def starts_of(path: str) -> Iterator[int]:
    """The byte where each line of `path` that is not empty begins."""
    start = 0
    with open(path, "rb") as file:  # noqa: PTH123 - a text, as it was listed
        for line in file:
            if line.strip():
                yield start
            start += len(line)


def line_at(path: str, start: int) -> bytes:
    """The line of `path` that begins at byte `start`."""
    with open(path, "rb") as file:  # noqa: PTH123 - the same
        file.seek(start)
        return file.readline()


def field_of(line: bytes) -> str:
    """Where a line of JSON has its text; "" where it has none."""
    try:
        content = json.loads(line)
    except ValueError:
        return ""
    fields = content if isinstance(content, dict) else {}
    return next((name for name in FIELDS if isinstance(fields.get(name), str)), "")


def _tokenize(transforms: Transforms, words: list[str], part: str) -> Transforms:
    name = " ".join(words)
    if not name:
        raise UsageError(f"transform {part!r} has no tokenizer; expected {KNOWN}")
    if name.endswith(".json") and not Path(name).is_file():
        raise UsageError(f"transform {part!r}: there is no file {name}")
    return replace(transforms, tokenizer=name)


def _length(transforms: Transforms, words: list[str], part: str) -> Transforms:
    if len(words) != 1 or not words[0].isdecimal() or not int(words[0]):
        raise UsageError(f"transform {part!r} has no number of tokens; expected {KNOWN}")
    return replace(transforms, length=int(words[0]))


PARSERS: dict[str, Callable[[Transforms, list[str], str], Transforms]] = {
    "tokenize": _tokenize,
    "length": _length,
}
