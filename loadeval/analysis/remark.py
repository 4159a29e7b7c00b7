"""Something to be said about a run: which remark it is, and the numbers in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Remark:
    """`code` says which remark it is, and `values` has its numbers under names with their units.

    The sentence for each code is in `loadeval.report.wording`.
    """

    code: Enum
    values: Mapping[str, Value] = field(default_factory=dict)
