"""`loadeval watch`: follow a run, or the ranks of a job, while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group
from rich.live import Live

from loadeval.cli import console
from loadeval.cli.hangs import HangTeller
from loadeval.data.folder import logs_so_far
from loadeval.errors import RunLogError
from loadeval.live import FollowedRun, LiveState, Rates
from loadeval.report import text
from loadeval.report.blocks import Section, Table, Text
from loadeval.words import rate, share, span, worded

Ranks = Mapping[str, LiveState]
RUN = "The run log that a training writes, or the folder of its logs; it is waited for."
MOST_RANKS = 10


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    as_json: console.AsJson = False,
) -> None:
    """Follow the run log of a running training.

    Throughput and time waiting, over the last minute and the whole run, and epoch start; and why no
    batch comes, where none does. Ends when the run does, and with Ctrl-C.
    """
    states = follow(run, interval)
    with console.errors_printed(), suppress(KeyboardInterrupt):
        if not (once or as_json):
            show(run, states, console.new_console())
            return
        ranks = next(states)
        if not ranks:
            raise RunLogError(
                f"there is no run log at {run} yet; expected one that log_file= writes; leave out "
                "--once to wait for it"
            )
        told = [{"log": name, **asdict(state)} for name, state in ranks.items()]
        if not as_json:
            text.show(screen(ranks))
        else:
            whole = {"ranks": told} if len(ranks) > 1 else asdict(*ranks.values())
            console.print_json({"path": str(run), **whole})


def show(path: Path, states: Iterator[Ranks], terminal: Console) -> None:
    """Show each of the states: on a terminal in the place of the one before, else below it.

    Else nothing is shown where nothing has come since the one before.
    """
    waiting = f"Waiting for a run log at {path}; Ctrl-C ends it"
    teller, before = HangTeller(path), object()
    with (
        Live(console=terminal, auto_refresh=False) if terminal.is_terminal else nullcontext() as on
    ):
        for ranks in states:
            teller.poll()
            sections = screen(ranks) if ranks else [Section("", [Text(waiting)])]
            if on:
                on.update(Group(*text.lines(sections, terminal.width)), refresh=True)
                continue
            news = [
                (state.batches, state.events, state.ended, bool(state.silent_ns))
                for state in ranks.values()
            ]
            if news != before:
                text.show(sections)
            before = news


def follow(
    path: Path,
    interval_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Ranks]:
    """The ranks whose logs are at `path`, every `interval_s`, until all have ended.

    There is none while there is no log yet, or not even its first line. Ranks that begin later are
    followed from then on.
    """
    followed: dict[Path, FollowedRun] = {}
    while True:
        ranks = {}
        for log in logs_so_far(path) if path.is_dir() else [path]:
            rank = followed.setdefault(log, FollowedRun(log))
            if rank.read() and (state := rank.run.state(rank.quiet_ns(now_s()))):
                ranks[log.stem] = state
        yield ranks
        if ranks and all(state.ended for state in ranks.values()):
            return
        sleep(interval_s)


def screen(ranks: Ranks) -> list[Section]:
    """What is known of a run; or of a job and its ranks, those first that wait most."""
    states = list(ranks.values())
    ranked = sorted(
        ranks.items(),
        key=lambda rank: (rank[1].silent_ns or 0, rank[1].now.wait_share if rank[1].now else 0),
        reverse=True,
    )
    told = [(name, _place(state), [state]) for name, state in ranked[:MOST_RANKS]]
    below = list[Text]()
    if len(states) > 1:
        told.insert(0, ("all ranks", "", states))
    else:
        below = [Text(f"epoch start: {worded(states[0].epoch_start_ns, 'duration')}")]
        below += [Text(f"event: {event}") for event in states[0].events]
    rows = [(name, place, *_rates(of, "now"), *_rates(of, "overall")) for name, place, of in told]
    kind: Literal["plain", "caution"] = (
        "caution" if any(state.silent_ns for state in states) else "plain"
    )
    return [
        Section("", [Text(_progress(states), kind)]),
        Section("", [Table(("", "", "last minute", "waiting", "whole run", "waiting"), rows)]),
        Section("", below),
    ]


def _rates(states: Sequence[LiveState], when: Literal["now", "overall"]) -> tuple[str, str]:
    """The throughput of all of these ranks, and the share of the time that they wait.

    They leave a step together, so they wait no less than the one that waits most: how much longer,
    only batches that are aligned tell.
    """
    rates: list[Rates | None] = [getattr(state, when) for state in states]
    known = [each for each in rates if each is not None]
    if len(known) < len(states):
        return "no steady-state batches", ""
    samples = [each.samples_per_s for each in known]
    speed = rate(sum(filter(None, samples)), states[0].unit)
    if None in samples:
        speed = rate(min(each.batches_per_s for each in known), "batches")
    return speed, share(max(each.wait_share for each in known))


def _progress(states: Sequence[LiveState]) -> str:
    """For how long a run or all ranks go on, and how far they are."""
    status = f"running for {(elapsed := span(max(state.elapsed_ns for state in states)))}"
    if silent := [state.silent_ns for state in states if state.silent_ns]:
        status = f"no batch for {span(max(silent))}, {elapsed} after the start"
    elif all(state.ended for state in states):
        status = f"ended after {elapsed}"
    if len(states) > 1:
        status = f"{len(states)} ranks{f', {len(silent)} with' if silent else ''} {status}"
    return f"{status}; {min(state.batches for state in states):,} batches"


def _place(state: LiveState) -> str:
    if state.silent_ns:
        return f"no batch for {span(state.silent_ns)}"
    if state.epoch is None or state.batch is None:
        return "no batch yet"
    of_epoch = f" of {state.epoch_batches:,}" if state.epoch_batches else ""
    return f"{'ended, ' * state.ended}epoch {state.epoch}, batch {state.batch:,}{of_epoch}"
