"""The report of the runs that somebody names: which they are, and what is said of them.

They are one run; a log beside a replay, which is its ideal; two runs of one program, before and
after; several backends; or a folder of the ranks of one job, or of a `loadeval run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loadeval.data.folder import logs_in, processes_in, read_ranks, read_whole
from loadeval.data.log import read_run
from loadeval.data.run import SECOND_NS, Run, host_values
from loadeval.errors import UsageError
from loadeval.estimate.before_after import (
    BATCHES,
    Difference,
    about_backends,
    before_after,
    differences,
    took_turns,
    unit_of,
)
from loadeval.estimate.gap import throughput
from loadeval.estimate.stats import Estimate
from loadeval.job import Job, are_ranks, job_of
from loadeval.report.as_json import Json, as_json
from loadeval.report.blocks import (
    Bars,
    Chart,
    Duration,
    Number,
    Row,
    Section,
    Share,
    Table,
    Text,
    Times,
    rows_of,
    section,
    texts,
)
from loadeval.report.build import OF_EACH, SERIES, Result, rates_chart, result_of, sections
from loadeval.report.text import lines
from loadeval.words import counted

MOST_RANKS = 64
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
            made = _of_backends(self, whole=whole)
        else:
            made = sections(self.result, whole=whole)
            if self.before is not None:
                made = _of_two(self.before, self.result, made)
            elif self.job is not None:
                made = _of_job(self.job, self.result, made)
        if commands:
            on_screen = sum(each.priority is not None for each in made)
            more = Section("", texts(commands, "command"), priority=4)
            made.insert(on_screen, more)
        return made

    def screen(self, commands: Sequence[str] = ()) -> list[Section]:
        """The sections that have a place on a screen: no others are made."""
        made = self.sections(commands, whole=False)
        return [each for each in made if each.priority is not None]

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
        for part in every:
            for block in part.blocks:
                if isinstance(block, Bars):
                    charts.append(replace(block, title=block.title or part.title))
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


# What is said of several runs


def _of_two(before: Result, now: Result, of_now: Sequence[Section]) -> list[Section]:
    """Whether a run is slower than an earlier one, what changed, and what is said `of_now`."""
    told = before_after(before.run, now.run)
    rate = f"{told.unit}/s"
    compared = (
        ("whole epochs", told.epochs, rate),
        ("steady state", told.steady, rate),
        ("lost a batch", told.lost, "duration"),
        ("wait a batch", told.wait, "duration"),
        ("step", told.step, "duration"),
    )
    rows = [
        (label, Number(each.before, unit), Number(each.now, unit), Times(each.ratio))
        for label, each, unit in compared
        if each.now is not None or each.before is not None
    ]
    changes = [
        (f"{each.what}: {each.name.replace('_', ' ')}", str(each.before), str(each.now))
        for each in told.changes
    ]
    unchanged = "The logs show no change of loader, versions or machine."
    then, today = ({each.rule for each in r.diagnosis.findings} for r in (before, now))
    found = {"No longer found": then - today, "Found now": today - then}
    told_now = [f"{label}: {', '.join(sorted(names))}." for label, names in found.items() if names]
    head, *rest = of_now
    return [
        section(
            told.headline,
            Table(("training", "before", "now", "now / before"), rows),
            Table(("changed", "before", "now"), changes),
            Text("" if changes else unchanged),
            *texts(told_now),
            priority=1,
        ),
        section("how sure", *texts(told.cautions, "caution"), priority=5),
        Section(f"now: {head.title}", head.blocks),
        *(replace(each, priority=None) for each in rest),
    ]


def _of_backends(report: Report, *, whole: bool) -> list[Section]:
    """Several backends under one training step, the fastest first."""
    runs = {name: r.run for name, r in report.backends.items()}
    unit, rates = unit_of(list(runs.values())), rates_of(report.backends)
    ranked = {name: report.backends[name] for name in rates}
    title, others, between = "No backend was measured", list[str](), differences(runs)
    if between:
        title, *others = map(_difference, between)
    elif ranked:
        name, r = next(iter(ranked.items()))
        title = f"{name}: {r.verdict.headline}"
    speeds: list[Row] = [
        (name, *(Number(own.get(key), "number") for key in SERIES)) for name, own in rates.items()
    ]
    gains: list[Row] = [
        (name, Times(r.gap.speedup), Number(memory_bytes(r.run), "size"))
        for name, r in ranked.items()
    ]
    failed = (f"{name} failed: {error}" for name, error in report.failed.items())
    says = f"Throughput in {unit} per second, steady state, with 95% confidence intervals"
    each_backend = [
        replace(part, title=f"{name}: {part.title}")
        for name, r in (ranked.items() if whole else ())
        for make in OF_EACH
        if (part := make(r)).blocks
    ]
    return [
        section(
            title,
            Table((f"{unit}/s", "real", "ideal", "loader alone"), speeds),
            Table(("backend", "free loading", "memory"), gains),
            *texts(f"{other}." for other in others),
            *texts(failed, "caution"),
            rates_chart("Backends", says, rates, unit),
            priority=1,
        ),
        _how_sure_of_backends(report),
        *each_backend,
    ]


def rates_of(backends: Mapping[str, Result]) -> dict[str, Mapping[str, Estimate]]:
    """What `Result.throughput` has, in the one unit that all of them know; the fastest first."""
    by_sample = unit_of([r.run for r in backends.values()]) != BATCHES
    rates = {name: throughput(r.gap, by_sample) for name, r in backends.items()}
    ranked = sorted(rates, key=lambda name: -rates[name].get("real", Estimate(0.0)).value)
    return {name: rates[name] for name in ranked}


def _difference(pair: Difference) -> str:
    one, other, ratio = pair
    if ratio.low is None:
        return f"{one} was {ratio:times} as fast as {other}, too few measurements for a 95% CI"
    if ratio.low > 1:
        return f"{one} is {ratio:times} as fast as {other}"
    return f"No difference is shown between {one} and {other}: {ratio:times}"


def _how_sure_of_backends(report: Report) -> Section:
    """How the backends were measured, and what makes that mean less."""
    backends, unequal = report.backends, report.unequal
    runs = {name: r.run for name, r in backends.items()}
    about = f"{counted(len(backends) + len(report.failed), 'backend')} under one training step"
    if len(runs) > 1:
        about += ", in turns" if took_turns(list(runs.values())) else ", in separate runs"
    work = [f"The backends do not do equal work: {'; '.join(unequal)}."] if unequal else []
    own = {name: (*r.cautions, *r.run.notes) for name, r in backends.items()}
    missing = {
        name: (*([] if r.verdict.rule == "concluded" else [r.verdict.headline]), *r.not_measured)
        for name, r in backends.items()
    }
    return section(
        "how sure",
        Text(f"{about}."),
        *texts((*work, *about_backends(runs), *_by_name(own)), "caution"),
        *texts(_by_name(missing), "note"),
        priority=5,
    )


def _by_name(said: Mapping[str, Iterable[str]]) -> list[str]:
    """Each sentence once, behind the names of all that it is about."""
    names: dict[str, list[str]] = {}
    for name, sentences in said.items():
        for sentence in dict.fromkeys(sentences):
            names.setdefault(sentence, []).append(name)
    return [f"{', '.join(about)}: {sentence}" for sentence, about in names.items()]


def memory_bytes(run: Run) -> float | None:
    """The most that the training process was seen to take, and its workers; None if not read.

    What they share counts once.
    """
    most = list[float]()
    for subject in ("process", "workers"):
        if len(read := host_values(run, subject, "pss_bytes")):
            most.append(float(read.max()))
    return sum(most) if most else None


def _of_job(job: Job, r: Result, of_run: Sequence[Section]) -> list[Section]:
    """The ranks of a job, of whose run `r` tells: who keeps the others waiting comes first."""
    top, *rest = of_run
    if r.gap.ideal is None:
        top = Section(job.headline, priority=1)
    measured = f"{counted(job.steps, 'batch', 'batches')} measured on all {len(job.ranks):,} ranks"
    if "real" in r.throughput:
        measured += f", together {Number(r.throughput['real'], f'{r.unit}/s')}"
    measured += ". At each step the job waits as long as the rank that waits longest."
    short = section(
        "ranks",
        *texts([measured, f"Stragglers: {job.stragglers.says}."]),
        *texts(job.cautions, "caution"),
        priority=2,
    )
    ranked = sorted(job.ranks, key=lambda rank: (-(rank.cost_ns or 0.0), -(rank.wait_ns or 0.0)))
    shown = ranked[:MOST_RANKS]
    rows = rows_of(
        shown,
        rank=str,
        host=lambda host: host or "not known",
        wait_ns=Duration,
        wait_share=Share,
        waited_for_ns=Duration,
        last_share=Share,
        cost_ns=Duration,
    )
    own = [
        (f"rank {rank.rank}", {"waiting": Estimate(rank.wait_ns)})
        for rank in shown
        if rank.wait_ns is not None
    ]
    says = "The mean wait of each rank for its batches, those that cost the job most first"
    means = (
        "For others: how long its step waits for ranks that waited longer. Last: the share of the "
        "batches that some rank waits for in which it waits longest. Costs: what the job would "
        "save if this rank alone waited no longer than the others."
    )
    each_rank = section(
        "each rank",
        Table(("rank", "host", "own wait", "of the time", "for others", "last", "costs"), rows),
        Text(means, "note"),
        Text(
            f"The findings, and the inside of the loader, are those of rank {job.shown}, for which "
            "the others wait most.",
            "note",
        ),
        Bars(own, "Ranks", says, stacked=False),
    )
    return [top, short, *rest, each_rank]
