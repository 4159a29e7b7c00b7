"""Loaders that serve by a script, and adapters for them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from loadeval import IterableAdapter, LoaderInfo
from loadeval import adapter as registry
from loadeval.testing import ScriptedLoader


class SerialLoader(ScriptedLoader):
    """A loader without workers, so that nobody waits for them; it counts those that end.

    `end_ns` is how long it takes to find the end of one.
    """

    prefetched = ready = closed = end_ns = 0

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
            self.clock.advance(self.end_ns)
        finally:
            self.closed += 1


class SerialAdapter(IterableAdapter):
    def describe(self, loader: Any) -> LoaderInfo:
        return LoaderInfo(
            "SerialLoader",
            length=len(loader),
            workers=0,
            prefetch_depth=loader.prefetched,
            ready_batches=loader.ready,
        )


def register(monkeypatch: pytest.MonkeyPatch, module: str, adapter: type[IterableAdapter]) -> None:
    """Serve loaders of `module` with `adapter`, and any others as iterables."""
    point = EntryPoint(module, f"{module}:{adapter.__name__}", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: adapter)
    monkeypatch.setattr(registry, "registered", lambda: {module: point})


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> type[SerialLoader]:
    """SerialLoader, whose adapter is registered."""
    register(monkeypatch, SerialLoader.__module__, SerialAdapter)
    return SerialLoader
