"""Every kind of line as JSON and back, whatever is in it; and JSON that may be no line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import (
    ELEMENTS,
    KINDS,
    TIMES,
    decode,
    encode,
    to_text,
)
from loadeval.runlog.log_file.fields import (
    LARGEST,
    LARGEST_VALUE,
    LATER_STAGE_COLUMNS,
    MAY_BE_MISSING,
    OPTIONAL_COLUMNS,
    STAGE_COLUMNS,
    WITH_GAPS,
)
from loadeval.runlog.model import (
    Block,
    GpuIdle,
    LoaderInfo,
    PaddedBatches,
    Prefetch,
    Readings,
)
from loadeval.runlog.stages import StageTimes, WorkerStart
from tests.runs.given import make_header

if TYPE_CHECKING:
    from loadeval.runlog.log_file.fields import Fields

Draw = st.DrawFn
WHOLE = st.integers(0, LARGEST)
TEXT = st.text(st.characters(), max_size=9)
"""Any characters, lone surrogates too, which a message may have."""
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXT, some, max_size=3),
    max_leaves=6,
)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that the annotation of a field allows."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if is_dataclass(hint):
        return objects(hint)
    plain = {int: WHOLE, str: TEXT, bool: st.booleans(), type(None): st.none()}
    if hint in plain:
        return plain[hint]
    if type(None) in get_args(hint):
        return st.one_of(*map(of, get_args(hint)))
    if hint == Mapping[str, int]:
        return st.dictionaries(TEXT, WHOLE, max_size=3)
    return st.dictionaries(TEXT, JSON, max_size=3)


def objects(kind: Any, **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lines of a `kind` whose fields are plain, but for `columns`."""
    hints = get_type_hints(kind)
    others = {name: of(hint) for name, hint in hints.items() if name not in columns}
    return st.builds(kind, **others, **columns)


def column(rows: int, least: int = 0, most: int = LARGEST) -> st.SearchStrategy[Any]:
    return arrays(np.int64, rows, elements=st.integers(least, most))


def values(rows: int) -> st.SearchStrategy[Any]:
    return arrays(np.float64, rows, elements=st.floats())


@st.composite
def blocks(draw: Draw, kind: Any = Block) -> Any:
    """Columns of one length, those that may be unknown being so in part or throughout."""
    rows = draw(st.integers(0, 4))
    names = [field.name for field in fields(kind) if field.type == "Column"]
    columns = {name: column(rows, UNKNOWN if name in WITH_GAPS else 0) for name in names}
    for name in columns.keys() & set(OPTIONAL_COLUMNS):
        columns[name] |= st.just(np.full(rows, UNKNOWN))
    transforms = draw(st.sets(TEXT, max_size=3))
    for name in (field.name for field in fields(kind) if field.type == "ValuesByName"):
        columns[name] = st.fixed_dictionaries(dict.fromkeys(transforms, values(rows)))
    return draw(objects(kind, **columns))


@st.composite
def readings(draw: Draw) -> Any:
    """Quantities of any name, as many values each as there are times."""
    rows = draw(st.integers(0, 4))
    by_name = st.dictionaries(TEXT, values(rows), max_size=3)
    return draw(objects(Readings, time_ns=column(rows), values=by_name))


@st.composite
def prefetches(draw: Draw) -> Any:
    """A prefetch with as many waits as batches, or with none."""
    waits_ns = tuple(draw(st.lists(WHOLE, max_size=4)))
    batches = st.just(len(waits_ns)) if waits_ns else WHOLE
    return draw(objects(Prefetch, batches=batches, waits_ns=st.just(waits_ns)))


LINES = {
    **{name: objects(kind) for name, kind in KINDS.items()},
    "block": blocks(),
    "prefetch": prefetches(),
    "stages": blocks(StageTimes),
    "padding": blocks(PaddedBatches),
    "readings": readings(),
    "gpu_idle": st.integers(0, 4)
    .flatmap(
        lambda rows: objects(
            GpuIdle, gpu_idle_ns=column(rows, UNKNOWN), gpu_step_ns=column(rows, UNKNOWN)
        )
    )
    .filter(lambda line: not len(line) or (line.gpu_idle_ns != UNKNOWN).any()),
}


def plain(line: Any) -> Any:
    """What compares, by the names of the fields; NaN and what is not finite as None."""
    if isinstance(line, np.ndarray):
        return [value if abs(value) <= LARGEST_VALUE else None for value in line.tolist()]
    if is_dataclass(line):
        return {field.name: plain(getattr(line, field.name)) for field in fields(line)}
    return {name: plain(inner) for name, inner in line.items()} if isinstance(line, dict) else line


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_line_comes_back(kind: str, data: st.DataObject) -> None:
    line = data.draw(LINES[kind])
    text = to_text(encode(line))
    assert text.isascii()
    assert text.index("\n") == len(text) - 1
    again = decode(json.loads(text))
    assert type(again) is KINDS[kind]
    assert plain(again) == plain(line)


@given(data=st.data(), value=JSON)
def test_a_line_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    line = json.loads(to_text(encode(data.draw(st.one_of(*LINES.values())))))
    name = data.draw(st.sampled_from(sorted(line)) | TEXT)
    known, lost = name in line, data.draw(st.booleans())
    changed = {key: content for key, content in line.items() if key != name}
    if not (known and lost):
        changed[name] = value
    try:
        decoded = decode(changed)
    except RunLogError as error:
        assert "expected" in str(error)  # noqa: PT017 - what is raised is not the point
    else:
        assert known
        assert not lost or name in MAY_BE_MISSING
        assert plain(decode(json.loads(to_text(encode(decoded))))) == plain(decoded)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_field_too_few_or_too_many_is_named(kind: str, data: st.DataObject) -> None:
    line = json.loads(to_text(encode(data.draw(LINES[kind]))))
    with pytest.raises(RunLogError, match="has 'color', which the format does not know, where"):
        decode({**line, "color": "red"})
    for name in line.keys() - {"type", "format", "version", *MAY_BE_MISSING}:
        with pytest.raises(RunLogError, match=f"^has no '{name}', which was expected there$"):
            decode({key: value for key, value in line.items() if key != name})


LINE: dict[str, dict[str, Any]] = {
    "block": {
        "epoch": 0,
        "arm": "real",
        "pair": None,
        "request_ns": [0, 20],
        "wait_ns": [10, 10],
        "step_ns": [10, None],
        "samples": [4, 4],
        "nbytes": None,
    },
    "epoch": {
        "epoch": 0,
        "cause": "failed",
        "request_ns": 40,
        "wait_ns": 2,
        "error": "OSError: no",
    },
    "prefetch": {
        "pair": 0,
        "epoch": 7,
        "batches": 12,
        "timed": 8,
        "elapsed_ns": 900,
        "samples": 32,
        "waits_ns": [110] * 12,
        "end_ns": 30,
        "began_ns": 700,
    },
    "window": {
        "pair": 0,
        "epoch": 7,
        "arm": "ideal",
        "elapsed_ns": 70,
        "workers_cpu_ns": None,
        "minor_faults": 4,
    },
    "readings": {
        "probe": "gpu",
        "subject": "GPU 0 (NVIDIA H100)",
        "time_ns": [10, 20],
        "values": {"power_watts": [350.5, 351], "sm_clock_hz": [None, 1.98e9]},
        "missing": None,
    },
    "stages": {
        "epoch": 0,
        "batch": [0, 1],
        **{name: [10, None] for name in STAGE_COLUMNS},
        "transform_ns": {"Crop": [5.0, None]},
        "transform_calls": {"Crop": [2, 2]},
        "elements_before": {"Crop": [64.0, None]},
        "elements_after": {"Crop": [16.0, None]},
    },
    "worker_start": {
        "epoch": 0,
        "worker": 1,
        "start_ns": 10,
        "starting_ns": 5,
        "ready_ns": 20,
        "init_ns": 0,
        "pickling_start_ns": 12,
        "pickling_ns": 3,
        "sent_bytes": 5000,
        "unpickling_ns": None,
    },
    "code": {
        "worker": 0,
        "running": {"data.py:31 __getitem__": 9},
        "blocked": {},
        "calls": {"data.py:31 __getitem__ > json.loads": 4},
    },
    "gpu_idle": {
        "epoch": 2,
        "first": 7,
        "gpu_idle_ns": [0, None, 3000],
        "gpu_step_ns": [10, 20, None],
    },
    "event": {"time_ns": 1, "message": "", "kind": "note"},
    "end": {"batches": 3},
}
BLOCK, BY_TRANSFORM = LINE["block"], (*TIMES, *ELEMENTS)


def wrong(line: str, **changes: Any) -> str:
    """What is said of a line with `changes`, `...` standing for a field left out."""
    fields = {"type": line, **LINE[line], **changes}
    with pytest.raises(RunLogError) as caught:
        decode({name: value for name, value in fields.items() if value is not ...})
    return str(caught.value)


NO_COUNT = [-1, True, 1.0, "1", [1]]
NO_COLUMN = [3, "0", {}, False, *([0, value] for value in (*NO_COUNT, {}, LARGEST + 1, 2**70))]


@pytest.mark.parametrize(
    ("kind", "field", "values"),
    [
        ("block", "epoch", [*NO_COUNT, None]),
        ("block", "arm", ["both", ["real"], None]),
        ("block", "pair", NO_COUNT),
        ("block", "request_ns", [*NO_COLUMN, [0, None]]),
        ("block", "wait_ns", [*NO_COLUMN, [0, None], None]),
        *(("block", name, NO_COLUMN) for name in ("step_ns", "samples", "nbytes")),
        ("epoch", "cause", ["over", None]),
        *(("epoch", name, NO_COUNT) for name in ("request_ns", "wait_ns")),
        ("epoch", "error", [3]),
        *(("prefetch", name, [*NO_COUNT, None]) for name in ("pair", "elapsed_ns")),
        *(("prefetch", name, NO_COUNT) for name in ("samples", "end_ns", "began_ns")),
        ("prefetch", "waits_ns", [*NO_COLUMN, None, [0, None], [1] * 11, [1] * 13]),
        ("window", "arm", [None, "both"]),
        ("window", "elapsed_ns", [*NO_COUNT, None]),
        *(("window", name, NO_COUNT) for name in ("workers_cpu_ns", "minor_faults")),
        ("stages", "epoch", [*NO_COUNT, None]),
        ("stages", "batch", [*NO_COLUMN, [0, None], None]),
        *(("stages", name, NO_COLUMN) for name in STAGE_COLUMNS),
        *(("stages", name, [None, [[1, 2]], 3]) for name in BY_TRANSFORM),
        *(("worker_start", name, [*NO_COUNT, None]) for name in ("worker", "start_ns", "init_ns")),
        *(("worker_start", name, NO_COUNT) for name in ("pickling_ns", "sent_bytes")),
        ("code", "worker", NO_COUNT),
        *(("code", name, [None, [1], 3]) for name in ("running", "blocked", "calls")),
        ("code", "running", [{"data.py:31 __getitem__": count} for count in (*NO_COUNT, None)]),
        *(("readings", name, [None, 3]) for name in ("probe", "subject")),
        ("readings", "missing", [3]),
        ("readings", "time_ns", [None, [1.5, 2], [None, 2]]),
        ("readings", "values", [None, [[1, 2]]]),
        *(("gpu_idle", name, [*NO_COUNT, None]) for name in ("epoch", "first")),
        ("gpu_idle", "gpu_idle_ns", [None, [1, -2], [LARGEST + 1]]),
        ("event", "message", [None, 3]),
        ("event", "kind", [None, 3, "remark"]),
        ("end", "batches", ["3", None]),
    ],
)
def test_a_wrong_value_is_named(kind: str, field: str, values: list[Any]) -> None:
    for value in values:
        assert f"'{field}', where " in wrong(kind, **{field: value}), value


def test_older_stages_with_bytes_and_what_varied_are_read() -> None:
    older = {key: {"Crop": [256.0, None]} for key in ("bytes_before", "bytes_after", "varies")}
    decoded = decode({"type": "stages", **LINE["stages"], **older})
    assert isinstance(decoded, StageTimes)
    assert decoded.transform_ns["Crop"][0] == 5


def test_sizes_of_transforms_may_be_missing() -> None:
    """Older logs do not have them; one without the other is refused."""
    older = {name: value for name, value in LINE["stages"].items() if name not in ELEMENTS}
    decoded = decode({"type": "stages", **older})
    assert isinstance(decoded, StageTimes)
    assert [getattr(decoded, name) for name in ELEMENTS] == [{}, {}]
    assert not encode(decoded).keys() & set(ELEMENTS)
    for name in ELEMENTS:
        assert "has other transforms in 'elements_before' than in" in wrong("stages", **{name: ...})


def test_older_stages_have_no_memory_of_workers() -> None:
    """Which is not known, then, and faults without the disk neither."""
    older = {
        name: value for name, value in LINE["stages"].items() if name not in LATER_STAGE_COLUMNS
    }
    decoded = decode({"type": "stages", **older})
    for name in LATER_STAGE_COLUMNS:
        assert getattr(decoded, name).tolist() == [UNKNOWN, UNKNOWN]


def test_an_older_worker_start_is_read() -> None:
    """What its worker was sent is not known."""
    older = {
        name: value for name, value in LINE["worker_start"].items() if name not in MAY_BE_MISSING
    }
    expected = WorkerStart(0, 1, start_ns=10, starting_ns=5, ready_ns=20, init_ns=0)
    assert decode({"type": "worker_start", **older}) == expected


NO_NUMBER = ["1", True, [1], 10**400, 1e101, float("nan"), float("inf")]


@pytest.mark.parametrize("column", [None, 3, {}, *([1, value] for value in NO_NUMBER)], ids=type)
def test_readings_and_times_of_transforms_are_finite_numbers(column: Any) -> None:
    assert "'power_watts', where a " in wrong("readings", values={"power_watts": column})
    assert "'Crop', where a " in wrong("stages", transform_ns={"Crop": column})


@pytest.mark.parametrize(
    ("kind", "changes", "lengths"),
    [
        *(("block", {name: [10] * 3}, "3 and 2") for name in OPTIONAL_COLUMNS if name in BLOCK),
        *(("stages", {name: [10] * 3}, "3 and 2") for name in STAGE_COLUMNS),
        ("stages", {name: {"batch": [1.5]} for name in BY_TRANSFORM}, "1 and 2"),
        ("readings", {"values": {"power_watts": [1]}}, "1 and 2"),
    ],
)
def test_columns_are_of_one_length(kind: str, changes: dict[str, Any], lengths: str) -> None:
    """Both lengths are named."""
    first, second = lengths.split(" and ")
    assert re.match(rf"has {first} values in .* {second} in ", wrong(kind, **changes))


@pytest.mark.parametrize("kind", ["blocks", None, 3, ["block"], {}, True])
def test_unknown_types_are_errors(kind: Any) -> None:
    said = wrong("block", type=kind)
    assert said.startswith(f"has {kind!r} as 'type'")
    assert said.endswith(f"{' or '.join(map(repr, KINDS))} was expected")


@pytest.fixture
def header(monkeypatch: pytest.MonkeyPatch) -> Fields:
    """The fields of a header, which `wrong` knows."""
    fields = encode(make_header())
    monkeypatch.setitem(LINE, "header", fields)
    return fields


@pytest.mark.usefixtures("header")
@pytest.mark.parametrize("version", [2, 0, None, "1", 1.0, True, ...])
def test_other_versions_are_errors(version: Any) -> None:
    assert "has format 'other' version 1" in wrong("header", format="other")
    said = wrong("header", version=version, surprise=1)
    assert said.startswith("has format 'loadeval-run' version ")
    assert said.endswith("where 'loadeval-run' version 1 was expected")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_id", 3),
        ("mode", "both"),
        ("warmup", 1.0),
        ("settings", []),
        ("environment", None),
        ("loader", None),
        ("cache", 3),
        ("workers", "two"),
        ("workers", True),
        ("pinned", 1),
        ("backend", None),
        ("color", "red"),
    ],
)
def test_a_wrong_value_of_a_header_is_named(header: Fields, name: str, value: Any) -> None:
    """So is a wrong fact about the loader, where no field may be lacking either."""
    changed = {name: value} if name in header else {"loader": {**header["loader"], name: value}}
    assert re.search(
        f"'{name}', (where|which the format does not know)", wrong("header", **changed)
    )
    assert "has no 'adapter'" in wrong("header", loader={"backend": "loader"})


def test_long_values_are_shortened() -> None:
    said = wrong("epoch", epoch="x" * 1000)
    assert len(said) < 150
    assert "x…" in said


def test_what_is_not_known_is_null() -> None:
    """A column that is unknown throughout is one null; one that is so in part has some."""
    unknown = np.full(2, UNKNOWN)
    times = np.array([10, LARGEST])
    fields = encode(Block(2, "ideal", times, times, np.array([10, UNKNOWN]), unknown, unknown))
    assert fields["samples"] is None
    assert fields["step_ns"] == [10, None]
    assert fields["wait_ns"] == [10, LARGEST]
    values = {"power_watts": np.array([float("nan"), float("inf"), 1.0])}
    assert encode(Readings("gpu", "0", np.arange(3), values))["values"] == {
        "power_watts": [None, None, 1.0]
    }


def test_numbers_of_numpy_are_numbers() -> None:
    loader: Any = LoaderInfo("loader", workers=np.int64(3))  # type: ignore[arg-type]  # as told
    again: Any = decode(json.loads(to_text(encode(make_header(loader=loader)))))
    assert again.loader.workers == 3
