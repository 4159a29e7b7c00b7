"""What the documents say is so."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from loadeval import Adapter, LoaderEvaluator, read_run, tune
from loadeval.adapter import own_adapters
from loadeval.data.lines import StageTimes, decode
from loadeval.estimate import verdict
from loadeval.estimate.before_after import EQUAL_WITHIN, LEAST_CHANGE
from loadeval.estimate.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.inside.operators import BUSY
from loadeval.inside.stages import SLOW_SAMPLE
from loadeval.testing import FakeClock, ScriptedLoader
from tests.cli.commands import runner
from tests.runs import DEMO, SPDL
from tests.runs.measured import record

DOCS = Path(__file__).parents[1] / "docs"


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text_of(page))


def printed(command: str) -> str:
    """What a command prints, as a page shows it."""
    code, out, err = runner()(*shlex.split(command.removeprefix("$ "))[1:])
    assert code == 0, err
    return "".join(f"{line.rstrip()}\n" for line in out.splitlines())


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of the pages are in run.jsonl and spdl.jsonl, in the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SPDL, tmp_path)
    shutil.copy(DEMO, tmp_path / "run.jsonl")


def small_run(**options: Any) -> Path:
    """Three epochs of which the last is broken off, in place of run.jsonl."""
    path, batch = Path("run.jsonl"), np.zeros((4, 2), dtype=np.uint8)
    path.unlink()
    given: dict[str, Any] = {"waits_ns": [30, 10, 20, 10, 10], "step_ns": 7, "epochs": 3}
    return record(path, batch=batch, left_after={(2, 0)}, **given, **options)


# run-log.md


def test_the_code_that_reads_a_run_log_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands, and finds what read_run finds."""
    steps, scope = read_run(small_run()).steps, dict[str, Any]()
    for block in blocks("run-log", "python"):
        exec(block, scope)
    assert scope["wait_ns"].tolist() == steps.wait_ns.tolist()
    assert scope["epoch"].tolist() == steps.epoch.tolist()
    known = np.where(np.isnan(scope["step_ns"]), -1, scope["step_ns"])
    assert known.tolist() == steps.step_ns.tolist() == [7] * 10 + [-1]
    assert "11 batches, mean wait 0.00 ms" in capsys.readouterr().out


def test_the_example_lines_are_lines_of_a_run_log() -> None:
    lines = [decode(each.encode()).__class__.__name__ for each in blocks("run-log", "json")]
    assert lines == ["Header", "Block", "EpochEnd", "RunEnd"]


# Figures


def test_the_rules_of_an_inconclusive_verdict_are_all_there() -> None:
    """In the order in which they are asked."""
    page = text_of("how-it-measures")
    rows = re.findall(r"^\| `([\w ]+)` \| [^|`]+ \|$", page, re.MULTILINE)
    assert rows == re.findall(r'inconclusive\(\s*"([\w ]+)"', inspect.getsource(verdict))


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("how-it-measures", f"| {MODERATE_SHARE:.0%} and over | moderately input-bound |"),
        ("how-it-measures", f"| {HIGH_SHARE:.0%} and over | highly input-bound |"),
        ("howto/ci-gate", f'It is "Slower" if the whole CI is under {1 - LEAST_CHANGE:.2f}, '),
        ("howto/ci-gate", f'"Faster" if above {1 + LEAST_CHANGE:.2f}, "As fast" if within '),
        ("howto/ci-gate", f"within {1 - EQUAL_WITHIN:.2f} to {1 + EQUAL_WITHIN:.2f}"),
        ("inside-the-loader", f"busy {BUSY:.0%} of the time or more is the bottleneck"),
        ("inside-the-loader", f"took over {SLOW_SAMPLE:g} times the typical sample"),
    ],
)
def test_thresholds_are_those_of_the_code(page: str, said: str) -> None:
    assert said in text_of(page)


@pytest.mark.parametrize(("page", "tables"), [("inside-the-loader", 2), ("what-if", 1)])
def test_what_is_shown_is_what_the_commands_print(page: str, tables: int) -> None:
    """Among the rest."""
    shown = zip(blocks(page, "console"), blocks(page, "text")[:tables], strict=True)
    assert all(table in printed(command) for command, table in shown)


# reference.md


def test_the_examples_of_the_reference_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, with a loader and a step."""
    dataset: Any = torch.zeros(480, 4)
    names: dict[str, Any] = {
        "DataLoader": DataLoader,
        "dataset": dataset,
        "dataloader": DataLoader(dataset, batch_size=8),
        "step": lambda _batch: None,
        "torch": torch,
    }
    for block in blocks("reference", "python"):
        exec(block, names)
    assert names["found"].actions
    assert "not-there.jsonl" in capsys.readouterr().out


# what-if.md


def test_python_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("what-if", "python")[0], {})
    said = capsys.readouterr().out
    assert re.fullmatch(r"1\.\d\d to [12]\.\d\d, then the \w[\w ]+\n", said)


def test_python_tunes(capsys: pytest.CaptureFixture[str]) -> None:
    """A loader of which a batch takes 40 ms of its clock, divided by its workers."""
    clock = FakeClock()

    def make_loader(num_workers: int) -> ScriptedLoader:
        return ScriptedLoader([torch.ones(4)] * 50, [40_000_000 // num_workers] * 50, clock)

    names: dict[str, Any] = {
        "make_loader": make_loader,
        "step": lambda _batch: clock.advance(10_000_000),
        "tune": partial(tune, clock=clock),
    }
    exec(blocks("what-if", "python")[1].replace("from loadeval import tune\n", ""), names)
    assert "num_workers=4" in capsys.readouterr().out
    assert len(names["loader"]) == 50


# adapters.md


def test_a_callable_serves_every_epoch() -> None:
    """The document's generator function is called anew for each."""
    Path("records.bin").write_bytes(bytes(100_000))
    (block,) = (block for block in blocks("adapters", "python") if "def blocks():" in block)
    scope: dict[str, LoaderEvaluator] = {}
    exec(block, scope)
    batches = np.bincount(scope["loader"].recorded().steps.epoch).tolist()
    assert batches == [-(-100_000 // 4096)] * 3


def test_every_method_of_an_adapter_is_named() -> None:
    """Under what is overridden when."""
    section = text_of("adapters").split("\n## What to override\n")[1].split("\n## ")[0]
    for name, method in vars(Adapter).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert f"`{name}`" in section


def test_every_adapter_of_loadevals_is_in_the_table() -> None:
    (table,) = re.findall(r"(?ms)^\| module of.*?\n\n", text_of("adapters"))
    rows = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(own_adapters())


# export.md


def test_what_is_exported_is_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Its files, the columns that are shown, in order, and its code for pandas."""
    small_run(probes=())
    Path("spdl.jsonl").unlink()
    for line in "".join(blocks("export", "sh")).splitlines():
        if line.startswith("loadeval "):
            printed(line)
    named = re.findall(r"^\| [^|]* \| ([^|]*) \|$", text_of("export"), re.MULTILINE)
    files = {name for cell in named for name in re.findall(r"`(run[-.][\w.-]+)/?`", cell)}
    assert len(files) == 1 + 3
    assert {path.name for path in Path.cwd().iterdir()} == files
    shown = [block.strip().split(",") for block in blocks("export", "text")]
    assert shown == [columns_of(name) for name in ("run.csv", "run-readings.csv")]
    scope: dict[str, Any] = {}
    exec(blocks("export", "python")[0], scope)
    assert scope["per_epoch"]["wait_ns"].tolist() == [80e-9, 80e-9, 30e-9]
    assert "wait_ns" in capsys.readouterr().out


def test_the_columns_of_the_third_table_are_fields_of_stages() -> None:
    """All but the lists by transform."""
    printed("loadeval export run.jsonl --format csv")
    fields = set(StageTimes.__struct_fields__) - set(StageTimes.BY_NAME)
    assert set(columns_of("run-stages.csv")) == fields


def columns_of(path: str) -> list[str]:
    return Path(path).read_text().partition("\n")[0].split(",")
