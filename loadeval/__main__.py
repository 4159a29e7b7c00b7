"""`python -m loadeval` is the command `loadeval`."""

from __future__ import annotations

from loadeval.cli.main import app

app(prog_name="loadeval")
