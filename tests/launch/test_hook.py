"""The import hook that waits for loaders, and where in the program a loader was made."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections import deque
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loadeval import read_run
from loadeval.adapter import PLACES, made_at
from loadeval.launch import hook, loadeval_inject
from loadeval.launch.hook import note_made
from loadeval.launch.loadeval_inject import Finder
from tests.launch.installing import install, uninstall

INJECT = Path(loadeval_inject.__file__).with_name("inject")
ITERABLE = "loadeval:IterableAdapter"
POINT = EntryPoint("", ITERABLE, "loadeval.adapters")
LOADERS = """
from collections import deque
class Loader:
    def __init_subclass__(cls, tag=None):
        cls.tag = tag
    def __iter__(self):
        return iter([1, 2, 3])
class Heir(Loader):
    pass
class Own(Loader):
    def __iter__(self):
        return super().__iter__()
size = 3
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Finders, modules, classes and the path are restored; the program has no sitecustomize."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(loadeval_inject, "said", set())
    monkeypatch.setattr(hook, "state", hook.State())
    before = set(sys.modules)
    yield
    uninstall()
    for name in set(sys.modules) - before:
        if name.startswith("ours_"):
            del sys.modules[name]


@pytest.fixture(name="package")
def _package(tmp_path: Path) -> str:
    """A module with a loader that nobody knows, and one that only inherits."""
    (tmp_path / "ours_loaders.py").write_text(LOADERS)
    importlib.invalidate_caches()
    return "ours_loaders"


def loaders(name: str) -> Any:
    return importlib.import_module(name)


def test_a_module_is_patched_after_it_was_imported(package: str) -> None:
    """By whichever finder; the module's own loader stays as it is."""
    seen: list[tuple[str, bool]] = []

    def patch(name: str, _: str | None) -> list[str]:
        seen.append((name, hasattr(sys.modules[name], "size")))
        return []

    sys.meta_path.insert(0, Finder({package: ITERABLE}, patch))
    module = loaders(package)
    assert seen == [(package, True)]
    assert "exec_module" not in vars(module.__loader__)


def test_a_module_in_a_package_is_patched_once_that_is_there(tmp_path: Path) -> None:
    """What patches it may import the package; and so are those that are asked for then."""
    seen: list[str] = []
    package = tmp_path / "ours_package"
    package.mkdir()
    (package / "__init__.py").write_text("from . import loaders\nsize = 3\n")
    (package / "loaders.py").write_text("")
    (package / "more.py").write_text("")
    importlib.invalidate_caches()

    def patch(name: str, _: str | None) -> list[str]:
        assert hasattr(sys.modules["ours_package"], "size")
        seen.append(name)
        return ["ours_package.more"]

    sys.meta_path.insert(0, Finder({"ours_package.loaders": ITERABLE}, patch))
    loaders("ours_package")
    assert seen == ["ours_package.loaders"]
    loaders("ours_package.more")
    assert seen == ["ours_package.loaders", "ours_package.more"]


def test_a_failure_to_patch_is_one_line(
    package: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """On stderr and in the run's folder; the module is imported."""

    def fails(_: str, __: str | None) -> list[str]:
        raise TypeError("not\nthis")

    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    sys.meta_path.insert(0, Finder({package: ITERABLE}, fails))
    assert loaders(package).size == 3
    assert capsys.readouterr().err == (
        "loadeval: not measured (TypeError: not this); the program goes on\n"
    )
    assert (tmp_path / ".failed").read_text() == "TypeError: not this\n"


def imported_by_python() -> None:
    """Run our sitecustomize as Python does when it starts."""
    path = INJECT / "sitecustomize.py"
    scope = {"__name__": "sitecustomize", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)


def test_python_begins_by_waiting(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It marks that it was there, takes itself off the path, and runs what it hides."""
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    monkeypatch.setenv("LOADEVAL_RUN_ADAPTERS", f"{package}={ITERABLE},ours_nowhere={ITERABLE}")
    monkeypatch.setitem(sys.modules, "loadeval_inject", loadeval_inject)
    monkeypatch.setitem(sys.modules, "sitecustomize", ModuleType("sitecustomize"))
    sys.path.insert(0, str(INJECT))
    (tmp_path / "sitecustomize.py").write_text("own_name = __name__\n")
    imported_by_python()
    assert str(INJECT) not in sys.path
    assert (tmp_path / ".python").exists()
    assert sys.modules["sitecustomize"].own_name == "sitecustomize"
    assert loaders(package).Loader.__iter__.__wrapped__ is not None


@pytest.fixture(name="alone")
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no sitecustomize of its own."""
    find = importlib.machinery.PathFinder.find_spec

    def hidden(name: str, *more: Any) -> Any:
        return None if name == "sitecustomize" else find(name, *more)

    monkeypatch.setattr("_frozen_importlib_external.PathFinder.find_spec", hidden)


@pytest.mark.usefixtures("alone")
def test_what_a_pth_file_has_imported_is_measured(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is there before Python imports ours."""
    module = loaders(package)
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    monkeypatch.setenv("LOADEVAL_RUN_ADAPTERS", f"{package}={ITERABLE}")
    loadeval_inject.begin("", hook.patch)
    assert list(module.Loader()) == [1, 2, 3]
    session = hook.state.session
    assert session is not None
    session.close()
    assert read_run(tmp_path / "rank0.jsonl").batches == 3


@pytest.mark.usefixtures("alone")
def test_a_fault_of_ours_at_the_start_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is gone is not: a program may start many Pythons that iterate no loader."""
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path / "gone"))
    loadeval_inject.begin("", hook.patch)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(loadeval_inject, "Finder", None)
    loadeval_inject.begin("", hook.patch)
    assert "loadeval: not measured (TypeError: " in capsys.readouterr().err


def test_loaders_of_a_registered_module_are_measured(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All that it can iterate, and what is derived from them; once each."""
    monkeypatch.setattr("loadeval.launch.settings.registered", lambda: {package: POINT})
    module = loaders(package)
    folder = install(output=tmp_path / "logs")
    hook.patch(package, ITERABLE)

    class Below(module.Loader, tag="below"):  # type: ignore[call-arg, misc, name-defined]  # only known here
        pass

    assert Below.tag == "below"
    for kind in (module.Loader, module.Heir, module.Own, Below):
        assert list(kind()) == [1, 2, 3]
    uninstall()
    assert [read_run(log).batches for log in folder.glob("*.jsonl")] == [3] * 4
    assert module.deque is deque
    assert list(module.Own()) == [1, 2, 3]


def test_a_python_of_long_ago_starts_as_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot read the rest, and is started by tools that have nothing to do with training."""
    monkeypatch.setattr(sys, "version_info", (3, 6))
    before = set(sys.modules)
    imported_by_python()
    assert set(sys.modules) == before


class Holder:
    """It holds a dataset, as loaders do."""

    def __init__(self, dataset: Any = None) -> None:
        self.dataset = dataset


def note(loader: Any) -> None:
    note_made(loader, sys._getframe(1), {"rebuilder"})


def from_a_library(name: str) -> Any:
    """A function of such a module that notes a loader."""
    space: dict[str, Any] = {"__name__": name}
    source = "def make(note, loader): note(loader)"
    exec(compile(source, "/x/site-packages/library.py", "exec"), space)
    return space["make"]


def test_a_loader_was_made_where_the_program_calls_a_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file is told from the working directory, or in full."""
    monkeypatch.chdir(Path(__file__).parent)
    loader, elsewhere = Holder(), Holder()
    here = sys._getframe().f_lineno + 1
    from_a_library("library")(note, loader)
    assert made_at(loader) == f"{Path(__file__).name}:{here}"
    monkeypatch.chdir(tmp_path)
    note(elsewhere)
    assert str(made_at(elsewhere)).startswith(f"{__file__}:")
    note(loader)
    assert made_at(loader) == f"{Path(__file__).name}:{here}"  # the innermost constructor counts


def test_what_is_made_again_was_made_where_the_first_was() -> None:
    """A package that makes loaders anew leaves the line of the first one of a dataset."""
    remade, dataset = from_a_library("rebuilder.loops"), Holder()
    first, again, strange = Holder(dataset), Holder(dataset), Holder(Holder())
    note(first)
    remade(note, again)
    remade(note, strange)
    assert made_at(again) == made_at(first) is not None
    assert made_at(strange) is None


def test_noting_a_loader_raises_nothing_and_keeps_nothing() -> None:
    """An object without attributes, a dataset that takes no weak reference, one that is gone."""
    note(object())
    loader = Holder([1, 2])
    note(loader)
    number = id(loader)
    assert number in PLACES
    del loader
    assert number not in PLACES
