"""`loadeval backends`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval.backends import RECIPES, compare_backends, recipe_code, recipe_loader
from loadeval.testing import FakeClock, ScriptedLoader
from tests.cli.commands import runner
from tests.images import crops

MS = 1_000_000
PRINTED = """
6 of 6 JPEGs in photographs, again and again.
Batches of 4, by 2 workers; the step computes for 10ms.
simplejpeg: 2.8 of 255 levels from pillow's pixels, so training sees other pixels.
dali is not installed: pip install torch nvidia-dali-cuda120
Figure written to figure.png
"""
SAID = "loadeval: comparing the pixels and the speed of pillow, simplejpeg, dali"
run = runner("backends", columns=100)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six JPEGs in two classes, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for number, jpeg in enumerate(crops(*((left, 0, left + 300, 280) for left in range(6)))):
        path = tmp_path / "photographs" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
    return "photographs"


@pytest.fixture(name="_scripted")
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recipes were measured by a clock of their own, and one is not installed."""
    clock = FakeClock()
    loaders = {
        name: ScriptedLoader([np.zeros((4, 2))] * 60, [load_ms * MS] * 60, clock)
        for name, load_ms in (("pillow", 30), ("simplejpeg", 10))
    }

    def compare(paths: list[str], names: list[str], _step: object, **_: Any) -> Any:
        assert (len(paths), names) == (6, ["pillow", "simplejpeg", "dali"])
        comparison = compare_backends(
            loaders,
            lambda _: clock.advance(10 * MS),
            batches=24,
            rounds=3,
            unit="images",
            clock=clock,
            probes=(),
        )
        left_out = ["dali is not installed: pip install torch nvidia-dali-cuda120"]
        return comparison, {"pillow": 0.0, "simplejpeg": 2.8}, left_out

    monkeypatch.setattr("loadeval.cli.backends.compare_recipes", compare)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


ONLY = [word for name in ("pillow", "simplejpeg", "dali") for word in ("--only", name)]


@pytest.mark.usefixtures("_scripted")
def test_what_is_printed(folder: str) -> None:
    """The comparison, whose pixels differ, and what is not installed."""
    code, out, err = run(folder, *ONLY, "--step", "10ms", "--batch-size", 4, "-o", "figure.png")
    assert (code, err) == (0, f"{SAID}\n")
    assert out.startswith("simplejpeg is 2.00x [2.00x, 2.00x] as fast as pillow\nimages/s ")
    assert out.endswith(PRINTED)


@pytest.mark.usefixtures("_scripted")
def test_the_code_of_the_fastest_is_all_that_stdout_has(folder: str) -> None:
    """It can be redirected into a file; all else is on stderr."""
    code, out, err = run(folder, *ONLY, "--step", "10ms", "--code")
    assert code == 0
    assert out == recipe_code("simplejpeg", 256, 224)
    assert err.startswith(f"{SAID}\nsimplejpeg is 2.00x")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--step", "0.0ms"], "--step is '0.0ms'; expected a time such as 20ms or 0.2s"),
        (
            ["--transform", "resize 224, crop 256"],
            "--transform is 'resize 224, crop 256'; expected",
        ),
        (["--only", "turbo"], f"there is no recipe 'turbo'; expected one of {', '.join(RECIPES)}"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(folder: str, arguments: list[str], error: str) -> None:
    code, out, err = run(folder, *arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"Error: {error}")


def test_a_recipe_that_drops_jpegs_is_left_out(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropping(name: str, samples: Any, *args: int, **sizes: int) -> Any:
        kept = samples[:-1] if name == "pillow_draft" else samples
        return recipe_loader(name, kept, *args, **sizes)

    monkeypatch.setattr("loadeval.backends.recipe_loader", dropping)
    code, out, err = run(folder, "--only", "pillow_draft", "--step", "10ms")
    assert (code, out) == (1, "")
    assert err.endswith(
        "Error: no recipe can be measured: pillow_draft is left out: it loads 5 of 6 JPEGs\n"
    )


@pytest.mark.check
def test_a_folder_is_measured(folder: str, tmp_path: Path) -> None:
    """A JPEG that is broken is left out, and said so."""
    (tmp_path / "photographs" / "broken.jpg").write_bytes(b"no image")
    options = ("--step", "10ms", "--batch-size", 2, "--transform", "resize 128, crop 112")
    code, out, err = run(folder, *options, "--json", "-o", "figure.png")
    assert code == 0, err
    document = json.loads(out)
    (left_out,) = document["left_out"]
    assert left_out.startswith("broken.jpg is left out: UnidentifiedImageError: ")
    comparison = document["comparison"]
    assert comparison["failed"] == {}
    assert sorted(comparison["backends"]) == sorted(RECIPES)
    assert all(each["gap"]["speedup"] for each in comparison["backends"].values())
    assert all(comparison["memory_bytes"].values())
    assert document["pixels_differ"]["spdl"] == 0
    assert document["fastest"] in RECIPES
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
