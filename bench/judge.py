"""What instruments ask loadeval, and all that they expect of its JSON and of its logs.

An instrument stands outside: it uses public names, and reads what commands print. Where JSON gets
other keys, or lines of a log other fields, this file changes and no instrument does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

ROOT = Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "loadeval")
ALL_GONE = 0.99
"""What costs more of the time than this is counted as this."""


class JudgeError(Exception):
    """A command did not say what it was asked."""


def asked(command: str, *arguments: object) -> Any:
    """What a command prints as JSON, run as a user would. Raises JudgeError."""
    words = [*COMMAND, command, *map(str, arguments), "--json"]
    places = (str(ROOT), str(ROOT / "adapters"), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise JudgeError(f"loadeval {command} ended with {done.returncode}: {said}")
    return json.loads(done.stdout)


def estimate(content: dict[str, Any] | None) -> Estimate | None:
    """A value with its interval, or range; None where it is not known."""
    return None if content is None else Estimate(content["value"], content["low"], content["high"])


@dataclass(frozen=True)
class Advice:
    """One thing that a finding tells to do, which may be a `setting` of the loader to change."""

    says: str
    because: str
    where: str | None
    setting: str | None
    present: Any
    proposed: Any

    @classmethod
    def of(cls, content: dict[str, Any]) -> Advice:
        setting, present, proposed = map(content.get, ("setting", "present", "proposed"))
        says = content.get("says", f"{setting} {present} -> {proposed}")
        return cls(says, content["because"], content.get("where"), setting, present, proposed)


@dataclass(frozen=True)
class Finding:
    """What is wrong, what it costs of the time, and what shows it: `facts`, values by name."""

    rule: str
    says: str
    sure: bool
    cost: float | None
    do: tuple[Advice, ...]
    facts: dict[str, Any]

    @property
    def text(self) -> str:
        """All that is said of it."""
        advice = (part for each in self.do for part in (each.says, each.because, each.where))
        facts = (f"{name}: {value}" for name, value in self.facts.items())
        return "\n".join((self.says, *filter(None, advice), *facts))

    @property
    def cost_in_words(self) -> str:
        return "cost not known" if self.cost is None else f"{self.cost:.0%}"

    @property
    def speedup_without(self) -> float | None:
        """The speed-up if it cost nothing."""
        return None if self.cost is None else 1 / (1 - min(self.cost, ALL_GONE))

    def proposed(self, setting: str) -> list[Any]:
        """Every value that it tells to give a setting."""
        return [each.proposed for each in self.do if each.setting == setting]

    @classmethod
    def of(cls, content: dict[str, Any]) -> Finding:
        names = ("rule", "says", "sure", "cost")
        advice = tuple(map(Advice.of, content["do"]))
        return cls(*(content[name] for name in names), advice, content["facts"])


@dataclass(frozen=True)
class Action:
    """One thing to do; `speedup` is predicted with all before it, and `findings` ask for it.

    A `setting` changes from `present` to `proposed`, or a part becomes so many `times` as fast.
    """

    says: str
    where: str | None
    speedup: Estimate | None
    findings: tuple[str, ...]
    setting: str | None
    present: Any
    proposed: Any
    times: float | None

    @classmethod
    def of(cls, content: dict[str, Any]) -> Action:
        speedup, asked_by = estimate(content["speedup"]), tuple(content["findings"])
        names = ("setting", "present", "proposed", "times")
        changed = (content[name] for name in names)
        return cls(content["says"], content["where"], speedup, asked_by, *changed)


@dataclass(frozen=True)
class Stages:
    """What a loader's time goes to, in nanoseconds a batch; `basis` is what the total is."""

    basis: str
    total_ns: float
    charged_ns: float
    not_attributed_ns: float

    @classmethod
    def of(cls, content: dict[str, Any]) -> Stages:
        return cls(
            content["basis"],
            content["total_ns"],
            sum(stage["charged_ns"] for stage in content["stages"]),
            content["not_attributed_ns"],
        )


@dataclass(frozen=True)
class Said:
    """What `compare` says of a run, or of a real and an ideal one; None is not measured.

    `rules` are all that were asked, `readings` the means in the real and the ideal arm by subject
    and quantity, `missing` why probes read nothing, `ranks` those of a job, and `outliers` batches
    by their numbers.
    """

    findings: tuple[Finding, ...]
    rules: frozenset[str]
    actions: tuple[Action, ...]
    stages: Stages | None
    readings: dict[tuple[str, str], tuple[float | None, float | None]]
    missing: tuple[str, ...]
    ranks: tuple[int, ...]
    outliers: tuple[int, ...]
    verdict: str
    is_concluded: bool
    speedup: Estimate | None
    steady_speedup: Estimate | None
    real_ns: float | None
    ideal_ns: float | None
    loader_only_ns: float | None
    pairs: int | None

    @classmethod
    def of(cls, content: dict[str, Any]) -> Said:
        result = content.get("result", content)
        gap, diagnosis, verdict = (result[name] for name in ("gap", "diagnosis", "verdict"))
        stages, metrics = result["stages"], result["metrics"]
        findings = tuple(map(Finding.of, diagnosis["findings"]))
        found = {finding.rule for finding in findings}
        times = (gap[name] and gap[name]["value"] for name in ("real", "ideal", "loader_only"))
        return cls(
            findings,
            frozenset({*found, *diagnosis["nothing"], *diagnosis["skipped"]}),
            tuple(map(Action.of, diagnosis["actions"])),
            None if stages is None else Stages.of(stages),
            {
                (quantity["subject"], quantity["name"]): (
                    mean(quantity["real"]),
                    mean(quantity["ideal"]),
                )
                for quantity in metrics["quantities"]
            },
            tuple(reason for _, reason in metrics["missing"]),
            tuple(rank["rank"] for rank in content.get("job", {}).get("ranks", ())),
            tuple(result["outliers"]["batch"]),
            verdict["level"],
            verdict["rule"] == "concluded",
            estimate(gap["speedup"]),
            estimate(gap["steady_speedup"]),
            *times,
            gap["pairs"],
        )

    def finding(self, rule: str) -> Finding:
        """That of the rule. Raises KeyError where it found nothing."""
        return {finding.rule: finding for finding in self.findings}[rule]


def mean(level: dict[str, float] | None) -> float | None:
    return None if level is None else level["mean"]


def compared(*runs: Path) -> Said:
    """What `compare` says of them. Raises JudgeError."""
    return Said.of(asked("compare", *runs))


@dataclass(frozen=True)
class Pace:
    """Whether a run is slower than one before: a word; ratios of throughput, the later's first."""

    said: str
    epochs: Estimate | None
    steady: Estimate | None


def pace(before: Path, after: Path) -> Pace:
    """What `compare` says of two runs of one loader. Raises JudgeError."""
    content = asked("compare", before, after)["before_after"]
    ratios = (estimate(content[name]["ratio"]) for name in ("epochs", "steady"))
    return Pace(content["pace"], *ratios)


@dataclass(frozen=True)
class Backend:
    """What `compare` says of one of several backends: its throughput, and its speed-up."""

    name: str
    real: Estimate | None
    speedup: Estimate | None
    error: str | None


def backends(logs: Sequence[Path]) -> list[Backend]:
    """What `compare` says of the logs of several. Raises JudgeError."""
    content, found = asked("compare", *logs), []
    for name, result in content["backends"].items():
        real, speedup = result["throughput"].get("real"), result["gap"]["speedup"]
        found.append(Backend(name, estimate(real), estimate(speedup), None))
    return [*found, *(Backend(name, None, None, why) for name, why in content["failed"].items())]


@dataclass(frozen=True)
class Prediction:
    """Throughput under other settings, its ratio to that of the run, and what limits it."""

    throughput: Estimate
    speedup: Estimate
    limit: str


def predicted(log: Path, **settings: float | bool | None) -> Prediction:
    """What `whatif` predicts from a run under `settings`, named as its options are."""
    options: list[object] = []
    for name, value in settings.items():
        if name == "in_order" and value is not None:
            options.append("--in-order" if value else "--out-of-order")
        elif value is not None:
            options += [f"--{name.replace('_', '-')}", value]
    content = asked("whatif", log, *options)["with_options"]
    throughput, speedup = (estimate(content[name]) for name in ("throughput", "speedup"))
    assert throughput is not None
    assert speedup is not None
    return Prediction(throughput, speedup, content["limit"])


def batches_in(log: Path) -> int:
    """How many batches a log has so far, as `watch` counts them."""
    return int(asked("watch", log, "--once")["batches"])


@dataclass(frozen=True)
class Loader:
    """What a process of `loadeval run` says of one of its loaders, in a file beside the log."""

    log: Path
    role: str
    optimizer_steps: int


def loaders_in(folder: Path) -> list[Loader]:
    """Those of all processes."""
    return [
        Loader(folder / loader["log"], loader["role"], loader["optimizer_steps"])
        for path in sorted(folder.glob("rank*.json"))
        for loader in json.loads(path.read_text(encoding="utf-8"))["loaders"]
    ]


def lines_of(log: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The whole lines of that type, as docs/run-log.md describes them."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n") and f'"type":"{kind}"' in line:
                yield json.loads(line)


def page_faults(log: Path, arm: str) -> float | None:
    """Minor page faults per counted batch of an arm; None where they were not all counted."""
    blocks = [
        block
        for block in lines_of(log, "block")
        if block.get("pair") is not None and not block.get("instrumented")
    ]
    pairs = {block["pair"] for block in blocks}
    counted = sum(_size(block) for block in blocks if block["arm"] == arm)
    faults = [
        window["minor_faults"]
        for window in lines_of(log, "window")
        if window["arm"] == arm and window["pair"] in pairs
    ]
    return sum(faults) / counted if counted and None not in faults else None


def column(log: Path, name: str) -> npt.NDArray[np.float64]:
    """A column of all batches, in the order of the log; NaN where it is not known.

    Steps that are open are closed.
    """
    blocks = list(lines_of(log, "block"))
    if name == "gpu_idle_ns":
        return _gpu_idle_ns(log, blocks)
    values = _joined(blocks, name)
    if name == "step_ns":
        epoch = np.repeat([block["epoch"] for block in blocks], list(map(_size, blocks)))
        requests, waits = _joined(blocks, "request_ns"), _joined(blocks, "wait_ns")
        ends = {line["epoch"]: line["request_ns"] for line in lines_of(log, "epoch")}
        for number in np.unique(epoch):
            rows = np.flatnonzero(epoch == number)
            last = ends.get(number)
            following = np.append(requests[rows[1:]], np.nan if last is None else last)
            steps = following - requests[rows] - waits[rows]
            values[rows] = np.where(np.isnan(values[rows]), steps, values[rows])
    return values


def _size(block: dict[str, Any]) -> int:
    return len(block["wait_ns"])


def _joined(blocks: Iterable[dict[str, Any]], name: str) -> npt.NDArray[np.float64]:
    parts = [block[name] or [None] * _size(block) for block in blocks]
    return np.concatenate([np.array(part, dtype=np.float64) for part in (*parts, [])])


def _gpu_idle_ns(log: Path, blocks: Sequence[dict[str, Any]]) -> npt.NDArray[np.float64]:
    """Those of one epoch after the other, of a log whose epochs are not interleaved."""
    sizes: dict[int, int] = {}
    for block in blocks:
        sizes[block["epoch"]] = sizes.get(block["epoch"], 0) + _size(block)
    columns = {epoch: np.full(size, np.nan) for epoch, size in sizes.items()}
    for line in lines_of(log, "gpu_idle"):
        values = np.array(line["gpu_idle_ns"], dtype=np.float64)
        columns[line["epoch"]][line["first"] : line["first"] + len(values)] = values
    return np.concatenate([*columns.values(), []])
