"""The wheel that is released is the same whoever builds it, and works where nothing else is."""

from __future__ import annotations

import re
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from bench.release import check
from bench.release.check import CheckError, Clean, build_reproducibly, check_installed

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[2]
EXTRA = re.compile(r"""pip install ["'](?:\.|loadeval)\[([\w,]+)\]""")


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist; as they are made it is checked that two builds are the same."""
    return build_reproducibly(tmp_path_factory.mktemp("built"))


@pytest.fixture(name="about")
def _about(built: tuple[Path, Path]) -> Message:
    """The metadata of the wheel."""
    (distribution,) = metadata.distributions(path=[str(built[0])])
    return distribution.metadata  # type: ignore[return-value]  # it is one


def test_two_builds_are_the_same(built: tuple[Path, Path]) -> None:
    """Elsewhere, of files with another date, under another umask, and from the sdist."""
    assert [path.name for path in built] == [
        "loadeval-0.2.0-py3-none-any.whl",
        "loadeval-0.2.0.tar.gz",
    ]


@pytest.mark.check
def test_a_build_that_differs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here for a date that is not the same twice."""
    dates = iter(["1704067200", "1804067200"])
    original = check.build

    def built(sources: Path, output: Path, umask: int = 0) -> tuple[Path, Path]:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", next(dates))
        return original(sources, output, umask)

    monkeypatch.setattr(check, "build", built)
    with pytest.raises(CheckError, match="has other bytes when it is built again"):
        build_reproducibly(tmp_path)


def test_the_wheel_has_both_packages_and_their_types(built: tuple[Path, Path]) -> None:
    """The command and the adapters; and nothing of the tests."""
    names = set(ZipFile(built[0]).namelist())
    entry_points = ZipFile(built[0]).read("loadeval-0.2.0.dist-info/entry_points.txt")
    assert b"torch.utils.data = loadeval_adapters.torch:PyTorchAdapter" in entry_points
    assert b"loadeval = loadeval.cli.main:app" in entry_points
    assert {"loadeval/py.typed", "loadeval_adapters/py.typed", "loadeval/report/page.html"} <= names
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"loadeval", "loadeval_adapters", "loadeval-0.2.0.dist-info"}


def test_the_sdist_has_what_the_project_is_judged_by(built: tuple[Path, Path]) -> None:
    """Tests, documents, licence and policies."""
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {"LICENSE", "SECURITY.md", "CITATION.cff", "CHANGELOG.md", "Makefile"}
    assert wanted <= names
    assert {"tests/conftest.py", "docs/index.md", "examples/train.py"} <= names
    assert not [name for name in names if name.startswith((".ci", ".venv", ".git/"))]


def test_the_metadata_names_pythons_and_system(about: Message) -> None:
    """Those that are tested; no host, for there is none yet."""
    classifiers = set(about.get_all("Classifier", []))
    pythons = {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)}
    assert pythons | {"Operating System :: POSIX :: Linux", "Typing :: Typed"} <= classifiers
    assert (about["Version"], about["Requires-Python"]) == ("0.2.0", ">=3.10")
    assert about["License-Expression"] == "Apache-2.0"
    assert about.get_all("Project-URL") is None


def test_what_is_drawn_with_is_an_extra(about: Message) -> None:
    """Without it little is installed."""
    required = about.get_all("Requires-Dist", [])
    alone = {
        re.split(r"[<>=]", requirement)[0]
        for requirement in required
        if "extra ==" not in requirement
    }
    assert alone == {"msgspec", "numpy", "nvidia-ml-py", "psutil", "rich", "typer"}
    drawing = [requirement for requirement in required if requirement.endswith("extra == 'report'")]
    assert {re.split(r"[<>=]", requirement)[0] for requirement in drawing} == {
        "jinja2",
        "markupsafe",
        "matplotlib",
    }


def test_extras_that_are_named_exist(about: Message) -> None:
    """In the documents, and in errors that say what to install."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("loadeval/**/*.py")]
    named = {extra for path in pages for extra in EXTRA.findall(path.read_text(encoding="utf-8"))}
    assert {"report", "demo", "attach", "backends"} <= named
    of_users = {"train"}  # in a CI job of theirs
    assert named - of_users <= set(about.get_all("Provides-Extra", []))


@pytest.mark.check
def test_it_works_where_nothing_else_is(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Without sources, torch, a compiler and, where it can be unmounted, /proc."""
    clean = Clean(sys.executable, tmp_path / "clean")
    check_installed(clean, built[0])
    assert clean.figures["mypy"] == "ok"
