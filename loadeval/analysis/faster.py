"""Parts of loading that are to become faster, by their names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from loadeval.analysis.simulation import Costs

PARTS = ("fetch", "collate", "indices", "hand-over", "pin", "step")


def sped_up(costs: Costs, name: str, factor: float) -> Costs:
    """`costs`, of which one part takes a `factor`-th."""
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
    elif name in costs.named_ns:
        part_ns = costs.named_ns[name]
    else:
        known = ", ".join(repr(one) for one in (*costs.named_ns, *PARTS) if one != "collate")
        raise UsageError(
            f"the run knows nothing of {name!r}, which faster= is to make faster; expected one of "
            f"{known}, 'collate'"
        )
    share = np.minimum(part_ns / np.maximum(costs.fetch_ns, 1.0), 1.0)
    return costs.fetched_in(1 - share * (1 - 1 / factor))
