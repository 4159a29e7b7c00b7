"""Results as plain data for JSON: the keys are the fields, and nothing is put into words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import Run

KEPT = ("ends", "events", "closed", "notes")
"""What JSON has of a run beside its header: what is not of each batch."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def as_json(value: object) -> Json:  # noqa: C901, PLR0911, PLR0912 - a line for each kind of value
    """`value` as JSON has it: null for what is not known, a list for a column.

    A key of several parts, such as a probe and its subject, has a space between them. A run is
    without its tables, and a function is null: some changes of costs are one. Raises TypeError for
    what is none of a result's types.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Run):
        header = {name: getattr(value.header, name) for name in value.header.__struct_fields__}
        kept = {name: getattr(value, name) for name in KEPT}
        return as_json({"path": value.path, **header, "batches": value.batches, **kept})
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Columns):
        return {name: as_json(value[name]) for name in value.names}
    if isinstance(value, np.ndarray):
        values = value.astype(object)
        if value.dtype.kind == "i":
            values[value == UNKNOWN] = None
        return as_json(values.tolist())
    for of_kind in ("__struct_fields__", "__dataclass_fields__", "_fields"):
        if names := getattr(value, of_kind, ()):
            return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {
            " ".join(map(str, key)) if isinstance(key, tuple) else str(key): as_json(one)
            for key, one in value.items()
        }
    if isinstance(value, Sequence):
        return [as_json(one) for one in value]
    if isinstance(value, PurePath):
        return str(value)
    if callable(value):
        return None
    raise TypeError(f"{type(value).__name__} has no form in JSON")
