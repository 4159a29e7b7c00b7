"""`loadeval diagnose`: an unedited program, measured for as long as it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.cli.diagnose import LONGEST_S, LOOK_EVERY_S, Enough
from loadeval.data.folder import LoaderRecord, ProcessRecord
from loadeval.data.lines import Event, encode
from loadeval.launch.command import Ended
from tests.cli.commands import runner
from tests.launch.conftest import ran
from tests.runs.given import MS
from tests.runs.measured import record

ENDLESS = Path(__file__).with_name("endless.py")
LOADER = LoaderRecord("rank0.jsonl", "training", True, 1, 1)
TRAINING = [ProcessRecord("rank0", 0, 1, False, (LOADER,))]


class Seconds:
    """A clock that is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("batches", "is_enough"), [(60, False), (1300, True)])
def test_what_is_known_well_enough_is_enough(batches: int, is_enough: bool, tmp_path: Path) -> None:
    """Eight pairs of blocks, and an interval under five points either way."""
    record(tmp_path / "rank0.jsonl", "alternate", batches=batches)
    assert Enough(tmp_path, Seconds())(TRAINING) is is_enough


@pytest.mark.parametrize("is_watched", [True, False])
def test_batches_that_are_passed_over_are_not_enough(tmp_path: Path, *, is_watched: bool) -> None:
    """Where optimizers are watched, and none has made a step, training is still to come."""
    log = record(tmp_path / "rank0.jsonl", "alternate", batches=1300, epochs=2, step_ns=MS // 2)
    if is_watched:
        header, rest = log.read_bytes().split(b"\n", 1)
        watched = encode(Event(0, "steps of optimizers are watched", "optimizer"))
        log.write_bytes(header + b"\n" + watched + rest)
    assert Enough(tmp_path, Seconds())(TRAINING) is not is_watched


def test_two_minutes_are_enough(tmp_path: Path) -> None:
    """From the first batch on; a log is looked into now and then."""
    seconds = Seconds()
    enough = Enough(tmp_path, seconds)
    assert not enough([])
    assert not enough(TRAINING)  # it has no log yet
    record(tmp_path / "rank0.jsonl", "alternate")
    began_s = seconds.now_s = 50.0
    assert not enough(TRAINING)
    seconds.now_s = began_s + LONGEST_S - LOOK_EVERY_S
    assert not enough(TRAINING)
    seconds.now_s = began_s + LONGEST_S
    assert enough(TRAINING)


def test_where_nothing_was_measured_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the program ended well."""
    monkeypatch.chdir(tmp_path)
    ended = Ended(0, was_stopped=False)
    monkeypatch.setattr("loadeval.cli.run.run_command", lambda *_, **__: ended)
    code, _, err = runner("diagnose")("--", "true")
    assert code == 1
    assert err.splitlines()[-1].startswith("Nothing was measured: ")


@pytest.mark.parametrize("allowed", [[], ["--allow-changes"]])
def test_settings_that_change_the_batches_have_to_be_allowed(
    allowed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = Ended(0, was_stopped=False)
    monkeypatch.setattr("loadeval.cli.run.run_command", lambda *_, **__: ended)
    _, _, err = runner("diagnose")("--set", "batch_size=8", *allowed, "--", "true")
    assert ("Error: batch_size=8 changes the samples of a batch" in err) is (not allowed)


@pytest.mark.check
def test_a_program_is_ended_once_enough_was_measured(tmp_path: Path) -> None:
    """The screen is on stderr, and the exit code is 0."""
    done = ran(tmp_path, "diagnose", "--", "python", ENDLESS, 200_000, 0)
    assert done.returncode == 0, done.stderr
    assert "loadeval: enough is measured: ending the program, as Ctrl-C does\n" in done.stderr
    assert "ighly input-bound: training would be " in done.stderr


@pytest.mark.check
def test_a_program_goes_on_unmeasured_where_asked(tmp_path: Path) -> None:
    """To its own end, with its own exit code."""
    done = ran(tmp_path, "diagnose", "--go-on", "--batches", 40, "--", "python", ENDLESS, 3000, 0)
    assert done.returncode == 0, done.stderr
    assert "the program goes on unmeasured" in done.stderr
    assert "ending the program" not in done.stderr
    assert str(list(range(6000))) in done.stdout
