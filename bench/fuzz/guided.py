"""Mutations that atheris chooses by which lines of the reader they reach.

    python -m bench.fuzz.guided -runs=N FOLDER

Its arguments are libFuzzer's; FOLDER has files to begin with, and gets those that reach more.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

atheris = import_module("atheris")  # without types
with atheris.instrument_imports(include=["loadeval.data"]):
    from bench.fuzz.readers import read_all_ways

PATH = Path(mkdtemp(), "run.jsonl")


def read(content: bytes) -> None:
    """Read it in every way; atheris tells what is raised."""
    PATH.write_bytes(content)
    read_all_ways(PATH)


atheris.Setup(sys.argv, read)
atheris.Fuzz()
