"""What a batch holds: the slow and exact way, leaf by leaf."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.tree import VALUES, is_array, is_array_type, leaves

BYTES = (bytes, bytearray)
NUMBERS_AND_TEXT = VALUES - {*BYTES}
COLUMNS = ("ccol_indices", "row_indices", "values")
ROWS = ("crow_indices", "col_indices", "values")
SPARSE = {
    "torch.sparse_coo": ("_indices", "_values"),  # the public ones want it coalesced
    "torch.sparse_csr": ROWS,
    "torch.sparse_bsr": ROWS,
    "torch.sparse_csc": COLUMNS,
    "torch.sparse_bsc": COLUMNS,
}
"""By layout, the methods that return the tensors of which a sparse one is made."""


Survey = tuple["int | None", "int | None", int]
"""A batch's samples and bytes, None where that is not known, and how many leaves it has."""


def survey(batch: Any) -> Survey:
    """Looks at every leaf of `batch`.

    Samples are the first dimension of the first array that has one; bytes are those of all
    arrays and byte strings, and not known when those of one of them are not.
    """
    samples: int | None = None
    sizes: list[int] = []
    number = 0
    try:
        for leaf in leaves(batch):
            number += 1
            kind: Any = type(leaf)
            if kind in NUMBERS_AND_TEXT:
                continue
            if is_array_type(kind) or is_array(leaf):
                sizes.append(_nbytes(leaf))
                if samples is None:
                    samples = first_dimension(leaf)
            elif isinstance(leaf, BYTES):
                sizes.append(len(leaf))
            elif isinstance(leaf, memoryview):
                sizes.append(leaf.nbytes)
    except Exception:  # noqa: BLE001 - a container of anybody's class may fail to tell what it holds
        return None, None, number
    return samples, None if not sizes or UNKNOWN in sizes else sum(sizes), number


def first_dimension(leaf: Any) -> int | None:
    """Of an array that has one; None for one without dimensions, and for everything else."""
    try:
        shape = leaf.shape
        return int(shape[0]) if len(shape) and is_array(leaf) else None
    except Exception:  # noqa: BLE001 - each kind of array without a shape raises its own error
        return None


def _nbytes(array: Any) -> int:
    try:
        parts = _parts_of(getattr(array, "layout", None))
        return sum(getattr(array, part)().nbytes for part in parts) if parts else int(array.nbytes)
    except Exception:  # noqa: BLE001 - each kind of array without a size raises its own error
        return UNKNOWN


@lru_cache(maxsize=16)
def _parts_of(layout: object) -> tuple[str, ...]:
    return SPARSE.get(str(layout), ())
