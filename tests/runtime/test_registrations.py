"""Which adapters are registered, and whether their frameworks are there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from loadeval.runtime import registry
from loadeval.runtime.registry import Registration, registrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which packages can be installed, where Python looks first."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
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


def found(prefix: str) -> Registration:
    (one,) = (one for one in registrations() if one.module == prefix)
    return one


def framework(prefix: str) -> tuple[bool, str | None, str | None]:
    one = found(prefix)
    return one.installed, one.framework, one.framework_version


def test_an_adapter_of_loadevals() -> None:
    """Module and class are the entry point's; the versions are those installed."""
    assert found("torch.utils.data") == Registration(
        module="torch.utils.data",
        adapter="loadeval_adapters.pytorch:PyTorchAdapter",
        distribution="loadeval",
        distribution_version=metadata.version("loadeval"),
        installed=True,
        framework="torch",
        framework_version=metadata.version("torch"),
    )


def test_every_registered_adapter_is_listed_in_the_order_of_modules() -> None:
    """One for each prefix that the registry knows."""
    assert [one.module for one in registrations()] == sorted(registry.registered())


def test_a_third_partys_adapter(site: Path) -> None:
    """Whoever registered an adapter is told, though the adapter cannot be imported."""
    register(site, "nothing_of_this_name.loaders")
    one = found("nothing_of_this_name.loaders")
    assert one.adapter == "nowhere.adapters:Mine"
    assert (one.distribution, one.distribution_version) == ("adapters-of-mine", "0.1")


def test_nothing_is_imported() -> None:
    """Neither frameworks, nor the packages around their modules, nor adapters."""
    script = (
        "import sys\n"
        "from loadeval.runtime.registry import registrations\n"
        "names = {one.module.split('.')[0] for one in registrations()} | {'loadeval_adapters'}\n"
        "assert len(names) > 1\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_framework_that_is_not_installed(site: Path) -> None:
    """Its module is not found."""
    register(site, "nothing_of_this_name")
    assert framework("nothing_of_this_name") == (False, None, None)


@pytest.mark.parametrize("prefix", ["fw.inner", "fw.inner.deeper", "fw.single.deeper"])
def test_a_framework_without_the_module(site: Path, prefix: str) -> None:
    """An older version of a package, say, that has no such module yet, counts as absent."""
    install(site, "framework", "fw/__init__.py", "fw/single.py")
    register(site, prefix)
    assert framework(prefix) == (False, None, None)


@pytest.mark.parametrize("file", ["fw.py", "fw/__init__.py"])
def test_a_package_and_a_module_of_one_file(site: Path, file: str) -> None:
    """Both belong to the distribution that lists them among its files."""
    install(site, "framework", file)
    register(site, "fw")
    assert framework("fw") == (True, "framework", "0.1")


def test_a_folder_that_several_distributions_share(site: Path) -> None:
    """Of those under one top-level name, the one that brought the module is told."""
    install(site, "company-loaders", "company/loaders/__init__.py")
    install(site, "company-models", "company/models/__init__.py")
    register(site, "company.loaders")
    assert framework("company.loaders") == (True, "company-loaders", "0.1")


def test_a_folder_without_init_inside_a_package(site: Path) -> None:
    """It is found though its parent is not imported."""
    install(site, "framework", "fw/__init__.py", "fw/inner/loaders.py")
    register(site, "fw.inner.loaders")
    assert framework("fw.inner.loaders") == (True, "framework", "0.1")


def test_a_module_that_no_distribution_lists(site: Path) -> None:
    """It is there, of unknown version."""
    (site / "fw.py").touch()
    register(site, "fw")
    assert framework("fw") == (True, None, None)


def test_a_module_that_two_distributions_list(site: Path) -> None:
    """Whose it is cannot be known."""
    install(site, "framework-cuda12", "fw/__init__.py")
    install(site, "framework-cuda13", "fw/__init__.py")
    register(site, "fw")
    assert framework("fw") == (True, None, None)


def test_a_module_that_hides_an_installed_one(site: Path) -> None:
    """A distribution further down the path has the name, and not the module that is found."""
    install(site / "later", "framework", "fw/__init__.py")
    sys.path.append(str(site / "later"))  # until the fixture puts the path back
    register(site, "fw")
    assert framework("fw") == (True, "framework", "0.1")
    (site / "fw.py").touch()
    importlib.invalidate_caches()
    assert framework("fw") == (True, None, None)


def test_a_folder_that_nobody_installed(site: Path) -> None:
    """Python would import it as an empty package; a framework it is not."""
    (site / "fw").mkdir()
    register(site, "fw")
    assert framework("fw") == (False, None, None)


def test_a_module_made_by_hand(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no place from which it was loaded."""
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    register(site, "made_by_hand")
    assert framework("made_by_hand") == (False, None, None)


def test_an_entry_point_of_no_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made by hand names nobody who registered it."""
    point = EntryPoint("builtins", "nowhere:Never", registry.GROUP)
    monkeypatch.setattr(registry, "registered", lambda: {"builtins": point})
    assert registrations() == [
        Registration("builtins", "nowhere:Never", None, None, True, None, None)
    ]
