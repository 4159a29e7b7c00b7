"""Data in forms that are slow to read: which functions show it, and what is said instead.

A step takes 20 ms and fetching 60, where 40 would be fast enough.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.data.lines import CodeSamples
from loadeval.report.wording.advice import change_in_short, predicted_in_short
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import NOTHING, advised, diagnosed, finding_of, outcome
from tests.runs.looked_into import looked_into
from tests.runs.tables import replace, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

LINE = "data.py:31 __getitem__"


def calling(functions: dict[str, int], *, line: int = 100, others: int = 0, **given: Any) -> Run:
    """A run of which a line was seen so often, and functions that it called."""
    calls = {f"{LINE} > {name}": count for name, count in functions.items()}
    seen = CodeSamples(0, {LINE: line, "data.py:9 other": others}, {}, calls)
    return looked_into(**{"fetch": 60, "seen": (seen,), **given})


def test_files_that_are_opened_for_each_sample_are_evidence() -> None:
    """Counted in a batch of four samples; what was not counted is not told."""
    evidence = [
        {fact.name: fact.value for fact in finding_of(Rule.DATA_FORMAT, run).evidence}
        for run in (calling({"json.loads": 90}, opened_files=256), calling({"json.loads": 90}))
    ]
    assert evidence[0]["files opened for a sample"] == 64
    assert "files opened for a sample" not in evidence[1]


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        ("numpy.lib._npyio_impl.NpzFile.__getitem__", Advice.STORE_UNCOMPRESSED),
        ("numpy.lib.npyio.__getitem__", Advice.STORE_UNCOMPRESSED),
        ("gzip.GzipFile.read", Advice.STORE_UNCOMPRESSED),
        ("zipfile.ZipFile.read", Advice.STORE_UNCOMPRESSED),
        ("pandas.core.indexing._LocationIndexer.__getitem__", Advice.COLUMNS_AS_ARRAYS),
        ("torch.tensor", Advice.KEEP_ARRAYS),
        ("json.loads", Advice.PARSE_ONCE),
        ("pyarrow.parquet.core.ParquetFile.read_row_group", Advice.SMALLER_ROW_GROUPS),
        ("table.to_pandas", Advice.SMALLER_ROW_GROUPS),
        ("h5py._hl.dataset.Dataset.__getitem__", Advice.CHUNK_BY_SAMPLE),
        ("h5py._hl.files.File.__init__", Advice.OPEN_ONCE),
        ("zipfile.ZipFile.__init__", Advice.OPEN_ONCE),
    ],
)
def test_functions_that_are_known(function: str, advice: Advice) -> None:
    """Each has advice of its own, and takes the place of a slow function."""
    given = calling({function: 90})
    finding = finding_of(Rule.DATA_FORMAT, given)
    assert advised(finding)[0] is advice
    assert finding.problem.code is Problem.FORMAT_SLOW
    assert finding.problem.values == {"place": f"{LINE} > {function}", "share": 0.9}
    assert outcome(Rule.SLOW_FETCH, given) == NOTHING
    (first, *_) = diagnosed(given).findings
    assert first.rule is Rule.DATA_FORMAT
    assert first.cost_share == pytest.approx(1 / 3, abs=0.02)


def test_what_is_said() -> None:
    """The line, what it calls, and what training gains at most."""
    (first, *_) = diagnosed(calling({"json.loads": 90})).findings
    assert describe(first).startswith(
        "90.0% of loading a batch is spent in data.py:31 __getitem__ > json.loads. Parse "
    )
    parsed = next(change for change in first.changes if change.code is Advice.PARSE_ONCE)
    first = replace(first, changes=(parsed,))
    assert change_in_short(first) == "parse once, store arrays"
    assert re.fullmatch(r"1\.4\dx \[1\.[34]\dx, 1\.[56]\dx\]", predicted_in_short(first))


@pytest.mark.parametrize(
    ("functions", "given", "expected"),
    [
        ({"json.loads": 41}, {}, "found"),
        ({"json.loads": 21, "csv.DictReader.__next__": 20}, {}, "found"),  # of one kind
        ({"json.loads": 39}, {}, NOTHING),
        ({"json.loads": 30, "torch.tensor": 30}, {}, NOTHING),
        ({"PIL.Image.Image.convert": 90}, {}, NOTHING),
        ({"json.loads": 90}, {"fetch": 36}, NOTHING),  # fast enough
        ({"json.loads": 90}, {"blocked": 0.5}, NOTHING),
        ({"json.loads": 90}, {"transforms": {"blur": 0.5}}, NOTHING),  # which is told instead
        ({}, {}, Unknown.CALLS_NOT_SEEN),
    ],
)
def test_when_a_form_is_slow(
    functions: dict[str, int], given: dict[str, Any], expected: object
) -> None:
    """It takes much of fetching, which is waited for, and computes."""
    assert outcome(Rule.DATA_FORMAT, calling(functions, **given)) == expected


def test_lists_that_are_collated() -> None:
    """What takes the time is said, not that collating does."""
    given = calling({"torch.tensor": 90}, fetch=20, collate=40)
    assert outcome(Rule.SLOW_COLLATE, given) == NOTHING
    assert diagnosed(given).findings[0].rule is Rule.DATA_FORMAT


class TestMoreReadThanUsed:
    """Batches of 100 kB for which far more is read."""

    def reading(self, megabytes: float, functions: dict[str, int] | None = None, **how: Any) -> Run:
        run = calling(functions or {"numpy.load": 90}, read_bytes=int(megabytes * 1e6), **how)
        return with_steps(run, nbytes=100_000)

    def test_what_is_said(self) -> None:
        """How many times as much, and which function."""
        finding = finding_of(Rule.DATA_FORMAT, self.reading(20))
        assert finding.problem.code is Problem.MORE_READ_THAN_USED
        assert finding.problem.values["share"] == pytest.approx(1 - 1 / 200)
        assert advised(finding)[0] is Advice.READ_WHAT_IS_USED
        assert describe(finding).startswith(
            "Loading reads 20.0 MB for a batch of 100 kB, 200 times what it hands out; 99.5% of it "
            "is spent in data.py:31 __getitem__. Read only what is used: "
        )

    def test_of_a_function_that_is_known(self) -> None:
        """It is said too, and the advice is the function's."""
        finding = finding_of(Rule.DATA_FORMAT, self.reading(20, {"json.load": 90}))
        assert finding.problem.code is Problem.MORE_READ_THAN_USED
        assert advised(finding)[0] is Advice.PARSE_ONCE

    @pytest.mark.parametrize(
        ("megabytes", "how", "expected"),
        [
            (6.1, {}, "found"),
            (5.9, {}, NOTHING),  # under 100 MB/s: reading matters little, as of images
            (0.79, {"fetch": 7, "step": 2}, NOTHING),  # under eight times as much
            (0.81, {"fetch": 7, "step": 2}, "found"),
            (20, {"line": 39, "others": 61}, NOTHING),  # in no one function
        ],
    )
    def test_when_it_matters(self, megabytes: float, how: dict[str, Any], expected: object) -> None:
        """Most of it is not used, and reading takes long."""
        given = self.reading(megabytes, **how)
        if "line" in how:  # nor are there many of the others
            seen = {f"data.py:{number} part{number}": 10 for number in range(10)}
            given = replace(given, code=(replace(given.code[0], running=seen),))
        assert outcome(Rule.DATA_FORMAT, given) == expected

    def test_where_what_is_read_is_not_known(self) -> None:
        """Nothing is guessed."""
        assert outcome(Rule.DATA_FORMAT, calling({"numpy.load": 90})) == NOTHING
