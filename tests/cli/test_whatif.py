"""`loadeval whatif`: what it prints, draws and refuses, of runs that were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import runner
from tests.recordings import laid_out
from tests.runs import DEMO

run = runner("whatif")

OTHER_SETTINGS = """\
With num_workers=6, prefetch_factor=4, in_order=False, batch_size=64, cpus=8,
GaussianBlur 2x, step 1.5x faster, training would be 2.60x [2.16x, 3.20x] as
fast.

           samples/s             speed-up              held up by        memory
measured   930 [830, 1,041]      present               CPUs              24.6 MB
predicted  2,418 [1,944, 3,060]  2.60x [2.16x, 3.20x]  training process  76.2 MB

Training may use 2 CPUs. Brackets: 95% CI of what is measured, expected range of
what is predicted. Speed-ups are of whole epochs, over the run as it was. Memory
is that of the workers and of prefetched batches.

assumed
- For each further CPU in use, a batch takes 3% to 16% more CPU time.
- The training step takes the same time for a sample as in the run.
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_other_settings_beside_the_present_ones(tmp_path: Path) -> None:
    (log,) = laid_out("slow-transform", tmp_path)
    options = ["--num-workers", 6, "--prefetch-factor", 4, "--out-of-order", "--batch-size", 64]
    options += ["--cpus", 8, "--faster", "GaussianBlur=2", "--faster", "step=1.5"]
    assert run(log, *options) == (0, OTHER_SETTINGS, "")


def test_the_present_settings_are_one_row(tmp_path: Path) -> None:
    (log,) = laid_out("slow-transform", tmp_path)
    _, out, _ = run(log, "--num-workers", 2)
    assert out.startswith("These are the present settings: nothing would change.\n")
    assert out.count("measured  ") == 1


def test_memory_of_workers_that_was_not_read_has_no_column() -> None:
    assert "held up by  /dev/shm\n" in run(DEMO)[1]


def test_cpus_that_others_use_now_are_told(tmp_path: Path) -> None:
    """`--cpus` are those that nobody else uses."""
    (log,) = laid_out("before-storage-latency", tmp_path)
    for options, headline in ([], "No other number"), (["--cpus", 2], "With cpus=2, training"):
        _, out, _ = run(log, *options)
        assert out.startswith(headline)
        assert "Training may use 2 CPUs; other programs use 1.5 of them. " in " ".join(out.split())


def test_json_has_the_curve_and_what_was_asked_for() -> None:
    """The latter where options are given, as the curve has it."""
    document = json.loads(run(DEMO, "--json")[1])
    assert document["with_options"] is None
    asked = json.loads(run(DEMO, "--num-workers", 5, "--json")[1])["with_options"]
    assert asked == document["predicted"][5]


def test_what_there_is_too_little_memory_for(tmp_path: Path) -> None:
    """From the least number of workers on that take more than there is."""
    text, free = DEMO.read_text(encoding="utf-8"), '"environment":{"shm_free_bytes":30000000,'
    log = tmp_path / "run.jsonl"
    log.write_text(text.replace('"environment":{', free, 1), encoding="utf-8")
    short = "That takes 33.7 MB of /dev/shm, and 30.0 MB of it were free when the run began."
    _, out, _ = run(log)
    assert f"Caution: From 3 workers on: {short}" in " ".join(out.split())
    _, out, _ = run(log, "--num-workers", 3)
    assert f"Caution: {short}" in " ".join(out.split())


def test_the_curve_is_drawn_too(tmp_path: Path) -> None:
    """Of each number of workers; what is drawn is told but in JSON."""
    _, out, _ = run(DEMO, "--num-workers", 4, "-o", "whatif.svg")
    assert out.endswith("\n\nFigure written to whatif.svg\n")
    drawn = (tmp_path / "whatif.svg").read_text(encoding="utf-8")
    assert "4 workers, predicted: " in drawn
    json.loads(run(DEMO, "--json", "-o", "whatif.png")[1])
    assert (tmp_path / "whatif.png").read_bytes().startswith(b"\x89PNG")


REFUSED = {
    ("slow-transform", "--faster", "decode=2"): (
        "faster has 'decode', which names no part, or several; expected 'GaussianBlur.filter', "
    ),
    ("slow-transform", "--num-workers", "0", "--prefetch-factor", "4"): (
        "prefetch_factor is 4 and num_workers is 0; expected workers, for only they prefetch: "
    ),
    ("log-and-replay",): ". has 2 run logs; give one, such as log.jsonl",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_predicted_is_said_in_one_line(
    given: tuple[str, ...], tmp_path: Path
) -> None:
    recording, *options = given
    logs = laid_out(recording, tmp_path)
    paths = logs if len(logs) == 1 else ["."]
    code, out, err = run(*paths, *options)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"Error: {REFUSED[given]}")


@pytest.mark.parametrize("options", [["--faster", "decode"], ["--cpus", "inf"]])
def test_values_that_no_loader_can_have_are_wrong_usage(options: list[str]) -> None:
    code, out, err = run(DEMO, *options)
    assert (code, out) == (2, "")
    assert options[0] in err
