"""The shares of a loader's time."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.analysis.inside.stages import StageReport, WorkerTime
from loadeval.analysis.inside.timeline import Stage
from loadeval.analysis.report import Report
from tests.runs.staged import MS, staged
from tests.runs.tables import replace


@pytest.fixture(name="found", scope="module")
def _found() -> StageReport:
    """The stages of a run with two workers."""
    (run_report,) = Report.of([staged()]).runs
    assert run_report.stages is not None
    return run_report.stages


def test_shares_add_up(found: StageReport) -> None:
    """They add up to 1 with what is not attributed."""
    parts = [found.charged_share(stage) or 0.0 for stage in Stage]
    assert sum(parts) + (found.share(found.not_attributed_ns) or 0.0) == pytest.approx(1)
    assert found.charged_share(*Stage) == pytest.approx(sum(parts))


def test_transforms_share_what_fetch_is_charged(found: StageReport) -> None:
    """Each has the part of fetching that it takes."""
    blur = found.transforms[0]
    assert found.transform_share(blur) == pytest.approx(
        (found.charged_share(Stage.FETCH) or 0.0) * 0.6, rel=1e-3
    )
    longer = replace(blur, ns=10 * found.fetch_ns)
    assert found.transform_share(longer) == found.charged_share(Stage.FETCH)


def test_code_shares_what_fetch_and_collate_are_charged(found: StageReport) -> None:
    """Half of the samples of code are half of that."""
    whole = found.charged_share(Stage.FETCH, Stage.COLLATE)
    assert found.code_share(1.0) == whole
    assert found.code_share(0.5) == pytest.approx((whole or 0.0) / 2)


def test_where_nothing_is_attributed_no_share_is_known(found: StageReport) -> None:
    """No share is known of what is not known itself."""
    nothing = replace(found, total_ns=0.0)
    assert nothing.charged_share(Stage.FETCH) is None
    assert nothing.transform_share(found.transforms[0]) is None
    assert nothing.code_share(0.5) is None
    assert found.share(None) is None


@pytest.mark.parametrize(
    ("times_ms", "differ"), [((10, 11), False), ((10, 13), True), ((10,), False), ((), False)]
)
def test_workers_that_differ(found: StageReport, times_ms: tuple[int, ...], differ: bool) -> None:
    """The slowest takes over 1.2 times as long as the fastest."""
    workers = tuple(WorkerTime(at, 5, 50 * MS, ms * MS, 160) for at, ms in enumerate(times_ms))
    assert replace(found, workers=workers).workers_differ is differ


def test_the_comparison_has_those_of_the_real_run() -> None:
    """One run that alternated, or two."""
    run = staged()
    comparison = Report.of([run]).comparison
    assert comparison is not None
    assert comparison.stages is not None
    log = staged("log")
    steps = replace(log.steps, arm=np.ones_like(log.steps.arm))
    replayed = replace(log, header=replace(log.header, mode="replay"), steps=steps, stages=())
    two = Report.of([log, replayed]).comparison
    assert two is not None
    assert two.stages is not None


def test_each_backend_has_its_own() -> None:
    """Those that failed or were not looked into have none."""
    backends = Report.of([staged(name="a"), staged(slow=2.0, name="b")]).backends
    assert backends is not None
    usual, other = (backend.stages for backend in backends.backends)
    assert usual is not None
    assert other is not None
    assert other.fetch_ns > 1.5 * usual.fetch_ns
