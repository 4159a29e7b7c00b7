"""Run the tests of PyTorch, torchdata and DALI against wrapped loaders: `run.py FILE ...`.

Each file is run as it is, and again in each mode. What fails in a mode and not without it is
listed. In log mode and in place nothing may, but for what is different on purpose.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console

PLAIN = ""
EXACT = ("log", "inplace-log")
MODES = {
    "torch": (PLAIN, *EXACT, "alternate", "inplace-alternate"),
    "torchdata": (PLAIN, *EXACT, "alternate"),
    "dali": (PLAIN, "log"),
}
ON_PURPOSE = {
    "test_invalid_mode": "a mode that does not exist is an error, where DALI's class logs",
}
SECONDS_PER_FILE = 1800


def suite_of(file: Path) -> str:
    """Whose tests `file` has."""
    text = file.read_text()
    if "nvidia.dali" in text:
        return "dali"
    return "torchdata" if "import Stateful" in text else "torch"


def outcomes(file: Path, suite: str, mode: str) -> dict[str, bool]:
    """Each test of `file` that was not skipped, and whether it passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        subprocess.run(
            [*command, "-p", "wrapping", "--junitxml", str(report), file.name],
            cwd=file.parent,
            env={
                **os.environ,
                "LE_MODE": mode,
                "LE_SUITE": suite,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            check=False,
            timeout=SECONDS_PER_FILE,
            capture_output=True,
        )
        cases = ET.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
        return {
            f"{case.get('classname')}.{case.get('name')}": case.find("failure") is None
            for case in cases
            if case.find("skipped") is None
        }


def main(files: list[str]) -> int:
    """Print what passes as it is known, and return 1 if a test fails that should pass."""
    console = Console(width=140)
    wrong = 0
    for file in map(Path, files):
        suite = suite_of(file)
        plain: dict[str, bool] = {}
        for mode in MODES[suite]:
            passes = outcomes(file.resolve(), suite, mode)
            plain = plain or passes
            ours = [name for name, passed in passes.items() if plain.get(name) and not passed]
            named = [re.sub(r"^.*\.", "", name) for name in ours]
            unexpected = [name for name in named if name not in ON_PURPOSE]
            wrong += len(unexpected) if mode in EXACT else 0
            console.print(
                f"{file.name}, {mode or 'as it is'}: {sum(passes.values())} of {len(passes)} pass",
                *(f"\n  {name} fails in this mode alone" for name in sorted(named)),
            )
    for name, why in ON_PURPOSE.items():
        console.print(f"{name}: {why}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
