"""Replaces in a run log what tells on whose machine and with which files it was made.

Paths, host and user names and the texts of exceptions become placeholders, such as
`host-1f3a90c2`. The same text has the same one everywhere, so that runs can still be compared and
the ranks of a job told apart by their machines. Numbers, and names of classes and functions, stay.
"""

from __future__ import annotations

import getpass
import platform
import re
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from loadeval.runlog.model import EpochEnd, Event, Header, Readings
from loadeval.runlog.stages import TORCHS_OWN, CodeSamples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.runlog.log_file.codec import Line

PLACEHOLDER = re.compile(r"[a-z]+-[0-9a-f]{8}")
ERROR = re.compile(r"\b([A-Z]\w*|\w*error): (.+?)(?=\)?\Z)", re.DOTALL)
"""It finds the name of an exception, and its text, up to the end or the closing bracket."""
PATH = re.compile(r"""(?<!\w)'[^']+'|"[^"]+"|(?<![~\w.-])(?:\w+:)?[~\w.-]*[/\\][^\s'",;()]*""")
"""It finds paths, and whatever is quoted, which may be a path with blanks."""
READ_ON = re.compile(r"(.*? raised )(.*)(, and was read on)", re.DOTALL)
"""It finds the exception in the message of an event "error read on"."""


def placeholder(kind: str, text: str) -> str:
    """What stands for `text`, in every process the same; a placeholder stands for itself."""
    if PLACEHOLDER.fullmatch(text):
        return text
    digest = blake2b(text.encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()
    return f"{kind}-{digest}"


def redacted(line: Line) -> Line:
    """`line` with placeholders. The name of the run stays."""
    if isinstance(line, Header):
        return _header(line)
    if isinstance(line, EpochEnd) and line.error is not None:
        return replace(line, error=_error(line.error))
    if isinstance(line, Event):
        return replace(line, message=_message(line))
    if isinstance(line, Readings) and line.missing is not None:
        return replace(line, missing=_sentence(line.missing))
    if isinstance(line, CodeSamples):
        counts = line.running, line.blocked, line.calls
        return CodeSamples(line.worker, *map(_places, counts))
    return line


def _header(header: Header) -> Header:
    host, made_at = header.environment.get("host"), header.loader.made_at
    if host:
        environment = {**header.environment, "host": placeholder("host", str(host))}
        header = replace(header, environment=environment)
    if made_at is not None:
        path, _, line = made_at.rpartition(":")
        place = f"{placeholder('path', path)}:{line}"
        header = replace(header, loader=replace(header.loader, made_at=place))
    return header


def _message(event: Event) -> str:
    if event.kind == "failed backend":
        return _error(event.message)
    match = READ_ON.fullmatch(event.message) if event.kind == "error read on" else None
    if match is not None:
        return f"{match[1]}{_error(match[2])}{match[3]}"
    return _sentence(event.message)


def _error(text: str) -> str:
    """`FileNotFoundError: text-0a1b2c3d`: how an exception is called is no secret."""
    name, _, rest = text.partition(":")
    if not name.isidentifier():
        return placeholder("text", text)
    return f"{name}: {placeholder('text', rest.strip())}" if rest.strip() else text


def _sentence(text: str) -> str:
    text = ERROR.sub(lambda match: f"{match[1]}: {placeholder('text', match[2])}", text)
    text = PATH.sub(lambda match: placeholder("path", match[0]), text)
    for kind, name in (("host", platform.node()), ("user", _user())):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", placeholder(kind, name), text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        return ""


def _places(counts: Mapping[str, int]) -> dict[str, int]:
    """The same, of which file `FOLDER/FILE:LINE FUNCTION` is left out, unless it is torch's."""
    return {
        place if place.startswith(TORCHS_OWN) else _without_file(place): count
        for place, count in counts.items()
    }


def _without_file(place: str) -> str:
    where, blank, function = place.partition(" ")
    path, _, line = where.rpartition(":")
    return f"{placeholder('path', path)}:{line}{blank}{function}"
