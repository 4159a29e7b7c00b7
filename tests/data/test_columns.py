"""Tables of columns: their rows, and what is not known in them."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.data.columns import Columns, column_of, listed

TABLE = Columns({"epoch": [0, 0, 1], "wait_ns": [5, -1, 7], "share": [0.5, np.nan, 1.0]})


def test_rows_are_taken_by_mask_number_and_value() -> None:
    assert len(TABLE) == 3
    assert TABLE.take(TABLE.wait_ns > 0).wait_ns.tolist() == [5, 7]
    assert TABLE.take(slice(1, None)).epoch.tolist() == [0, 1]
    assert TABLE.where(epoch=0, wait_ns=5).share.tolist() == [0.5]
    assert [(value, len(rows)) for value, rows in TABLE.by("epoch")] == [(0, 2), (1, 1)]
    mixed = TABLE.replace(epoch=[1, 0, 1])
    assert [rows.wait_ns.tolist() for _, rows in mixed.by("epoch")] == [[-1], [5, 7]]
    assert TABLE.take(slice(0)).by("epoch") == []


def test_nothing_in_it_can_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TABLE.epoch[0] = 3
    assert TABLE.replace(batch=[7, 8, 9]).names == [*TABLE.names, "batch"]
    assert "batch" not in TABLE
    with pytest.raises(AttributeError, match="there is no column 'batch'"):
        _ = TABLE.batch


def test_what_is_not_known_stays_so() -> None:
    more = Columns({"epoch": [2], "nbytes": [64]})
    both = Columns.concat([TABLE, more])
    assert [listed(both[name]) for name in ("epoch", "wait_ns", "nbytes")] == [
        [0, 0, 1, 2],
        [5, None, 7, None],
        [None, None, None, 64],
    ]
    assert np.isnan(both.share).tolist() == [False, True, False, True]
    assert column_of([3, None]).tolist() == [3, -1]
    assert listed(np.array([-1, -1])) is None
    assert listed(Columns.empty(["epoch"]).epoch) == []
