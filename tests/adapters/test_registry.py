"""From a loader to its adapter."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from torch.utils.data import DataLoader

from loadeval import IterableAdapter
from loadeval import adapter as registry


class LongerAdapter(IterableAdapter):
    pass


def test_a_subclass_is_served_by_the_adapter_of_its_base() -> None:

    class Mine(DataLoader[int]):
        pass

    adapter = registry.adapter_for(Mine([1]))  # type: ignore[arg-type]
    assert type(adapter) is registry.registered()["torch.utils.data"].load()


def test_the_longest_prefix_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's adapter for a module inside a framework goes before the framework's."""
    value = f"{__name__}:LongerAdapter"
    points = {
        name: EntryPoint(name, value if "dataloader" in name else "nowhere:Never", registry.GROUP)
        for name in ("torch", "torch.utils", "torch.utils.data.dataloader", "torch.utils.dat")
    }
    monkeypatch.setattr(registry, "registered", lambda: points)
    adapter = registry.adapter_for(DataLoader([1]))  # type: ignore[arg-type]
    assert type(adapter).__name__ == "LongerAdapter"
