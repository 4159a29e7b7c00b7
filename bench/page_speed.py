"""How large the page of a long run is, how long it takes to make, and to open in a browser.

Prints a table. Needs Chromium and playwright.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import sync_playwright

from loadeval.analysis.report import Report
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, Header, LoaderInfo, Readings
from loadeval.data.run import Run
from loadeval.report.page.page import page_of, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from loadeval.data.lines import Mode

BATCHES = 1_000_000
EPOCHS = 50
BLOCK = 12
PAGE_MB = 8.0
OPEN_S = 3.0
ROUNDS = 3


def long_run(mode: Mode, batches: int = BATCHES) -> Run:
    """A run with bursts, and a day of readings of a GPU and of a host."""
    random = np.random.default_rng(0)
    wait_ns = random.lognormal(np.log(3e6), 1.0, batches).astype(np.int64)
    step_ns = random.normal(20e6, 2e6, batches).astype(np.int64)
    arm = np.zeros(batches, dtype=np.int64)
    pair = np.full(batches, UNKNOWN)
    if mode == "alternate":
        block = np.arange(batches) // BLOCK
        arm, pair = (
            block % 2,
            np.where(np.arange(batches) % BLOCK < BLOCK // 3, UNKNOWN, block // 2),
        )
        wait_ns[arm == 1] //= 1_000
    request_ns = np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
    epoch = np.arange(batches) * EPOCHS // batches
    many, unknown = np.full(batches, 32), np.full(batches, -1)
    times = np.linspace(0, int(request_ns[-1]), 200_000).astype(np.int64)
    readings = tuple(
        Readings(probe, subject, times, {name: random.uniform(0, high, len(times))})
        for probe, subject, name, high in (
            ("gpu", "GPU 0", "kernel_busy_percent", 100.0),
            ("gpu", "GPU 0", "power_watts", 700.0),
            ("host", "process", "cpu_cores", 2.0),
            ("host", "workers", "cpu_cores", 8.0),
        )
    )
    return Run(
        Header("id", mode, mode, "2026-11-21", "images", 5, LoaderInfo("a.Loader", workers=8)),
        Steps(epoch, arm, pair, request_ns, wait_ns, step_ns, many, many * 4, unknown, unknown),
        ends=tuple(EpochEnd(number, "exhausted", 10**18, 0) for number in range(EPOCHS)),
        readings=readings,
        closed=True,
    )


def opened_in_s(browser: Browser, path: Path) -> float:
    """The time from the request for the page to the last figure, the best of some rounds."""
    times = []
    for _ in range(ROUNDS):
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        times.append(time.perf_counter() - began)
        page.close()
    return min(times)


def main() -> None:
    """Measure and print."""
    print(
        f"{BATCHES:,} batches; aimed at: under {PAGE_MB:.0f} MB, opened in under {OPEN_S:.0f} s\n"
    )
    print("| runs | made in s | MB | opened in s |\n|---|---|---|---|")
    sorts: dict[str, list[Mode]] = {
        "log": ["log"],
        "alternate": ["alternate"],
        "two backends": ["log", "alternate"],
    }
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, modes in sorts.items():
            runs = [long_run(mode) for mode in modes]
            path = Path(folder) / f"{name}.html"
            began = time.perf_counter()
            files = [Path(f"{mode}.jsonl") for mode in modes]
            write_page(page_of(Report.of(runs), files, path), path)
            made_s = time.perf_counter() - began
            size = path.stat().st_size / 1e6
            print(f"| {name} | {made_s:.1f} | {size:.1f} | {opened_in_s(browser, path):.1f} |")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
