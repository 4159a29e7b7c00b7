"""The page of the bottleneck protocol in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.doctor import LoaderPlan, checkup
from loadeval.analysis.protocol import Answers
from loadeval.analysis.report import Report
from loadeval.probes.machine import read_machine
from loadeval.report.page.page import write_page
from loadeval.report.page.protocol import protocol_page
from loadeval.report.terminal.protocol import ProtocolReport
from loadeval.runlog.run_folder.protocol_steps import NotRun, Step, StepResult
from tests.runs.given import randomised
from tests.runs.measured import recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Open = Callable[..., AbstractContextManager[Any]]

pytestmark = pytest.mark.check

TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [400, 1280])
def test_every_figure_is_drawn(width: int, tmp_path: Path, opened: Open) -> None:
    """The page fits its window, and its links lead to the sections."""
    separate = Report.of([recorded("log"), recorded("replay")])
    answers = Answers(separate, Report.of([randomised()]))
    results = [
        StepResult(Step.DOCTOR),
        *(StepResult(step, code=0, batches=300) for step in list(Step)[1:5]),
        StepResult(Step.NSYS, NotRun.NOT_INSTALLED),
    ]
    checks = checkup(read_machine(), LoaderPlan())
    command = "loadeval protocol --stop-after 300 --warm-up 50 -- python train.py"
    report = ProtocolReport(command, Path("/logs"), results, checks, answers)
    path = tmp_path / "report.html"
    write_page(protocol_page(report, path), path)
    with opened(path, width=width) as shown:
        page = shown.page
        for plot in page.locator(".plot").all():
            assert plot.locator("svg.main-svg").count() > 0
        assert page.evaluate(TOO_WIDE) == 0
        links = [link_element.get_attribute("href") for link_element in page.locator("nav a").all()]
        assert {"#protocol", "#findings", "#doctor", "#not-measured", "#reproduce"} <= set(links)
        assert len(links) == len(set(links))
        assert all(page.locator(link).count() == 1 for link in links if link)
