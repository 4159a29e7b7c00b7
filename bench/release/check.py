"""Builds a release twice, and tries its wheel where there is nothing else: `make release-check`.

Each Python gets an environment that has neither the sources nor a compiler nor torch. What fails is
printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
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

class Loader:
    def __len__(self):
        return 200

    def __iter__(self):
        for _ in range(200):
            time.sleep(0.03)
            yield [0.0]

with LoaderEvaluator(Loader(), mode="alternate", log_file=sys.argv[1]) as loader:
    for _ in loader:
        time.sleep(0.001)
    assert loader.headroom().speedup.value > 2
"""
TYPED = """
from pathlib import Path

from loadeval import Gap, LoaderEvaluator, Report, Run, diagnose, install, read_run
from loadeval_adapters.notes import NotTimed

loader = LoaderEvaluator([1, 2], mode="alternate", log_file="run.jsonl", redact=True)
gap: Gap = loader.headroom()
speedup: float | None = None if gap.speedup is None else gap.speedup.value
report: Report = loader.report()
run: Run = read_run(Path("run.jsonl"))
found: list[str] = [finding.rule for finding in diagnose(run).findings]
folder: Path | None = install(redact=True).folder
notes: type[NotTimed] = NotTimed
for batch in loader:
    print(batch)
install(loader).close()
"""
ADAPTERS = """
from importlib.metadata import entry_points

print(entry_points(group="loadeval.adapters").names)
"""
MISTYPED = """
from loadeval import LoaderEvaluator
from loadeval_adapters.notes import NotTimed

LoaderEvaluator([1, 2]).headroom().speed
LoaderEvaluator([1, 2], redact="yes")
NotTimed("why").nothing
"""
MISTAKES = 3
OF_SDIST = {
    *("LICENSE", "SECURITY.md", "CITATION.cff", "CHANGELOG.md", "Makefile"),
    *("tests/conftest.py", "docs/index.md", "examples/train.py"),
}
REQUIRED = {"msgspec", "numpy", "nvidia-ml-py", "psutil", "rich", "typer"}
EXTRA = re.compile(r"""pip install ["'](?:\.|loadeval)\[([\w,]+)\]""")
OF_USERS = {"train"}
"""An extra of a user's own package, in a CI job of theirs."""
PAGE_BYTES = 10**6
"""A page of a run is smaller."""
WITHOUT_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


class CheckError(Exception):
    """Something is not as a release should be."""


def run(
    *command: str | Path, cwd: Path | None = None, code: int | None = 0, **variables: str
) -> str:
    """What a command prints on stdout and stderr. Raises CheckError for another exit code."""
    own = {
        name: os.environ[name]
        for name in os.environ
        if name not in {"PYTHONPATH", "PIP_CONSTRAINT"}
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**own, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if code is not None and done.returncode != code:
        words = " ".join(map(str, command))
        raise CheckError(f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}")
    return done.stdout


def expect(condition: object, what: str) -> None:
    """Raises CheckError unless `condition` holds."""
    if not condition:
        raise CheckError(what)


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(sources: Path, output: Path, umask: int = 0o022) -> tuple[Path, Path]:
    """The wheel and the sdist of `sources`, in `output`, built with hatchling."""
    date = os.environ.get("SOURCE_DATE_EPOCH", DATE)
    before = os.umask(umask)
    try:
        command = (sys.executable, "-m", "hatchling", "build", "-d", output)
        run(*command, cwd=sources, SOURCE_DATE_EPOCH=date)
    finally:
        os.umask(before)
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return wheel, sdist


def build_reproducibly(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built twice: elsewhere, later, by another user's umask.

    The wheel is also that of the sdist. Raises CheckError where bytes differ.
    """
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
        expect(
            sha256(first) == sha256(second), f"{first.name} has other bytes when it is built again"
        )
    wheel, sdist = built[0]
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    again, _ = build(unpacked, folder / "dist-of-sdist")
    expect(sha256(again) == sha256(wheel), "the sdist makes another wheel than the sources")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """What the wheel, its metadata and the sdist hold, and the extras that documents name."""
    (distribution,) = metadata.distributions(path=[str(wheel)])
    names, about = set(ZipFile(wheel).namelist()), distribution.metadata
    info = f"loadeval-{about['Version']}.dist-info"
    folders = {name.partition("/")[0] for name in names}
    expect(folders == {"loadeval", "loadeval_adapters", info}, f"the wheel has {folders}")
    typed = {"loadeval/py.typed", "loadeval_adapters/py.typed", "loadeval/report/page.html"}
    expect(typed <= names, f"the wheel lacks {typed - names}")
    starts = ZipFile(wheel).read(f"{info}/entry_points.txt").decode()
    expect("loadeval = loadeval.cli.main:app" in starts, "the wheel has no command")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    expect(files >= OF_SDIST, f"the sdist lacks {OF_SDIST - files}")
    hidden = [name for name in files if name.startswith((".ci", ".venv", ".git/"))]
    expect(not hidden, f"the sdist has {hidden}")
    named = {name.lower() for name in about.get_all("Requires-Dist", []) if "extra ==" not in name}
    alone = {re.split(r"[<>=]", requirement)[0] for requirement in named}
    expect(alone == REQUIRED, f"without an extra it requires {alone}")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("loadeval/**/*.py")]
    extras = {extra for path in pages for extra in EXTRA.findall(path.read_text(encoding="utf-8"))}
    unknown = extras - OF_USERS - set(about.get_all("Provides-Extra", []))
    expect(not unknown, f"there are no extras {unknown}, which are named")


@dataclass
class Clean:
    """An environment of `python` in `folder` that has nothing yet."""

    python: str
    folder: Path
    figures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run(self.python, "-m", "venv", "--without-pip", self.folder)
        self.bin = self.folder / "bin"
        self.home = self.folder / "home"
        self.home.mkdir()

    def install(self, *packages: str, extra: str = "") -> str:
        """What pip says, and the time and size as a figure."""
        began = time.perf_counter()
        output = self.pip("install", "--quiet", "--only-binary=:all:", "--no-cache-dir", *packages)
        seconds = time.perf_counter() - began
        (site,) = (self.folder / "lib").glob("python*/site-packages")
        nbytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
        self.figures[extra or "loadeval"] = f"{nbytes / 1e6:.0f} MB, {seconds:.0f} s more"
        return output

    def pip(self, *arguments: str) -> str:
        """What pip says of the environment."""
        return run(sys.executable, "-m", "pip", "--python", self.bin / "python", *arguments)

    def run(self, *command: str | Path, code: int = 0, before: tuple[str, ...] = ()) -> str:
        """A command of the environment: no other is on PATH."""
        name, *rest = command
        variables = {"PATH": str(self.bin), "HOME": str(self.home), "COLUMNS": "80"}
        if before:
            variables["PATH"] += f":{os.environ['PATH']}"
        return run(*before, self.bin / str(name), *rest, cwd=self.home, code=code, **variables)


def check_installed(clean: Clean, wheel: Path, tools: Path | None = None) -> None:
    """Install `wheel` in an empty environment, and use it. Raises CheckError.

    `tools` is where mypy, and pyright if it is there, are; None for that of this Python.
    """
    version = wheel.name.split("-")[1]
    clean.install(str(wheel))
    clean.pip("check")
    expect(clean.run("loadeval", "--version") == f"loadeval {version}\n", "another version")
    where = clean.run(
        "python",
        "-c",
        "import loadeval, loadeval_adapters as a; print(loadeval.__file__, a.__file__)",
    )
    expect(where.count(str(clean.folder)) == len(where.split()), f"not the wheel's: {where}")
    listed = clean.run("python", "-c", ADAPTERS)
    for name in ("torch.utils.data", "nvidia.dali.plugin", "spdl.pipeline", "ray.data"):
        expect(name in listed, f"no adapter for {name} was found:\n{listed}")
    clean.run("python", "-c", MEASURED, "run.jsonl")
    expect("input-bound" in clean.run("loadeval", "compare", "run.jsonl"), "no verdict")
    clean.run("loadeval", "export", "run.jsonl", "-f", "chrome")
    for command, extra in (
        (("demo",), "demo"),
        (("report", "run.jsonl"), "report"),
        (("compare", "run.jsonl", "-o", "run.png"), "report"),
    ):
        output = clean.run("loadeval", *command, code=1)
        expect(f'pip install "loadeval[{extra}]"' in output, f"{command} says: {output}")
    check_without_proc(clean)
    check_types(clean, tools or Path(sys.executable).parent)


def check_without_proc(clean: Clean) -> None:
    """Measure where there is no /proc, if this user may unmount it here."""
    try:
        run(*WITHOUT_PROC, "true")
    except (CheckError, OSError):
        clean.figures["without /proc"] = "not checked: may not be unmounted here"
        return
    clean.run("python", "-c", MEASURED, "no-proc.jsonl", before=WITHOUT_PROC)
    clean.run("loadeval", "compare", "no-proc.jsonl", before=WITHOUT_PROC)
    clean.figures["without /proc"] = "ok"


def check_types(clean: Clean, tools: Path) -> None:
    """Check a user's file against the installed wheel, and one with mistakes."""
    python = str(clean.bin / "python")
    checkers = {
        "mypy": ("--strict", "--no-incremental", "--python-executable", python),
        "pyright": ("--pythonpath", python),
    }
    for text, name in ((TYPED, "typed.py"), (MISTYPED, "mistyped.py")):
        (clean.home / name).write_text(text, encoding="utf-8")
    for checker, options in checkers.items():
        if not (tools / checker).exists():
            clean.figures[checker] = "not installed"
            continue
        run(tools / checker, *options, "typed.py", cwd=clean.home)
        output = run(tools / checker, *options, "mistyped.py", cwd=clean.home, code=1)
        expect(output.count("error:") == MISTAKES, f"{checker} says: {output}")
        clean.figures[checker] = "ok"


def check_report(clean: Clean, wheel: Path) -> None:
    """Pages and figures, once `loadeval[report]` is there."""
    clean.install(f"{wheel}[report]", extra="loadeval[report]")
    clean.pip("check")
    clean.run("loadeval", "report", "run.jsonl")
    clean.run("loadeval", "compare", "run.jsonl", "-o", "run.png")
    page = (clean.home / "run.html").read_text(encoding="utf-8")
    expect("<svg" in page, "the page has no chart")
    expect(len(page) < PAGE_BYTES, f"the page has {len(page):,} characters")


def check_demo(clean: Clean, wheel: Path) -> None:
    """The demo, which trains."""
    clean.install(f"{wheel}[demo]", extra="loadeval[demo]")
    clean.pip("check")
    output = clean.run("loadeval", "demo")
    expect("input-bound" in output, output)
    clean.figures["demo"] = "ok"


def write_bill_of_materials(clean: Clean, path: Path) -> None:
    """What an environment with loadeval[report] holds, as CycloneDX JSON."""
    command = ("-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", path)
    run(sys.executable, *command, clean.bin / "python")
    listed = {component["name"].lower() for component in json.loads(path.read_text())["components"]}
    installed = json.loads(clean.pip("list", "--format=json"))
    missing = {package["name"].lower() for package in installed} - listed - {"pip", "setuptools"}
    expect(not missing, f"the bill of materials lacks {missing}")


def main() -> int:
    """Check each of the Pythons that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--demo", nargs="*", default=[], help="the Pythons that also run the demo")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="loadeval-release-") as place:
        folder = Path(place)
        wheel, sdist = build_reproducibly(folder)
        check_contents(wheel, sdist)
        options.output.mkdir(exist_ok=True)
        for path in (wheel, sdist):
            shutil.copy(path, options.output)
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, sha256 {sha256(path)}")
        bill = options.output / f"{wheel.name.rsplit('-', 3)[0]}.cdx.json"
        for python in options.pythons:
            try:
                version = run(python, "-c", "import sys; print(sys.version.split()[0])").strip()
            except (CheckError, OSError):
                print(f"{python}: not here")
                continue
            clean = Clean(python, folder / Path(python).name)
            try:
                check_installed(clean, wheel)
                check_report(clean, wheel)
                if not bill.exists():
                    write_bill_of_materials(clean, bill)
                if python in options.demo:
                    check_demo(clean, wheel)
            except CheckError as error:
                failed += 1
                clean.figures["FAILED"] = str(error)
            figures = "; ".join(f"{name}: {what}" for name, what in clean.figures.items())
            print(f"{python} ({version}): {figures}", flush=True)
            shutil.rmtree(clean.folder)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
