"""Runs a program with the stand-in for a device: `python -m bench.gpu.programs.start PROGRAM`."""

from __future__ import annotations

import runpy
import sys

from bench.gpu import stand_in

if __name__ == "__main__":
    stand_in.install()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
