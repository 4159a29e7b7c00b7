"""The Grafana dashboard of examples/grafana asks for what is there, and Prometheus answers it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loadeval import read_run
from loadeval.cli.console import report_of
from loadeval.errors import LoadevalError
from loadeval.export import Format, export_run
from loadeval.export.openmetrics import OF_REPORTS, OF_STATES
from tests.cli.commands import COMMAND
from tests.cli.test_serve import free_port, served
from tests.runs import DEMO
from tests.runs.given import MS
from tests.runs.measured import record

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples" / "grafana"
DASHBOARD = json.loads((EXAMPLES / "dashboard.json").read_text())
EXPRESSIONS = {
    f"{panel['title']}, {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
LABELS = {"run", "rank", "arm", "process", "rule"}
"""Those that the dashboard groups or chooses by."""
WAIT_S = 90
TRAINING = """
import sys, time
import numpy as np
from loadeval import LoaderEvaluator

class Batches:
    def __len__(self):
        return 60

    def __iter__(self):
        for _ in range(60):
            time.sleep(0.004)
            yield np.zeros((4, 2))

with LoaderEvaluator(Batches(), "alternate", log_file=sys.argv[1]) as loader:
    while True:
        for batch in loader:
            time.sleep(0.004)
"""
prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs Prometheus, such as of Debian's package prometheus",
)


def test_every_metric_it_asks_for_is_there() -> None:
    """Under the names by which Prometheus has them, and none is left out."""
    samples = {family.sample for family in (*OF_STATES, *OF_REPORTS)}
    variables = [json.dumps(variable) for variable in DASHBOARD["templating"]["list"]]
    text = " ".join([*EXPRESSIONS.values(), *variables])
    assert set(re.findall(r"\bloadeval_\w+", text)) == samples


def test_it_has_no_database_or_run_of_its_own() -> None:
    """Both are variables, so that it can be imported anywhere; each panel says what it is."""
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "run",
    ]
    for panel in DASHBOARD["panels"]:
        assert panel["description"].endswith(".")
        for item in (panel, *panel["targets"]):
            assert item["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all('run=~"$run"' in expression for expression in EXPRESSIONS.values())
    used = " ".join(re.findall(r"(?:by|on) \(([^)]*)\)|(\w+)=", " ".join(EXPRESSIONS.values()))[0])
    assert set(re.findall(r"\w+", used)) <= LABELS


@contextmanager
def running(*command: str | Path) -> Iterator[None]:
    """Beside these commands, which are ended afterwards."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_for(what: str, found: Any) -> Any:
    """What is found, once it is."""
    limit_s = time.monotonic() + WAIT_S
    while time.monotonic() < limit_s:
        try:
            result = found()
        except (OSError, LoadevalError):
            result = None
        if result:
            return result
        time.sleep(0.25)
    raise AssertionError(what)


def lost_share_of(path: Path) -> Any:
    comparison = report_of([path]).comparison
    return comparison and comparison.headroom.lost_share


@pytest.mark.check
@prometheus
def test_prometheus_answers_each_of_its_queries(tmp_path: Path) -> None:
    """Of a training that goes on, served by the command, and scraped as the example says."""
    log, served_at, asked_at = tmp_path / "run.jsonl", free_port(), free_port()
    configuration = (EXAMPLES / "prometheus.yml").read_text()
    assert configuration.count("15s") == configuration.count("localhost:9464") == 1
    configuration = configuration.replace("15s", "1s").replace("9464", str(served_at))
    (tmp_path / "prometheus.yml").write_text(configuration)
    database = (
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=localhost:{asked_at}",
    )

    def answer(expression: str) -> Any:
        query = urlencode({"query": expression})
        with urlopen(f"http://localhost:{asked_at}/api/v1/query?{query}") as answered:
            return json.load(answered)["data"]["result"]

    with running(sys.executable, "-c", TRAINING, log):
        wait_for("a lost share", lambda: lost_share_of(log))
        with running(COMMAND, "watch", log, "--serve", str(served_at)), running(*database):
            for title, expression in EXPRESSIONS.items():
                asked = expression.replace("$__rate_interval", "10s").replace("$run", "run")
                for result in wait_for(title, lambda asked=asked: answer(asked)):
                    assert float(result["value"][1]) >= 0, title
                    assert result["metric"]["run"] == "run"
            (share,) = answer('loadeval_lost_ratio{run="run"}')
            assert 0.2 < float(share["value"][1]) < 0.8


@pytest.mark.check
@prometheus
def test_promtool_finds_nothing_to_say_of_the_names() -> None:
    """It knows the conventions, and exits with an error where one is not followed."""
    registry, run = CollectorRegistry(), served(DEMO)
    run.judge()
    registry.register(run)
    assert promtool("check", "metrics", given=generate_latest(registry)) == ""


@pytest.mark.check
@prometheus
def test_promtool_takes_in_what_is_exported(tmp_path: Path) -> None:
    """Each value of the file is in the database at its time."""
    log = record(tmp_path / "run.jsonl", batches=40, wait_ms=900, step_ns=100 * MS, probes=())
    (exported,) = export_run(read_run(log), Format.OPENMETRICS, tmp_path / "run.openmetrics.txt")
    promtool("tsdb", "create-blocks-from", "openmetrics", exported, tmp_path / "data")
    (tmp_path / "data" / "wal").mkdir()  # it is not read without
    dumped = promtool("tsdb", "dump", tmp_path / "data").splitlines()
    counts = [float(line.split()[-2]) for line in dumped if "loadeval_batches_total" in line]
    assert counts == [15, 30, 40]
    values = [line for line in exported.read_text().splitlines() if not line.startswith("#")]
    assert len(dumped) == len(values)


def promtool(*arguments: object, given: bytes = b"") -> str:
    """What it prints. It exits with an error where it has something to say."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, input=given, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode()
