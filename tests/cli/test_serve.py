"""`loadeval watch --serve`: a run is scraped while it goes on."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadeval import RunLogError, UsageError
from loadeval.cli import serve as command
from loadeval.cli.console import report_of
from loadeval.cli.serve import ServedRun, address_in, serve
from loadeval.cli.watch import _ranks
from tests.cli.commands import runner
from tests.cli.test_export import without
from tests.cli.test_ranks import folder_of, waits
from tests.runs import DEMO
from tests.runs.measured import record
from tests.runs.ranks import runs_of, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.analysis.report import Report

run = runner("watch")


def served(path: Path) -> ServedRun:
    return ServedRun(path.stem, _ranks(path), lambda: report_of([path]))


def values(of: ServedRun, name: str) -> dict[Any, float]:
    """The samples of that name, by rank or run."""
    return {
        sample.labels.get("rank", sample.labels["run"]): sample.value
        for metric in of.collect()
        for sample in metric.samples
        if sample.name == name
    }


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("localhost", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),  # noqa: S104 - as was asked for
        ("::1:9464", ("::1", 9464)),
    ],
)
def test_a_port_is_served_on_this_machine_unless_a_host_is_named(
    text: str, address: tuple[str, int]
) -> None:
    assert address_in(text) == address


@pytest.mark.parametrize("text", ["0", "65536", "metrics", ":9464", "a:b", "-1"])
def test_what_is_no_port_is_refused(text: str, tmp_path: Path) -> None:
    """Before anything is served."""
    code, out, err = run(record(tmp_path / "run.jsonl"), "--serve", text)
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: --serve is {text}; expected a port, such as 9464")


def test_it_goes_on_so_once_is_wrong_usage(tmp_path: Path) -> None:
    code, _, err = run(record(tmp_path / "run.jsonl"), "--serve", "9464", "--once")
    assert code == 2
    assert "leave out" in err


def test_each_scrape_tells_what_came_since(tmp_path: Path) -> None:
    """Before the log is there nothing is told, and the report once it has been read."""
    lines = record(tmp_path / "whole.jsonl", batches=60).read_bytes().splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    of = served(path)
    assert of.collect() == []
    of.judge()
    counts = []
    for end in (1, -2, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        counts.append(values(of, "loadeval_batches_total"))
    assert counts[0] == {}
    assert counts[-1] == {"0": 60}
    assert values(of, "loadeval_finding_info") == {}
    of.judge()
    assert set(values(of, "loadeval_finding_info")) == {"run"}


def test_a_run_that_has_ended_is_judged_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read whole when its end was scraped, and then left alone."""
    reports = []

    def report() -> Report:
        reports.append(report_of([DEMO]))
        return reports[-1]

    of = ServedRun("demo", _ranks(DEMO), report)
    of.judge()
    of.collect()
    for _ in range(3):
        assert of.judge() >= command.REPORT_S
    assert len(reports) == 2
    monkeypatch.setattr(command, "REPORT_S", 0.0)
    assert ServedRun("demo", _ranks(DEMO), report).judge() > 0


def test_the_ranks_of_a_job_are_labels(tmp_path: Path) -> None:
    """What is said of the job has none. The last step of these logs has no end."""
    folder = folder_of(runs_of(train(waits()), 2), tmp_path / "job")
    of = served(folder)
    of.judge()
    assert values(of, "loadeval_batches_total") == {str(rank): 159 for rank in range(4)}
    assert set(values(of, "loadeval_finding_info")) == {"job"}


def serving(path: Path, port: int) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that serves, and what it raises."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            serve(path, _ranks(path), ("localhost", port))
        except BaseException as error:  # noqa: BLE001 - it is looked at
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, errors


def until(found: Callable[[], Any]) -> Any:
    """What is found once the server is up."""
    for _ in range(400):
        try:
            return found()
        except OSError:  # noqa: PERF203 - it is waited for
            threading.Event().wait(0.025)
    return found()


def test_a_log_that_is_damaged_ends_the_serving(tmp_path: Path) -> None:
    """Until then it is scraped over HTTP; the error has the number of the line."""
    path, port = record(tmp_path / "run.jsonl"), free_port()
    # A log without its end goes on.
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    thread, errors = serving(path, port)
    scrape = f"http://localhost:{port}/metrics"
    text = until(lambda: urlopen(scrape).read().decode())
    assert "loadeval_batches" in {family.name for family in text_string_to_metric_families(text)}
    assert 'loadeval_batches_total{arm="real",rank="0",run="run"} 30.0' in text
    with path.open("a") as log:
        log.write("no line\n")
    urlopen(scrape).close()
    thread.join(20)
    assert [type(error) for error in errors] == [RunLogError]
    assert "is no line of a run log" in str(errors[0])


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot serve at localhost:{port}: Address already"):
            serve(record(tmp_path / "run.jsonl"), iter([]), ("localhost", port))


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra that installs it."""
    path = record(tmp_path / "run.jsonl")
    without("prometheus_client", monkeypatch)
    code, out, err = run(path, "--serve", str(free_port()))
    assert (code, out) == (1, "")
    assert 'pip install "loadeval[metrics]"' in err
