"""The page of a machine that is planned, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.machine import Machine, plan
from loadeval.report.page.machine import machine_page
from loadeval.report.page.page import write_page
from tests.runs.staged import staged

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    Open = Callable[..., AbstractContextManager[Any]]

pytestmark = pytest.mark.check

TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [400, 1280])
def test_the_figure_is_drawn(width: int, tmp_path: Path, opened: Open) -> None:
    """The page fits its window, and its links lead to the sections."""
    path = tmp_path / "plan.html"
    write_page(machine_page(plan(staged(), machine=Machine(4, 16)), "run"), path)
    with opened(path, width=width) as shown:
        page = shown.page
        (plot,) = page.locator(".plot").all()
        assert plot.locator("svg.main-svg").count() > 0
        assert page.evaluate(TOO_WIDE) == 0
        links = [link.get_attribute("href") for link in page.locator("nav a").all()]
        assert links == ["#needs", "#lifts", "#cpus"]
        assert all(page.locator(link).count() == 1 for link in links)
