"""Pages made from types are those of the types, and what `--json` prints is valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bench.json_page import LOG_PAGE, MARK, PAGE, SCHEMA, log_page, page, whole_schema
from loadeval import compare_backends
from loadeval.estimate.stats import Estimate
from loadeval.report.as_json import as_json
from loadeval.tuning import Trial, Tuning
from tests.attach.seen import half_waiting
from tests.cli.commands import runner
from tests.recordings import RECORDED, laid_out

WRITTEN: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
"""The schema as it is in docs."""


def validate(command: str, content: Any) -> None:
    """Check the JSON of a command."""
    schema = {"$defs": WRITTEN["$defs"], "$ref": f"#/$defs/{command}"}
    Draft202012Validator(schema).validate(content)


def test_the_page_and_the_schema_are_those_of_the_types() -> None:
    """`make golden` writes them."""
    schema = whole_schema()
    assert schema == WRITTEN
    assert PAGE.read_text(encoding="utf-8").partition(f"{MARK}\n\n")[2] == page(schema)


def test_the_page_of_the_run_log_is_that_of_its_lines() -> None:
    """`make golden` writes it."""
    assert LOG_PAGE.read_text(encoding="utf-8").partition(f"{MARK}\n\n")[2] == log_page()


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(WRITTEN)


@pytest.mark.parametrize("command", ["compare", "whatif"])
@pytest.mark.parametrize("name", RECORDED)
def test_what_is_printed_of_a_recorded_run_is_valid(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = laid_out(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = runner(command)(*runs, "--json")
    assert code == 0 or (out, command) == ("", "whatif"), err
    if not code:
        validate(command, json.loads(out))


@pytest.mark.parametrize("name", ["killed", "outliers", "process-memory", "ranks"])
def test_what_watch_prints_is_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = laid_out(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = runner("watch")(*runs, "--once", "--json")
    assert not code, err
    validate("watch", json.loads(out))


def test_what_doctor_prints_is_valid() -> None:
    _, out, _ = runner("doctor")("--json")
    validate("doctor", json.loads(out))


@pytest.mark.parametrize("machine", [{}, {"gpus": {"GPU 0": 71.5}, "quota_cores": 2.0}])
def test_what_attach_prints_is_valid(machine: dict[str, Any]) -> None:
    validate("attach", as_json({"trainings": [half_waiting(**machine)]}))


def test_what_tune_prints_is_valid() -> None:
    """Settings that were measured and predicted, that failed, and the present ones."""
    present, error = Trial({}, throughput=9.0), "OSError: gone"
    faster = Trial({"num_workers": 2}, Estimate(1.9, 1.8, 2.0), 18.0, Estimate(2.0, 1.9, 2.1))
    failed = Trial({"prefetch_factor": 4}, error=error)
    tuning = Tuning(
        trials=(present, faster, failed),
        chosen=faster,
        best={"num_workers": 2},
        arguments={"num_workers": 2},
        present={"num_workers": 1, "prefetch_factor": None},
        unit="samples",
        made_at="train.py:48",
        notes=(error,),
    )
    validate("tune", as_json(tuning))


def test_what_backends_prints_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some were measured; or none was, and there is no code."""

    def fails() -> Any:
        raise OSError("no such device")

    (tmp_path / "1.jpg").touch()
    for loader in ([[number] for number in range(60)], fails):
        comparison = compare_backends({"pillow": loader}, len, batches=24, rounds=3, probes=())
        outcome = (comparison, {"pillow": 0.0}, ["dali is not installed"])
        monkeypatch.setattr("loadeval.cli.backends.compare_recipes", lambda *_, o=outcome, **__: o)
        code, out, err = runner("backends")(tmp_path, "--json")
        assert not code, err
        validate("backends", json.loads(out))
