"""Parts of loading that are to become faster: what they are called, and what is left of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadeval.analysis.predict.costs import Costs

PARTS = ("fetch", "collate", "indices", "hand-over", "pin", "step")


class FasterError(UsageError):
    """`faster` has what cannot be made faster; the message begins with "faster"."""


def full_name(name: str, known: Iterable[str], offered: Iterable[str]) -> str:
    """The part that `name` means: one of PARTS or `known`, or the end of one after a dot.

    Raises FasterError where that is none, telling those that are `offered`, or several.
    """
    if name in PARTS or name in known:
        return name
    ending = [known_name for known_name in known if known_name.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        several = " or ".join(map(repr, ending))
        raise FasterError(f"faster has {name!r}, which may be {several}; name one of them in full")
    expected = ", ".join(map(repr, dict.fromkeys((*offered, *PARTS))))
    raise FasterError(
        f"faster has {name!r}, of which the run knows nothing; expected one of {expected}"
    )


def sped_up(costs: Costs, name: str, factor: float) -> Costs:
    """`costs`, of which the part of that full name takes a `factor`-th."""
    if name == "step":
        return replace(costs, step_ns=costs.step_ns / factor)
    if name == "indices":
        return replace(costs, index_ns=costs.index_ns / factor)
    if name == "pin":
        return replace(costs, pin_ns=costs.pin_ns / factor)
    if name == "hand-over":
        return replace(
            costs, pickle_ns=costs.pickle_ns / factor, receive_ns=costs.receive_ns / factor
        )
    if name == "fetch":
        part_ns = costs.fetch_ns - costs.named_ns["collate"]
    else:
        part_ns = costs.named_ns[name]
    share = np.minimum(part_ns / np.maximum(costs.fetch_ns, 1.0), 1.0)
    return costs.fetched_in(1 - share * (1 - 1 / factor))
