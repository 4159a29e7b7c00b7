"""From a loader to its adapter, and which adapters and frameworks there are."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from torch.utils.data import DataLoader

from loadeval import IterableAdapter, LoaderEvaluator, LoadevalWarning
from loadeval.runtime import registry
from loadeval.runtime.registry import Registration, registrations

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


class LongerAdapter(IterableAdapter):
    pass


def test_a_subclass_is_served_by_the_adapter_of_its_base() -> None:

    class Mine(DataLoader[int]):
        pass

    adapter = registry.adapter_for(Mine([1]))  # type: ignore[arg-type]
    assert type(adapter) is registry.registered()["torch.utils.data"].load()


def test_what_nobody_claims_is_an_iterable() -> None:
    assert type(registry.adapter_for([1])) is IterableAdapter


def test_the_longest_prefix_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's adapter for a module inside a framework goes before the framework's."""
    value = f"{__name__}:LongerAdapter"
    points = {
        name: EntryPoint(name, value if "dataloader" in name else "nowhere:Never", registry.GROUP)
        for name in ("torch", "torch.utils", "torch.utils.data.dataloader", "torch.utils.dat")
    }
    monkeypatch.setattr(registry, "registered", lambda: points)
    adapter = registry.adapter_for(DataLoader([1]))  # type: ignore[arg-type]
    assert type(adapter).__name__ == "LongerAdapter"


def test_our_own_adapters_need_no_entry_points() -> None:
    points = distribution("loadeval").entry_points.select(group=registry.GROUP)
    assert {point.name: point.value for point in points} == registry.own_adapters()


def test_a_zipped_copy_knows_its_loaders(tmp_path: Path) -> None:
    """No loader of theirs is taken for any iterable, without metadata too."""
    archive = tmp_path / "copy.zip"
    with ZipFile(archive, "w") as copy:
        for folder in (ROOT, ROOT / "adapters"):
            for path in folder.glob("loadeval*/**/*.py"):
                copy.write(path, path.relative_to(folder))
    program = f"""
import importlib.metadata, sys
sys.path.insert(0, {str(archive)!r})
importlib.metadata.entry_points = lambda **_: ()
import loadeval
from torch.utils.data import DataLoader
assert loadeval.__file__.startswith({str(archive)!r})
info = loadeval.LoaderEvaluator(DataLoader([1], num_workers=2)).recorded().header.loader
print(info.adapter, info.workers)
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["loadeval_adapters.pytorch.PyTorchAdapter", "2"]


def test_a_copy_without_adapters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows none of the loaders; a list is what it is."""
    monkeypatch.setattr(registry, "OWN", "nowhere_adapters")
    monkeypatch.setattr(registry, "registered", dict)
    with pytest.warns(LoadevalWarning, match="cannot import") as said:
        LoaderEvaluator(DataLoader([1, 2]))  # type: ignore[arg-type]
    assert said[0].filename == __file__
    LoaderEvaluator([1, 2])


def test_an_adapter_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader is measured as any iterable then, which an alternating run may get wrong."""
    points = {"torch.utils.data": EntryPoint("torch.utils.data", "nowhere:Never", registry.GROUP)}
    monkeypatch.setattr(registry, "registered", lambda: points)
    with pytest.warns(LoadevalWarning, match=r"nowhere:Never ") as said:
        evaluator = LoaderEvaluator(DataLoader([1, 2]))  # type: ignore[arg-type]
    assert said[0].filename == __file__
    assert len(list(evaluator)) == 2


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which packages can be installed, the one where Python looks beside its own."""
    with monkeypatch.context() as patch:
        others = (path for path in sys.path if "site-packages" not in path)
        patch.setattr(sys, "path", [str(tmp_path), *others])
        importlib.invalidate_caches()
        registry.registered.cache_clear()
        yield tmp_path
    registry.registered.cache_clear()


def install(site: Path, name: str, *files: str, entry_point: str | None = None) -> None:
    """Install version 0.1 of a distribution with empty `files`, and maybe an entry point."""
    info = site / f"{name}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    if entry_point is not None:
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entry_point}\n")
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def register(site: Path, prefix: str) -> None:
    install(site, "adapters-of-mine", entry_point=f"{prefix} = nowhere.adapters:Mine")


def registration_of(prefix: str) -> Registration:
    (match,) = (registration for registration in registrations() if registration.module == prefix)
    return match


def framework(prefix: str) -> tuple[bool, str | None, str | None]:
    registration = registration_of(prefix)
    return registration.installed, registration.framework, registration.framework_version


def test_an_adapter_of_loadevals() -> None:
    assert registration_of("torch.utils.data") == Registration(
        module="torch.utils.data",
        adapter="loadeval_adapters.pytorch:PyTorchAdapter",
        distribution="loadeval",
        distribution_version=metadata.version("loadeval"),
        installed=True,
        framework="torch",
        framework_version=metadata.version("torch"),
    )


def test_every_registered_adapter_is_listed_in_the_order_of_modules() -> None:
    assert [registration.module for registration in registrations()] == sorted(
        registry.registered()
    )


def test_a_third_partys_adapter(site: Path) -> None:
    """Its distribution is told, though the adapter cannot be imported."""
    register(site, "nothing_of_this_name.loaders")
    registration = registration_of("nothing_of_this_name.loaders")
    assert registration.adapter == "nowhere.adapters:Mine"
    assert (registration.distribution, registration.distribution_version) == (
        "adapters-of-mine",
        "0.1",
    )


def test_nothing_is_imported() -> None:
    """Neither frameworks, nor the packages around their modules, nor adapters."""
    script = """
import sys
from loadeval.runtime.registry import registrations
listed = registrations()
names = {one.module.split(".")[0] for one in listed} | {one.adapter.split(":")[0] for one in listed}
assert len(names) > 1
assert not names & set(sys.modules), names & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_module_that_hides_an_installed_one(site: Path) -> None:
    """A distribution further down the path has the name, and not the module that is found."""
    install(site / "later", "framework", "fw/__init__.py")
    sys.path.append(str(site / "later"))  # until the fixture puts the path back
    register(site, "fw")
    assert framework("fw") == (True, "framework", "0.1")
    (site / "fw.py").touch()
    importlib.invalidate_caches()
    assert framework("fw") == (True, None, None)


def test_a_module_made_by_hand(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no place from which it was loaded."""
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    register(site, "made_by_hand")
    assert framework("made_by_hand") == (False, None, None)


def test_an_entry_point_of_no_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("builtins", "nowhere:Never", registry.GROUP)
    monkeypatch.setattr(registry, "registered", lambda: {"builtins": point})
    assert registrations() == [
        Registration("builtins", "nowhere:Never", None, None, True, None, None)
    ]


@pytest.mark.parametrize(
    ("installed", "prefix", "expected"),
    [
        ({}, "nothing_of_this_name", (False, None, None)),
        ({"framework": "fw/__init__.py fw/single.py"}, "fw.inner", (False, None, None)),
        ({"framework": "fw/__init__.py fw/single.py"}, "fw.inner.deeper", (False, None, None)),
        ({"framework": "fw/__init__.py fw/single.py"}, "fw.single.deeper", (False, None, None)),
        ({"framework": "fw.py"}, "fw", (True, "framework", "0.1")),
        ({"framework": "fw/__init__.py"}, "fw", (True, "framework", "0.1")),
        (
            {"framework": "fw/__init__.py fw/inner/loaders.py"},
            "fw.inner.loaders",
            (True, "framework", "0.1"),
        ),
        (
            {"company-loaders": "company/loaders/__init__.py", "company-models": "company/fw.py"},
            "company.loaders",
            (True, "company-loaders", "0.1"),
        ),
        ({"cuda12": "fw/__init__.py", "cuda13": "fw/__init__.py"}, "fw", (True, None, None)),
        ({None: "fw.py"}, "fw", (True, None, None)),
        ({None: "fw/notes.txt"}, "fw", (False, None, None)),
    ],
    ids=[
        "not installed",
        "no such module in the package",
        "no such package in the package",
        "a module is no package",
        "a module of one file",
        "a package",
        "a folder without __init__ inside a package",
        "of distributions under one name the one that brought it",
        "two distributions list it",
        "no distribution lists it",
        "a folder that nobody installed",
    ],
)
def test_where_a_framework_comes_from(
    site: Path,
    installed: dict[str | None, str],
    prefix: str,
    expected: tuple[bool, str | None, str | None],
) -> None:
    """Whether its module can be found, and the distribution that lists it, where there is one."""
    for name, file in installed.items():
        if name is None:
            (site / file).parent.mkdir(exist_ok=True)
            (site / file).touch()
        else:
            install(site, name, *file.split())
    register(site, prefix)
    assert framework(prefix) == expected
