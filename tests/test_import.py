"""`import loadeval` is quick, and brings no framework along."""

from __future__ import annotations

import json
import subprocess
import sys

FRAMEWORKS = {
    *("torch", "nvidia", "spdl", "PIL"),
    *("matplotlib", "plotly", "jinja2", "rich", "typer", "psutil"),
}
SCRIPT = """
import time, sys
began = time.process_time()
import loadeval
seconds = time.process_time() - began
import json
print(json.dumps([seconds, sorted({name.partition('.')[0] for name in sys.modules})]))
"""


def imported() -> tuple[float, set[str]]:
    out = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout
    seconds, modules = json.loads(out)
    return seconds, set(modules)


def test_no_framework_is_imported() -> None:
    """Neither a framework nor anything for reports comes with `import loadeval`."""
    assert not imported()[1] & FRAMEWORKS


def test_import_takes_less_than_300_ms() -> None:
    """Of a CPU's time, whatever runs beside it: the best of five imports, each in a new process."""
    assert min(imported()[0] for _ in range(5)) < 0.3
