"""Writes docs/json.md, docs/json.schema.json and docs/run-log.md, from the types of what they show.

What stands above MARK in a page is written by hand. The rest of json.md are the types that
`as_json` is given, with their docstrings, and what it makes of a recorded run; of run-log.md the
lines of a log, and the metrics of the probes.
"""

import inspect
import json
import re
from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from loadeval.attach.observe import Attached
from loadeval.core.cuda import Copies
from loadeval.data.columns import Columns
from loadeval.data.lines import Header, Line
from loadeval.data.log import read_run
from loadeval.data.run import Run
from loadeval.doctor import Check
from loadeval.estimate.before_after import BeforeAfter, Difference
from loadeval.estimate.stats import Estimate
from loadeval.estimate.steady import epochs, outliers
from loadeval.inside.code import step_lines
from loadeval.job import Job
from loadeval.probes.gpu import GPUProbe
from loadeval.probes.host import HostProbe
from loadeval.probes.threads import PythonLockProbe, ThreadsProbe
from loadeval.report.as_json import KEPT, as_json
from loadeval.report.build import Result, result_of
from loadeval.report.whatif import WhatIf
from loadeval.tuning import Tuning
from tests.recordings import laid_out
from tests.whole_outputs import written

Schema: TypeAlias = dict[str, Any]
NAMED: dict[str, type] = {}
"""The types that were met, by their names."""

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
SCHEMA = PAGE.with_name("json.schema.json")
LOG_PAGE = PAGE.with_name("run-log.md")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
MARK = "<!-- `make golden` writes what follows. -->"
EXAMPLE = "before-demo"
DIGITS = 6
LONGEST = 2
"""Of longer lists the example has the first items."""


class TwoRuns(TypedDict):
    """A run, `now`, against one of the same loader `before` it."""

    before_after: BeforeAfter
    before: Result
    now: Result


class Ranks(TypedDict):
    """The ranks of a job, and the `result` of the job as one run."""

    job: Job
    result: Result


class Measured(TypedDict):
    """Samples per second with so many workers, as a run measured them."""

    num_workers: int
    throughput: Estimate


class Predictions(TypedDict):
    """What was `measured`, and `predicted` for each number of workers: `best` are enough.

    `with_options` is what is predicted with the settings that were given. `cpus` are those that
    training and its workers share, of which others use `others_cpus`.
    """

    measured: Sequence[Measured]
    predicted: Sequence[WhatIf]
    best: WhatIf
    with_options: WhatIf | None
    unit: str
    cpus: float | None
    others_cpus: float


class Trainings(TypedDict):
    """The trainings that were looked at."""

    trainings: Sequence[Attached]


class Backends(TypedDict):
    """Several backends under one training step, by name; throughput is in `unit` per second.

    `memory_bytes` is what training and workers take together. `differences` are between the fastest
    and each other. `failed` says of others what their loaders raised, and `unequal` and
    `cautions` what makes them less comparable.
    """

    unit: str
    backends: Mapping[str, Result]
    memory_bytes: Mapping[str, float | None]
    differences: Sequence[Difference]
    failed: Mapping[str, str]
    unequal: Sequence[str]
    cautions: Sequence[str]


class Recipes(TypedDict):
    """Recipes under one step, and the `fastest`; None where none was measured.

    `pixels_differ` is the mean difference from the pixels of the reference, of 255 levels, and
    `left_out` says which recipes were not tried, and why.
    """

    fastest: str | None
    comparison: Backends
    pixels_differ: Mapping[str, float]
    left_out: Sequence[str]


class Checkup(TypedDict):
    """Whether nothing is to be changed, each check, and the machine."""

    ok: bool
    checks: Sequence[Check]
    machine: dict[str, Any]


COMMANDS: dict[str, dict[str, type]] = {
    "compare": {
        "one run, or real and ideal loading": Result,
        "two runs of one loader, before and after": TwoRuns,
        "several backends": Backends,
        "the ranks of a job": Ranks,
    },
    "whatif": {"a run": Predictions},
    "tune": {"a program": Tuning},
    "watch": {"a run": Result, "the ranks of a job": Ranks},
    "attach": {"trainings": Trainings},
    "backends": {"a folder of images": Recipes},
    "doctor": {"this machine": Checkup},
}
"""What each command prints, by what it is given."""
PROBES: dict[str, type] = {
    "Of the probe `gpu`": GPUProbe,
    "Of the probe `copies`": Copies,
    "Of the probe `host`": HostProbe,
    "Of the probe `threads`": ThreadsProbe,
    "Of the probe `threads`, subject `python lock`": PythonLockProbe,
}
TABLES = {"epochs": epochs, "outliers": outliers, "step": step_lines}
"""What makes the columns under a key; its docstring tells of them."""
OF_TEXTS = ("place", "call")
"""Columns of texts; all others are of numbers."""
TEXTS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": ["number", "null"]}}
NS_A_BATCH = (
    *("real", "ideal", "loader_only", "waiting", "contention", "starts", "lost", "whole"),
    *("real_wait", "real_step", "ideal_wait", "gpu_idle"),
)
UNITS = {
    **dict.fromkeys(NS_A_BATCH, "ns a batch"),
    **dict.fromkeys(("speedup", "ratio", "judged", "required", "typical"), "times"),
    "ns": "ns",
    "per_s": "a second",
    "s": "s",
    "bytes": "bytes",
    "hour": "bytes an hour",
    "ppm": "ppm",
    "cores": "CPUs",
}
"""Of a number, by how its name ends: the first that fits."""
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}


def schema_of(kind: Any, types: dict[str, Schema]) -> Schema:  # noqa: C901, PLR0911 - a line for each kind
    """The JSON Schema of what `as_json` makes of a type; objects go into `types`, by their names.

    Raises TypeError for what is none of a result's types.
    """
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if kind in (Any, object):
        return {}
    if isinstance(kind, type) and (fields := fields_of(kind)):
        if NAMED.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"two types are called {kind.__name__}")
        if kind.__name__ not in types:
            types[kind.__name__] = {}  # it may have itself in it
            keys = {
                key: referring_to(key) if each is Columns else schema_of(each, types)
                for key, each in fields.items()
            }
            types[kind.__name__] = object_of(keys, kind)
        return referring_to(kind.__name__)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is NoneType or origin is abc.Callable:
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        schemas = [schema_of(each, types) for each in arguments]
        if all(set(each) == {"type"} for each in schemas):
            return {"type": [each["type"] for each in schemas]}
        return {"anyOf": schemas}
    if origin is tuple and arguments[-1] is not ...:
        return {"type": "array", "prefixItems": [schema_of(each, types) for each in arguments]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], types)}
    if origin is not None and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(arguments[0], types)}
    raise TypeError(f"{kind} has no schema")


def fields_of(kind: type) -> dict[str, Any]:
    """The type of each key that `as_json` makes of a type; empty of what is no object."""
    if kind is Run:
        of_run = {**get_type_hints(Run), "batches": int}
        kept = {name: of_run[name] for name in ("batches", *KEPT)}
        return {"path": of_run["path"], **fields_of(Header), **kept}
    names: Sequence[str] = getattr(kind, "_fields", ())
    if is_dataclass(kind):
        names = list(kind.__dataclass_fields__)
    elif issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    elif hasattr(kind, "__total__"):
        names = list(kind.__annotations__)
    hints = get_type_hints(kind) if names else {}
    return {name: hints[name] for name in names}


def object_of(keys: Mapping[str, Schema], told_by: object) -> Schema:
    """An object with all of these keys and no others."""
    text, meanings = docstring_of(told_by)
    described = {name: {"description": meaning} for name, meaning in meanings.items()}
    return {
        "description": text,
        "type": "object",
        "properties": {name: {**keys[name], **described.get(name, {})} for name in keys},
        "required": list(keys),
        "additionalProperties": False,
    }


def docstring_of(documented: object) -> tuple[str, dict[str, str]]:
    """The paragraphs of a docstring, and what it says of each attribute."""
    text, _, attributes = (inspect.getdoc(documented) or "").partition("\n\nAttributes:\n")
    said = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    paragraphs = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    return paragraphs, {name: " ".join(text.split()).removesuffix(".") for name, text in said}


def referring_to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def whole_schema() -> Schema:
    """That of all commands, under their names, and of all types in what they print."""
    run = example_run()
    types = {
        key: object_of(
            {name: TEXTS if name in OF_TEXTS else NUMBERS for name in make(run).names}, make
        )
        for key, make in TABLES.items()
    }
    commands = {
        command: {"anyOf": [schema_of(kind, types) for kind in kinds.values()]}
        for command, kinds in COMMANDS.items()
    }
    return {
        "$schema": DRAFT,
        "title": "What loadeval prints with --json",
        "anyOf": [referring_to(command) for command in commands],
        "$defs": {**commands, **types},
    }


def in_words(schema: Schema) -> str:  # noqa: PLR0911 - a line for each kind
    """A type as the page has it, with a link to where its keys are."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(in_words, schema["anyOf"])))
    if "prefixItems" in schema:
        return f"list: {', '.join(map(in_words, schema['prefixItems']))}"
    if "items" in schema:
        items = in_words(schema["items"])
        return f"list of ({items})" if " or " in items else f"list of {items}"
    if "additionalProperties" in schema:
        return f"object of {in_words(schema['additionalProperties'])}"
    kinds = schema.get("type", "any")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def unit_of(key: str, schema: Schema) -> str:
    """What a number under this key is counted in; "" where its name or its type does not tell."""
    words = in_words(schema)
    is_number = any(each in words for each in ("number", "integer", "Estimate"))
    if not is_number:
        return ""
    return next((unit for end, unit in UNITS.items() if f"_{key}".endswith(f"_{end}")), "")


def example_run() -> Run:
    """The recorded run of the example, without the folder that it was read from."""
    with TemporaryDirectory() as folder:
        (log,) = laid_out(EXAMPLE, Path(folder))
        return replace(read_run(Path(folder) / log), path=Path(log))


def in_short(content: Any) -> Any:
    """The beginning of lists, and numbers of few digits."""
    if isinstance(content, dict):
        return {key: in_short(value) for key, value in content.items()}
    if isinstance(content, list):
        return list(map(in_short, content[:LONGEST]))
    return float(f"{content:.{DIGITS}g}") if isinstance(content, float) else content


def table(*rows: Sequence[str]) -> str:
    """A table whose first row is its head, without the columns in which nothing is."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    head, *lines = (f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    return "\n".join((head, "|---" * len(columns) + "|", *lines))


def page(schema: Schema) -> str:
    """What follows MARK: what each command prints, the types, and the example."""
    types = schema["$defs"]
    rows = [
        (f"`{command}`", given, f"[{kind.__name__}](#{kind.__name__.lower()})")
        for command, kinds in COMMANDS.items()
        for given, kind in kinds.items()
    ]
    parts = ["## Commands", table(("command", "of", "prints"), *rows), "## Types"]
    for name in sorted(types.keys() - COMMANDS.keys(), key=str.lower):
        keys = [
            (f"`{key}`", in_words(each), unit_of(key, each), each.get("description", ""))
            for key, each in types[name]["properties"].items()
        ]
        shown = table(("key", "type", "unit", "meaning"), *keys)
        parts += [f"### {name}", types[name]["description"], shown]
    example = written(in_short(as_json(result_of(example_run()))))
    parts += [
        "## Example",
        (
            f"What `compare` prints of one run, with {LONGEST} items of each list at most, and "
            f"numbers of {DIGITS} digits:"
        ),
        f"```json\n{example}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def log_page() -> str:
    """What follows MARK in the page of the run log: the fields of each line, and the metrics."""
    types: dict[str, Schema] = {}
    for kind in get_args(Line):
        schema_of(kind, types)
    parts = ["## Fields"]
    for name, schema in types.items():
        kind = NAMED[name]
        defaults = inspect.signature(kind).parameters
        fields = [
            (f"`{key}`", in_words(each), left_out(defaults[key]), each.get("description", ""))
            for key, each in schema["properties"].items()
        ]
        title = f"`{kind.__struct_config__.tag}`" if issubclass(kind, msgspec.Struct) else name
        shown = table(("field", "type", "if left out", "meaning"), *fields)
        parts += [f"### {title}", schema["description"], shown]
    parts.append("## Metrics")
    for title, probe in PROBES.items():
        parts += [f"### {title}", docstring_of(probe)[0]]
    return "\n\n".join(parts) + "\n"


def left_out(field: inspect.Parameter) -> str:
    """What a field is that a line does not have; "" of one that every line has."""
    if field.default is field.empty:
        return ""
    is_plain = field.default is None or isinstance(field.default, str | int)
    return f"`{json.dumps(field.default)}`" if is_plain else "empty"


def main() -> None:
    schema = whole_schema()
    SCHEMA.write_text(written(schema) + "\n", encoding="utf-8")
    for path, made in ((PAGE, page(schema)), (LOG_PAGE, log_page())):
        by_hand = path.read_text(encoding="utf-8").partition(MARK)[0]
        path.write_text(f"{by_hand}{MARK}\n\n{made}", encoding="utf-8")


if __name__ == "__main__":
    main()
