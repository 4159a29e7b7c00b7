"""How many Python objects a dataset holds: a forked worker copies each that it reads."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from types import ModuleType
from typing import Any

from loadeval_adapters.pytorch_transforms import attributes_of

LOOKED_AT = (50, 8, 4, 2, 2)
"""How many items of a container are looked at, by depth: some 6,000 objects in all at most."""
CONTAINERS = {list, tuple, set, frozenset, dict}


def objects_in(dataset: Any) -> int | None:
    """Estimate how many objects `dataset` holds, itself included; None if that cannot be told.

    Python's own containers and the attributes of instances are looked into. What is in the items
    that are looked at is taken for that of the others. Objects that several hold are counted for
    each, and arrays count as one.
    """
    with suppress(Exception):  # it may be changed meanwhile, or have odd attributes
        return _objects_in(dataset, 0)
    return None


def _objects_in(thing: Any, depth: int) -> int:
    if type(thing) not in CONTAINERS:
        is_looked_into = not isinstance(thing, (type, ModuleType))
        attributes = attributes_of(thing) if is_looked_into else ()
        thing = {name: value for _, name, value in attributes}
    if not thing or depth == len(LOOKED_AT):
        return 1 + len(thing)
    most, kind = LOOKED_AT[depth], type(thing)
    if kind in {list, tuple}:
        items = thing[:: -(-len(thing) // most)]
    else:
        items = list(islice(thing.values() if kind is dict else thing, most))
    each = sum(_objects_in(item, depth + 1) for item in items) / len(items) + (kind is dict)
    return 1 + round(len(thing) * each)
