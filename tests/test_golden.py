"""Whole outputs, compared with the files in tests/golden.

`pytest tests/test_golden.py -n0 --rewrite-golden` writes these files anew and prints what changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.hangs.hang import Cause, Hang
from loadeval.analysis.hangs.stack import StuckAt
from loadeval.report.terminal.attach import attached_screen
from tests import attached
from tests.cli.commands import runner
from tests.runs.given import cores_read, write_run
from tests.runs.looked_into import COUNT, code, looked_into
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.data.run import Run


def alternated() -> Run:
    """Two workers that blur images are too slow, and one batch in seven is slower still.

    The machine was not quiet: it was hot, other virtual machines ran on it, and its control group
    limits CPU time.
    """
    run = looked_into(
        fetch=40.0 + 14.0 * (np.arange(COUNT) % 7 == 0),
        collate=4.0,
        pickle=1.0,
        real=21.5,
        transforms={"GaussianBlur": 0.6, "RandomCrop": 0.1},
        seen=code({"data.py:31 __getitem__ > GaussianBlur": 520, "data.py:28 load_image": 180}),
        environment={"cpus_usable": 8, "host": "a", "packages": {"torch": "2.13"}},
    )
    run = cores_read(run, process=(1.0, 0.6), workers=(1.8, 0.1))
    disturbed = {
        "stolen_cores": np.full(2000, 0.2),
        "cgroup_throttled_share": np.full(2000, 0.08),
        "thermal_throttles_per_s": np.full(2000, 1.5),
    }
    return replace(
        run,
        readings=tuple(
            replace(read, values={**read.values, **disturbed})
            if read.subject == "machine"
            else read
            for read in readings_lines(run)
        ),
    )


@pytest.mark.parametrize(("name", "options"), [("screen", ()), ("full", ("--full",))])
def test_what_compare_prints(
    name: str,
    options: tuple[str, ...],
    golden: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The screen, and the whole text."""
    write_run(alternated(), tmp_path / "run.jsonl")
    monkeypatch.chdir(tmp_path)
    exit_code, printed, errors = runner("compare")("run.jsonl", *options)
    assert (exit_code, errors) == (0, "")
    golden(name, printed)


STUCK = Hang(
    Cause.SLEEPING,
    10 * 10**9,
    attached.PID,
    pid=101,
    worker=0,
    batch=97,
    sample=777,
    place=StuckAt("train.py:6 Photos.__getitem__", call="clock_nanosleep", wchan="hrtimer"),
    idle=(1,),
    seen_ns=10 * 10**9,
    stays=True,
)


def test_what_attach_prints_of_a_training_that_waits(golden: Callable[[str, str], None]) -> None:
    report = attached.attached(gpus={"GPU 0 (H100)": 41.0})
    golden("attach", "\n".join(attached_screen(report, 80)))


def test_what_attach_prints_of_a_worker_that_is_stuck(golden: Callable[[str, str], None]) -> None:
    """Its findings are left out."""
    workers = [
        attached.process(101, *(attached.FETCH,) * 20, growth=attached.growth(0.0)),
        attached.process(102, *(attached.ASK,) * 20, growth=attached.growth(0.0)),
    ]
    training = attached.process(attached.PID, *(attached.WAIT,) * 40, growth=attached.growth(0.0))
    report = attached.report_of(training, workers)
    golden("attach-stuck", "\n".join(attached_screen(replace(report, findings=()), 80, STUCK)))
