"""The change that gives a DataLoader of a program other settings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.tuning.change import NoChangeError, changed, unified_diff

if TYPE_CHECKING:
    from pathlib import Path

GIT = shutil.which("git") or "git"
IN_LINES = """loader = DataLoader(
    dataset,
    batch_size=64,
    num_workers=args.workers,  # few
    collate_fn=lambda batch: DataLoader2(batch),
)
"""


@pytest.mark.parametrize(
    ("before", "settings", "after"),
    [
        ("DataLoader(d, num_workers=1)", {"num_workers": 4}, "DataLoader(d, num_workers=4)"),
        ("x = DataLoader(data)", {"num_workers": 4}, "x = DataLoader(data, num_workers=4)"),
        (
            "x = data.DataLoader(d, 64, num_workers = 1)",
            {"num_workers": 4, "persistent_workers": True},
            "x = data.DataLoader(d, 64, num_workers = 4, persistent_workers=True)",
        ),
        (
            "x = DataLoader(d, 64, True, None, None, 2)",
            {"num_workers": 4},
            "x = DataLoader(d, 64, True, None, None, 4)",
        ),
        (
            "x = DataLoader(d, num_workers=2, prefetch_factor=4, timeout=3)",
            {"num_workers": 0},
            "x = DataLoader(d, num_workers=0)",
        ),
        (
            "x = f(DataLoader(d)); y = g()",
            {"num_workers": 2},
            "x = f(DataLoader(d, num_workers=2)); y = g()",
        ),
    ],
)
def test_the_call_has_the_settings(before: str, settings: dict[str, Any], after: str) -> None:
    """What is there is replaced, what is not comes last, what needs workers goes without them."""
    assert changed(before, 1, settings) == after


@pytest.mark.parametrize("line", [1, 4])
def test_a_call_in_several_lines_stays_as_it_is_written(line: int) -> None:
    """Its comments and its commas, and new arguments in lines of their own."""
    after = changed(IN_LINES, line, {"num_workers": 4, "prefetch_factor": 4})
    assert after.splitlines() == [
        "loader = DataLoader(",
        "    dataset,",
        "    batch_size=64,",
        "    num_workers=4,  # few",
        "    collate_fn=lambda batch: DataLoader2(batch),",
        "    prefetch_factor=4,",
        ")",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "x = DataLoader(d, **options)",
        "x = make(d, num_workers=1)",
        "x, y = DataLoader(d), DataLoader(e)",
        "x = DataLoader(",
    ],
)
def test_what_is_not_one_literal_call_is_left_to_the_user(source: str) -> None:
    """Arguments from elsewhere, other functions, two calls, and what is no Python."""
    with pytest.raises(NoChangeError, match="line 1 has no call"):
        changed(source, 1, {"num_workers": 4})


def test_without_libcst_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "libcst", None)
    with pytest.raises(NoChangeError, match=r"pip install 'loadeval\[tune\]'"):
        changed("x = DataLoader(d)", 1, {"num_workers": 4})


@pytest.mark.parametrize("end", ["\n", ""])
def test_git_applies_the_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """In the folder in which it was made, whether or not the file ends with a line's end."""
    file = tmp_path / "code" / "train.py"
    file.parent.mkdir()
    before = f"import torch\n\nloader = DataLoader(data){end}"
    file.write_text(before)
    monkeypatch.chdir(tmp_path)
    after = changed(before, 3, {"num_workers": 2})
    subprocess.run([GIT, "init", "--quiet"], check=True)
    diff = unified_diff(before, after, file)
    assert "a/code/train.py" in diff
    subprocess.run([GIT, "apply"], input=diff, text=True, check=True)
    assert file.read_text() == after
