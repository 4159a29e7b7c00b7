"""What all tests share: Ctrl-C, time limits, and how examples of properties are drawn."""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import gettempdir

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

SLOW_S = 600
"""How long a slow test may take; the limit of others is in pyproject.toml."""

# The same examples each time, however slow the machine is, and nothing left in the clone.
settings.register_profile("loadeval", deadline=None, derandomize=True, database=None)
settings.load_profile("loadeval")
set_hypothesis_home_dir(gettempdir())

# A job in the background ignores Ctrl-C, and what it starts would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    frameworks = Path(__file__).with_name("frameworks")
    for item in items:
        if frameworks in item.path.parents:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))
