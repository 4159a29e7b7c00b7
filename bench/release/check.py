"""Builds a release twice, and tries its wheel where there is nothing else: `make release-check`.

Each Python gets an environment that has neither the sources nor a compiler nor torch. What fails is
printed, and the exit code is 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
DATE = "1704067200"
"""What SOURCE_DATE_EPOCH is where the caller does not set it: the start of 2024."""
NOT_SOURCES = (".git", ".venv*", "dist", "build", "__pycache__", ".*_cache", "_build", "loadeval-*")
MEASURED = """
import sys, time
from loadeval import LoaderEvaluator

def loaded():
    for _ in range(200):
        time.sleep(0.03)
        yield [0.0]

with LoaderEvaluator(loaded, mode="alternate", log_file=sys.argv[1]) as loader:
    for _ in loader:
        time.sleep(0.001)
    assert loader.headroom().speedup.value > 2
"""
TYPED = """
from pathlib import Path

from loadeval import Gap, LoaderEvaluator, Report, Run, diagnose, install, read_run
from loadeval_adapters.others import NodesAdapter

loader = LoaderEvaluator([1, 2], mode="alternate", log_file="run.jsonl", redact=True)
gap: Gap = loader.headroom()
speedup: float | None = None if gap.speedup is None else gap.speedup.value
report: Report = loader.report()
run: Run = read_run(Path("run.jsonl"))
found: list[str] = [finding.rule for finding in diagnose(run).findings]
folder: Path | None = install(redact=True).folder
adapter: type[NodesAdapter] = NodesAdapter
for batch in loader:
    print(batch)
install(loader).close()
"""
MISTYPED = """
from loadeval import LoaderEvaluator
from loadeval_adapters.others import NodesAdapter

LoaderEvaluator([1, 2]).headroom().speed
LoaderEvaluator([1, 2], redact="yes")
NodesAdapter().nothing
"""
MISTAKES = 3
WHERE = "import loadeval, loadeval_adapters as a; print(loadeval.__file__, a.__file__)"
ADAPTERS = "from loadeval.adapter import registered; print(*registered())"
OF_SDIST = {"LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py", "docs/index.md"}


def run(
    *command: str | Path, cwd: Path | None = None, code: int = 0, umask: int = -1, **variables: str
) -> str:
    """What a command prints on stdout and stderr. Raises AssertionError for another exit code."""
    ours = {"PYTHONPATH", "PIP_CONSTRAINT"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    words = list(map(str, command))
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**environment, **variables},
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = f"{' '.join(words)} ended with {done.returncode}, not {code}:\n{done.stdout}"
    assert done.returncode == code, said
    return done.stdout


def build(sources: Path, output: Path, umask: int = 0o022) -> tuple[Path, Path]:
    """The wheel and the sdist of `sources`, in `output`, built with hatchling."""
    date = os.environ.get("SOURCE_DATE_EPOCH", DATE)
    command = (sys.executable, "-m", "hatchling", "build", "-d", output)
    run(*command, cwd=sources, umask=umask, SOURCE_DATE_EPOCH=date)
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return wheel, sdist


def build_reproducibly(folder: Path) -> tuple[Path, Path]:
    """The wheel, also that of the sdist, and the sdist, the same elsewhere, later, by others."""
    built = []
    for number, umask in enumerate((0o022, 0o077)):
        sources = folder / f"sources-{number}"
        shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        for path in sources.rglob("*"):
            with suppress(OSError):
                os.utime(path, (number, number))
        built.append(build(sources, folder / f"dist-{number}", umask))
        shutil.rmtree(sources)
    for first, second in zip(*built, strict=True):
        assert first.read_bytes() == second.read_bytes(), f"{first.name} has other bytes again"
    wheel, sdist = built[0]
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    again, _ = build(unpacked, folder / "dist-of-sdist")
    assert again.read_bytes() == wheel.read_bytes(), "the sdist makes another wheel"
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    (distribution,) = metadata.distributions(path=[str(wheel)])
    names, about = set(ZipFile(wheel).namelist()), distribution.metadata
    folders = {name.partition("/")[0] for name in names}
    ours = {"loadeval", "loadeval_adapters", f"loadeval-{about['Version']}.dist-info"}
    assert folders == ours, f"the wheel has {folders}"
    typed = {"loadeval/py.typed", "loadeval_adapters/py.typed", "loadeval/report/page.html"}
    assert typed <= names, f"the wheel lacks {typed - names}"
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert files >= OF_SDIST, f"the sdist lacks {OF_SDIST - files}"
    hidden = [name for name in files if name.startswith((".ci", ".venv", ".git/"))]
    assert not hidden, f"the sdist has {hidden}"


class Clean:
    """An environment of `python` in `folder` that has nothing yet."""

    def __init__(self, python: str, folder: Path) -> None:
        run(python, "-m", "venv", "--without-pip", folder)
        self.folder, self.bin, self.home = folder, folder / "bin", folder / "home"
        self.home.mkdir()

    def install(self, package: str) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python")
        began_s = time.perf_counter()
        run(*pip, "install", "--quiet", "--only-binary=:all:", "--no-cache-dir", package)
        took_s = time.perf_counter() - began_s
        (site,) = (self.folder / "lib").glob("python*/site-packages")
        nbytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
        print(f"{Path(package).name}: {nbytes / 1e6:.0f} MB, {took_s:.0f} s more", flush=True)
        run(*pip, "check")

    def run(self, name: str, *arguments: str, code: int = 0) -> str:
        """A command of the environment: no other is on PATH."""
        variables = {"PATH": str(self.bin), "HOME": str(self.home), "COLUMNS": "80"}
        return run(self.bin / name, *arguments, cwd=self.home, code=code, **variables)


def check_installed(clean: Clean, wheel: Path) -> None:
    clean.install(str(wheel))
    version = wheel.name.split("-")[1]
    assert clean.run("loadeval", "--version") == f"loadeval {version}\n", "another version"
    where = clean.run("python", "-c", WHERE)
    assert where.count(str(clean.folder)) == len(where.split()), f"not the wheel's: {where}"
    listed = clean.run("python", "-c", ADAPTERS)
    for name in ("torch.utils.data", "nvidia.dali.plugin", "spdl.pipeline", "ray.data"):
        assert name in listed, f"no adapter for {name} was found:\n{listed}"
    clean.run("python", "-c", MEASURED, "run.jsonl")
    assert "input-bound" in clean.run("loadeval", "compare", "run.jsonl"), "no verdict"
    clean.run("loadeval", "export", "run.jsonl", "-f", "chrome")
    installs = {("demo",): "torch pillow matplotlib", ("report", "run.jsonl"): "matplotlib jinja2"}
    for command, packages in installs.items():
        output = clean.run("loadeval", *command, code=1)
        assert f"pip install {packages}" in output, f"{command} says: {output}"


def check_types(clean: Clean) -> None:
    """Check a user's file against the installed wheel, and one with mistakes."""
    python = str(clean.bin / "python")
    checkers = {
        "mypy": ("--strict", "--no-incremental", "--python-executable", python),
        "pyright": ("--pythonpath", python),
    }
    for text, name in ((TYPED, "typed.py"), (MISTYPED, "mistyped.py")):
        (clean.home / name).write_text(text, encoding="utf-8")
    for checker, options in checkers.items():
        tool = Path(sys.executable).with_name(checker)
        run(tool, *options, "typed.py", cwd=clean.home)
        output = run(tool, *options, "mistyped.py", cwd=clean.home, code=1)
        assert output.count("error:") == MISTAKES, f"{checker} says: {output}"


def check_extras(clean: Clean, wheel: Path, *, demo: bool) -> None:
    """Pages and figures, once `loadeval[report]` is there; the demo trains with its own."""
    clean.install(f"{wheel}[report]")
    clean.run("loadeval", "report", "run.jsonl")
    clean.run("loadeval", "compare", "run.jsonl", "-o", "run.png")
    page = (clean.home / "run.html").read_text(encoding="utf-8")
    assert "<svg" in page, "a page without charts"
    assert len(page) < 10**6, f"a page of {len(page):,} characters"
    bill = ROOT / "dist" / f"{wheel.name.rsplit('-', 3)[0]}.cdx.json"
    listed = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
    run(*listed, "-o", bill, clean.bin / "python")
    if demo:
        clean.install(f"{wheel}[demo]")
        assert "input-bound" in clean.run("loadeval", "demo"), "no verdict of the demo"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--demo", nargs="*", default=[], help="the Pythons that also run the demo")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="loadeval-release-") as place:
        folder = Path(place)
        wheel, sdist = build_reproducibly(folder)
        check_contents(wheel, sdist)
        (ROOT / "dist").mkdir(exist_ok=True)
        for path in (wheel, sdist):
            shutil.copy(path, ROOT / "dist")
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
        for python in options.pythons:
            if shutil.which(python) is None:
                print(f"{python}: not here")
                continue
            clean = Clean(python, folder / Path(python).name)
            try:
                check_installed(clean, wheel)
                check_types(clean)
                check_extras(clean, wheel, demo=python in options.demo)
                said = "ok"
            except AssertionError as error:
                failed, said = failed + 1, f"FAILED: {error}"
            print(f"{python}: {said}", flush=True)
            shutil.rmtree(clean.folder)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
