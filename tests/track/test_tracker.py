"""What a tracker is told of a run, and TensorBoard, which is always there to be told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from loadeval import LoaderEvaluator, LoadevalWarning, UsageError, read_run
from loadeval.analysis.live import LiveRun
from loadeval.analysis.report import Report
from loadeval.report import extra
from loadeval.runlog.log_file.writer import lines_of
from loadeval.track.tracker import lost_share_of, scalars_of
from tests.cli.test_export import without
from tests.runs import DEMO
from tests.runs.measured import record, recorded

if TYPE_CHECKING:
    from pathlib import Path


def test_the_scalars_are_those_of_the_live_state() -> None:
    """Base units, the last minute, and no name for what is not known."""
    live = LiveRun()
    for line in lines_of(recorded(epochs=2, probes=())):
        live.take(line)
    state = live.state(0)
    assert state is not None
    assert scalars_of(state) == pytest.approx(
        {
            "loadeval/epoch": 1,
            "loadeval/batches_per_s": 25,
            "loadeval/samples_per_s": 100,
            "loadeval/wait_share": 0.75,
            "loadeval/wait_s": 1.8,
            "loadeval/epoch_start_s": 0.03,
        }
    )


def test_a_run_without_a_batch_has_no_scalars() -> None:
    live = LiveRun()
    live.take(read_run(DEMO).header)
    state = live.state(0)
    assert state is not None
    assert scalars_of(state) == {}


def test_the_lost_share_is_of_an_alternating_run(tmp_path: Path) -> None:
    """With its CI; a run that did not alternate has none, nor one too short."""
    shares = lost_share_of(Report.of([read_run(DEMO)]))
    assert list(shares) == [f"loadeval/lost_share{end}" for end in ("", "_low", "_high")]
    assert shares["loadeval/lost_share"] == pytest.approx(0.56, abs=0.01)
    log = read_run(record(tmp_path / "log.jsonl"))
    assert lost_share_of(Report.of([log])) == {}
    assert lost_share_of(Report.of([recorded("alternate", waits_ns=[1] * 3)])) == {}


def board(folder: Path) -> EventAccumulator:
    (written,) = (folder / "runs").iterdir()
    accumulator = EventAccumulator(str(written))
    accumulator.Reload()
    return accumulator


def test_tensorboard_gets_a_folder_with_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torch's writer puts its own, under the run's name; of a log there is no figure."""
    monkeypatch.chdir(tmp_path)
    recorded(track="tensorboard", name="my run", probes=())
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("loadeval-my-run-")
    assert "<title>" in (folder / "loadeval.html").read_text()
    assert not (folder / "loadeval.png").exists()
    (share,) = board(tmp_path).Scalars("loadeval/wait_share")
    assert (share.step, share.value) == (30, pytest.approx(0.75))


def test_without_plotly_the_scalars_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning says what to install for the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extra, "find_spec", lambda _: None)
    with pytest.warns(
        LoadevalWarning, match=r"a page needs the package plotly.*loadeval\[report\]"
    ):
        recorded(track="tensorboard", probes=())
    assert board(tmp_path).Scalars("loadeval/epoch")


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard"])
def test_a_missing_package_is_told_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured."""
    monkeypatch.delitem(sys.modules, f"loadeval.track.{name}", raising=False)
    without(name, monkeypatch)
    with pytest.raises(UsageError, match=f"needs the package {name}.*pip install {name}"):
        LoaderEvaluator([1], track=name)
