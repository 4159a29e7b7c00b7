"""Programs under `loadeval run`, beside the same without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.launch.conftest import LOADEVAL, Launched
from tests.launch.conftest import environment as environment_of_programs

LOADERS = '''
"""A library whose loader an adapter was registered for: torch takes seconds to import."""
import time
from loadeval import IterableAdapter
class Adapter(IterableAdapter):
    pass
class Loader:
    def __init__(self, batches=30):
        self.batches = batches
    def __len__(self):
        return self.batches
    def __iter__(self):
        for number in range(self.batches):
            time.sleep(0.0005)
            yield number
'''
PROGRAM = """
import os, sys, time
from ours_loaders import Loader
{before}
seen = []
for epoch in range(2):
    for number, batch in enumerate(Loader()):
        if number == 10 and epoch == 1:
            {within}
        seen.append(batch)
        time.sleep(0.001)
{after}
print(len(seen))
sys.exit(5)
"""


def program(folder: Path, before: str = "", within: str = "pass", after: str = "") -> Path:
    """A program of two epochs in `folder`, with its library; it ends with exit code 5."""
    library = folder / "library"
    information = library / "ours_loaders-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (library / "ours_loaders.py").write_text(LOADERS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ours_loaders\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[loadeval.adapters]\nours_loaders = ours_loaders:Adapter\n"
    )
    path = folder / "program.py"
    path.write_text(PROGRAM.format(before=before, within=within, after=after))
    return path


def environment(folder: Path) -> dict[str, str]:
    own = environment_of_programs()
    return {**own, "PYTHONPATH": f"{folder / 'library'}{os.pathsep}{own['PYTHONPATH']}"}


def launch(
    folder: Path,
    command: Sequence[str],
    *options: str,
    around: str = "{}",
    variables: Mapping[str, str | None] | None = None,
    bare: bool = False,
    default_folder: bool = False,
) -> Launched:
    """What comes of `command` in `folder`, by a shell: under `loadeval run`, or `bare`.

    `around` is the shell's line around it; a variable that is None is unset. With `default_folder`
    the logs are where the command line puts them.
    """
    logs = folder / "logs"
    chosen = environment(folder)
    for name, value in (variables or {}).items():
        chosen.pop(name, None)
        if value is not None:
            chosen[name] = value
    words = [*command]
    if not bare:
        place = [] if default_folder else ["--output", str(logs)]
        words = [sys.executable, *LOADEVAL, "run", *place, *options, "--", *command]
    script = around.format('"$@"')
    work = folder / "work"
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words],
        cwd=work,
        env=chosen,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=100,
    )
    return Launched(done.returncode, done.stdout, done.stderr, logs)
