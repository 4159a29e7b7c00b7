"""How to look at one place in a batch that tells its samples, and whether it is like others."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.survey import first_dimension
from loadeval.runtime.tree import route_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runtime.tree import Step

Method = Literal["by_getters", "by_inner", "by_item", "by_two_items", "by_item_of_data"]


class Way(NamedTuple):
    """How to look at batches of one structure.

    `getters` lead from a batch to its mark, one after the other, through nodes of `kinds`, the
    leaf itself excepted. `samples_of` makes the samples of a mark; it raises where a mark is of
    another structure. `extent_of` tells how many items a batch has, or else its type. `method` is
    how Outline does the same without a loop, with `inner` and `key`.
    """

    getters: tuple[Callable[[Any], Any], ...]
    kinds: tuple[type, ...]
    samples_of: Callable[[Any], int]
    extent_of: Callable[[Any], Any]
    method: Method
    inner: Any = None
    key: Any = None


def by_rule(samples: Callable[[Any], int]) -> Way:
    """By what an adapter or the user count: that is the mark."""
    return Way((samples,), (), int, type, "by_inner", samples)


def by_structure(batch: Any) -> Way | None:
    """By the shape of the first array, or the type of the first leaf where there is no array.

    None where `batch` is an odd container, which does not give what it holds.
    """
    try:
        route = route_to(batch, _has_dimensions)
        steps, leaf = route or route_to(batch, _any) or ([], batch)
        last = attrgetter("shape") if route else type
        getters = (*(make(key) for make, key in steps), last)
        nodes = list(accumulate(getters, _got, initial=batch))
        if nodes[-1] != last(leaf) or not isinstance(nodes[-1], (tuple, type)):
            return None
        extent_of = len if isinstance(batch, (dict, list, tuple)) else type
        extent_of(batch)
    except Exception:  # noqa: BLE001 - each container that is odd raises its own error
        return None
    samples_of = itemgetter(0) if route else partial(_none_of, type(leaf))
    way = Way(getters, tuple(map(type, nodes[:-2])), samples_of, extent_of, "by_getters")
    return _quicker(way, steps) if route else way


def _quicker(way: Way, steps: list[Step]) -> Way:
    """Without a loop where the way is short, and it mostly is."""
    makes, keys = [make for make, _ in steps], [key for _, key in steps]
    if itemgetter not in makes:
        return way._replace(method="by_inner", inner=attrgetter(".".join([*keys, "shape"])))
    if makes == [itemgetter]:
        return way._replace(method="by_item", key=keys[0])
    if makes == [itemgetter, itemgetter]:
        return way._replace(method="by_two_items", inner=keys[0], key=keys[1])
    if makes == [attrgetter, itemgetter] and keys[0] == "data":
        return way._replace(method="by_item_of_data", key=keys[1], extent_of=_length_of_data)
    return way


def _length_of_data(batch: Any) -> int:
    return len(batch.data)


def _got(node: Any, get: Callable[[Any], Any]) -> Any:
    return get(node)


def _any(_leaf: Any) -> bool:
    return True


def _has_dimensions(leaf: Any) -> bool:
    return first_dimension(leaf) is not None


def _none_of(kind: type, found: type) -> int:
    if found is not kind:
        raise LookupError
    return UNKNOWN
