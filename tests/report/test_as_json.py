"""Results as plain data for JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import EpochEnd
from loadeval.estimate.stats import Estimate
from loadeval.model.costs import Change
from loadeval.report.as_json import as_json
from tests.builder import run_of, steps


class Loader(msgspec.Struct, tag="loader"):
    name: str
    workers: int | None = None


class Verdict(NamedTuple):
    level: str
    advice: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    loader: Loader
    speedup: Estimate
    steps: Columns
    readings: dict[tuple[str, str], float] = field(default_factory=dict)
    path: Path | None = None

    @property
    def computed(self) -> int:
        raise AssertionError


def test_the_keys_are_the_fields() -> None:
    """Of structs, dataclasses and tuples alike; what is computed of them is not among them."""
    assert as_json(Verdict("not", ("Look elsewhere.",))) == {
        "level": "not",
        "advice": ["Look elsewhere."],
    }
    result = Result(
        Loader("DataLoader"),
        Estimate(2.28, 2.22, 2.33),
        Columns({"wait_ns": [5, UNKNOWN], "seconds": [0.5, float("nan")], "first": [True, False]}),
        {("gpu", "GPU 0"): 0.4},
        Path("runs/demo.jsonl"),
    )
    assert as_json(result) == {
        "loader": {"name": "DataLoader", "workers": None},
        "speedup": {"value": 2.28, "low": 2.22, "high": 2.33},
        "steps": {"wait_ns": [5, None], "seconds": [0.5, None], "first": [True, False]},
        "readings": {"gpu GPU 0": 0.4},
        "path": "runs/demo.jsonl",
    }


def test_a_run_has_no_tables() -> None:
    """What it is, how its epochs ended and what happened, but nothing of each batch."""
    end = EpochEnd(0, "exhausted", 75, 5)
    run = run_of([steps("real", [5, 5], [10, 10])], mode="log", ends=(end,), path=Path("a.jsonl"))
    content = as_json(run)
    assert isinstance(content, dict)
    assert list(content)[:5] == ["path", "format", "version", "run_id", "name"]
    assert list(content)[-6:] == ["cache", "batches", "ends", "events", "closed", "notes"]
    assert (content["path"], content["mode"], content["batches"]) == ("a.jsonl", "log", 2)
    assert content["ends"] == [
        {"epoch": 0, "cause": "exhausted", "request_ns": 75, "wait_ns": 5, "error": None}
    ]


def test_a_change_of_costs_that_is_calculated_is_null() -> None:
    assert as_json(Change(costs=lambda costs: costs)) == {"settings": {}, "costs": None}
    assert as_json(Change(costs={"Blur": 2.0})) == {"settings": {}, "costs": {"Blur": 2.0}}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), None),
        (-1, -1),  # unknown it is in a column alone
        (np.int64(7), 7),
        (np.array([[1, UNKNOWN], [2, 3]]), [[1, None], [2, 3]]),
        ((1, "two", None), [1, "two", None]),
    ],
)
def test_values_become_plain(value: object, plain: object) -> None:
    assert as_json(value) == plain
    json.dumps(as_json(value), allow_nan=False)
