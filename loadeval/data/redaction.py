"""Replaces in a run log what tells on whose machine and with which files it was made.

Paths, host and user names and the texts of exceptions become placeholders, such as
`host-1f3a90c25b7d4e68`: a hash with a salt that each run has anew and nobody else knows, so that a
list of names does not undo it. Within a run the same text has the same placeholder. The ranks of a
job have the same salt where their launcher puts one into their environment, as `loadeval run` does;
otherwise their hosts are numbered. Numbers, and names of classes and functions, stay.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import secrets
from dataclasses import replace as changed
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from loadeval.data.lines import CodeSamples, EpochEnd, Event, Header, Line, Readings

SALT = "LOADEVAL_SALT"
"""The variable with the salt of a job, which is the same for all its ranks."""
NODE = ("SLURM_NODEID", "NODE_RANK", "GROUP_RANK")
"""Launchers number the nodes of a job in these variables."""
HOST_PLACEHOLDER = re.compile(r"host-[0-9a-f]+")
ERROR = re.compile(r"\b([A-Z]\w*|\w*error): (.+?)(?=\)?\Z)", re.DOTALL)
"""It finds the name of an exception, and its text, up to the end or the closing bracket."""
PATH = re.compile(r"""(?<!\w)'[^']+'|"[^"]+"|(?<![~\w.-])(?:\w+:)?[~\w.-]*[/\\][^\s'",;()]*""")
"""It finds paths, and whatever is quoted, which may be a path with blanks."""
TORCHS_OWN = ("torch/", "_utils/", "data/dataloader.py", "multiprocessing/")
"""Places in torch's own code begin so, and nobody makes them faster."""
READ_ON = re.compile(r"(.*? raised )(.*)(, and was read on)", re.DOTALL)
"""It finds the exception in the message of an event "error read on"."""


def run_salt() -> str:
    """The salt of a run that begins: that of its job, or a new one."""
    return os.environ.get(SALT) or secrets.token_hex(16)


def share_salt() -> bool:
    """Give a salt to all runs of this process and of those that it starts; whether it was needed.

    One rank of several gives none: the others would have another one.
    """
    if SALT in os.environ or _node() is not None:
        return False
    os.environ[SALT] = secrets.token_hex(16)
    return True


def _node() -> int | None:
    """The number of this node in its job; None where the launcher does not tell it."""
    variables = {name: int(text) for name, text in os.environ.items() if text.isdecimal()}
    rank, on_each = variables.get("RANK"), variables.get("LOCAL_WORLD_SIZE")
    reckoned = None if rank is None or not on_each else rank // on_each
    return next((variables[name] for name in NODE if name in variables), reckoned)


def placeholder(kind: str, text: str, salt: str) -> str:
    """What stands for `text` in all runs with that salt."""
    content = text.encode("utf-8", "backslashreplace")
    return f"{kind}-{blake2b(content, digest_size=8, key=salt.encode()[:64]).hexdigest()}"


def host_placeholder(host: str, salt: str) -> str:
    """What stands for a host in all ranks of this job."""
    number = None if SALT in os.environ else _node()
    return placeholder("host", host, salt) if number is None else f"host-{number}"


def is_hidden(host: object) -> bool:
    """Whether `host` is a placeholder, which differs from run to run on the same machine."""
    return isinstance(host, str) and HOST_PLACEHOLDER.fullmatch(host) is not None


def redacted(line: Line, salt: str) -> Line:
    """`line` with placeholders. The name of the run stays."""
    changes: dict[str, Any] = {}
    match line:
        case Header():
            return _header(line, salt)
        case EpochEnd(error=str(error)):
            changes["error"] = _error(error, salt)
        case Event(message=text, kind="failed backend"):
            changes["message"] = _error(text, salt)
        case Event(message=text, kind="error read on") if found := READ_ON.fullmatch(text):
            changes["message"] = f"{found[1]}{_error(found[2], salt)}{found[3]}"
        case Event(message=text):
            changes["message"] = _sentence(text, salt)
        case Readings(missing=str(why)):
            changes["missing"] = _sentence(why, salt)
        case CodeSamples():
            for name in ("running", "blocked", "calls"):
                counts = getattr(line, name).items()
                changes[name] = {_without_file(place, salt): count for place, count in counts}
    return replace(line, **changes) if changes else line


def _header(header: Header, salt: str) -> Header:
    host, made_at = header.environment.get("host"), header.loader.made_at
    if host:
        environment = {**header.environment, "host": host_placeholder(str(host), salt)}
        header = replace(header, environment=environment)
    if made_at is not None:
        path, _, line = made_at.rpartition(":")
        place = f"{placeholder('path', path, salt)}:{line}"
        header = replace(header, loader=changed(header.loader, made_at=place))
    return header


def _error(text: str, salt: str) -> str:
    """`FileNotFoundError: text-0a1b2c3d4e5f6789`: how an exception is called is no secret."""
    name, _, rest = text.partition(":")
    if not name.isidentifier():
        return placeholder("text", text, salt)
    return f"{name}: {placeholder('text', rest.strip(), salt)}" if rest.strip() else text


def _sentence(text: str, salt: str) -> str:
    text = ERROR.sub(lambda match: f"{match[1]}: {placeholder('text', match[2], salt)}", text)
    text = PATH.sub(lambda match: placeholder("path", match[0], salt), text)
    host = platform.node()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        user = ""
    for name, new in (
        (host, host_placeholder(host, salt)),
        (user, placeholder("user", user, salt)),
    ):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", new, text)
    return text


def _without_file(place: str, salt: str) -> str:
    """`FOLDER/FILE:LINE FUNCTION` with a placeholder for the file, unless it is torch's."""
    if place.startswith(TORCHS_OWN):
        return place
    where, blank, function = place.partition(" ")
    path, _, line = where.rpartition(":")
    return f"{placeholder('path', path, salt)}:{line}{blank}{function}"
