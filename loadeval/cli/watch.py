"""`loadeval watch`: follow a run, or the ranks of a job, while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from loadeval import words
from loadeval.cli import console
from loadeval.cli.hangs import HangTeller
from loadeval.data.folder import logs_so_far
from loadeval.errors import RunLogError
from loadeval.live import FollowedRun, LiveState, Rates, together
from loadeval.report import text
from loadeval.report.blocks import Facts, Number, Section, Table, Text

RUN = "The run log that a training writes, or the folder of its logs; it is waited for."
MOST_RANKS = 10

Ranks = Mapping[str, LiveState]
"""The state of each rank of a job under the name of its log, in order; a run by itself is one."""


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print one JSON object instead.")
    ] = False,
) -> None:
    """Follow the run log of a running training.

    Throughput and time waiting, over the last minute and the whole run, and epoch start; and why no
    batch comes, where none does. Ends when the run does, and with Ctrl-C.
    """
    if as_json and not once:
        raise typer.BadParameter("--json prints one state: give it with --once")
    with console.errors_printed():
        if not once:
            with suppress(KeyboardInterrupt):
                show(run, follow(run, interval), console.new_console())
            return
        ranks = next(follow(run, 0.0))
        if not ranks:
            raise RunLogError(
                f"there is no run log at {run} yet; expected one that log_file= writes; leave out "
                "--once to wait for it"
            )
    if as_json:
        told = [{"log": name, **asdict(state)} for name, state in ranks.items()]
        content = {"ranks": told} if len(ranks) > 1 else asdict(*ranks.values())
        console.print_json({"path": str(run), **content})
    else:
        text.show([screen(ranks)])


def follow(
    path: Path,
    interval_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Ranks]:
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
        ranks = {log.stem: state for log in paths if (state := states[log])}
        yield ranks
        if ranks and len(ranks) == len(paths) and all(state.ended for state in ranks.values()):
            return
        sleep(interval_s)


def show(path: Path, states: Iterator[Ranks], screen_on: Console) -> None:
    """Show each of the states: on a terminal in the place of the one before, else as a line.

    There is no line where nothing has come since the one before.
    """
    waiting = f"Waiting for a run log at {path}; Ctrl-C ends it"
    hangs, before = HangTeller(path), object()
    is_terminal = screen_on.is_terminal
    with Live(console=screen_on, auto_refresh=False) if is_terminal else nullcontext() as live:
        for ranks in states:
            hangs.poll()
            shown = screen(ranks) if ranks else Section(waiting)
            if live is not None:
                live.update(Group(*text.lines([shown], screen_on.width)), refresh=True)
                continue
            news = [
                (state.batches, state.events, state.ended, bool(state.silent_ns))
                for state in ranks.values()
            ]
            if news != before:
                typer.echo(words.printable(shown.title))
            before = news


def screen(ranks: Ranks) -> Section:
    """How far a run, or the ranks of a job, are, and how fast; those first that wait most.

    The title is of now, or of all of a run once it has ended.
    """
    states, rows = list(ranks.values()), list[tuple[str, ...]]()
    now, overall = (together([getattr(each, of) for each in states]) for of in ("now", "overall"))
    rates = overall if all(state.ended for state in states) else now
    title, unit = _progress(states), states[0].unit
    if rates is not None:
        throughput, waiting = _rates(rates, unit)
        title += f"; {throughput}, waiting {waiting}"
    if len(ranks) > 1:
        rows.append(("all ranks", "", *_rates(now, unit), *_rates(overall, unit)))

    def wait_share(name: str) -> float:
        known = ranks[name].now or ranks[name].overall
        return known.wait_share if known else 0.0

    for name in sorted(ranks, key=wait_share, reverse=True)[:MOST_RANKS]:
        state = ranks[name]
        where = _status(state) if state.ended or state.silent_ns else _place(state)
        rows.append((name, where, *_rates(state.now, unit), *_rates(state.overall, unit)))
    if (left := len(ranks) - MOST_RANKS) > 0:
        rows.append((f"and {left:,} more", "which wait less", *[""] * 4))
    first, *last = (
        max((ns for each in states if (ns := getattr(each, of)) is not None), default=None)
        for of in ("epoch_start_ns", "last_epoch_start_ns")
    )
    starts = [("first epoch start", Number(first, "duration"))]
    starts += [("last epoch start", Number(ns, "duration")) for ns in last if ns is not None]
    events = dict.fromkeys(f"event: {message}" for state in states for message in state.events)
    head = (f"mode {states[0].mode}", "", "now", "waiting", "whole run", "waiting")
    return Section(title, [Text(""), Table(head, rows), Facts(starts), *map(Text, events)])


def _progress(states: list[LiveState]) -> str:
    """Whether it goes on and for how long; where a run is, or how far the ranks of a job are."""
    if len(states) == 1:
        return f"{_status(states[0])}; {_place(states[0])}"
    least, most = (of(state.batches for state in states) for of in (min, max))
    told = max(states, key=lambda state: (state.silent_ns or 0, not state.ended))
    ranks = f"{len(states):,} ranks{', one with' if told.silent_ns else ''} {_status(told)}"
    return f"{ranks}; {least:,} to {most:,} batches each"


def _status(state: LiveState) -> str:
    elapsed = words.span(state.elapsed_ns)
    if state.ended:
        return f"ended after {elapsed}"
    if state.silent_ns is not None:
        return f"no batch for {words.span(state.silent_ns)}, {elapsed} after the start"
    return f"running for {elapsed}"


def _place(state: LiveState) -> str:
    """The last epoch and batch, from 0."""
    if state.epoch is None or state.batch is None:
        return "no batch yet"
    length = "" if state.epoch_batches is None else f" of {state.epoch_batches:,}"
    return f"epoch {state.epoch:,}, batch {state.batch:,}{length}"


def _rates(rates: Rates | None, unit: str) -> tuple[str, str]:
    """Throughput in samples, or in batches where those are not known; and waiting."""
    if rates is None:
        return words.NOT_MEASURED, words.NOT_MEASURED
    throughput = words.rate(rates.batches_per_s, "batches")
    if rates.samples_per_s is not None:
        throughput = words.rate(rates.samples_per_s, unit)
    return throughput, words.share(rates.wait_share)
