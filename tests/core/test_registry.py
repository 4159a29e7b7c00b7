"""From a loader to its adapter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from torch.utils.data import DataLoader

from loadeval import IterableAdapter
from loadeval import adapter as registry

ROOT = Path(__file__).parents[2]


class LongerAdapter(IterableAdapter):
    pass


def test_a_subclass_is_served_by_the_adapter_of_its_base() -> None:

    class Mine(DataLoader[int]):
        pass

    adapter = registry.adapter_for(Mine([1]))  # type: ignore[arg-type]
    assert type(adapter) is registry.registered()["torch.utils.data"].load()


def test_what_nobody_claims_is_an_iterable() -> None:
    assert type(registry.adapter_for([1])) is IterableAdapter


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


def test_our_own_adapters_need_no_entry_points() -> None:
    points = distribution("loadeval").entry_points.select(group=registry.GROUP)
    assert {point.name: point.value for point in points} == registry.own_adapters()


@pytest.mark.check
def test_a_zipped_copy_knows_its_loaders(tmp_path: Path) -> None:
    """No loader of theirs is taken for any iterable, without metadata too."""
    archive = tmp_path / "copy.zip"
    with ZipFile(archive, "w") as copy:
        for folder in (ROOT, ROOT / "adapters"):
            for path in folder.glob("loadeval*/**/*.py"):
                copy.write(path, path.relative_to(folder))
    program = f"""
import importlib.metadata, sys
sys.path.insert(0, {str(archive)!r})
importlib.metadata.entry_points = lambda **_: ()
import loadeval
from torch.utils.data import DataLoader
assert loadeval.__file__.startswith({str(archive)!r})
info = loadeval.LoaderEvaluator(DataLoader([1], num_workers=2)).recorded().header.loader
print(info.adapter, info.workers)
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["loadeval_adapters.torch.PyTorchAdapter", "2"]
