"""docs/json.md and its schema are those of the types, and what `--json` prints is valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.json_page import MARK, PAGE, SCHEMA, page, whole_schema
from tests.cli.commands import runner
from tests.recordings import RECORDED, laid_out

WRITTEN: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
"""The schema as it is in docs."""


def validator(command: str) -> Draft202012Validator:
    """What checks the JSON of a command."""
    return Draft202012Validator({"$defs": WRITTEN["$defs"], "$ref": f"#/$defs/{command}"})


def test_the_page_and_the_schema_are_those_of_the_types() -> None:
    """`make golden` writes them."""
    schema = whole_schema()
    assert schema == WRITTEN
    assert PAGE.read_text(encoding="utf-8").partition(f"{MARK}\n\n")[2] == page(schema)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(WRITTEN)


@pytest.mark.parametrize("command", ["compare"])
@pytest.mark.parametrize("name", RECORDED)
def test_what_is_printed_of_a_recorded_run_is_valid(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is there, and no other."""
    runs = laid_out(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = runner(command)(*runs, "--json")
    assert code == 0 or (out, command) == ("", "whatif"), err
    if not code:
        validator(command).validate(json.loads(out))
