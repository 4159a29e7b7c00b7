"""`loadeval watch`: follow a run, or the ranks of a job, while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from loadeval.cli.console import errors_printed, new_console, print_json
from loadeval.cli.hangs import HangTeller
from loadeval.data.folder import logs_so_far
from loadeval.errors import RunLogError
from loadeval.live import FollowedRun, LiveJob, LiveState, Outlier, Rates
from loadeval.report.blocks import Block, Facts, Section, Table, Text
from loadeval.report.text import lines
from loadeval.words import (
    NOT_MEASURED,
    counted,
    duration,
    printable,
    shortened,
    span,
    wall_clock,
    worded,
)

RUN = (
    "The run log that the training writes; one that is not there yet is waited for. Or the folder "
    "of the logs of its ranks, or of a `loadeval run`."
)
INTERVAL = "Seconds between two updates."
SHORTEST_S, LONGEST_S = 0.1, 86_400
MOST_RANKS = 10
LONGEST_NAME = 48


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[float, typer.Option(metavar="SECONDS", help=INTERVAL)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print one JSON object instead.")
    ] = False,
) -> None:
    """Follow the run log of a running training.

    Throughput and time waiting, over the last minute and the whole run, epoch start, and the last
    iterations over twice the median; and why no batch comes, where none does. Ends when the run
    does, and with Ctrl-C.
    """
    if not SHORTEST_S <= interval <= LONGEST_S:
        raise typer.BadParameter(
            f"--interval is {interval:g}; expected seconds from {SHORTEST_S:g} to {LONGEST_S:,}"
        )
    if as_json and not once:
        raise typer.BadParameter("--json prints one state: give it with --once")
    console = new_console()
    with errors_printed():
        try:
            if once:
                show_once(run, console, as_json=as_json)
            else:
                show(run, follow(run, interval), console)
        except KeyboardInterrupt:
            return


def follow(
    path: Path,
    interval_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LiveJob]:
    """The ranks whose logs are at `path`, every `interval_s`, until all have ended.

    There is none while there is no log yet, or not even its first line. Ranks that begin later are
    followed from then on, and one that has ended stays as it was.
    """
    followed: dict[Path, FollowedRun] = {}
    states: dict[Path, LiveState | None] = {}
    while True:
        # Which loader is the training one is known only once optimizers make steps.
        paths = logs_so_far(path) if path.is_dir() else [path]
        for log in paths:
            if (known := states.get(log)) and known.ended:
                continue
            rank = followed.setdefault(log, FollowedRun(log))
            states[log] = rank.run.state(rank.quiet_ns(now_s())) if rank.read() else None
        job = LiveJob({log.stem: state for log in paths if (state := states[log])})
        yield job
        if job.ranks and len(job.ranks) == len(paths) and job.ended:
            return
        sleep(interval_s)


def show_once(path: Path, console: Console, *, as_json: bool) -> None:
    """Print the state as it is now. Raises RunLogError where there is no log."""
    job = next(follow(path, 0.0))
    if not job.ranks:
        raise RunLogError(
            f"there is no run log at {path} yet; expected one that log_file= writes; leave out "
            "--once to wait for it"
        )
    if as_json:
        ranks = [{"log": name, **asdict(state)} for name, state in job.ranks.items()]
        content = {"ranks": ranks} if len(ranks) > 1 else asdict(*job.ranks.values())
        print_json({"path": str(path), **content})
    elif console.is_terminal:
        console.print(Group(*lines(screen(job), console.width)))
    else:
        typer.echo(line(job))


def show(path: Path, jobs: Iterator[LiveJob], console: Console) -> None:
    """Show each of the states: on a terminal in the place of the one before, else as a line."""
    hangs, waits = HangTeller(path), False
    with (
        Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live
    ):
        for job in jobs:
            hangs.poll()
            if live is not None:
                shown = screen(job) if job.ranks else [Section("", [Text(waiting_for(path))])]
                live.update(Group(*lines(shown, console.width)), refresh=True)
            elif job.ranks or not waits:  # that is said once
                typer.echo(line(job) if job.ranks else waiting_for(path))
            waits = not job.ranks


def waiting_for(path: Path) -> str:
    """What to say while there is no log, and which names are like that one: it may be mistyped."""
    try:
        names = get_close_matches(path.name, [beside.name for beside in path.parent.iterdir()])
    except OSError:
        names = []
    there = " and ".join(str(path.with_name(name)) for name in names)
    text = f"Waiting for a run log at {path}; Ctrl-C ends it"
    return printable(f"{text}. There is {there}" if there else text)


def screen(job: LiveJob) -> list[Section]:
    """All that is known of a run; or of a job its ranks, those first that wait most."""
    if len(job.ranks) == 1:
        return [_of_run(*job.ranks.values())]
    unit = next(iter(job.ranks.values())).unit
    of_all = _rates(job.rates("now"), unit), _rates(job.rates("overall"), unit)
    rows = [("all ranks", "", *of_all[0][:2], *of_all[1][:2])]
    for name, state in job.most_waiting()[:MOST_RANKS]:
        now, overall = _rates(state.now, state.unit), _rates(state.overall, state.unit)
        where = _progress(state)[0 if state.ended or state.silent_ns else 1]
        rows.append((shortened(name, LONGEST_NAME), where, *now[:2], *overall[:2]))
    table = Table(("", "", "now", "waiting", "whole run", "waiting"), rows)
    left = len(job.ranks) - MOST_RANKS
    more = [Text(f"and {left:,} more, which wait less")] if left > 0 else []
    return [Section(line(job), [Text(""), table, *more])]


def _of_run(state: LiveState) -> Section:
    now = f"last {span(state.now.elapsed_ns)}" if state.now else "now"
    names = ("throughput", "time waiting", "mean iteration")
    rates = _rates(state.now, state.unit), _rates(state.overall, state.unit)
    status = "; ".join(_progress(state))
    blocks: list[Block] = [
        Text(status, "plain" if state.silent_ns is None else "caution"),
        Text(""),
        Table(("", now, "whole run"), list(zip(names, *rates, strict=True))),
        Facts(_facts(state)),
        *(Text(_outlier(outlier, state.created), "entry") for outlier in state.outliers),
        *(Text(f"event: {message}") for message in state.events),
    ]
    return Section(f"{shortened(state.name, LONGEST_NAME)} ({state.mode})", blocks)


def line(job: LiveJob) -> str:
    """The state of a run in one line, with the last outlier; or of a job with who waits most."""
    states = list(job.ranks.values())
    state = next((each for each in states if not each.ended), states[0])
    now, overall = (_rates(job.rates(when), state.unit) for when in ("now", "overall"))
    if len(states) == 1:
        parts = _progress(state)
        if state.batches:
            parts += [f"now {now[0]}, waiting {now[1]}"]
            parts += [f"whole run {overall[0]}, waiting {overall[1]}"]
            parts += [f"{label} {text}" for label, text in _facts(state)]
        parts += [f"the last {_outlier(each, state.created)}" for each in state.outliers[-1:]]
        return printable("; ".join(parts))
    batches = sorted(each.batches for each in states)
    name, most = job.most_waiting()[0]
    silent = [shortened(name, LONGEST_NAME) for name, each in job.ranks.items() if each.silent_ns]
    parts = [
        f"{counted(len(states), 'rank')} {_progress(state)[0]}",
        f"{batches[0]:,} to {batches[-1]:,} batches each",
        f"now {now[0]}",
        f"whole run {overall[0]}",
        f"{shortened(name, LONGEST_NAME)} waits most: {_rates(most.now or most.overall)[1]}",
        *([f"silent: {', '.join(silent[:MOST_RANKS])}"] if silent else []),
    ]
    return printable("; ".join(parts))


def _progress(state: LiveState) -> list[str]:
    """Whether the run goes on and for how long; its last epoch and batch, from 0; and how many."""
    elapsed = span(state.elapsed_ns)
    if state.ended:
        status = f"ended after {elapsed}"
    elif state.silent_ns is not None:
        status = f"no batch for {span(state.silent_ns)}, {elapsed} after the start"
    else:
        status = f"running for {elapsed}"
    if state.epoch is None or state.batch is None:
        return [status, "no batch yet"]
    length = "" if state.epoch_batches is None else f" of {state.epoch_batches:,}"
    place = f"epoch {state.epoch:,}, batch {state.batch:,}{length}"
    return [status, place, f"{counted(state.batches, 'batch', 'batches')} in total"]


def _rates(rates: Rates | None, unit: str = "") -> tuple[str, str, str]:
    """Throughput in samples, or in batches where those are not known; waiting; the iteration."""
    if rates is None:
        return ("no steady-state batches",) * 3
    throughput = worded(rates.samples_per_s, f"{shortened(unit, LONGEST_NAME)}/s")
    if rates.samples_per_s is None:
        throughput = worded(rates.batches_per_s, "batches/s")
    mean = duration(rates.elapsed_ns / rates.batches)
    return throughput, worded(rates.wait_share, "share"), mean


def _facts(state: LiveState) -> list[tuple[str, str]]:
    """Epoch starts and outliers."""
    starts = NOT_MEASURED
    if state.epoch_start_ns is not None:
        starts = f"{duration(state.epoch_start_ns)} in the first epoch"
        if state.last_epoch_start_ns is not None:
            starts += f", {duration(state.last_epoch_start_ns)} in the last"
    outliers = f"{NOT_MEASURED}, too few batches"
    if state.median_iteration_ns is not None:
        count, median = counted(state.outlier_count, "iteration"), state.median_iteration_ns
        outliers = f"{count} over twice the median of {duration(median)}"
    return [("epoch start", starts), ("outliers", outliers)]


def _outlier(outlier: Outlier, created: str) -> str:
    """Which batch an outlier is, who loaded it, when it was, and how long it took."""
    try:
        after = timedelta(0, outlier.request_ns / 1e9)
        when = wall_clock(datetime.fromisoformat(created) + after)
    except (ValueError, OverflowError):
        when = f"{span(outlier.request_ns)} after the start"
    worker = "" if outlier.worker is None else f" of worker {outlier.worker:,}"
    took = f"{duration(outlier.wait_ns + outlier.step_ns)}, of which {duration(outlier.wait_ns)}"
    return f"epoch {outlier.epoch:,}, batch {outlier.batch:,}{worker}, {when}: {took} waiting"
