"""Results as plain data for JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN
from loadeval.report.as_json import as_json


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
