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
FEWEST_TOKENS = 4
"""In a shorter row of numbers that have no name, an end that is constant tells nothing."""
INSIDE = 0.01
"""Of the tokens without a name: as many may be like the padding and not at an end."""
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
        return _padding_of(list(_named_leaves(batch)))
    except Exception:  # noqa: BLE001 - each kind of array fails in its own way
        return None


def _padding_of(leaves: list[tuple[str, Any]]) -> Padding | None:
    for name, leaf in leaves:
        is_for_padding = name.endswith(PADDING_MASKS)
        if is_for_padding or name in MASKS:
            mask = _numbers_of(leaf)
            padding = None if mask is None else _by_mask(mask, by_place=is_for_padding)
            if padding is not None:
                return padding
    for name, leaf in leaves:
        lengths = _numbers_of(leaf) if name.endswith(LENGTHS) else None
        if lengths is not None and lengths.ndim == 1 and lengths.dtype.kind in "iu":
            padded_to = _padded_length(lengths, [leaf for _, leaf in leaves])
            if padded_to is not None:
                return _of_lengths(lengths, padded_to)
    named = [leaf for name, leaf in leaves if name in TOKENS]
    ids = _numbers_of(next(iter(named or [leaf for _, leaf in leaves[:1]]), None))
    return None if ids is None else _by_tokens(ids, is_named=bool(named))


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


def _numbers_of(leaf: Any) -> Numbers | None:
    """The same memory as an array of NumPy; None for what is not to be read, or of one number."""
    kind: Any = type(leaf)
    if kind is list or kind is tuple:
        leaf = np.array(leaf) if len(leaf) <= MOST_LENGTHS else None
    elif (kind.__module__, kind.__name__) == ("torch", "Tensor"):
        # Not by numpy(), after which a tensor can no longer be resized.
        leaf = np.from_dlpack(leaf) if leaf.is_cpu and leaf.nbytes <= MOST_BYTES else None
    elif kind is not np.ndarray:
        return None
    return leaf if leaf is not None and leaf.ndim and 0 < leaf.nbytes <= MOST_BYTES else None


def _by_mask(mask: Numbers, *, by_place: bool) -> Padding | None:
    """By a mask of a row for each sequence; `by_place`, its first column is of no padding.

    Or its last one, where the first one differs: which value is padding has no common meaning.
    """
    rows = mask.reshape(len(mask), -1)
    if rows.shape[1] != mask.shape[-1] or mask.ndim == 1 or mask.dtype.kind not in "biuf":
        return None
    is_held: npt.NDArray[np.bool_] = rows != 0
    if by_place:
        edges = (is_held[:, place] for place in (0, -1))
        edge = next((column[0] for column in edges if (column == column[0]).all()), None)
        if edge is None:
            return None
        is_held = is_held == edge
    # What lies anywhere is masked for another reason.
    changes = np.count_nonzero(is_held[:, 1:] != is_held[:, :-1])
    is_of_numbers = mask.dtype.kind == "f" and mask.min() < 0  # to be added to scores
    if changes > 2 * len(rows) or is_of_numbers or not is_held.any():
        return None
    return _of_lengths(np.count_nonzero(is_held, axis=1), rows.shape[1])


def _padded_length(lengths: Numbers, leaves: list[Any]) -> int | None:
    """The length to which the first array with a row for each of `lengths` is padded.

    With more than two dimensions it must be that of the longest.
    """
    longest = lengths.max()
    for leaf in leaves:
        sizes = [*getattr(leaf, "shape", ())]
        if len(lengths) not in sizes[:2]:
            continue
        sizes.remove(len(lengths))
        is_flat = len(sizes) == 1
        fitting = [size for size in sizes if size == longest or (is_flat and size > longest)]
        if fitting:
            return int(fitting[0])
    return None


def _by_tokens(ids: Numbers, *, is_named: bool) -> Padding | None:
    """By the ends of the rows that repeat the token with which the longest such end does."""
    is_table = ids.shape == (len(ids), ids.shape[-1])
    if not is_table or ids.dtype.kind not in "iu" or ids.itemsize == 1:
        return None
    ends = _constant_ends(ids == ids[:, -1:])
    row = int(ends.argmax())
    is_padding = ids == ids[row, -1]
    padded = np.where(is_padding[:, -1] & (ends[row] > 1), ends, 0)
    if not is_named:
        inside = np.count_nonzero(is_padding) - int(padded.sum())
        if len(ids) == 1 or ids.shape[1] < FEWEST_TOKENS or inside > INSIDE * ids.size:
            return None
    return _of_lengths(ids.shape[1] - padded, ids.shape[1])


def _constant_ends(is_last: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """How many at the end of each row are true."""
    others = ~is_last[:, ::-1]
    ends: npt.NDArray[np.intp] = others.argmax(axis=1)
    ends[~others.any(axis=1)] = is_last.shape[1]
    return ends


def _of_lengths(lengths: Numbers, padded_to: int) -> Padding:
    positions, held = len(lengths) * padded_to, int(lengths.sum())
    return Padding(positions, positions - held, padded_to, int(lengths.max()))
