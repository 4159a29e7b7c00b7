"""The figure of a comparison."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

from loadeval.analysis.headroom import compare, headroom
from loadeval.errors import RunLogError, UsageError
from loadeval.report.formatting import duration, estimated
from loadeval.report.plots import plot_comparison
from loadeval.report.wording import cautions, headline, not_measured
from loadeval.runlog.model import Event
from loadeval.runlog.writer import write_metrics
from tests.report.drawn import figure_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]


def test_title_states_the_finding(record: Record) -> None:
    """The first lines of the figure are the headline of the comparison, its interval included."""
    real, ideal = record(), record("replay")
    assert " ".join(figure_texts(real, ideal)[:2]) == headline(compare(real, ideal))


def test_small_print_has_counts_thresholds_and_caution(record: Record) -> None:
    """Loader, counts, what a verdict means, and what speaks against it are there."""
    real, ideal = record(epochs=2), record("replay")
    words = " ".join(figure_texts(real, ideal))
    assert "real (log): ScriptedLoader; 60 batches in 2 epochs, 58 of them steady" in words
    assert "ideal (replay): 2 kept batches replayed; 30 batches in 1 epoch, 29" in words
    assert "not input-bound under 5% of the time lost, moderately under 20%" in words
    assert " ".join(cautions(compare(real, ideal))) in words


def test_notes_are_in_the_small_print(record: Record) -> None:
    """The first note is told, and how many there are beside it; none twice."""
    real = dataclasses.replace(record(), notes=("cut off", "same"))
    ideal = dataclasses.replace(record("replay"), notes=("same",), events=(Event(0, "copies"),))
    words = " ".join(figure_texts(real, ideal))
    assert "Note: cut off (and 2 more: see `loadeval show`)" in words


def test_text_of_a_run_is_no_mathematics(record: Record) -> None:
    """Dollar signs in a name are dollar signs."""
    words = " ".join(figure_texts(record(name="$\\frac{1$ $x$"), record("replay")))
    assert "real ($\\frac{1$ $x$)" in words


def test_a_character_without_a_glyph_is_a_box(record: Record) -> None:
    """What the font does not have is neither a warning nor left out."""
    words = " ".join(figure_texts(record(name="run \u4e2d"), record("replay")))
    assert "real (run \u25a1)" in words


def test_an_alternating_run_is_drawn_alone(alternating: Record, tmp_path: Path) -> None:
    """One file is enough, and the title, the small print and the loss have their intervals."""
    run = alternating()
    write_metrics(run, tmp_path / "run.json")
    assert plot_comparison(tmp_path / "run.json", output=tmp_path / "a.png").stat().st_size > 0
    found = headroom(run)
    words = " ".join(text.get_text() for text in figure_of(run).texts)
    assert headline(found) in words
    assert "alternating: Loader, workers 2, prefetch depth 4, batch size 32; 264 batches" in words
    assert "in 12 pairs of blocks" in words
    assert f"Lost per batch: {estimated(found.lost_ns, duration)} of" in words


def test_one_run_that_does_not_alternate_is_refused(record: Record) -> None:
    """It is said which kind of run was expected."""
    with pytest.raises(UsageError, match="mode='alternate'"):
        figure_of(record())


def test_what_was_not_measured_is_in_the_small_print(alternating: Record) -> None:
    """Each sentence about it."""
    run = alternating(prefetches=False)
    words = " ".join(text.get_text() for text in figure_of(run).texts)
    assert len(said := not_measured(headroom(run))) > 1
    assert all(sentence in words for sentence in said)


def test_runs_the_other_way_round_are_refused(record: Record) -> None:
    """A replayed run is not drawn as the real one."""
    with pytest.raises(UsageError, match="the other way round"):
        figure_of(record("replay"), record())


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_figure_is_written_in_the_format_of_its_extension(
    record: Record, tmp_path: Path, name: str, start: bytes
) -> None:
    """PNG, SVG and PDF; the path written is returned."""
    real, ideal = saved(tmp_path, record)
    path = plot_comparison(real, ideal, output=tmp_path / name)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(start)


def test_run_logs_are_drawn(record: Record, tmp_path: Path) -> None:
    """Run logs work as metrics files do, as plain strings too."""
    record(log_file=tmp_path / "real.jsonl")
    record("replay", log_file=tmp_path / "ideal.jsonl")
    output = str(tmp_path / "figure.png")
    plot_comparison(
        real_log=str(tmp_path / "real.jsonl"),
        ideal_log=str(tmp_path / "ideal.jsonl"),
        output=output,
    )
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_dali_files_are_drawn(tmp_path: Path) -> None:
    """The JSON of DALI's LoaderEvaluator has what a figure needs."""
    for mode, wait in (("log", 0.02), ("replay", 0.0)):
        metrics = {
            "mode": mode,
            "total_batches": 30,
            "total_time": 30 * (wait + 0.01),
            "batch_times": [wait] * 30,
            "cached_batches": 0,
        }
        (tmp_path / f"{mode}.json").write_text(json.dumps(metrics))
    output = tmp_path / "figure.png"
    plot_comparison(tmp_path / "log.json", tmp_path / "replay.json", output)
    assert output.stat().st_size > 0


def test_another_extension_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The message names what was given, what there is, and what to try."""
    with pytest.raises(UsageError, match=r"'a.gif'.*'.gif'.*.png, .svg or .pdf.*try a.png"):
        plot_comparison(tmp_path / "none", tmp_path / "none", tmp_path / "a.gif")


def test_a_folder_that_is_not_there_is_told(record: Record, tmp_path: Path) -> None:
    """No folder is made, and the message names the path."""
    real, ideal = saved(tmp_path, record)
    with pytest.raises(UsageError, match=r"cannot write the figure .*none/a.png: No such file"):
        plot_comparison(real, ideal, tmp_path / "none" / "a.png")


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The reader's error comes through."""
    with pytest.raises(RunLogError, match="cannot read"):
        plot_comparison(tmp_path / "none", tmp_path / "none", tmp_path / "a.png")


def test_settings_of_the_user_are_left_alone(record: Record, tmp_path: Path) -> None:
    """No global setting changes."""
    real, ideal = saved(tmp_path, record)
    before = dict(mpl.rcParams)
    plot_comparison(real, ideal, tmp_path / "a.png")
    assert dict(mpl.rcParams) == before


def test_pyplot_is_not_imported(record: Record, tmp_path: Path) -> None:
    """Drawing needs no display: pyplot, which would look for one, takes no part in it."""
    real, ideal = saved(tmp_path, record)
    script = (
        "import sys, loadeval; loadeval.plot_comparison(*sys.argv[1:]); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", script, *map(str, (real, ideal, tmp_path / "a.png"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_settings_of_the_user_do_not_spoil_the_figure(record: Record) -> None:
    """A dark style, other sizes, grids and TeX change nothing."""
    plain = figure_of(record(), record("replay"))
    style: dict[Any, Any] = {
        "axes.grid": True,
        "axes.facecolor": "black",
        "figure.facecolor": "black",
        "font.size": 40,
        "font.family": "monospace",
        "lines.marker": "x",
        "text.color": "white",
        "text.usetex": True,
        "xtick.minor.visible": True,
    }
    with mpl.rc_context(style):
        styled = figure_of(record(), record("replay"))
        assert pixels(styled) == pixels(plain)


def test_figures_are_drawn_in_threads(record: Record, tmp_path: Path) -> None:
    """Threads that draw at once do not disturb each other."""
    real, ideal = saved(tmp_path, record)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    threads = [threading.Thread(target=plot_comparison, args=(real, ideal, path)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path.read_bytes() for path in paths}) == 1


def figure_texts(real: Run, ideal: Run) -> list[str]:
    return [text.get_text() for text in figure_of(real, ideal).texts]


def saved(folder: Path, record: Record) -> tuple[Path, Path]:
    paths = folder / "real.json", folder / "ideal.json"
    write_metrics(record(), paths[0])
    write_metrics(record("replay"), paths[1])
    return paths


def pixels(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
