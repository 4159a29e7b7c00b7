"""The import hook that waits for loaders, and which processes and calls are measured."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections import deque
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoadevalWarning, read_run
from loadeval.data.folder import processes_in
from loadeval.launch import hook, loadeval_inject
from loadeval.launch.loadeval_inject import Finder
from tests.launch.installing import install, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator

INJECT = Path(loadeval_inject.__file__).with_name("inject")
ITERABLE = "loadeval:IterableAdapter"
POINT = EntryPoint("", ITERABLE, "loadeval.adapters")


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Finders, modules, classes and the path are restored."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    uninstall()
    hook.end_session()
    for name in set(sys.modules) - before:
        if name.startswith("ours_"):
            del sys.modules[name]


@pytest.fixture(name="package")
def _package(tmp_path: Path) -> str:
    """A module with a loader that nobody knows, and one that only inherits."""
    (tmp_path / "ours_loaders.py").write_text(
        "from collections import deque\n"
        "class Loader:\n"
        "    def __init_subclass__(cls, tag=None):\n        cls.tag = tag\n"
        "    def __iter__(self):\n        return iter([1, 2, 3])\n"
        "class Heir(Loader):\n    pass\n"
        "class Own(Loader):\n    def __iter__(self):\n        return super().__iter__()\n"
        "size = 3\n"
    )
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    return "ours_loaders"


def loaders(name: str) -> Any:
    return importlib.import_module(name)


def begun(finder: Finder) -> None:
    sys.meta_path.insert(0, finder)


def test_a_module_is_patched_after_it_was_imported(package: str) -> None:
    """It is patched by whichever finder, and its loader stays as it is."""
    seen: list[tuple[str, bool]] = []

    def patch(name: str) -> list[str]:
        seen.append((name, hasattr(sys.modules[name], "size")))
        return []

    begun(Finder([package], patch))
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
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()

    def patch(name: str) -> list[str]:
        assert hasattr(sys.modules["ours_package"], "size")
        seen.append(name)
        return ["ours_package.more"]

    begun(Finder(["ours_package.loaders"], patch))
    loaders("ours_package")
    assert seen == ["ours_package.loaders"]
    loaders("ours_package.more")
    assert seen == ["ours_package.loaders", "ours_package.more"]


def test_modules_are_patched_in_turn(package: str, tmp_path: Path) -> None:
    """One that patching another imports waits: one module may have the adapters of both."""
    (tmp_path / "ours_second.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    seen: list[str] = []

    def patch(name: str) -> list[str]:
        if name == package:
            importlib.import_module("ours_second")
        seen.append(name)
        return []

    begun(Finder([package, "ours_second"], patch))
    loaders(package)
    assert seen == [package, "ours_second"]


def test_a_failure_to_patch_is_one_line(
    package: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """This is told on stderr and in the run's folder; the module is imported."""

    def fails(_: str) -> list[str]:
        raise TypeError("not\nthis")

    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    begun(Finder([package], fails))
    assert loaders(package).size == 3
    assert capsys.readouterr().err == (
        "loadeval: not measured (TypeError: not this); the program goes on\n"
    )
    assert (tmp_path / ".failed").read_text() == "TypeError: not this\n"


def test_python_begins_by_waiting(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It marks that it was there, and takes itself off the path."""
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    monkeypatch.setenv("LOADEVAL_RUN_ADAPTERS", f"{package}={ITERABLE},ours_nowhere={ITERABLE}")
    here = str(hook.__file__).replace("hook.py", "inject")
    sys.path.insert(0, here)
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    (tmp_path / "sitecustomize.py").write_text("own_name = __name__\n")
    loadeval_inject.begin(here, hook.patch)
    assert here not in sys.path
    assert (tmp_path / ".python").exists()
    assert sys.modules["sitecustomize"].own_name == "sitecustomize"
    assert loaders(package).Loader.__iter__.__wrapped__ is not None


def test_what_a_pth_file_has_imported_is_measured(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is there before Python imports ours."""
    module = loaders(package)
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    monkeypatch.setenv("LOADEVAL_RUN_ADAPTERS", f"{package}={ITERABLE}")
    with monkeypatch.context() as patched:
        patched.setattr("_frozen_importlib_external.PathFinder.find_spec", lambda *_: None)
        loadeval_inject.begin("", hook.patch)
    monkeypatch.setattr(hook, "_hook", hook._Hook())
    assert list(module.Loader()) == [1, 2, 3]
    session = hook.current()
    assert session is not None
    session.close()
    assert read_run(tmp_path / "rank0.jsonl").batches == 3


def test_without_a_folder_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADEVAL_RUN", raising=False)
    monkeypatch.setattr("_frozen_importlib_external.PathFinder.find_spec", lambda *_: None)
    finders = list(sys.meta_path)
    loadeval_inject.begin("", hook.patch)
    assert sys.meta_path == finders


def test_a_fault_of_ours_at_the_start_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is gone is not: whoever cannot write its log there tells."""

    def fails(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path / "gone"))
    monkeypatch.setattr("_frozen_importlib_external.PathFinder.find_spec", lambda *_: None)
    monkeypatch.setattr(loadeval_inject, "said", set())
    monkeypatch.setattr(loadeval_inject, "Finder", fails)
    loadeval_inject.begin("", hook.patch)
    assert "loadeval: not measured (OSError: no room)" in capsys.readouterr().err


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
    assert not hasattr(module.Loader.__iter__, "__wrapped__")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"loaders": []}',
        '{"name": "rank0", "rank": 0, "pid": 1, "host": "x", "ended": true, "loaders": {}}',
    ],
)
def test_a_file_that_is_not_ours_is_no_process(text: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(text)
    assert processes_in(tmp_path) == []


def test_a_file_that_cannot_be_written_is_told(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once. What is measured stays."""
    monkeypatch.setattr("loadeval.launch.settings.registered", lambda: {package: POINT})
    module = loaders(package)
    folder = install(output=tmp_path / "logs")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("loadeval.data.folder.ProcessRecord.save", full)
    with pytest.warns(LoadevalWarning, match=r"rank0.json, which .* \(no space left\)") as said:
        assert list(module.Loader()) == [1, 2, 3]
        uninstall()
    assert len(said) == 1
    assert read_run(folder / "rank0.jsonl").batches == 3


def test_a_folder_that_is_gone_is_told_once(
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The loaders are iterated unmeasured."""
    monkeypatch.setattr("loadeval.launch.settings.registered", lambda: {package: POINT})
    monkeypatch.setattr(loadeval_inject, "said", set())
    module = loaders(package)
    shutil.rmtree(install(output=tmp_path / "logs"))
    for _ in range(2):
        assert list(module.Loader()) == [1, 2, 3]
    assert capsys.readouterr().err.count("not measured") == 1


def imported_by_python() -> str:
    """Run our sitecustomize as Python does when it starts; the folder that it is in."""
    path = INJECT / "sitecustomize.py"
    scope = {"__name__": "sitecustomize", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return str(path.parent)


def test_what_python_imports_waits_for_frameworks(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each by the adapter that is registered for it."""
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    monkeypatch.setenv("LOADEVAL_RUN_ADAPTERS", f"{package}={ITERABLE}")
    monkeypatch.setitem(sys.modules, "loadeval_inject", loadeval_inject)
    with monkeypatch.context() as patched:
        patched.setattr("_frozen_importlib_external.PathFinder.find_spec", lambda *_: None)
        imported_by_python()
    assert loaders(package).Loader.__iter__.__wrapped__ is not None


def test_a_python_of_long_ago_finds_what_ours_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot read the rest, and is started by tools that have nothing to do with training."""
    monkeypatch.setattr(sys, "version_info", (3, 6))
    here, ours = str(INJECT), ModuleType("sitecustomize")
    for own in (False, True):
        monkeypatch.setattr(sys, "path", [here, str(tmp_path)])
        monkeypatch.setitem(sys.modules, "sitecustomize", ours)
        if own:
            (tmp_path / "sitecustomize.py").write_text("is_own = True\n")
            importlib.invalidate_caches()
        imported_by_python()
        assert sys.path == [str(tmp_path)]
        assert hasattr(sys.modules["sitecustomize"], "is_own") is own


def test_a_folder_that_is_gone_is_nothing_to_say_when_python_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program may start many that iterate no loader."""
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path / "gone"))
    monkeypatch.setattr("_frozen_importlib_external.PathFinder.find_spec", lambda *_: None)
    loadeval_inject.begin("", hook.patch)
    assert capsys.readouterr().err == ""
