"""What may become of a recorded loader: other settings, and costs that are other ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loadeval.data.columns import Columns
from loadeval.errors import UsageError
from loadeval.model.costs import faster, full_name

Costs: TypeAlias = Callable[[Columns], Columns] | Mapping[str, float]

LEAST = {"num_workers": 0, "prefetch_factor": 1, "batch_size": 1}
"""Settings that are whole numbers, and the least of each."""


@dataclass(frozen=True)
class Change:
    """What is changed: changes add up with `+`.

    `settings` are those of the loader, `num_workers`, `prefetch_factor`, `in_order`, `batch_size`
    and `persistent_workers`, and the `cpus` that training and its workers share; these are then
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


def asked_for(
    settings: Mapping[str, Any],
    parts: Mapping[str, float],
    present: Mapping[str, Any],
    costs: Columns,
    offered: list[str],
) -> Change:
    """The change that a user asks for: settings that are None stay, and parts have short names.

    Raises UsageError for a value that no loader can have, and for a part that is not known, telling
    those that are `offered`.
    """
    wanted = {name: each for name, each in settings.items() if each is not None}
    for name, least in LEAST.items():
        if not wanted.get(name, least) >= least:
            raise UsageError(f"{name} is {wanted[name]!r}; expected {least} or more")
    if not wanted.get("cpus", 1) > 0:
        raise UsageError(f"cpus is {wanted['cpus']!r}; expected a number above 0")
    if "prefetch_factor" in wanted and not {**present, **wanted}["num_workers"]:
        raise UsageError(
            f"prefetch_factor is {wanted['prefetch_factor']} and num_workers is 0; expected "
            "workers, for only they prefetch: leave it out, or ask for 1 worker or more"
        )
    for part, times in parts.items():
        if not times > 0:
            raise UsageError(
                f"faster has {times!r} for {part!r}; expected how many times as fast it becomes, "
                "above 0: 2 is twice as fast"
            )
    return Change(wanted, {full_name(costs, part, offered): parts[part] for part in parts})
