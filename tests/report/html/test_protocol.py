"""The page of the bottleneck protocol in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.doctor import LoaderPlan, checkup
from loadeval.analysis.protocol import Answers
from loadeval.analysis.report import Report
from loadeval.launch.steps import NotRun, Step, StepResult
from loadeval.probes.machine import read_machine
from loadeval.report.html.page import write_page
from loadeval.report.html.protocol import protocol_page
from loadeval.report.protocol import ProtocolReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from loadeval.runlog.model import Run

    Open = Callable[..., AbstractContextManager[Any]]
    Record = Callable[..., Run]

pytestmark = pytest.mark.slow

TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [400, 1280])
def test_every_figure_is_drawn(
    width: int, tmp_path: Path, alternating: Record, record: Record, opened: Open
) -> None:
    """The page fits its window, and its links lead to the sections."""
    separate = Report.of([record("log"), record("replay")])
    answers = Answers(separate, Report.of([alternating()]))
    results = [
        StepResult(Step.DOCTOR),
        *(StepResult(step, code=0, batches=300) for step in list(Step)[1:5]),
        StepResult(Step.NSYS, NotRun.NOT_INSTALLED),
    ]
    checks = checkup(read_machine(), LoaderPlan())
    command = "loadeval protocol --stop-after 300 --warm-up 50 -- python train.py"
    found = ProtocolReport(command, Path("/logs"), results, checks, answers)
    path = tmp_path / "report.html"
    write_page(protocol_page(found, path), path)
    with opened(path, width=width) as shown:
        page = shown.page
        for plot in page.locator(".plot").all():
            assert plot.locator("svg.main-svg").count() > 0
        assert page.evaluate(TOO_WIDE) == 0
        links = [one.get_attribute("href") for one in page.locator("nav a").all()]
        assert {"#protocol", "#findings", "#doctor", "#not-measured", "#reproduce"} <= set(links)
        assert len(links) == len(set(links))
        assert all(page.locator(link).count() == 1 for link in links if link)
