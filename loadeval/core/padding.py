"""How much of a batch is padding: by a mask, by lengths, or by token ids that end alike.

Only tensors of torch and arrays of NumPy in the memory of the host are read, and none of more than
MOST_BYTES. Names are those of Hugging Face, PyTorch, fairseq and the like.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.core.batch import is_container, parts

Numbers = npt.NDArray[np.generic]

MOST_BYTES = 8 * 2**20
MOST_LENGTHS = 2**16
"""A longer list would take milliseconds to read."""
MOST_NODES = 64
"""No more nodes of a batch are looked at for a mask."""
MASKS = frozenset({"attention_mask", "mask", "input_mask"})
PADDING_MASKS = ("padding_mask", "pad_mask")
"""Names that end so are of masks that some libraries set where there is padding."""
LENGTHS = ("length", "lengths", "lens")
TOKENS = frozenset({"input_ids", "token_ids", "tokens", "src_tokens", "ids"})


class Padding(NamedTuple):
    """The positions of a batch, how many are `padded`, and the `longest` sequence without them.

    Every sequence is padded to `length` positions.
    """

    positions: int
    padded: int
    length: int
    longest: int


def padding_of(batch: Any) -> Padding | None:
    """The padding of a batch of sequences; None where nothing tells it."""
    try:
        leaves = list(_named_leaves(batch))
        masks = (_by_mask(name, leaf) for name, leaf in leaves)
        lengths = (_by_lengths(leaf, leaves) for name, leaf in leaves if name.endswith(LENGTHS))
        tokens = (_by_tokens(leaf) for name, leaf in leaves if name in TOKENS)
        for padding in (*masks, *lengths, *tokens):
            if padding is not None:
                return padding
    except Exception:  # noqa: BLE001, S110 - each kind of array fails in its own way
        pass
    return None


def _named_leaves(batch: Any) -> Iterator[tuple[str, Any]]:
    """The first leaves of `batch`, each with its key or the name of its attribute, else ""."""
    waiting: list[tuple[str, Any]] = [("", batch)]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        name, node = waiting.pop()
        if is_container(node) and not (name.endswith(LENGTHS) and isinstance(node, (list, tuple))):
            names = getattr(type(node), "_fields", ())
            for (_, key), child in reversed(parts(node)):
                of_child = names[key] if names and isinstance(key, int) else key
                waiting.append((of_child if isinstance(of_child, str) else "", child))
        else:
            yield name, node


def _numbers_of(leaf: Any) -> Numbers:
    """The same memory as an array of NumPy, of no elements where it is not to be read."""
    kind: Any = type(leaf)
    if kind in (list, tuple):
        leaf = np.array(leaf[: MOST_LENGTHS + 1])
    elif (kind.__module__, kind.__name__) == ("torch", "Tensor"):
        if leaf.is_cpu and leaf.nbytes <= MOST_BYTES:
            return np.from_dlpack(leaf)  # not numpy(), after which it can no longer be resized
        return np.zeros(0)
    is_read = type(leaf) is np.ndarray and leaf.nbytes <= MOST_BYTES
    return leaf if is_read else np.zeros(0)


def _by_mask(name: str, leaf: Any) -> Padding | None:
    """By a mask of a row for each sequence.

    Which value of a padding mask is padding has no common meaning: the first column is of none, or
    the last one, where the first one differs.
    """
    by_place = name.endswith(PADDING_MASKS)
    mask = _numbers_of(leaf) if by_place or name in MASKS else np.zeros(0)
    if mask.ndim <= 1 or not mask.size or mask.dtype.kind not in "biuf":
        return None
    is_held: npt.NDArray[np.bool_] = mask.reshape(len(mask), -1) != 0
    if is_held.shape[1] != mask.shape[-1]:
        return None
    if by_place:
        edges = (is_held[:, place] for place in (0, -1))
        edge = next((column[0] for column in edges if (column == column[0]).all()), None)
        if edge is None:
            return None
        is_held = is_held == edge
    # What lies anywhere is masked for another reason.
    changes = np.count_nonzero(is_held[:, 1:] != is_held[:, :-1])
    is_of_numbers = mask.dtype.kind == "f" and mask.min() < 0  # to be added to scores
    if changes > 2 * len(is_held) or is_of_numbers or not is_held.any():
        return None
    return _of_lengths(np.count_nonzero(is_held, axis=1), is_held.shape[1])


def _by_lengths(leaf: Any, leaves: list[tuple[str, Any]]) -> Padding | None:
    """By lengths, and the first array that has a row for each of them.

    With more than two dimensions it must be padded to the longest.
    """
    lengths = _numbers_of(leaf)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not 0 < len(lengths) <= MOST_LENGTHS:
        return None
    longest = lengths.max()
    for _, other in leaves:
        sizes = [*getattr(other, "shape", ())]
        if len(lengths) not in sizes[:2]:
            continue
        sizes.remove(len(lengths))
        for size in sizes:
            if size == longest or (len(sizes) == 1 and size > longest):
                return _of_lengths(lengths, int(size))
    return None


def _by_tokens(leaf: Any) -> Padding | None:
    """By the ends of the rows that repeat the token with which the longest such end does."""
    ids = _numbers_of(leaf)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":  # noqa: PLR2004 - a table
        return None
    others = (ids != ids[:, -1:])[:, ::-1]
    ends = np.where(others.any(axis=1), others.argmax(axis=1), ids.shape[1])
    row = int(ends.argmax())
    padded = np.where((ids[:, -1] == ids[row, -1]) & (ends[row] > 1), ends, 0)
    return _of_lengths(ids.shape[1] - padded, ids.shape[1])


def _of_lengths(lengths: Numbers, padded_to: int) -> Padding:
    positions, held = len(lengths) * padded_to, int(lengths.sum())
    return Padding(positions, positions - held, padded_to, int(lengths.max()))
