"""Settings without an edit: `loadeval run --set`, and install(settings=...)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loadeval import UsageError, read_run
from loadeval.launch.settings import RunSettings, check, settings_in
from tests.launch.conftest import Launch, ran
from tests.launch.installing import install, uninstall
from tests.launch.test_roles import evaluate, made, train

SETTINGS_PROGRAM = Path(__file__).with_name("settings_program.py")


def noted(folder: Path) -> dict[str, Any]:
    """What each log says of its loader's settings."""
    uninstall()
    return {path.name: read_run(path).header.loader.overrides for path in folder.glob("*.jsonl")}


def test_each_role_has_its_settings(tmp_path: Path) -> None:
    """Before the first epoch in it, and the logs have them."""
    settings = {"pin_memory": False, "timeout": 0, "validation.pin_memory": False}
    folder = install(output=tmp_path / "logs", settings=settings)
    training, held = made(12, timeout=9, num_workers=1), made(8, timeout=9, num_workers=1)
    assert len(train(training)) == 12
    evaluate(held)
    assert (training.timeout, held.timeout) == (0, 9)
    assert noted(folder) == {
        "rank0.jsonl": {"pin_memory": False, "timeout": 0},
        "rank0-validation.jsonl": {"pin_memory": False},
    }


def test_a_loader_that_trains_keeps_its_settings(tmp_path: Path) -> None:
    """It is evaluated with them; one that was evaluated first gets them when it trains."""
    settings = {"timeout": 3, "validation.timeout": 4}
    install(output=tmp_path / "logs", settings=settings)
    loader = made(12, num_workers=1, timeout=2)
    seen = [loader.timeout]
    for epoch in (evaluate, train, evaluate, train):
        epoch(loader)
        seen.append(loader.timeout)
    assert seen == [2, 4, 3, 3, 3]


def test_settings_are_written_as_in_python() -> None:
    words = ["num_workers=4", "a=True", "b=None", "c=false", "timeout=0.5", "d=spawn", "e=x=y"]
    assert settings_in(words) == {
        "num_workers": 4,
        "a": True,
        "b": None,
        "c": False,
        "timeout": 0.5,
        "d": "spawn",
        "e": "x=y",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [(["num_workers"], "has no value; expected NAME=VALUE"), (["a=1", "a=2"], "a is given twice")],
)
def test_words_that_are_no_settings(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings_in(words)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation.num_workers": -1}, "num_workers is -1; expected a whole number, 0 or more"),
        ({"validation.foo": 1}, "has the setting foo; expected one of num_workers, num_threads"),
        ({"batch_size": 4}, "batch_size=4 changes the samples of a batch, or their order; if"),
        ({"validation.in_order": False}, "in_order=False changes the samples of a batch"),
        ({"multiprocessing_context": object()}, "expected a number, text, True, False or None"),
    ],
)
def test_what_no_loader_takes(settings: dict[str, Any], message: str) -> None:
    """It is known before the program is started."""
    with pytest.raises(UsageError, match=message):
        check(RunSettings(settings=settings))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"track": "comet"}, "track is 'comet'; expected 'mlflow' or 'wandb' or 'tensorboard'"),
        ({"batches": 2.5}, "batches is 2.5; expected a whole number, 1 or more"),
        ({"mode": "replay"}, "mode is 'replay'; expected 'log' or 'alternate', or a loader to"),
    ],
)
def test_what_no_measurement_takes(option: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(RunSettings({"mode": "log", **option}))


def command(kind: str, arguments: dict[str, Any]) -> list[str]:
    """The program whose author gave its training loader these arguments."""
    return [sys.executable, str(SETTINGS_PROGRAM), kind, json.dumps(arguments), "{}"]


def raised(text: str) -> str:
    """The text of the exception that a program ended with."""
    errors = [line for line in text.splitlines() if "Error: " in line]
    return errors[-1].rpartition(": ")[2] if errors else ""


KEEPS = {"num_workers": 2, "persistent_workers": True}
LATER = {"num_workers": 9, "persistent_workers": True, "prefetch_factor": 1}


@pytest.mark.check
@pytest.mark.parametrize(
    ("kind", "before", "settings", "after"),
    [
        ("map", {}, LATER, LATER),
        ("map", {"num_workers": 1}, {"multiprocessing_context": "forkserver"}, None),
        ("map", KEEPS, {"num_workers": 0}, {}),
        ("map", KEEPS, {"batch_size": 7, "drop_last": True}, None),
        ("stream", {}, {"num_workers": 2}, None),
        ("stateful", {}, KEEPS, None),
        ("failing", {}, KEEPS, None),
        ("map", {}, {"prefetch_factor": 2}, None),
    ],
)
def test_a_program_trains_as_if_it_was_edited(
    kind: str,
    before: dict[str, Any],
    settings: dict[str, Any],
    after: dict[str, Any] | None,
    launch: Launch,
    tmp_path: Path,
) -> None:
    """The same batches, random numbers, warnings, exception and exit code.

    What its author then has is `after`, by default `before` with the settings.
    """
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = launch(command(kind, before), "--allow-changes", *options)
    expected = ran(tmp_path, *command(kind, {**before, **settings} if after is None else after))
    assert (done.out, done.code) == (expected.stdout, expected.returncode), done.err
    assert raised(done.err) == raised(expected.stderr)
    assert expected.returncode or done.run().header.loader.overrides == settings
