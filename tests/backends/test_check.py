"""Whether a backend loads the same, and what it does with broken files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.choice import OnBadFile
from loadeval.backends.check import Reading, bad_file, difference_of
from loadeval.backends.images import parse_transforms
from loadeval.backends.samples import truncated_copy
from loadeval.backends.served import Loaded, shortly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.backends.samples import Sample

BYTES = parse_transforms("resize 2x2")


def load(samples: Sequence[Sample]) -> Loaded:
    """Raises for files named bad, and leaves out those named lost."""
    if any(path.startswith("bad") for path, _ in samples):
        return Loaded(None, "OSError: broken")
    return Loaded(np.zeros(sum(not path.startswith("lost") for path, _ in samples)))


def test_files_that_are_not_read_are_found_one_by_one() -> None:
    """Whoever raises for one of many files reads the others."""
    names = ["a", "b", "bad1", "c", "lost1", "d", "bad2"]
    reading = Reading(load, [(name, 0) for name in names])
    assert [path for path, _ in reading.good] == ["a", "b", "c", "d"]
    assert [(bad.name, bad.outcome) for bad in reading.bad] == [
        ("bad1", OnBadFile.RAISES),
        ("lost1", OnBadFile.SKIPS),
        ("bad2", OnBadFile.RAISES),
    ]
    assert reading.bad[0].error == "OSError: broken"


def test_a_file_of_which_something_comes_is_filled() -> None:
    assert bad_file(("a/half.jpg", 0), Loaded(np.zeros(1))) == ("half.jpg", OnBadFile.FILLS, None)


def test_differences_are_in_levels() -> None:
    """The mean and the largest of all, and the mean of the sample that differs most."""
    one = np.zeros((2, 3, 2, 2), np.uint8)
    other = one.copy()
    other[1, 0, 0, 0] = 120
    assert difference_of(one, other, BYTES) == (5.0, 120.0, 10.0, 2)


def test_what_was_normalised_counts_in_levels_too() -> None:
    transforms = parse_transforms("resize 2x2, normalize 0.5 0.5")
    one = np.zeros((1, 3, 2, 2), np.float32)
    difference = difference_of(one, one + 2 / 255, transforms)
    assert difference is not None
    assert difference.mean == pytest.approx(1.0, rel=1e-4)


def test_other_shapes_are_not_compared() -> None:
    assert difference_of(np.zeros((1, 3, 2, 2)), np.zeros((1, 3, 2, 3)), BYTES) is None


def test_half_a_file_has_half_of_its_bytes(tmp_path: Path) -> None:
    whole = tmp_path / "1.jpg"
    whole.write_bytes(b"0123456789")
    copy, label = truncated_copy((str(whole), 3), tmp_path)
    assert (tmp_path / copy).read_bytes() == b"01234"
    assert label == 3


def test_of_a_traceback_in_a_worker_the_error_is_told() -> None:
    text = "Caught OSError in DataLoader worker process 0.\nTraceback\n  line\nOSError: no image\n"
    assert shortly(OSError(text)) == "OSError: no image"
    text = "Critical error\nError in operator\n\nencountered:\n\nFailed to\ndecode"
    assert shortly(RuntimeError(text)) == "RuntimeError: Failed to decode"
    assert shortly(ValueError("one\ntwo")) == "ValueError: one two"
