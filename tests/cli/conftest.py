"""What the shell that runs the tests is like does not matter."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
