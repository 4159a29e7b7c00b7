"""Loaders without workers for alternating runs."""

from __future__ import annotations

import pytest

from tests.scripted import SerialAdapter, SerialLoader, register


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> type[SerialLoader]:
    """SerialLoader, whose adapter is registered."""
    register(monkeypatch, SerialLoader.__module__, SerialAdapter)
    return SerialLoader
