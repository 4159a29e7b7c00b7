"""`loadeval run` of a program that trains with fastai, in fastai's own way.

`make test-programs` installs it; without it the tests are skipped.
"""

import sys
from pathlib import Path

import pytest

from bench.judge import column, compared, launched, loaders_in, printed

BATCHES = {"training": 2 * 160, "validation": 2 * 12}
pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("mode", "workers"), [("log", "2"), ("alternate", "0")])
def test_the_program_prints_the_same_and_is_measured(
    mode: str, workers: str, tmp_path: Path
) -> None:
    """Losses and parameters to the bit; each loader has its role and batches, each batch once."""
    pytest.importorskip("fastai", reason="make test-programs installs it")
    program = (str(Path(__file__).with_name("train_fastai.py")), workers)
    under_run = launched(tmp_path / "logs", program, "--mode", mode)
    assert under_run == printed(sys.executable, *program)
    loaders = {each.role: each for each in loaders_in(tmp_path / "logs")}
    samples = {role: column(each.log, "samples").tolist() for role, each in loaders.items()}
    assert {role: len(of_role) for role, of_role in samples.items()} == BATCHES
    assert set(samples["training"]) == {8}
    assert loaders["training"].optimizer_steps == 0  # its optimizers are its own
    if mode == "alternate":
        assert compared(loaders["training"].log).is_concluded
