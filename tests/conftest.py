"""What all tests share: Ctrl-C, time limits, and examples of properties."""

from __future__ import annotations

import difflib
import gc
import json
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

from tests.whole_outputs import differences, shortened, written

CHECK = """
frameworks injected demo
adapters/test_dali_dynamic.py adapters/test_dali_pipeline.py
adapters/test_grain.py adapters/test_huggingface_datasets.py adapters/test_in_stacks.py
adapters/test_litdata.py adapters/test_ray_data.py adapters/test_reconfigure.py
adapters/test_spdl_pipeline.py
adapters/test_stages_compatibility.py adapters/test_torchdata_nodes.py
adapters/test_torchdata_stateful.py adapters/test_webdataset.py
test_track.py
test_docs.py test_examples.py test_json_doc.py test_pages.py test_security.py test_site.py
""".split()  # noqa: SIM905 - paths, several on a line
"""What only `make check` runs: `make test` need not even be able to import it."""
GOLDEN = Path(__file__).with_name("golden")
CHECK_S = 600
"""How long a test of `make check` may take; the limit of others is in pyproject.toml."""
INSTALL = "`make .venv/.dev` installs all libraries, and `apt-get install chromium` a browser"

# The same examples each time, however slow the machine is, and nothing left in the clone.
# `make check` chooses the thorough ones.
settings.register_profile("thorough", deadline=None, derandomize=True, database=None)
settings.register_profile("random", deadline=None, database=None, print_blob=True)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)
settings.load_profile("quick")
set_hypothesis_home_dir(gettempdir())

# A job in the background ignores Ctrl-C, and what it starts would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A forked worker leaves alone what tests before it left in cycles: the destructor of a pipeline of
# DALI's waits for threads that only its own process has.
os.register_at_fork(after_in_child=lambda: gc.freeze())  # noqa: PLW0108 - a test replaces it


# What the terminal is like, if there is one, does not matter.
for variable in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(variable, None)


@pytest.fixture
def stub_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in the place of py-spy."""
    from loadeval.probes import stacks  # few tests need it

    def write(script: str) -> None:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(stacks, "py_spy", lambda: str(path))

    return write


def is_of_check(path: Path) -> bool:
    return any(Path(__file__).parent / place in (path, *path.parents) for place in CHECK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_quick = config.getoption("markexpr") == "not check"
    return True if is_quick and is_of_check(collection_path) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="a test that skips itself, for want of a library or a browser, fails",
    )
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write the files in tests/golden anew, and print what changed",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marks = (item.get_closest_marker(name) for name in ("skip", "skipif", "xfail"))
    if not any(marks):
        fail_if_skipped(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report, collector.config)
    return report


def fail_if_skipped(
    report: pytest.TestReport | pytest.CollectReport, config: pytest.Config
) -> None:
    if report.skipped and config.getoption("--no-skips"):
        why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{why}; {INSTALL}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """Compares a whole output, text or JSON, with a file in tests/golden.

    Text is to be the same. So is JSON, but for numbers that differ by less than 1e-9 of them.
    """

    def compare(name: str, output: Any) -> None:
        path = GOLDEN / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if isinstance(output, str):
            now, changes = output, list(_changes(before, output))
        else:
            content = shortened(output)
            now = f"{written(content)}\n"
            changes = differences(json.loads(before or "null"), content)
        if not changes:
            return
        said = "\n".join([f"golden/{name}", *(changes if before else ["is new"])])
        if not request.config.getoption("rewrite_golden"):
            pytest.fail(f"the output is another; `make golden` writes it\n{said}", False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now, encoding="utf-8")
        request.node.user_properties.append(("rewritten", said))

    return compare


def _changes(before: str, now: str) -> Iterator[str]:
    lines = (text.splitlines() for text in (before, now))
    yield from difflib.unified_diff(*lines, "before", "now", lineterm="")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what --rewrite-golden changed."""
    for report in terminalreporter.getreports("passed"):
        for name, said in report.user_properties:
            if name == "rewritten":
                terminalreporter.write_line(said)


def pytest_collectstart() -> None:
    """What collecting imports stays: nothing of it becomes garbage."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_of_check(item.path):
            item.add_marker(pytest.mark.check)
        if item.get_closest_marker("check") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHECK_S))


def pytest_collection_finish() -> None:
    """A test that collects garbage need not look at all the modules that were imported."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """In a quick test no second is measured, so that workers need not be seen to rest for long."""
    if item.get_closest_marker("check"):
        return (yield)
    # Imported where coverage sees it.
    from loadeval.core import alternate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alternate, "NAP_S", 0.001)
        return (yield)
