"""Measures this process, with the folder of the logs at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loadeval
from loadeval.launch.install import Installed

_installed: list[Installed] = []


def install(mode: str = "log", **options: Any) -> Path:
    """Install, and return the folder."""
    _installed.append(loadeval.install(mode=mode, **options))
    assert _installed[-1].folder is not None
    return _installed[-1].folder


def uninstall() -> None:
    """End all that was installed."""
    while _installed:
        _installed.pop().close()
