"""Replaces what tells in a run log whose machine it was made on, and with which files.

Paths, host and user names and the texts of exceptions become placeholders, such as
`host-1f3a90c25b7d4e68`: a hash with a salt that each run has anew and nobody else knows, so that a
list of names does not undo it. Within a run the same text has the same placeholder, and in all
processes of one `loadeval run`, which hands its salt down. Numbers, and names of classes and
functions, stay.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import secrets
from contextlib import suppress
from dataclasses import replace as changed
from hashlib import blake2b

from msgspec.structs import replace

from loadeval.data.lines import CodeSamples, EpochEnd, Event, Header, Line, Readings

SALT = "LOADEVAL_SALT"
"""The variable with the salt of a job, which is the same for all its ranks."""
HOST_PLACEHOLDER = re.compile(r"host-[0-9a-f]+")
ERROR = re.compile(r"\b([A-Z]\w*|\w*error): (.+?)(?=\)?\Z)", re.DOTALL)
"""It finds the name of an exception, and its text, up to the end or the closing bracket."""
PATH = re.compile(r"""(?<!\w)'[^']+'|"[^"]+"|(?<![~\w.-])(?:\w+:)?[~\w.-]*[/\\][^\s'",;()]*""")
"""It finds paths, and whatever is quoted, which may be a path with blanks."""
PLACE = re.compile(r"\A(.*):(\d+)(?= |\Z)", re.DOTALL)
"""It finds the file and the line of FILE:LINE FUNCTION; names of files may have colons too."""
TORCHS_OWN = ("torch/", "_utils/", "data/dataloader.py", "multiprocessing/")
"""Places in torch's own code begin so, and nobody makes them faster."""


def run_salt() -> str:
    """The salt of a run that begins: that of its job, or a new one."""
    return os.environ.get(SALT) or secrets.token_hex(16)


def share_salt() -> None:
    """Give a salt to all runs of this process and of those that it starts, unless it has one."""
    os.environ.setdefault(SALT, secrets.token_hex(16))


def placeholder(kind: str, text: str, salt: str) -> str:
    """What stands for `text` in all runs with that salt."""
    content = text.encode("utf-8", "backslashreplace")
    return f"{kind}-{blake2b(content, digest_size=8, key=salt.encode()[:64]).hexdigest()}"


def is_hidden(host: object) -> bool:
    """Whether `host` is a placeholder, which differs from run to run on the same machine."""
    return isinstance(host, str) and HOST_PLACEHOLDER.fullmatch(host) is not None


def redacted(line: Line, salt: str) -> Line:  # noqa: PLR0911 - one for each line
    """`line` with placeholders. The name of the run stays."""
    match line:
        case Header(environment=environment, loader=loader):
            if host := environment.get("host"):
                environment = {**environment, "host": placeholder("host", str(host), salt)}
            if loader.made_at:
                loader = changed(loader, made_at=_without_file(loader.made_at, salt))
            return replace(line, environment=environment, loader=loader)
        case EpochEnd(error=str(error)):
            return replace(line, error=_error(error, salt))
        case Event(message=error, kind="failed backend"):
            return replace(line, message=_error(error, salt))
        case Event(message=text):
            return replace(line, message=_sentence(text, salt))
        case Readings(missing=str(why)):
            return replace(line, missing=_sentence(why, salt))
        case CodeSamples():
            counts = {name: getattr(line, name) for name in ("running", "blocked", "calls")}
            for name, of_places in counts.items():
                counts[name] = {
                    place if place.startswith(TORCHS_OWN) else _without_file(place, salt): count
                    for place, count in of_places.items()
                }
            return replace(line, **counts)
    return line


def _without_file(place: str, salt: str) -> str:
    return PLACE.sub(lambda found: f"{placeholder('path', found[1], salt)}:{found[2]}", place, 1)


def _error(text: str, salt: str) -> str:
    """`FileNotFoundError: text-0a1b2c3d4e5f6789`: how an exception is called is no secret."""
    name, _, rest = text.partition(":")
    if not name.isidentifier():
        return placeholder("text", text, salt)
    return f"{name}: {placeholder('text', rest.strip(), salt)}" if rest.strip() else name


def _sentence(text: str, salt: str) -> str:
    text = ERROR.sub(lambda match: f"{match[1]}: {placeholder('text', match[2], salt)}", text)
    text = PATH.sub(lambda match: placeholder("path", match[0], salt), text)
    names = {"host": platform.node()}
    with suppress(KeyError, OSError):  # a number without a name, as in a container
        names["user"] = getpass.getuser()
    for kind, name in names.items():
        if name:
            hidden = placeholder(kind, name, salt)
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", hidden, text)
    return text
