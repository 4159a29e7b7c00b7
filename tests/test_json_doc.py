"""docs/json.md has every key that `--json` prints, its type, and whether it may be null."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from loadeval import compare_backends, read_run
from loadeval.analysis.estimate.memory import Growth, GrowthReason
from loadeval.analysis.estimate.metrics import Level, Quantity
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.live import Outlier
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import (
    Advice,
    Caveat,
    Fact,
    Finding,
    Place,
    Problem,
    Rule,
)
from loadeval.cli.main import app
from loadeval.data.lines import Event
from loadeval.probes.gpu import Driver
from loadeval.report.json import finding_as_dict, growth_as_dict
from loadeval.tuning import Trial, Tuning
from tests.runs import DALI, SPDL
from tests.runs.given import MS, save_metrics, write_run
from tests.runs.measured import record, record_texts
from tests.runs.ranks import runs_of, train, train_in_pairs
from tests.runs.staged import staged
from tests.runs.tables import replace

PAGE = (Path(__file__).parents[1] / "docs" / "json.md").read_text(encoding="utf-8")
PLAIN: dict[str, Any] = {
    "text": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "text, number or boolean": (str, int, float, bool),
}
COMMANDS = (
    *("`compare`", "`compare` of several backends", "`whatif`", "`tune`", "`watch`"),
    *("`attach`", "`backends`", "`doctor`"),
)
IN_A_CONTAINER = "in "
"""How a null is described that stands in a list or an object of plain values."""


class Key(NamedTuple):
    """A row of a table: the key's type, and when it is null."""

    kind: str
    null: str

    @property
    def may_be_absent(self) -> bool:
        return self.null.startswith("absent")


def schema() -> dict[str, dict[str, Key]]:
    """The keys of each object, by the heading above its table."""
    tables = {}
    for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
        if rows:
            tables[title] = {key: Key(kind, null) for key, kind, null in rows}
    return tables


SCHEMA = schema()
SECTIONS = {"compare-of-several-backends": "`compare` of several backends"}
"""Anchors of sections that are named otherwise."""


def check(value: Any, title: str, where: str = "") -> None:
    """The object `value` has the keys under `title` and no others, and each is of its type."""
    keys = SCHEMA[title]
    needed = {name for name, key in keys.items() if not key.may_be_absent}
    assert needed <= set(value) <= set(keys), (where or title, needed ^ set(value))
    for name, item in value.items():
        check_value(item, keys[name].kind, keys[name].null, f"{where or title}.{name}")


def check_value(value: Any, kind: str, null: str, where: str) -> None:
    container, _, inner = kind.rpartition(" of ")
    if value is None:
        assert null != "never", where
    elif container:
        assert isinstance(value, list if container == "list" else dict), where
        inner_null = null if null.startswith(IN_A_CONTAINER) else "never"
        for item in value if isinstance(value, list) else value.values():
            check_value(item, inner, inner_null, f"{where}[]")
    elif kind == "any":
        assert isinstance(value, (str, int, float)), where
    elif kind in PLAIN:
        assert isinstance(value, PLAIN[kind]), where
        assert "boolean" in kind or not isinstance(value, bool), where
    else:
        match = re.fullmatch(r"\[\w+\]\(#([\w-]+)\)", kind)
        assert match, where
        check(value, SECTIONS.get(match[1], match[1]), where)


def printed(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code in codes, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each mode, and one of no batch at all."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {
        mode: record_texts(folder / f"{mode}.jsonl", mode)
        for mode in ("log", "replay", "alternate")
    }
    paths["empty"] = record(folder / "empty.jsonl", batches=1, batch="text")
    paths["without"] = folder / "without.json"
    save_metrics(read_run(paths["empty"]), paths["without"])
    for name, workers in (("staged", 2), ("in process", 0)):
        paths[name] = write_run(staged(name=name, workers=workers), folder / f"{name}.jsonl")
    return paths | {"spdl": SPDL, "dali": DALI}


def test_the_commands_have_their_tables() -> None:
    """Each command that has --json has one, and the page shows a command for each."""
    assert set(COMMANDS) <= set(SCHEMA)
    shown = re.findall(r"^\$ loadeval (\w+) .*--json(?: -- .*)?$", PAGE, re.MULTILINE)
    assert set(shown) == {
        *("compare", "whatif", "tune", "watch", "attach", "backends", "doctor"),
    }


def test_every_table_is_of_an_object_that_is_named() -> None:
    """No table is left of what is printed no more."""
    named = set(re.findall(r"\[(\w+)\]\(#\w+\)", PAGE))
    assert set(SCHEMA) == {*COMMANDS, *named}


@pytest.mark.parametrize("name", ["log", "empty", "without"])
def test_compare_of_one_run(runs: dict[str, Path], name: str) -> None:
    """The figures of a run that logged, and of one that has none."""
    check(printed("compare", runs[name]), "run")


@pytest.mark.parametrize(
    "names", [("alternate",), ("staged",), ("spdl",), ("log", "replay"), ("empty", "replay")]
)
def test_compare(runs: dict[str, Path], names: tuple[str, ...]) -> None:
    """One run, two runs, and two of which one has nothing steady."""
    output = printed("compare", *(runs[name] for name in names))
    check(output, "`compare`")


@pytest.mark.parametrize(
    "names",
    [
        ("log", "alternate"),
        ("empty", "alternate"),
        ("staged", "in process", "log"),
        ("spdl", "dali"),
    ],
)
def test_compare_of_several_backends(runs: dict[str, Path], names: tuple[str, ...]) -> None:
    """One that logged, one that alternated, and one without a pace."""
    check(printed("compare", *(runs[name] for name in names)), "`compare` of several backends")


@pytest.mark.parametrize("title", ["run", "`compare`"])
def test_the_ranks_of_a_job(tmp_path: Path, title: str) -> None:
    """They are shown as a run and as a comparison, with a straggler and without batches."""
    wait_ns = np.zeros((3, 160), np.int64)
    wait_ns[1, ::2] = 30 * MS
    training = train(wait_ns)
    more: dict[str, Any] = {}
    if title != "run":
        training, arm, pair = train_in_pairs(wait_ns)
        more = {"arm": arm, "pair": pair}
    for variant in (training, train(wait_ns[:, :1])):
        folder = tmp_path / f"{variant.wait_ns.shape[1]}"
        folder.mkdir()
        for run in runs_of(variant, **(more if variant is training else {})):
            write_run(run, folder / f"{run.header.name}.jsonl")
        check(printed("compare", folder), title if variant is training else "run")


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ("log", "empty", "run"),
        ("empty", "log", "run"),
        ("alternate", "other", "`compare`"),
    ],
)
def test_a_baseline(
    runs: dict[str, Path], before: str, after: str, title: str, tmp_path: Path
) -> None:
    """Of a run without an ideal arm, of one that has nothing steady, and of one that alternated."""
    runs = {**runs, "other": record(tmp_path / "other.jsonl", "alternate", epochs=4)}
    output = printed("compare", runs[before], runs[after])
    check(output, title)
    assert "baseline" in output


def test_a_comparison_in_python_has_the_same_keys() -> None:
    """Some backends were measured, and one failed before it had a run."""

    def fails() -> Any:
        raise OSError("no such device")

    batches = [[number] for number in range(60)]
    result = compare_backends(
        {"one": batches, "other": fails}, len, batches=24, rounds=3, probes=()
    )
    document = json.loads(json.dumps(result.as_dict()))
    check(document, "`compare` of several backends")
    assert document["backends"][1]["error"]


@pytest.mark.parametrize(
    "arguments",
    [("staged",), ("staged", "--num-workers", "4"), ("in process", "--faster", "GaussianBlur=2")],
)
def test_whatif(runs: dict[str, Path], arguments: tuple[str, ...]) -> None:
    """Over the number of workers, and with options too."""
    name, *options = arguments
    output = printed("whatif", runs[name], *options)
    check(output, "`whatif`")
    assert (output["with_options"] is not None) is bool(options)


def test_tune() -> None:
    """Settings that were measured and predicted, that failed, and the present ones."""
    present, error = Trial({}, throughput=9.0), "OSError: gone"
    faster = Trial({"num_workers": 2}, Estimate(1.9, 1.8, 2.0), 18.0, Estimate(2.0, 1.9, 2.1))
    failed = Trial({"prefetch_factor": 4}, error=error)
    tuning = Tuning(
        trials=(present, faster, failed),
        chosen=faster,
        best={"num_workers": 2, "multiprocessing_context": "spawn"},
        arguments={"num_workers": 2},
        present={"num_workers": 1, "prefetch_factor": None},
        unit="samples",
        made_at="train.py:48",
        notes=(error,),
    )
    check(json.loads(json.dumps(asdict(tuning))), "`tune`")
    check(json.loads(json.dumps(asdict(replace(tuning, made_at=None)))), "`tune`")


@pytest.mark.parametrize("name", ["log", "alternate", "empty"])
def test_watch(runs: dict[str, Path], name: str) -> None:
    """How a run stands, and one that has no batch that counts."""
    check(printed("watch", runs[name], "--once"), "`watch`")


def test_a_batch_that_is_watched() -> None:
    """One that took long."""
    check(asdict(Outlier(0, 3, 10, 20, 30)), "outlier")


def test_a_quantity() -> None:
    """The difference between its arms is included."""
    quantity = Quantity("gpu", "GPU 0", "power_watts", Level(2, 1.0, 1.0, 1.5), None)
    check({**asdict(quantity), "difference": quantity.difference}, "quantity")


def test_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some were measured; or none was, and there is no code."""

    def fails() -> Any:
        raise OSError("no such device")

    (tmp_path / "1.jpg").touch()
    for loader, fastest in (([[number] for number in range(60)], "pillow"), (fails, None)):
        comparison = compare_backends({"pillow": loader}, len, batches=24, rounds=3, probes=())
        outcome = (comparison, {"pillow": 0.0}, ["dali is not installed"])
        monkeypatch.setattr("loadeval.cli.backends.compare_recipes", lambda *_, o=outcome, **__: o)
        document = printed("backends", tmp_path)
        check(document, "`backends`")
        assert document["fastest"] == fastest


def test_doctor() -> None:
    """What was checked, and the machine."""
    check(printed("doctor", codes=(0, 1)), "`doctor`")


@pytest.mark.parametrize(
    ("value", "title"),
    [
        (Driver("550.1", (12, 4), ("NVIDIA H100",), (None,)), "driver"),
        (
            finding_as_dict(
                Finding(
                    Rule.HIDDEN_WAITS,
                    "low",
                    "likely",
                    Remark(Problem.WAITS_HIDDEN, {"wait_ns": 2, "gpu_idle_ns": 1}),
                    (Remark(Advice.KEEP_LOADER),),
                    (Fact("wait", 1.0, "ns"),),
                    0.1,
                    (Place(0, 0, 0, 0, 1),),
                    Remark(Caveat.RUNS_TOO_SHORT),
                )
            ),
            "finding",
        ),
        (msgspec.structs.asdict(Event(0, "the disk is full")), "event"),
        (
            growth_as_dict(Growth("process", None, None, None, Remark(GrowthReason.NO_LIMIT))),
            "growth",
        ),
    ],
)
def test_what_this_machine_does_not_have(value: Any, title: str) -> None:
    """A driver with a GPU, what was read of it, and memory that grows."""
    as_dict = value if isinstance(value, dict) else asdict(value)
    check(json.loads(json.dumps(as_dict)), title)
