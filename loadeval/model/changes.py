"""What may become of a recorded loader: other settings, and costs that are other ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loadeval.data.columns import Columns
from loadeval.model.costs import faster

Costs: TypeAlias = Callable[[Columns], Columns] | Mapping[str, float]


@dataclass(frozen=True)
class Change:
    """What is changed: changes add up with `+`.

    `settings` are those of the loader, `num_workers`, `prefetch_factor`, `in_order`, `batch_size`
    and `persistent_workers`, the share that is left of what epochs take to start and end, `starts`,
    and the `cpus` that training and its workers share; these are then
    used by no others, unless `others_cpus` says how many. `costs` makes other columns of what
    batches take, see `costs.py`, or tells of parts by their names how many times as fast they
    become.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)

    def __add__(self, other: Change) -> Change:
        return Change(
            {**self.settings, **other.settings}, lambda costs: other.applied(self.applied(costs))
        )

    def applied(self, costs: Columns) -> Columns:
        """What batches take then."""
        if callable(self.costs):
            return self.costs(costs)
        for name, times in self.costs.items():
            costs = faster(costs, name, times)
        return costs
