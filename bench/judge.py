"""What instruments ask loadeval, and all that they expect of its JSON and of its logs.

An instrument stands outside: it uses public names, and reads what commands print. Where JSON gets
other keys, or lines of a log other fields, this file changes and no instrument does.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from loadeval import Estimate, read_run

ROOT = Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "loadeval")
ALL_GONE = 0.99
"""What costs more of the time than this is counted as this."""
UNKNOWN = -1
"""As a run's steps have it."""


class JudgeError(Exception):
    """A command failed."""


def environment() -> dict[str, str]:
    """Of a process that finds loadeval, and is no rank of another job."""
    own = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    places = (str(ROOT), str(ROOT / "adapters"), own.get("PYTHONPATH", ""))
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def printed(*command: str, cwd: Path = ROOT, **variables: str) -> str:
    """What a command prints. Raises JudgeError."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise JudgeError(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout


def launched(logs: Path, program: Iterable[str], *options: str) -> str:
    """What a program prints under `loadeval run`, whose logs go into a folder."""
    run = (*COMMAND, "run", "--output", str(logs), *options, "--", sys.executable)
    return printed(*run, *program)


def asked(command: str, *arguments: object) -> Any:
    """What a command of loadeval prints as JSON."""
    return json.loads(printed(*COMMAND, command, *map(str, arguments), "--json"))


class Advice(msgspec.Struct, frozen=True):
    """One thing to do, which may be a `setting` of the loader to change."""

    says: str = ""
    because: str = ""
    where: str | None = None
    setting: str | None = None
    present: Any = None
    proposed: Any = None

    @property
    def text(self) -> str:
        says = self.says or f"{self.setting} {self.present} -> {self.proposed}"
        return "\n".join(filter(None, (says, self.because, self.where)))


class Finding(msgspec.Struct, frozen=True):
    """What is wrong, what it costs of the time, and what shows it: `facts`, values by name."""

    rule: str
    says: str
    cost: float | None
    do: list[Advice]
    facts: dict[str, Any]

    @property
    def text(self) -> str:
        """All that is said of it."""
        facts = (f"{name}: {value}" for name, value in self.facts.items())
        return "\n".join((self.says, *(each.text for each in self.do), *facts))

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


class Action(msgspec.Struct, frozen=True):
    """One thing to do; `speedup` is predicted with all before it, and `findings` ask for it.

    A `setting` becomes what is `proposed`, or a part becomes so many `times` as fast.
    """

    says: str
    where: str | None
    speedup: Estimate | None
    findings: list[str]
    setting: str | None
    proposed: Any
    times: float | None


class Gap(msgspec.Struct, frozen=True):
    """Times of a batch in nanoseconds, and the speed-up; None is not measured."""

    real: Estimate | None
    ideal: Estimate | None
    loader_only: Estimate | None
    speedup: Estimate | None
    steady_speedup: Estimate | None


@dataclass(frozen=True)
class Said:
    """What `compare` says of a run, or of a real and an ideal one.

    `rules` are all that were asked, `readings` the means in the real and the ideal arm by subject
    and quantity. `stages_ns` are, of a batch of the loader alone, all time, what stages are charged
    with, and what is not attributed.
    """

    gap: Gap
    findings: list[Finding]
    rules: frozenset[str]
    actions: list[Action]
    stages_ns: tuple[float, float, float] | None
    readings: dict[tuple[str, str], tuple[float | None, float | None]]
    verdict: str
    is_concluded: bool

    def finding(self, rule: str) -> Finding:
        """That of the rule. Raises KeyError where it found nothing."""
        return {finding.rule: finding for finding in self.findings}[rule]


def compared(*runs: Path) -> Said:
    """What `compare` says of them."""
    content = asked("compare", *runs)
    result = content.get("result", content)
    diagnosis, stages, verdict = result["diagnosis"], result["stages"], result["verdict"]
    findings = msgspec.convert(diagnosis["findings"], list[Finding])
    of_stages = None
    if stages is not None and stages["basis"] == "loader alone":
        charged_ns = sum(stage["charged_ns"] for stage in stages["stages"])
        of_stages = stages["total_ns"], charged_ns, stages["not_attributed_ns"]
    readings = {
        (each["subject"], each["name"]): (
            each["real"] and each["real"]["mean"],
            each["ideal"] and each["ideal"]["mean"],
        )
        for each in result["metrics"]["quantities"]
    }
    found = {finding.rule for finding in findings}
    return Said(
        msgspec.convert(result["gap"], Gap),
        findings,
        frozenset({*found, *diagnosis["nothing"], *diagnosis["skipped"]}),
        msgspec.convert(diagnosis["actions"], list[Action]),
        of_stages,
        readings,
        verdict["level"],
        verdict["rule"] == "concluded",
    )


def pace(before: Path, after: Path) -> tuple[str, Estimate | None]:
    """Whether a run is slower than one before, in a word, and the ratio of their throughput."""
    content = asked("compare", before, after)["before_after"]
    return content["pace"], msgspec.convert(content["epochs"]["ratio"], Estimate | None)


@dataclass(frozen=True)
class Backend:
    """What `compare` says of one of several backends: its throughput, and its speed-up."""

    name: str
    real: Estimate | None
    speedup: Estimate | None
    error: str | None


def backends(logs: Sequence[Path]) -> list[Backend]:
    content = asked("compare", *logs)
    found = [Backend(name, None, None, why) for name, why in content["failed"].items()]
    for name, result in content["backends"].items():
        real = msgspec.convert(result["throughput"].get("real"), Estimate | None)
        found.append(Backend(name, real, msgspec.convert(result["gap"], Gap).speedup, None))
    return found


def predicted(log: Path, workers: int, prefetch_factor: int, *, in_order: bool) -> Estimate:
    """The speed-up that `whatif` predicts from a run, under these settings."""
    order = "--in-order" if in_order else "--out-of-order"
    options = ("--num-workers", workers, "--prefetch-factor", prefetch_factor, order)
    return msgspec.convert(asked("whatif", log, *options)["with_options"]["speedup"], Estimate)


def batches_in(log: Path) -> int:
    """How many batches a log has, which may be too long to be read whole."""
    with log.open(encoding="utf-8") as lines:
        return sum(len(json.loads(line)["wait_ns"]) for line in lines if '"type":"block"' in line)


def page_faults(log: Path, arm: int) -> float | None:
    """Minor page faults per counted batch of the real arm, or the ideal one, 1, if all are known.

    Blocks with instruments do not count.
    """
    run = read_run(log)
    counted = (run.steps.pair != UNKNOWN) & (run.steps.instrumented == 0)
    pairs = set(run.steps.pair[counted].tolist())
    windows = (each for each in run.windows if each.pair in pairs)
    faults = [each.minor_faults for each in windows if each.arm == ("real", "ideal")[arm]]
    known = [count for count in faults if count is not None]
    batches = int((counted & (run.steps.arm == arm)).sum())
    return sum(known) / batches if batches and len(known) == len(faults) else None


def column(log: Path, name: str) -> npt.NDArray[np.float64]:
    """A column of all batches, epoch by epoch; NaN where it is not known."""
    values = read_run(log).steps[name]
    return np.where(values == UNKNOWN, np.nan, values)


@dataclass(frozen=True)
class Loader:
    """What a process of `loadeval run` says of one of its loaders, in a file beside the log."""

    log: Path
    role: str
    optimizer_steps: int


def loaders_in(folder: Path) -> list[Loader]:
    return [
        Loader(folder / loader["log"], loader["role"], loader["optimizer_steps"])
        for path in sorted(folder.glob("rank*.json"))
        for loader in json.loads(path.read_text(encoding="utf-8"))["loaders"]
    ]
