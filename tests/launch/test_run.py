"""What `loadeval run` says at the end, of logs that are written here in the command's place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from loadeval import LoadevalWarning
from loadeval.cli.main import app
from loadeval.data.folder import LoaderRecord, ProcessRecord, processes_in
from loadeval.errors import UsageError
from loadeval.launch.command import Ended
from loadeval.launch.settings import RunSettings
from tests.runs.given import MS
from tests.runs.measured import record as write_run_log

Command = Callable[[Path, RunSettings], Ended]
Told = Callable[..., Result]

BATCHES = 60
ENDED = Ended(0, was_stopped=False)
SAMPLES = np.zeros(4)


def record(log: str, role: Any = "training", steps: int = BATCHES) -> Any:
    return LoaderRecord(log, role, role != "validation", 1, steps)


def write_log(
    path: Path,
    mode: str = "log",
    rank: int | None = None,
    batches: int = BATCHES,
    wait_ms: int = 2,
    batch: Any = SAMPLES,
) -> None:
    """Write a log of steps that take 5 ms."""
    times = {"batches": batches, "wait_ms": wait_ms, "step_ns": 5 * MS}
    with pytest.MonkeyPatch.context() as patched:
        if rank is not None:
            patched.setenv("RANK", str(rank))
            patched.setenv("WORLD_SIZE", "2")
        write_run_log(path, mode, batch=batch, unit="samples", probes=(), warmup=0, **times)


def process(folder: Path, *loaders: Any, name: str = "rank0", rank: int = 0) -> None:
    ProcessRecord(name, rank, 1, True, loaders).save(folder)


@pytest.fixture(name="told")
def _told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """What the command line says of a command that does this, in a folder that is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def result_of(does: Command, *options: str) -> Result:
        def run(_: Any, settings: RunSettings, folder: Path, is_enough: Any, **__: Any) -> Ended:
            ended = does(folder, settings)
            if ended.was_stopped:
                assert is_enough(processes_in(folder))
            return ended

        monkeypatch.setattr("loadeval.cli.run.run_command", run)
        return CliRunner().invoke(
            app, ["run", "--output", "logs", *options, "--", "true"], catch_exceptions=False
        )

    return result_of


def text(result: Result) -> str:
    """Its stderr, in one line."""
    return " ".join(result.stderr.split())


def one_training(folder: Path, _: RunSettings) -> Ended:
    write_log(folder / "rank0.jsonl")
    process(folder, record("rank0.jsonl"))
    return ENDED


def test_one_training_is_reported_on_stderr(told: Told) -> None:
    """Stdout is the command's."""
    result = told(one_training)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith(
        "loadeval: logs in logs; to follow them: loadeval watch logs\n"
        "Training waited for batches 28.6% of the time"
    )
    assert "Training 1 of" not in result.stderr
    assert "More: loadeval compare logs --full; as a page: loadeval report logs" in text(result)
    assert text(result).endswith(
        "loader role batches epochs optimizer steps "
        "rank0.jsonl training 60 1 60 x 4 samples Logs: logs"
    )


@pytest.mark.parametrize(("steps", "size"), [(59, " x 4 samples"), (30, " x 8 samples"), (40, "")])
def test_samples_of_an_optimizer_step(told: Told, steps: int, size: str) -> None:
    """They are those of the batches between two; an interrupted program may lack the last step."""

    def does(folder: Path, _: RunSettings) -> Ended:
        write_log(folder / "rank0.jsonl")
        process(folder, record("rank0.jsonl", steps=steps))
        return ENDED

    assert f"rank0.jsonl training 60 1 {steps}{size} Logs" in text(told(does))


def test_settings_are_shown_with_their_loader(told: Told) -> None:

    def does(folder: Path, settings: RunSettings) -> Ended:
        assert settings.settings == {"num_workers": 2}
        ended = one_training(folder, settings)
        log = folder / "rank0.jsonl"
        log.write_text(log.read_text().replace('"overrides":null', '"overrides":{"num_workers":2}'))
        return ended

    shown = text(told(does, "--set", "num_workers=2"))
    assert "rank0.jsonl training 60 1 60 x 4 samples num_workers=2" in shown
    assert "reached no loader" not in shown
    shutil.rmtree("logs")
    assert "The settings of --set reached no loader" in text(
        told(one_training, "--set", "timeout=2")
    )


def test_a_loader_that_could_not_alternate_is_told(told: Told) -> None:
    shown = text(told(one_training, "--mode", "alternate"))
    assert "Logged, not alternated" in shown
    assert "wrap it: loadeval.LoaderEvaluator(loader, mode='replay'" in shown


def two_trainings(folder: Path, _: RunSettings) -> Ended:
    for log in ("rank0.jsonl", "rank0-2.jsonl"):
        write_log(folder / log)
    process(folder, record("rank0.jsonl"), record("rank0-2.jsonl"))
    return ENDED


def test_two_trainings_of_one_process_are_both_told(told: Told) -> None:
    shown = text(told(two_trainings))
    assert "Training 1 of 2: rank0.jsonl Training waited for batches" in shown
    assert "Training 2 of 2: rank0-2.jsonl Training waited for batches" in shown
    assert "loadeval report logs/rank0.jsonl" in shown
    assert "loadeval report logs/rank0-2.jsonl" in shown


def test_ranks_of_no_one_job_are_named(told: Told) -> None:
    """Two processes that both say that they are rank 0 of two."""

    def does(folder: Path, _: RunSettings) -> Ended:
        for number in range(2):
            log = f"rank{number}.jsonl"
            write_log(folder / log, rank=0)
            process(folder, record(log), name=f"rank{number}", rank=number)
        return ENDED

    assert "has 2 run logs, which are not of the ranks of one job" in text(told(does))


def test_no_training_is_told(told: Told) -> None:

    def does(folder: Path, _: RunSettings) -> Ended:
        write_log(folder / "rank0-validation.jsonl")
        process(folder, record("rank0-validation.jsonl", "validation", steps=0))
        return ENDED

    shown = text(told(does))
    assert "No training was seen" in shown
    assert "rank0-validation.jsonl validation 60 1" in shown


def test_a_loader_without_a_batch_is_none(told: Told) -> None:
    def does(folder: Path, _: RunSettings) -> Ended:
        logs = "rank0.jsonl", "rank0-none.jsonl"
        for log, batches in zip(logs, (3, 0), strict=True):
            write_log(folder / log, batches=batches)
        roles = zip(logs, ("training", "other"), strict=True)
        process(folder, *(record(log, role, steps=0) for log, role in roles))
        return ENDED

    with pytest.warns(LoadevalWarning, match="gave no batch"):
        shown = text(told(does))
    assert "rank0.jsonl training 3 1 none seen" in shown
    assert "rank0-none" not in shown


def test_a_program_that_hung_and_was_ended_has_a_code_of_its_own(told: Told) -> None:
    """No advice is given on what was mostly the hang."""

    def does(folder: Path, settings: RunSettings) -> Ended:
        one_training(folder, settings)
        return Ended(-15, was_stopped=False, was_aborted=True)

    result = told(does, "--abort-on-hang")
    assert result.exit_code == 5
    assert "ended the program, which hung, for --abort-on-hang" in result.stderr
    assert "Training waited" not in result.stderr  # most of that was the hang


def test_a_program_that_was_ended_early_is_a_success(told: Told) -> None:
    """Alternating starts no pair that --stop-after would break off."""

    def does(folder: Path, settings: RunSettings) -> Ended:
        assert settings.options["batches"] == 5
        one_training(folder, settings)
        return Ended(-15, was_stopped=True)

    result = told(does, "--mode", "alternate", "--stop-after", "5")
    assert result.exit_code == 0
    assert "loadeval: enough is measured: ending the program, as Ctrl-C does\n" in result.stderr


def test_a_command_that_cannot_be_started(told: Told) -> None:
    def does(_: Path, __: RunSettings) -> Ended:
        raise UsageError("cannot run train: Exec format error")

    result = told(does)
    assert result.exit_code == 126
    assert result.stderr.endswith("Error: cannot run train: Exec format error\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "replay"], "expected log or alternate"),
        (["--batches", "0"], "expected a whole number"),
        (["--batches", "5", "--stop-after", "9"], "of which --batches allows 5; leave one of them"),
    ],
)
def test_wrong_options(options: list[str], message: str, told: Told) -> None:
    result = told(one_training, *options)
    assert result.exit_code in {1, 2}
    assert message in " ".join(result.stderr.replace("│", " ").split())
