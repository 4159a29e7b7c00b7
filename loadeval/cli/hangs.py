"""What `loadeval run` and `loadeval watch` say on stderr where no batch comes."""

from __future__ import annotations

import logging
from pathlib import Path

from loadeval.attach.hang import headline, rows
from loadeval.cli.console import new_console, say, shown_path
from loadeval.launch.hangs import Found, HangWatch
from loadeval.report.blocks import Facts, Section, Text
from loadeval.report.text import lines


def hang_lines(found: Found, width: int) -> list[str]:
    """What all wait for, in lines of at most `width`."""
    path = None if found.path is None else shown_path(found.path)
    known = [(f"  {label}", text) for label, text in rows(found.hang, found.ranks, path)]
    said = Section("", [Text(f"loadeval: {headline(found.hang)}"), Facts(known)])
    return [line.plain for line in lines([said], width)]


class HangTeller:
    """Says once in each silence why no batch comes to the trainings whose logs are at `path`."""

    def __init__(
        self, path: Path, hang_after_s: float | None = None, *, redact: bool = False
    ) -> None:
        never = hang_after_s == 0
        self._watch = None if never else HangWatch(path, hang_after_s, redact=redact)

    def poll(self) -> bool:
        """Look, if that is due, and say what was found; whether it is a hang. Does not raise."""
        if self._watch is None:
            return False
        try:
            found = self._watch.look()
            for line in hang_lines(found, new_console().width) if found else ():
                say(line)
        except Exception as error:  # what looks after a program may not end it
            logging.getLogger("loadeval").debug("hangs are not looked for", exc_info=error)
            self._watch = None
            return False
        return found is not None and found.hang.is_hang
