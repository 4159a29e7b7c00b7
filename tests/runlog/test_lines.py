"""Every line as JSON and back, and what is said of a line that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.codec import COLUMNS, KINDS, LARGEST, decode, encode, to_text
from loadeval.runlog.model import UNKNOWN, Block, Header, LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK: dict[str, Any] = {
    "type": "block",
    "epoch": 0,
    "arm": "real",
    "pair": None,
    "request_ns": [0, 20],
    "wait_ns": [10, 10],
    "step_ns": [10, None],
    "samples": [4, 4],
    "nbytes": None,
}
EPOCH = {"type": "epoch", "epoch": 0, "cause": "failed", "request_ns": 40, "wait_ns": 2}
EPOCH |= {"error": "OSError: no"}


def there_and_back(line: Any) -> Any:
    """What reading makes of `line` once it was written."""
    return decode(json.loads(to_text(encode(line))))


def test_what_is_not_known_is_null() -> None:
    """A column that is unknown throughout is one null, and one that is so in part has some."""
    unknown = np.full(2, UNKNOWN)
    times = np.array([10, LARGEST])
    fields = encode(Block(2, "ideal", times, times, np.array([10, UNKNOWN]), unknown, unknown))
    assert fields["samples"] is None
    assert fields["step_ns"] == [10, None]
    assert fields["wait_ns"] == [10, LARGEST]


def test_numbers_of_numpy_are_numbers(make_header: Callable[..., Header]) -> None:
    """A loader that tells its workers as one of NumPy's integers is written like any other."""
    loader: Any = LoaderInfo("loader", workers=np.int64(3))  # type: ignore[arg-type]  # as told
    assert there_and_back(make_header(loader=loader)).loader.workers == 3


def wrong(line: dict[str, Any], **changes: Any) -> str:
    """What is said of `line` with `changes`, `...` standing for a field left out."""
    fields = {name: value for name, value in {**line, **changes}.items() if value is not ...}
    with pytest.raises(RunLogError) as caught:
        decode(fields)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["blocks", None, 3, ["block"], {}, True])
def test_unknown_types_are_errors(kind: Any) -> None:
    """A line of no known type names what it has and what there is."""
    said = wrong(BLOCK, type=kind)
    assert said.startswith(f"has {kind!r} as 'type'")
    assert said.endswith(f"{' or '.join(map(repr, KINDS))} was expected")


@pytest.mark.parametrize("fields", [None, 3, "block", ["type"], True])
def test_a_line_is_an_object(fields: Any) -> None:
    """JSON that is no object is no line."""
    with pytest.raises(RunLogError, match="is not a JSON object"):
        decode(fields)


@pytest.mark.parametrize("version", [3, 0, None, "1", 1.0, True, ...])
def test_other_versions_are_errors(make_header: Callable[..., Header], version: Any) -> None:
    """A header of another version, or format, names both, whatever else it has."""
    assert "has format 'other' version 1" in wrong(encode(make_header()), format="other")
    said = wrong(encode(make_header()), version=version, surprise=1)
    assert said.startswith("has format 'loadeval-run' version ")
    assert said.endswith("where 'loadeval-run' version 1 or 2 was expected")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("value", [1.0, True, -1, "1", LARGEST + 1, 2**70, [1], {}])
def test_columns_hold_whole_numbers(name: str, value: Any) -> None:
    """A column with anything but whole numbers from 0 on shows what it has."""
    said = wrong(BLOCK, **{name: [0, value]})
    assert said.startswith(f"has {value!r} as {name!r}, where a whole number, 0 or more")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("value", [3, "0", {}, False])
def test_columns_are_lists(name: str, value: Any) -> None:
    """A column that is no list shows what it is."""
    said = wrong(BLOCK, **{name: value})
    assert said.startswith(f"has {value!r} as {name!r}, where a list of whole numbers")


@pytest.mark.parametrize(
    ("name", "value"), [("wait_ns", None), ("wait_ns", [0, None]), ("request_ns", [0, None])]
)
def test_waits_are_never_unknown_and_requests_not_in_part(name: str, value: Any) -> None:
    """Every batch has a wait, and all or none of a block have a request: a null is an error."""
    assert f"has None as {name!r}" in wrong(BLOCK, **{name: value})


def test_requests_may_be_unknown_throughout() -> None:
    """A block that another tool measured has no requests, and comes back without them."""
    fields = {**BLOCK, "request_ns": None}
    block = decode(fields)
    assert isinstance(block, Block)
    assert block.request_ns.tolist() == [UNKNOWN, UNKNOWN]
    assert encode(block) == fields


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "wait_ns"])
def test_columns_are_of_one_length(name: str) -> None:
    """A column of another length than the waits names both lengths."""
    said = wrong(BLOCK, **{name: [10, 10, 10]})
    assert said == f"has 3 values in {name!r} and 2 in 'wait_ns', where as many were expected"


@pytest.mark.parametrize(
    ("line", "name", "value", "expected"),
    [
        (BLOCK, "epoch", -1, "a whole number, 0 or more"),
        (BLOCK, "epoch", None, "a whole number, 0 or more"),
        (BLOCK, "epoch", True, "a whole number, 0 or more"),
        (BLOCK, "arm", "both", "'real' or 'ideal'"),
        (BLOCK, "arm", ["real"], "'real' or 'ideal'"),
        (BLOCK, "pair", -1, "a whole number, 0 or more or null"),
        (BLOCK, "pair", False, "a whole number, 0 or more or null"),
        (EPOCH, "cause", None, "'exhausted' or 'broken off' or 'failed' or 'unmeasured'"),
        (EPOCH, "request_ns", 1.5, "a whole number, 0 or more or null"),
        (EPOCH, "wait_ns", -3, "a whole number, 0 or more or null"),
        (EPOCH, "error", 3, "text or null"),
        ({"type": "event", "time_ns": 1}, "message", None, "text"),
        ({"type": "end"}, "batches", "3", "a whole number, 0 or more"),
    ],
)
def test_fields_are_of_their_type(
    line: dict[str, Any], name: str, value: Any, expected: str
) -> None:
    """A field of another type shows what it has and what was expected."""
    assert (
        wrong(line, **{name: value}) == f"has {value!r} as {name!r}, where {expected} was expected"
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("run_id", 3, "text"),
        ("mode", "both", "'log' or 'replay' or 'alternate'"),
        ("warmup", 1.0, "a whole number, 0 or more"),
        ("settings", [], "an object"),
        ("environment", None, "an object"),
        ("loader", None, "an object"),
        ("cache", 3, "an object or null"),
        ("workers", "two", "a whole number, 0 or more or null"),
        ("workers", True, "a whole number, 0 or more or null"),
        ("pinned", 1, "true or false or null"),
        ("backend", None, "text"),
    ],
)
def test_header_fields_are_of_their_type(
    make_header: Callable[..., Header], name: str, value: Any, expected: str
) -> None:
    """So do a header's, and those of what is known of the loader."""
    fields = encode(make_header())
    changed = {name: value} if name in fields else {"loader": {**fields["loader"], name: value}}
    said = wrong(fields, **changed)
    assert said == f"has {value!r} as {name!r}, where {expected} was expected"


def test_loader_fields_are_all_there(make_header: Callable[..., Header]) -> None:
    """A field too few or too many in the loader's object is named too."""
    fields = encode(make_header())
    assert "has 'color'" in wrong(fields, loader={**fields["loader"], "color": "red"})
    assert "has no 'adapter'" in wrong(fields, loader={"backend": "loader"})


def test_long_values_are_shortened() -> None:
    """An error stays readable when what was found is long."""
    said = wrong(EPOCH, epoch="x" * 1000)
    assert len(said) < 150
    assert "x…" in said
