"""Run the tests of PyTorch, torchdata and DALI against wrapped loaders: `run.py FILE ...`.

Each file is run as it is, and again in each mode. What fails in a mode and not without it is
listed. In log mode and in place nothing may, but for what is different on purpose.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

EXACT = ("log", "inplace-log")
MODES = {
    "torch": (*EXACT, "alternate", "inplace-alternate"),
    "torchdata": (*EXACT, "alternate"),
    "dali": ("log",),
}
ON_PURPOSE = {"test_invalid_mode"}
"""A mode that does not exist is an error, where DALI's class logs."""


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
        options = ("-q", "-p", "no:cacheprovider", "-W", "ignore", "-p", "wrapping")
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--junitxml", str(report), file.name],
            cwd=file.parent,
            env={**os.environ, "LE_MODE": mode, "LE_SUITE": suite, "PYTHONPATH": path},
            check=False,
            timeout=1800,
            capture_output=True,
        )
        return {
            f"{case.get('classname')}.{case.get('name')}": case.find("failure") is None
            for case in ET.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
            if case.find("skipped") is None
        }


def main() -> int:
    """Print what passes as it is known, and return 1 if a test fails that should pass."""
    wrong = 0
    for file in (Path(name).resolve() for name in sys.argv[1:]):
        suite = suite_of(file)
        plain = outcomes(file, suite, "")
        print(f"{file.name}, as it is: {sum(plain.values())} of {len(plain)} pass", flush=True)
        for mode in MODES[suite]:
            passes = outcomes(file, suite, mode)
            failed = [name for name, passed in passes.items() if plain.get(name) and not passed]
            unexpected = [name for name in failed if name.rpartition(".")[2] not in ON_PURPOSE]
            wrong += len(unexpected) if mode in EXACT else 0
            print(f"{file.name}, {mode}: {sum(passes.values())} of {len(passes)} pass", flush=True)
            for name in failed:
                print(f"  {name} fails in this mode alone")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
