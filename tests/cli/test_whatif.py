"""`loadeval whatif`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.data.log import read_run
from loadeval.report.json import prediction_as_dict, whatif_as_dict
from loadeval.report.terminal.whatif import curve_lines, prediction_lines
from tests.cli.commands import imported_by, runner
from tests.runs import DEMO
from tests.runs.given import write_run
from tests.runs.measured import record
from tests.runs.staged import staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loadeval.analysis.predict.prediction import WorkerCurve
    from loadeval.data.run import Run

run = runner("whatif")


@pytest.fixture(scope="module", autouse=True)
def _short_replays() -> Iterator[None]:
    """What is predicted matters less here than that the same is printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadeval.analysis.predict.costs.MOST_BATCHES", 64)
        yield


@pytest.fixture(name="model", scope="module")
def _model() -> LoaderModel:
    return LoaderModel.of(read_run(DEMO))


@pytest.fixture(name="curve", scope="module")
def _curve(model: LoaderModel) -> WorkerCurve:
    return model.curve()


def test_a_table_over_the_number_of_workers(curve: WorkerCurve) -> None:
    """Without options; what is measured is marked, and all fits into 80 columns."""
    code, out, err = run(DEMO)
    assert (code, err) == (0, "")
    assert out.splitlines() == curve_lines(curve, 80)
    assert "\n2 measured " in out
    assert "\n1 predicted " in out
    assert max(map(len, out.splitlines())) <= 80


def test_other_settings_beside_the_present_ones(model: LoaderModel, curve: WorkerCurve) -> None:
    """All options go into the prediction."""
    options = ["--num-workers", 3, "--prefetch-factor", 4, "--cpus", 2.5, "--out-of-order"]
    options += ["--batch-size", 64, "--faster", "decode=4", "--faster", "step=2"]
    prediction = model.predict(
        num_workers=3,
        prefetch_factor=4,
        cpus=2.5,
        in_order=False,
        batch_size=64,
        faster={"decode": 4.0, "step": 2.0},
    )
    code, out, err = run(DEMO, *options)
    assert (code, err) == (0, "")
    _, measured = curve.measured[-1]
    assert out.splitlines() == prediction_lines(measured, model.predict(), prediction, 80)
    assert "present, measured" in out


def test_json_has_the_curve_and_the_prediction(model: LoaderModel, curve: WorkerCurve) -> None:
    """The latter where options are given."""
    assert json.loads(run(DEMO, "--json")[1]) == whatif_as_dict(curve, None)
    document = json.loads(run(DEMO, "--in-order", "--json")[1])
    assert document["with_options"] == prediction_as_dict(model.predict(in_order=True))


def test_several_runs_are_all_measured(tmp_path: Path) -> None:
    """The last is the present one."""
    logs = [
        write_run(staged(name=f"{count}", workers=count), tmp_path / f"{count}.jsonl")
        for count in (2, 1)
    ]
    code, out, _ = run(*logs)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if "measured " in line and line[0].isdigit()]
    assert [row[0] for row in rows] == ["1", "2"]
    assert "present" in rows[0]
    assert "present" not in rows[1]


def rank_in(folder: Path, rank: int, run: Run) -> Path:
    """The log of `run` as that of one of two ranks."""
    header = replace(run.header, environment={"rank": rank, "world_size": 2})
    return write_run(replace(run, header=header), folder / f"rank{rank}.jsonl")


def test_of_a_folder_the_rank_is_predicted_that_was_last(tmp_path: Path) -> None:
    """This is said beside it."""
    even = staged(workers=2)
    late = replace(even, steps=replace(even.steps, wait_ns=even.steps.wait_ns + 1_000_000))
    rank_in(tmp_path, 0, even)
    log = rank_in(tmp_path, 1, late)
    code, out, err = run(tmp_path)
    assert (code, out) == (0, run(log)[1])
    assert err == (
        "Predicted for rank 1, which was last most often. Throughput is that of this rank alone.\n"
    )


def test_of_a_folder_with_one_rank_that_is_predicted(tmp_path: Path) -> None:
    log = rank_in(tmp_path, 0, staged(workers=2))
    assert run(tmp_path) == run(log)


def test_a_folder_of_other_runs_is_not_predicted(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_run(staged(name=name, workers=2), tmp_path / f"{name}.jsonl")
    code, _, err = run(tmp_path)
    assert code == 1
    assert "not of the ranks of one job" in err


def test_the_curve_is_drawn_too(tmp_path: Path) -> None:
    """With --output, which says where it went; not in JSON."""
    path = tmp_path / "whatif.png"
    _, out, _ = run(DEMO, "--num-workers", 4, "-o", path)
    assert out.endswith(f"\nFigure written to {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")
    json.loads(run(DEMO, "--json", "-o", path)[1])


def test_the_settings_that_were_given_are_drawn(
    model: LoaderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a point; without any there is none."""
    drawn = []
    name = "loadeval.cli.whatif.plot_worker_curve"
    monkeypatch.setattr(name, lambda _curve, _path, chosen: drawn.append(chosen))
    run(DEMO, "--faster", "shrink=4", "-o", "a.png")
    run(DEMO, "-o", "a.png")
    assert drawn == [model.predict(faster={"shrink": 4.0}), None]


def test_a_function_that_the_screen_shows() -> None:
    """The last part of its name will do; its whole name is told."""
    _, whole, _ = run(DEMO, "--faster", "Image.resize=4")
    _, short, _ = run(DEMO, "--faster", "resize=4")
    assert whole == short
    assert "Image.resize 4x" in short


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--faster", "Nope=2"],
            "--faster has 'Nope', of which the run knows nothing; expected one of 'shrink'",
        ),
        (["--num-workers", "0", "--prefetch-factor", "4"], "only they prefetch: leave it out"),
        (["--output", "a.txt"], "cannot write a figure as 'a.txt'"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_one_line(options: list[str], message: str) -> None:
    """The line is on stderr; nothing is on stdout."""
    code, out, err = run(DEMO, *options)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_run_that_was_not_looked_into(tmp_path: Path) -> None:
    """The error says which runs are."""
    code, out, err = run(record(tmp_path / "a.jsonl", "alternate"))
    assert (code, out) == (1, "")
    assert "does not tell what happens inside the loader" in err


def test_from_a_log_with_stages_nothing_is_predicted(tmp_path: Path) -> None:
    """From the same program in alternate mode it is."""
    log, alternating = (write_run(staged(mode), tmp_path / mode) for mode in ("log", "alternate"))
    code, out, err = run(log, "--num-workers", 3)
    assert (code, out) == (1, "")
    assert err == (
        f"Error: {log} was recorded with mode='log', which does not measure the training step "
        "without loading, so nothing can be predicted from it; record one that does: loadeval run "
        "--mode alternate -- COMMAND\n"
    )
    code, out, err = run(alternating, "--num-workers", 3)
    assert (code, err) == (0, "")
    assert "speed-up" in out


def test_the_same_file_twice() -> None:
    """Two runs of one loader are two files."""
    code, _, err = run(DEMO, DEMO)
    assert code == 1
    assert "the same file was given twice" in err


@pytest.mark.parametrize(
    "options",
    [
        ["--faster", "decode"],
        ["--faster", "=2"],
        ["--faster", "decode=fast"],
        ["--faster", "decode=0"],
        ["--faster", "decode=inf"],
        ["--faster", "decode=nan"],
        ["--cpus", "0"],
        ["--cpus", "inf"],
        ["--num-workers", "-1"],
        ["--prefetch-factor", "0"],
        ["--batch-size", "0"],
    ],
)
def test_values_that_no_loader_can_have_are_wrong_usage(options: list[str]) -> None:
    """The message names the option."""
    code, out, err = run(DEMO, *options)
    assert (code, out) == (2, "")
    assert options[0] in err


def test_nothing_that_draws_is_imported_for_text() -> None:
    """Predicting is quick."""
    assert not imported_by(["whatif", DEMO]) & {"matplotlib", "plotly", "jinja2", "torch"}
