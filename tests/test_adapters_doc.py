"""What docs/adapters.md says is so; test_toy_framework.py has the framework that it adds."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from loadeval import Adapter, LoaderEvaluator

DOCUMENT = (Path(__file__).parents[1] / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```$", DOCUMENT)


def test_a_callable_serves_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's generator function is called anew for each."""
    monkeypatch.chdir(tmp_path)
    Path("records.bin").write_bytes(bytes(100_000))
    (block,) = (block for block in BLOCKS if "def blocks():" in block)
    scope: dict[str, LoaderEvaluator] = {}
    exec(block, scope)
    batches = np.bincount(scope["loader"].recorded().steps.epoch).tolist()
    assert batches == [-(-100_000 // 4096)] * 3


def test_every_method_of_an_adapter_is_named() -> None:
    """Under what is overridden when."""
    section = DOCUMENT.split("\n## What to override\n")[1].split("\n## ")[0]
    for name, method in vars(Adapter).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert f"`{name}`" in section


def test_every_adapter_of_loadevals_is_in_the_table() -> None:
    """Its rows are the modules that loadeval is installed with an adapter for."""
    (table,) = re.findall(r"(?ms)^\| module of.*?\n\n", DOCUMENT)
    rows = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    ours = metadata.distribution("loadeval").entry_points.select(group="loadeval.adapters")
    assert sorted(rows) == sorted(own.name for own in ours)
