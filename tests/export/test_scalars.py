"""Scalars of a run, as TensorBoard reads them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from loadeval import UsageError, read_run
from loadeval.export import Format, export_run, tensorboard
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run

CREATED_S = datetime.fromisoformat("2026-01-31T12:00:00+00:00").timestamp()


def read(folder: Path) -> dict[str, list[Any]]:
    """All scalars in `folder`, by tag."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


def export(run: Run, folder: Path, **options: Any) -> list[Path]:
    return export_run(run, Format.TENSORBOARD, folder, **options)


def test_each_scalar_has_its_step_and_its_time(log_file: Path, tmp_path: Path) -> None:
    """The batch's number in the run, a reading's last batch by then; the unknown is left out."""
    export(read_run(log_file), tmp_path / "board")
    by_tag = read(tmp_path / "board")
    offsets = [scalar.wall_time - CREATED_S for scalar in by_tag["loadeval/wait_ms"]]
    assert offsets == pytest.approx([1.001e-6, 51.001e-6, 90e-6, 200e-6], abs=5e-7)
    values = {
        tag: [(scalar.step, scalar.value) for scalar in scalars] for tag, scalars in by_tag.items()
    }
    approximately = [(n, pytest.approx(ms)) for n, ms in enumerate([0.04, 0, 0.0025, 0.001])]
    assert values["loadeval/wait_ms"] == approximately
    assert [step for step, _ in values["loadeval/step_ms"]] == [0, 1, 2]
    rates = [(0, pytest.approx(4 / 50e-6)), (2, pytest.approx(4 / 10e-6))]
    assert values["loadeval/samples_per_s"] == rates
    assert values["gpu/0/busy_percent"] == [(1, 97.5), (2, 30.0)]
    assert values["gpu/0/memory_bytes"] == [(2, 2e9)]


def test_the_arms_of_an_alternating_run_are_runs(
    alternating: Run, replayed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard lays `real` and `ideal` over each other; a replayed run has but one."""
    monkeypatch.setattr(tensorboard, "CHUNK", 7)
    export(alternating, tmp_path / "board")
    steps: list[int] = []
    for code, arm in enumerate(ARMS):
        waits = read(tmp_path / "board" / arm)["loadeval/wait_ms"]
        assert len(waits) == (alternating.steps.arm == code).sum()
        steps += [wait.step for wait in waits]
    assert sorted(steps) == list(range(len(alternating.steps)))
    (path,) = export(replayed, tmp_path / "replayed")
    assert path.parent == tmp_path / "replayed"
    assert len(read(path.parent)["loadeval/wait_ms"]) == 231


def test_an_earlier_export_is_replaced_only_when_asked(
    alternating: Run, log_file: Path, tmp_path: Path
) -> None:
    """That of another run is too, which would be mixed with it; other files stay."""
    folder = tmp_path / "board"
    earlier = export(alternating, folder)
    other = folder / "events.out.tfevents.1.host"
    other.write_bytes(b"")
    with pytest.raises(UsageError, match="already exists"):
        export(read_run(log_file), folder)
    assert all(path.exists() for path in earlier)
    (path,) = export(read_run(log_file), folder, overwrite=True)
    assert {file for file in folder.rglob("*") if file.is_file()} == {path, other}


def test_a_time_of_day_is_needed(log_file: Path, dali_file: Path, tmp_path: Path) -> None:
    """A run that does not tell when it began has no place; a time without a zone is UTC."""
    text = log_file.read_text()
    log_file.write_text(text.replace("2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00"))
    export(read_run(log_file), tmp_path / "board")
    first, *_ = read(tmp_path / "board")["loadeval/wait_ms"]
    assert first.wall_time == pytest.approx(CREATED_S, abs=1e-3)
    log_file.write_text(text.replace("2026-01-31T12:00:00+00:00", "not recorded"))
    with pytest.raises(UsageError, match="'not recorded', where a time in ISO 8601"):
        export(read_run(log_file), tmp_path / "board")
    with pytest.raises(UsageError, match="there is no timeline"):
        export(read_run(dali_file), tmp_path / "board")
