"""The report of the runs that somebody names: which they are, and what is said of them.

They are one run; a log beside a replay, which is its ideal; two runs of one program, before and
after; several backends; or a folder of the ranks of one job, or of a `loadeval run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loadeval.data.folder import logs_in, processes_in, read_ranks, read_whole
from loadeval.data.log import read_run
from loadeval.data.run import SECOND_NS, Run
from loadeval.errors import UsageError
from loadeval.estimate.before_after import (
    about_backends,
    before_after,
    differences,
    took_turns,
    unit_of,
)
from loadeval.job import Job, are_ranks, job_of
from loadeval.report.as_json import Json, as_json
from loadeval.report.blocks import Bars, Chart, Section, Text
from loadeval.report.build import (
    Result,
    backends_sections,
    change_sections,
    job_sections,
    memory_bytes,
    rates_of,
    result_of,
    sections,
)
from loadeval.report.text import lines

Window = tuple[float, float]
"""Seconds since a run's start: the part of it that is looked at."""
GENERATOR = b'<meta name="generator" content="loadeval'
"""What each page has near its beginning, and nothing else is likely to."""
BEGINNING = 4096


@dataclass(frozen=True, eq=False)
class Report:
    """All that is known of runs. `result` is that of the run, or of the later one of two.

    `job` are the ranks whose run `result` is of, and `before` is the result of the earlier one of
    two. Several `backends`, by their names, have no `result`; `failed` has what the loaders of
    others raised, and `unequal` a clause for each difference in what they do. `paths` are the files
    that the runs were read from. As text it is its screen, of any height.
    """

    result: Result | None
    before: Result | None = None
    job: Job | None = None
    backends: Mapping[str, Result] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    unequal: Sequence[str] = ()
    paths: tuple[Path, ...] = ()

    def sections(self, commands: Sequence[str] = (), *, whole: bool = True) -> list[Section]:
        """What is said, in the order in which it is read; not `whole`, what a screen may have.

        `commands` are those that say more.
        """
        if self.result is None:
            made = backends_sections(self.backends, self.failed, self.unequal, whole=whole)
        else:
            made = sections(self.result, whole=whole)
            if self.before is not None:
                made = change_sections(self.before, self.result, made)
            elif self.job is not None:
                made = job_sections(self.job, self.result, made)
        if commands:
            on_screen = sum(section.priority is not None for section in made)
            more = Section("", [Text(command, "command") for command in commands], priority=4)
            made.insert(on_screen, more)
        return made

    def screen(self, commands: Sequence[str] = ()) -> list[Section]:
        """The sections that have a place on a screen: no others are made."""
        made = self.sections(commands, whole=False)
        return [section for section in made if section.priority is not None]

    def as_json(self) -> Json:
        """The same as plain data: the keys are the fields of the results."""
        if self.result is None:
            runs = {name: result.run for name, result in self.backends.items()}
            return as_json(
                {
                    "unit": unit_of(list(runs.values())),
                    "backends": self.backends,
                    "memory_bytes": {name: memory_bytes(run) for name, run in runs.items()},
                    "differences": differences(runs),
                    "failed": self.failed,
                    "unequal": self.unequal,
                    "cautions": list(about_backends(runs)),
                }
            )
        if self.before is not None:
            before, now = self.before, self.result
            change = before_after(before.run, now.run)
            return as_json({"before_after": change, "before": before, "now": now})
        if self.job is not None:
            return as_json({"job": self.job, "result": self.result})
        return as_json(self.result)

    def commands(self) -> list[str]:
        """The commands that say more of these runs."""
        paths = shlex.join(map(str, self.paths))
        more = [f"More: loadeval compare {paths} --full; as a page: loadeval report {paths}"]
        if self.job is not None:
            for rank in self.job.ranks:
                if rank.rank in self.job.stragglers.ranks[:1] and rank.path is not None:
                    alone = f"loadeval compare {shlex.quote(str(rank.path))}"
                    more.append(f"Rank {rank.rank} alone: {alone}")
        return more

    @property
    def fastest(self) -> str | None:
        """The backend with the highest real throughput, whether it is shown to be or not."""
        rates = rates_of(self.backends)
        return next((name for name, own in rates.items() if "real" in own), None)

    def __str__(self) -> str:
        return "\n".join(line.plain for line in lines(self.screen()))

    def plot(self, output: str | Path = "comparison.png") -> Path:
        """Draw it, and return the path of the figure: a PNG, SVG or PDF by its extension.

        Raises UsageError where it cannot be written, or matplotlib is not installed.
        """
        from loadeval.report.charts import save  # noqa: PLC0415 - imports matplotlib

        # What is said of each of several backends has its own charts.
        every = self.sections() if self.result else self.screen()
        charts: list[Bars | Chart] = []
        notes: list[str] = []
        for section in every:
            for block in section.blocks:
                if isinstance(block, Bars):
                    charts.append(replace(block, title=section.title))
                elif isinstance(block, Chart):  # a page has room for what probes read
                    charts.append(replace(block, readings={}))
                elif isinstance(block, Text) and block.kind == "caution":
                    notes.append(f"Caution: {block.text}")
        save(Path(output), every[0].title, charts, notes)
        return Path(output)

    def write_page(self, path: Path) -> None:
        """Write a page of it.

        Raises UsageError where `path` is there already and no page of ours, where it cannot be
        written, and where jinja2 is not installed.
        """
        from loadeval.report.html import page  # noqa: PLC0415 - imports matplotlib and jinja2

        try:
            if path.exists() and GENERATOR not in path.read_bytes()[:BEGINNING]:
                raise UsageError(
                    f"{path} already exists and is no page that loadeval report wrote, so it is "
                    "not replaced; give another path with --output"
                )
            text = page(self.sections(), ", ".join(each.name for each in self.paths))
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot write the page {path}: {error.strerror or error}; expected a path in a "
                "folder that exists and can be written"
            ) from error


def report_of(paths: Sequence[Path], between: Window | None = None) -> Report:
    """What is said of the runs in these files and folders, or of a window of each.

    Raises RunLogError where one cannot be read, UsageError where they are not to be compared.
    """
    if len(paths) == 1 and paths[0].is_dir():
        return report_of_training(logs_in(paths[0]), paths[0], between)
    runs = [
        training(logs_in(path), path, between)[0] if path.is_dir() else cut(read_run(path), between)
        for path in paths
    ]
    if len(runs) > 1 and are_ranks(runs):
        job = job_of(runs)
        return Report(result_of(job.run), job=job, paths=tuple(paths))
    ranks = [run.header.environment.get("rank") for run in runs]
    if len({rank for rank in ranks if isinstance(rank, int)}) > 1:
        raise UsageError(
            "these are different ranks, not of one job; expected all ranks of one job, or one run "
            "of each: its folder, or the same rank"
        )
    return replace(report_of_runs(runs), paths=tuple(paths))


def report_of_runs(runs: Sequence[Run]) -> Report:
    """What is said of one run; of a log and a replay; before and after; or of backends.

    A run that replayed is the ideal of the other. Two runs of one loader in the same mode are
    before and after, unless they took turns in one comparison. Raises UsageError where they are not
    to be compared.
    """
    are_two, modes = len(runs) == 2, {run.header.mode for run in runs}  # noqa: PLR2004 - it says so
    if are_two and "replay" in modes:
        return Report(result_of(*runs))
    for run in runs:
        if run.header.mode == "replay":
            raise UsageError(
                f"{run.path or run.header.name} was recorded with mode='replay', so it tells "
                "nothing of its loader's throughput; give the run with mode='log' too, and no "
                "other: loadeval compare REAL IDEAL"
            )
    if len(runs) == 1:
        return Report(result_of(runs[0]))
    same_loader = len({run.loader.backend for run in runs}) == len(modes) == 1
    if are_two and same_loader and not took_turns(runs):
        return Report(result_of(runs[1]), before=result_of(runs[0]))
    names = [run.header.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    named = dict(zip(names, runs, strict=True))
    failed = {
        name: event.message
        for name, run in named.items()
        for event in run.events
        if event.kind == "failed backend"
    }
    measured = {name: result_of(run) for name, run in named.items() if name not in failed}
    return Report(None, backends=measured, failed=failed)


def report_of_training(logs: Sequence[Path], folder: Path, between: Window | None = None) -> Report:
    """What the logs in `folder` of the ranks of one training say, and of its validation loader.

    Raises UsageError where they are not of one job.
    """
    run, job = training(logs, folder, between)
    others = {
        loader.role: cut(read_run(folder / loader.log), between)
        for process in processes_in(folder)
        for loader in process.loaders
        if loader.role == "validation" and loader.epochs
        if any(other.log == logs[0].name for other in process.loaders)
    }
    return Report(result_of(run, None, **others), job=job, paths=(folder,))


def training(
    logs: Sequence[Path], folder: Path, between: Window | None = None
) -> tuple[Run, Job | None]:
    """The run in a log; or of the logs of several ranks the job, and what it is as a run.

    Raises UsageError where they are not of one job.
    """
    if len(logs) == 1:
        return cut(read_run(logs[0]), between), None
    ranks = read_ranks(logs)
    if not are_ranks(ranks):
        raise UsageError(
            f"{folder} has {len(logs)} run logs, which are not of the ranks of one job; expected "
            "one for each rank; give those to look at by name"
        )
    ranks = [cut(rank, between) for rank in ranks]
    job = job_of(ranks, lambda rank: cut(read_whole(rank), between), folder.name)
    return job.run, job


def cut(run: Run, between: Window | None) -> Run:
    """The window of a run. Raises UsageError where no batch was asked for in it."""
    if between is None:
        return run
    part = run.between(*between)
    if not len(part.steps):
        (begin_s, end_s), last_ns = between, int(run.steps.request_ns.max(initial=0))
        raise UsageError(
            f"{run.path or run.header.name} has no batch between {begin_s:g}s and {end_s:g}s; "
            f"expected BEGIN before END, within {last_ns / SECOND_NS:.3g}s"
        )
    return part


def plot_comparison(
    real_log: str | Path, ideal_log: str | Path | None = None, output: str | Path = "comparison.png"
) -> Path:
    """Draw what ideal loading would gain; returns the path of the figure written.

    Args:
        real_log: the run that loaded, or without `ideal_log` one that alternated: a run log,
            what `save_metrics()` wrote, or the JSON of DALI's LoaderEvaluator.
        ideal_log: the run that replayed, in one of the same forms.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.

    Raises:
        RunLogError: a run cannot be read.
        UsageError: the runs cannot be compared, or `output` has another extension or cannot be
            written.
    """
    runs = [read_run(Path(log)) for log in (real_log, ideal_log) if log is not None]
    return Report(result_of(*runs)).plot(output)
