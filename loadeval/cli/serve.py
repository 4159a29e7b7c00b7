"""`loadeval watch --serve`: the state of a run, for Prometheus to scrape."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from loadeval.cli.console import report_of, say
from loadeval.errors import LoadevalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from prometheus_client import Metric

    from loadeval.analysis.live import LiveState
    from loadeval.analysis.report import Report

    States = Sequence[tuple[str, LiveState]]

PORTS = range(1, 65_536)
LOCAL = "localhost"
"""Other machines see the metrics only where that is asked for."""
REPORT_S = 30.0
REPORT_TIMES = 20
"""A run is read whole, for its findings, no sooner than after so long and so many times as long as
that took: at most a twentieth of one CPU goes into it."""


def address_in(text: str) -> tuple[str, int]:
    """The host and the port in [HOST:]PORT. Raises UsageError for other text."""
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isdecimal() else 0
    if number not in PORTS or (colon and not host):
        raise UsageError(
            f"--serve is {text}; expected a port, such as 9464, or HOST:PORT, such as 0.0.0.0:9464 "
            "for all machines that reach this one"
        )
    return host or LOCAL, number


class ServedRun:
    """A run as metrics: `states` has its state each time it is asked, and `report` what it says.

    Many may scrape at once. What cannot be read ends the serving: `error` has it then.
    """

    def __init__(self, name: str, states: Iterator[States], report: Callable[[], Report]) -> None:
        self.error: LoadevalError | None = None
        self.ended = threading.Event()
        self._name, self._states, self._report_of_run = name, states, report
        self._latest: States = ()
        self._report: Report | None = None
        self._is_final = False
        self._lock = threading.Lock()

    def collect(self) -> list[Metric]:
        """The metrics now."""
        from loadeval.export.openmetrics import labelled, metrics_of  # noqa: PLC0415 - few are asked for

        with self._lock:
            try:
                self._latest = next(self._states, self._latest)
            except LoadevalError as error:
                self.error = error
                self.ended.set()
            return metrics_of(labelled(self._name, self._latest), self._report)

    def judge(self) -> float:
        """Read the run whole, unless that was done after its end; returns how long to wait then."""
        if self._is_final:
            return REPORT_S
        began_s = time.monotonic()
        self._is_final = bool(self._latest) and all(state.ended for _, state in self._latest)
        try:
            self._report = self._report_of_run()
        except LoadevalError:  # there is no log yet, or its ranks have not all begun
            self._report = None
        return max(REPORT_S, REPORT_TIMES * (time.monotonic() - began_s))


def serve(path: Path, states: Iterator[States], address: tuple[str, int]) -> None:
    """Serve the metrics of the run at `path` until Ctrl-C, also once it has ended.

    Raises UsageError where that cannot be, and RunLogError once the log cannot be read.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise UsageError(
            "--serve needs the package prometheus_client, which is not installed; install it "
            'with: pip install "loadeval[metrics]"'
        ) from error
    host, port = address
    name = (path.name or path.resolve().name).removesuffix(".jsonl")
    run, registry = ServedRun(name, states, lambda: report_of([path])), CollectorRegistry()
    registry.register(run)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(
            f"cannot serve at {host}:{port}: {error.strerror or error}; give another port, or end "
            "what listens there"
        ) from error
    say(f"Serving http://{host}:{port}/metrics until Ctrl-C")
    try:
        while not run.ended.wait(run.judge()):
            pass
    finally:
        server.shutdown()
        server.server_close()
    if run.error is not None:
        raise run.error
