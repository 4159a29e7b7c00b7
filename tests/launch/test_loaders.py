"""`loadeval run` of programs that iterate the loader of each library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.launch.conftest import Launch
from tests.launch.loaders import LOADERS

pytestmark = pytest.mark.check  # each starts Python and imports a library

PROGRAM = str(Path(__file__).with_name("loaders.py"))


@pytest.mark.parametrize("name", LOADERS)
def test_its_loader_is_the_training_loader(name: str, launch: Launch) -> None:
    """Both epochs are in one log, with a step for each batch."""
    done = launch([sys.executable, PROGRAM, name])
    assert done.code == 0, done.err
    main = done.main
    assert (main.role, main.epochs, main.optimizer_steps) == ("training", 2, 20), done.err
    assert done.run(main.log).batches == 20
    assert "Training 1 of" not in done.err
