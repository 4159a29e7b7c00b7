"""How large the page of a long run is, how long it takes to make, and to open in a browser.

Prints a table. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import sync_playwright

from bench.judge import COMMAND
from bench.made_logs import block, epoch_end, header, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from bench.made_logs import Line

BATCHES = 1_000_000
EPOCHS = 50
BLOCK = 10
READINGS, IN_LINE = 200_000, 1000
PAGE_MB = 8.0
OPEN_S = 3.0
ROUNDS = 3


def long_run(mode: str, batches: int) -> Iterator[Line]:
    """The log of a run with bursts, and a day of readings of a GPU and of a host."""
    random = np.random.default_rng(0)
    wait_ns = random.lognormal(np.log(3e6), 1.0, batches).astype(np.int64)
    step_ns = random.normal(20e6, 2e6, batches).astype(np.int64)
    alternates = mode == "alternate"
    if alternates:
        wait_ns[np.arange(batches) // BLOCK % 2 == 1] //= 1_000
    request_ns = np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
    many = np.full(batches, 32)
    columns = {
        "request_ns": request_ns,
        "wait_ns": wait_ns,
        "step_ns": step_ns,
        "samples": many,
        "nbytes": many * 4,
    }
    yield header(mode, mode)
    each = batches // EPOCHS
    for epoch in range(EPOCHS):
        for start in range(epoch * each, (epoch + 1) * each, BLOCK):
            number, warm = start // BLOCK, start + BLOCK // 3
            arm = "ideal" if alternates and number % 2 else "real"
            pair = number // 2 if alternates else None
            for rows, of_pair in ((slice(start, warm), None), (slice(warm, start + BLOCK), pair)):
                part = {name: column[rows] for name, column in columns.items()}
                yield block(part, epoch, arm, of_pair)
        last = (epoch + 1) * each - 1
        yield epoch_end(epoch, int(request_ns[last] + wait_ns[last] + step_ns[last]), 0)
    times = np.linspace(0, int(request_ns[-1]), READINGS).astype(np.int64)
    for probe, subject, highest in (
        ("gpu", "GPU 0", {"kernel_busy_percent": 100.0, "power_watts": 700.0}),
        ("host", "process", {"cpu_cores": 2.0}),
        ("host", "workers", {"cpu_cores": 8.0}),
    ):
        for start in range(0, READINGS, IN_LINE):
            time_ns = times[start : start + IN_LINE].tolist()
            values = {
                name: random.uniform(0, high, len(time_ns)).tolist()
                for name, high in highest.items()
            }
            of_subject = {"probe": probe, "subject": subject, "missing": None}
            yield {"type": "readings", **of_subject, "time_ns": time_ns, "values": values}


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help="some thousands")
    batches = parser.parse_args().batches
    print(
        f"{batches:,} batches; aimed at: under {PAGE_MB:.0f} MB, opened in under {OPEN_S:.0f} s\n"
    )
    print("| runs | read and made in s | MB | opened in s |\n|---|---|---|---|")
    sorts = {
        "log": ["log"],
        "alternate": ["alternate"],
        "two backends": ["log", "alternate"],
    }
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, modes in sorts.items():
            logs = [Path(folder) / f"{mode}.jsonl" for mode in modes]
            for mode, log in zip(modes, logs, strict=True):
                if not log.exists():
                    write_log(log, long_run(mode, batches))
            path = Path(folder) / f"{name}.html"
            began = time.perf_counter()
            command = [*COMMAND, "report", *map(str, logs), "--output", str(path)]
            subprocess.run(command, check=True, capture_output=True)
            made_s = time.perf_counter() - began
            size = path.stat().st_size / 1e6
            print(f"| {name} | {made_s:.1f} | {size:.1f} | {opened_in_s(browser, path):.1f} |")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
