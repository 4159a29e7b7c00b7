"""What tests of injected faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadeval.core import threads
from tests.injected.zygote import Zygote
from tests.scripted import serial  # noqa: F401 - a fixture


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Runs programs."""
    with Zygote() as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning is given once a folder."""
    monkeypatch.setattr(threads, "_warned", set())
    monkeypatch.setattr(threads, "_stalling", set())
