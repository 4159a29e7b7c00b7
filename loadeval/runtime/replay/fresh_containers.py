"""Makes a batch in fresh containers around the same leaves, again and again, and fast."""

from __future__ import annotations

import copyreg
from collections import OrderedDict, UserDict, UserList, defaultdict
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from loadeval.core.batch import attributes_of, is_container, map_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Make = Callable[[], Any]
    Parts = list[tuple[Any, Make]]

BUILT_IN = (dict, list, OrderedDict, defaultdict)
"""Their method `copy` does what `copy.copy` does."""
PLAIN_COPIES = (None, UserDict.__copy__, UserList.__copy__)
MEMORY = ("__basicsize__", "__dictoffset__", "__weakrefoffset__")
REDUCING = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
ARGUMENTS = ("__getnewargs__", "__getnewargs_ex__")


class _Plain:
    """An ordinary class: attributes in __dict__, nothing else."""


def refresher(tree: Any) -> Make:
    """A function that returns `tree` in fresh containers around the same leaves, each time.

    They equal what `map_leaves` makes, but what to copy is determined only once.
    """
    try:
        make = _maker(tree, set())
    except Exception:  # noqa: BLE001 - also what a class of anybody's raises
        return partial(map_leaves, lambda leaf: leaf, tree)
    return repeat(tree).__next__ if make is None else make


def _maker(node: Any, objects: set[int]) -> Make | None:
    """A function that rebuilds `node`; None if nothing in it can be replaced.

    Raises NotImplementedError for what only `map_leaves` can do, such as an object that occurs
    twice.
    """
    if not is_container(node):
        return None
    if type(node) in BUILT_IN:
        children = node.items() if isinstance(node, dict) else enumerate(node)
        return _patching(node.copy, _parts(children, objects))
    if isinstance(node, tuple):
        parts = _parts(enumerate(node), objects)
        kind, make_list = type(node), _patching(list(node).copy, parts)
        return (lambda: tuple.__new__(kind, make_list())) if parts else None
    if id(node) in objects or isinstance(node, (dict, list)) or not _is_plain(type(node)):
        raise NotImplementedError
    objects.add(id(node))
    attributes = attributes_of(node)
    return _object_making(type(node), attributes, _parts(attributes.items(), objects))


def _parts(pairs: Iterable[tuple[Any, Any]], objects: set[int]) -> Parts:
    """The keys of a container's children that must be rebuilt, and how."""
    made = [(key, _maker(child, objects)) for key, child in pairs]
    return [(key, make) for key, make in made if make is not None]


def _patching(copy: Make, parts: Parts) -> Make:
    if not parts:
        return copy
    (first_key, make_first), *others = parts

    def make_with_first() -> Any:
        fresh = copy()
        fresh[first_key] = make_first()
        return fresh

    def make_container() -> Any:
        fresh = copy()
        for key, make in parts:
            fresh[key] = make()
        return fresh

    return make_container if others else make_with_first  # a loop for one is slower


def _object_making(kind: Any, attributes: dict[str, Any], parts: Parts) -> Make:
    new: Make = partial(object.__new__, kind)
    make_attributes = _patching(attributes.copy, parts)

    def make_object() -> Any:
        fresh = new()
        fresh.__dict__ = make_attributes()
        return fresh

    def make_frozen() -> Any:
        fresh = new()
        fresh.__dict__.update(make_attributes())
        return fresh

    return make_object if kind.__setattr__ is object.__setattr__ else make_frozen


def _is_plain(kind: Any) -> bool:
    """Whether `copy.copy` copies the __dict__ of objects of `kind`, and does nothing else."""
    copier = getattr(kind, "__copy__", None)
    if copier not in PLAIN_COPIES or kind in copyreg.dispatch_table:
        return False
    if kind.__new__ is not object.__new__ or not _agree(kind, _Plain, MEMORY):
        return False
    return copier is not None or (
        _agree(kind, object, REDUCING) and not any(hasattr(kind, name) for name in ARGUMENTS)
    )


def _agree(kind: Any, other: Any, names: tuple[str, ...]) -> bool:
    return all(getattr(kind, name, None) == getattr(other, name, None) for name in names)
