"""CONTRIBUTING.md names what is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CONFIGURATION = (ROOT / "pyproject.toml").read_text()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_its_layers_are_those_that_are_checked() -> None:
    import tomllib

    contracts = tomllib.loads(CONFIGURATION)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    (block,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    named = [re.split(r"  +", line)[0] for line in block.splitlines()]
    assert named == [layer for layer in layers if layer != "__main__"]


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:loadeval|tests|docs)/[a-z][a-z_./]*)`", PAGE)))
)
def test_files_that_it_names_are_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)", PAGE))))
def test_targets_that_it_names_are_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
