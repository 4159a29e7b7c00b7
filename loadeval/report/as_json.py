"""Results as plain data for JSON: the keys are the fields, and nothing is put into words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import PurePath

import msgspec
import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import Run

KEPT = ("ends", "events", "closed", "notes")
"""What JSON has of a run beside its header: what is not of each batch."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def as_json(value: object) -> Json:  # noqa: C901, PLR0911, PLR0912 - a line for each kind of value
    """`value` as JSON has it: null for what is not known, a list for a column.

    A key of several parts, such as a probe and its subject, has a space between them. Of a run
    there is what `shown` keeps, and a function is null: some changes of costs are one. Raises
    TypeError for what is none of a result's types.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Run):
        return as_json(shown(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Columns):
        return {name: as_json(value[name]) for name in value.names}
    if isinstance(value, np.ndarray):
        values = value.astype(object)
        if value.dtype.kind == "i":
            values[value == UNKNOWN] = None
        return as_json(values.tolist())
    if isinstance(value, msgspec.Struct):
        return {name: as_json(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {
            " ".join(map(str, key)) if isinstance(key, tuple) else str(key): as_json(one)
            for key, one in value.items()
        }
    if isinstance(value, Sequence):
        return [as_json(one) for one in value]
    if isinstance(value, AbstractSet):
        return [as_json(one) for one in sorted(value)]
    if isinstance(value, PurePath):
        return str(value)
    if callable(value):
        return None
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def shown(run: Run) -> dict[str, object]:
    """A run without its tables: the fields of its header, and those that are not of each batch."""
    header = {name: getattr(run.header, name) for name in run.header.__struct_fields__}
    return {
        "path": run.path,
        **header,
        "batches": run.batches,
        **{name: getattr(run, name) for name in KEPT},
    }
