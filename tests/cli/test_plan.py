"""`loadeval plan`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval import Machine
from loadeval.analysis.machine import mlperf_step_ns
from loadeval.analysis.machine import plan as plan_machine
from loadeval.report.json import machine_as_dict
from loadeval.report.terminal.machine import machine_lines
from loadeval.runlog.log_file.reader import read_run
from tests.cli.commands import imported_by, runner
from tests.runs import DALI, DEMO
from tests.runs.given import write_run
from tests.runs.staged import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loadeval import MachinePlan

run = runner("plan")
NEXT = ("--devices", 8, "--cpus", 48, "--memory", "512GB", "--read", "1GB/s")
DATA = ("--step", "resnet50-h100", "--data-bytes", "150 GB")


@pytest.fixture(scope="module", autouse=True)
def _short_replays() -> Iterator[None]:
    """What is predicted matters less here than that the same is printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadeval.analysis.predict.costs.MOST_BATCHES", 64)
        yield


@pytest.fixture(name="plan", scope="module")
def _plan() -> MachinePlan:
    """What NEXT and DATA ask for."""
    return plan_machine(
        read_run(DEMO),
        machine=Machine(8, 48.0, 512e9, None, 1e9),
        step_ns=mlperf_step_ns("resnet50-h100", 32),
        data_bytes=150e9,
    )


def test_a_machine_that_the_options_describe(plan: MachinePlan) -> None:
    """All of it is said, in 80 columns."""
    code, out, err = run(DEMO, *NEXT, *DATA)
    assert (code, err) == (0, "")
    assert out.splitlines() == machine_lines(plan, 80)
    assert "8 devices on 48 CPUs, with a step of 17.9 ms for 32 samples: busy " in out
    assert "read, first epoch    1.07 GB/s          133 MB/s     1.00 GB/s  bytes read" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_the_plan(plan: MachinePlan) -> None:
    assert json.loads(run(DEMO, *NEXT, *DATA, "--json")[1]) == json.loads(
        json.dumps(machine_as_dict(plan))
    )


def test_this_machine_by_default() -> None:
    """With its CPUs and memory; what the run and the options do not tell is asked for."""
    code, out, _ = run(DEMO)
    assert code == 0
    assert out.startswith("1 device on ")
    assert "page cache: pass the size of the data set, as --data-bytes 150GB" in out
    assert "what would lift it, by itself" in out


def test_storage_that_nobody_described_is_a_caution() -> None:
    """It is assumed to be fast enough, which is said; not where its bandwidth was given."""
    _, out, _ = run(DEMO, "--cpus", 8)
    assert "Storage is assumed to be fast enough" in " ".join(out.split())
    assert json.loads(run(DEMO, "--cpus", 8, "--json")[1])["caution"].startswith("Storage")
    options = ("--cpus", 8, "--read", "1GB/s")
    assert "Storage is assumed" not in run(DEMO, *options)[1]
    assert json.loads(run(DEMO, *options, "--json")[1])["caution"] is None


def test_devices_that_loading_keeps_busy() -> None:
    """Nothing need be lifted."""
    _, out, _ = run(DEMO, "--step", "2s", "--cpus", 64)
    assert "loading keeps up with it" in out
    assert "Nothing here would lift it by 2 points." in out


def test_the_first_epoch_where_it_is_another() -> None:
    """Data that stay in memory are read from storage once."""
    options = ("--cpus", 64, "--memory", "1TB", "--read", "1MB/s", "--step", "0.5s")
    _, out, _ = run(DEMO, *options, "--data-bytes", "1MB")
    assert "it is held up by the storage" in " ".join(out.split())
    assert "In the first epoch: " not in out  # the memory of the run's processes was not read


def test_the_figure(tmp_path: Path) -> None:
    """A PNG, whose name is said."""
    path = tmp_path / "plan.png"
    code, out, _ = run(DEMO, "--output", path)
    assert code == 0
    assert out.endswith(f"Figure written to {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_page_and_a_figure(tmp_path: Path) -> None:
    """As many files as are named; the page has the tables of the screen."""
    page, figure = tmp_path / "plan.html", tmp_path / "plan.svg"
    code, out, _ = run(DEMO, *NEXT, *DATA, "-o", page, "-o", figure)
    assert code == 0
    assert out.endswith(f"\nPage written to {page}\n\nFigure written to {figure}\n")
    assert figure.exists()
    text = " ".join(page.read_text("utf-8").split())
    for said in (
        "<h1>8 devices on 48 CPUs, with a step of 17.9 ms for 32 samples: busy ",
        "<dt>limit</dt>",
        '<th scope="row">read, first epoch</th><td>1.07 GB/s</td><td>133 MB/s</td>',
        "What would lift the utilisation",
        '<h2 id="cpus-heading">CPUs for each device</h2>',
    ):
        assert said in text


def test_a_file_of_others_is_not_replaced(tmp_path: Path) -> None:
    """Nothing is predicted first."""
    path = tmp_path / "plan.html"
    path.write_text("mine")
    code, out, err = run(DEMO, "-o", path)
    assert (code, out) == (1, "")
    assert "is no page that loadeval report wrote" in err
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--step", "3"),
            "--step is 3; expected a time such as 224ms or 1.2s, or one of cosmoflow",
        ),
        (("--step", "0ms"), "--step is 0ms; expected a time"),
        (("--memory", "lots"), "--memory is lots; expected a size such as 512GB"),
        (("--read", "2 XB/s"), "--read is 2 XB; expected a size"),
        (("--data-bytes", "-1GB"), "--data-bytes is -1GB; expected a size"),
        (("--cpus", 0), "cpus is 0.0; expected a number above 0"),
        (("--output", "plan.txt"), "plan.txt"),
    ],
)
def test_options_that_no_machine_has(options: tuple[object, ...], said: str) -> None:
    code, out, err = run(DEMO, *options)
    assert code
    assert not out
    assert said in " ".join(err.split())


def test_a_run_that_does_not_tell() -> None:
    """As `whatif`."""
    code, _, err = run(DALI)
    assert code == 1
    assert "does not tell what happens inside the loader" in err


def test_a_published_step_needs_the_samples_of_a_batch(tmp_path: Path) -> None:
    """Where the run does not tell them, the option does."""
    bare = staged()
    header = replace(bare.header, loader=replace(bare.header.loader, batch_size=None))
    steps = replace(bare.steps, samples=bare.steps.samples * 0 - 1)
    path = write_run(replace(bare, header=header, steps=steps), tmp_path / "bare.jsonl")
    code, _, err = run(path, "--step", "unet3d-a100")
    assert code == 1
    assert "needs the samples in a batch" in err


def test_plotting_is_loaded_only_to_plot() -> None:
    assert not imported_by(["plan", DEMO]) & {"matplotlib", "plotly", "jinja2", "torch"}
