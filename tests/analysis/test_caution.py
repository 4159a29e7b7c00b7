"""What is said of two runs that may not be comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.caution import TWO_RUNS
from loadeval.analysis.headroom import compare
from loadeval.runlog.model import NOT_RECORDED, LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]


def said(make_run: MakeRun, real: dict[str, Any], ideal: dict[str, Any]) -> str:
    """The caution about two runs with these headers, without what is always said."""
    headroom = compare(make_run([1] * 20, **real), make_run([1] * 20, mode="replay", **ideal))
    assert headroom.caution.endswith(TWO_RUNS)
    return headroom.caution.removesuffix(TWO_RUNS).strip()


def test_two_runs_are_always_two_runs(make_run: MakeRun) -> None:
    """Of runs that are alike, only the drift between them is told."""
    assert said(make_run, {}, {}) == ""


def test_another_unit(make_run: MakeRun) -> None:
    """Runs that count different things are compared by batch, and it is said."""
    assert said(make_run, {}, {"unit": "videos"}) == (
        "The runs count images and videos: they are compared batch by batch, as if batches were "
        "equally large."
    )


def test_unknown_samples(make_run: MakeRun) -> None:
    """So are runs one of which does not know its samples."""
    assert said(make_run, {"samples": -1}, {}).startswith(
        "The number of samples is not known in both runs: they are compared batch by batch"
    )


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (LoaderInfo("a.Loader"), LoaderInfo("b.Loader"), "backend a.Loader and b.Loader"),
        (LoaderInfo("l", batch_size=8), LoaderInfo("l", batch_size=16), "batch size 8 and 16"),
        (LoaderInfo("l", device="cpu"), LoaderInfo("l", device="cuda"), "device cpu and cuda"),
        (
            LoaderInfo("l", pinned=True, length=9),
            LoaderInfo("l", pinned=False, length=5),
            "pinned True and False, length 9 and 5",
        ),
    ],
)
def test_a_replay_of_another_loader(
    make_run: MakeRun, one: LoaderInfo, other: LoaderInfo, difference: str
) -> None:
    """A loader that differs in what replay keeps is told with each difference."""
    assert said(make_run, {"loader": one}, {"loader": other}) == (
        f"Another loader was replayed than the one that was timed: {difference}."
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LoaderInfo("l", workers=0), LoaderInfo("l", workers=8)),
        (LoaderInfo("l", batch_size=8), LoaderInfo("l")),
        (LoaderInfo("l"), LoaderInfo("l", length=3)),
        (LoaderInfo("l"), LoaderInfo(NOT_RECORDED)),
    ],
)
def test_a_loader_that_may_be_the_same(
    make_run: MakeRun, one: LoaderInfo, other: LoaderInfo
) -> None:
    """Workers do not matter to a replay, and what one side does not know is no difference."""
    assert said(make_run, {"loader": one}, {"loader": other}) == ""


def test_another_machine(make_run: MakeRun) -> None:
    """Runs of different machines, or with other CPUs, compare the machines too."""
    here = {"environment": {"host": "a", "cpus_usable": 8, "pid": 3}}
    there = {"environment": {"host": "b", "cpus_usable": 2, "pid": 4}}
    assert said(make_run, here, there) == (
        "The runs were made on different machines: host a and b, cpus usable 8 and 2."
    )
    assert said(make_run, here, {"environment": {"host": ["odd"]}}) == (
        "The runs were made on different machines: host a and ['odd']."
    )
    assert said(make_run, here, {}) == ""
