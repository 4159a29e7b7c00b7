"""The skill for agents names commands, options and JSON keys that exist; its evaluations are so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from loadeval.cli.main import COMMANDS, app
from tests.cli.commands import runner
from tests.launch.conftest import ran

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "loadeval"
_, FRONT, PAGE = (SKILL / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
DEFINITIONS = json.loads((ROOT / "docs" / "json.schema.json").read_text(encoding="utf-8"))["$defs"]
EVALUATIONS = sorted((SKILL / "evaluations").glob("*.json"))
LONGEST_DESCRIPTION = 1024
"""What agents read of a skill."""


def below(schema: dict[str, Any], keys: list[str]) -> Iterator[dict[str, Any]]:
    """The schemas that `schema` has under keys, of each item where it is of a list."""
    if "$ref" in schema:
        schema = DEFINITIONS[schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", ()):
        yield from below(one, keys)
    if "items" in schema:
        yield from below(schema["items"], keys)
    elif not keys:
        yield schema
    elif keys[0] in schema.get("properties", ()):
        yield from below(schema["properties"][keys[0]], keys[1:])


def test_agents_can_read_its_front_matter() -> None:
    front = dict(line.split(": ", 1) for line in FRONT.splitlines())
    assert list(front) == ["name", "description"]
    assert front["name"] == SKILL.name
    assert len(front["description"]) <= LONGEST_DESCRIPTION


def test_its_commands_and_their_options_exist() -> None:
    commands = re.findall(r"\bloadeval ([a-z]+)((?: (?:[\w.]+|--\w[\w-]*))*)", PAGE)
    commands = [(name, words) for name, words in commands if name in COMMANDS or "--" in words]
    assert {name for name, _ in commands} == {"attach", "compare", "diagnose"}
    group: Any = typer.main.get_command(app)
    for name, words in commands:
        options = {each for one in group.get_command(None, name).params for each in one.opts}
        assert set(re.findall(r"--\w[\w-]*", words)) <= options, name


def test_its_keys_are_in_the_schema() -> None:
    """Those of a run, and of one before and after a change."""
    keys = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", PAGE))
    keys |= {"cautions", "not_measured", "now", "result"}
    keys |= {f"gap.speedup.{part}" for part in ("value", "low", "high")}
    assert len(keys) > 20
    for key in keys:
        assert list(below(DEFINITIONS["compare"], key.split("."))), key


def test_its_paces_are_those_of_the_code() -> None:
    paces = re.search(r'`before_after.pace` is "(\w+)", "(\w+)", "(\w+)" or "(\w+)"', PAGE)
    assert paces
    (schema,) = below(DEFINITIONS["compare"], ["before_after", "pace"])
    assert set(paces.groups()) == set(schema["enum"])


@pytest.mark.parametrize("path", EVALUATIONS, ids=lambda path: path.stem)
def test_an_evaluation_has_its_program(path: Path) -> None:
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    assert list(evaluation) == ["skills", "query", "files", "expected_behavior"]
    assert evaluation["skills"] == [SKILL.name]
    assert evaluation["files"] == [f"{path.stem}.py"]
    assert path.with_suffix(".py").exists()


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("starved", "ighly input-bound: "),
        ("compute_bound", " (Not (to \\w+ )?input-bound|Inconclusive): "),
        ("inference", " No training was seen: "),
    ],
)
def test_an_evaluation_is_what_its_answer_says(name: str, says: str, tmp_path: Path) -> None:
    """On a busy machine too, where what is not lost may be left open."""
    program = SKILL / "evaluations" / f"{name}.py"
    done = ran(tmp_path, "diagnose", "--output", "before", "--", "python", program)
    assert done.returncode == 0, done.stderr
    assert re.search(says, " ".join(done.stderr.split()))
    if name == "starved":
        code, out, err = runner("compare")(tmp_path / "before", "--json")
        assert code == 0, err
        first = json.loads(out)["diagnosis"]["actions"][0]
        assert (first["setting"], first["present"]) == ("num_workers", 0)
