"""How many Python objects a dataset holds, and how large: a forked worker copies what it reads."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from time import perf_counter_ns
from types import ModuleType
from typing import Any, NamedTuple

from loadeval_adapters.torch_trace.transforms import attributes_of

LOOKED_AT = (50, 8, 4, 2, 2)
"""How many items of a container are looked at, by depth: some 6,000 objects in all at most."""
MOST_NS = 20_000_000
"""It is looked at for no longer."""
CONTAINERS: set[Any] = {list, tuple, set, frozenset, dict}
SIZED: set[Any] = {*CONTAINERS, str, bytes, bytearray, int, float, object}
"""Types that tell how large an object is; each class is derived from one of them."""
HAVE_GC = 1 << 14
"""Py_TPFLAGS_HAVE_GC: the garbage collector knows objects of the type, by a header of 16 bytes."""


class Objects(NamedTuple):
    """How many objects there are, and their bytes; estimates."""

    number: int
    nbytes: int


def objects_in(dataset: Any) -> Objects | None:
    """Estimate what `dataset` holds, itself included; None if that cannot be told.

    Python's own containers, classes that are derived from them, and the attributes of instances are
    looked into, without calling any method of theirs. What is in the items that are looked at is
    taken for that of the others. An object that several of these hold counts once. An array counts
    as one, without its buffer, which no reference count is written to.
    """
    seen: set[int] = set()
    ends_ns = perf_counter_ns() + MOST_NS

    def look_at(thing: Any, depth: int) -> tuple[float, float]:
        if id(thing) in seen:
            return 0, 0
        seen.add(id(thing))
        kinds = type(thing).__mro__
        sized: Any = next(kind for kind in kinds if kind in SIZED)
        own_bytes = sized.__sizeof__(thing) + (16 if kinds[0].__flags__ & HAVE_GC else 0)
        items, times = _items_of(thing, LOOKED_AT[depth] if depth < len(LOOKED_AT) else 0)
        if not items:
            return 1 + times, own_bytes
        number = nbytes = 0.0
        looked_at = 0
        for item in items:
            its_number, its_bytes = look_at(item, depth + 1)
            number, nbytes, looked_at = number + its_number, nbytes + its_bytes, looked_at + 1
            if perf_counter_ns() >= ends_ns:
                break
        each = times / looked_at
        return 1 + each * number, own_bytes + each * nbytes

    with suppress(Exception):  # it may be changed meanwhile, or have odd attributes
        return Objects(*map(round, look_at(dataset, 0)))
    return None


def _items_of(thing: Any, most: int) -> tuple[list[Any], int]:
    """Some of what `thing` holds, spread over a list, and how many it holds in all."""
    kind: Any = next((kind for kind in type(thing).__mro__ if kind in CONTAINERS), None)
    if kind is None:
        is_looked_into = not issubclass(type(thing), (type, ModuleType))
        items = [value for _, _, value in attributes_of(thing)] if is_looked_into else []
        return items[:most], len(items)
    length = kind.__len__(thing)
    if kind is dict:
        pairs = islice(dict.items(thing), most)
        return [held for pair in pairs for held in pair], 2 * length
    if kind in {list, tuple} and length and most:
        return list(kind.__getitem__(thing, slice(None, None, -(-length // most)))), length
    return list(islice(kind.__iter__(thing), most)), length
