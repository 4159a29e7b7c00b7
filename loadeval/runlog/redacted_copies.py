"""Copies of run logs with placeholders, for pages and exports that others will see."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalError
from loadeval.runlog.log_file.codec import decode, encode, to_text
from loadeval.runlog.log_file.reader import LOG_START, opened
from loadeval.runlog.model import Header
from loadeval.runlog.redaction import placeholder, redacted, run_salt
from loadeval.runlog.remote import names_in, text_of
from loadeval.runlog.run_folder.folder import LOG, is_folder
from loadeval.runlog.run_folder.processes import RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OF_LOADEVAL = re.compile(r"rank\d+(-(validation|run\d+|\d+))*")
"""`loadeval run` names logs so, which tells nothing of anybody."""
WITH_TEXT = tuple(
    b'{"type":"%s"' % kind for kind in (b"header", b"epoch", b"event", b"readings", b"code")
)
"""Lines that `redacted` changes begin so; a log has many others."""


@contextmanager
def redacted_copies(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Copies of these logs, metrics files and folders, with placeholders; removed at the end.

    Names of files and runs become placeholders too, except the names that `loadeval run` gives.
    Lines that cannot be read are copied as they are. Raises RunLogError where a file cannot be
    read; errors of whoever reads a copy are raised with the names of the originals.
    """
    with TemporaryDirectory(prefix="loadeval-") as folder:
        salt = run_salt()
        copies = [_copy(path, Path(folder), salt) for path in paths]
        try:
            yield copies
        except LoadevalError as error:
            text = str(error)
            for path, copy in zip(paths, copies, strict=True):
                text = text.replace(str(copy), text_of(path))
            raise type(error)(text) from error


def _copy(path: Path, place: Path, salt: str) -> Path:
    """A copy in a folder of `place` that is the same for all files of one folder."""
    folder = place / placeholder("path", str(path.parent.absolute()), salt)
    folder.mkdir(exist_ok=True)
    if not is_folder(path):
        return _copy_log(path, folder, salt)
    folder = folder / placeholder("run", path.name, salt)
    folder.mkdir(exist_ok=True)
    for name in names_in(path):
        if RECORD.fullmatch(name):
            _copy_record(path / name, folder / name, salt)
        elif name.endswith(LOG):
            _copy_log(path / name, folder, salt)
    return folder


def _copy_log(path: Path, folder: Path, salt: str) -> Path:
    copy = folder / f"{_name(path.stem, salt)}{path.suffix}"
    with opened(path) as file, copy.open("wb") as new:
        if file.read(len(LOG_START)) == LOG_START:
            file.seek(0)
            new.writelines(_line(text, salt) for text in file)
        else:
            file.seek(0)
            new.write(_metrics(file.read(), salt))
    return copy


def _copy_record(path: Path, copy: Path, salt: str) -> None:
    """A file beside the logs, of a process; none if it says nothing."""
    try:
        with opened(path) as file:
            record = json.load(file)
        text = json.dumps({**record, "host": placeholder("host", record["host"], salt)})
    except (ValueError, TypeError, KeyError):
        return
    copy.write_text(text, encoding="utf-8")


def _line(text: bytes, salt: str) -> bytes:
    if not text.startswith(WITH_TEXT):
        return text
    try:
        return to_text(_content(json.loads(text), salt)).encode()
    except ValueError:  # RunLogError too: whoever reads the copy will say what is wrong
        return text


def _metrics(text: bytes, salt: str) -> bytes:
    """What `save_metrics()` wrote; DALI's file has numbers alone."""
    try:
        content = json.loads(text)
        lines = [_content(line, salt) for line in content["run"]]
    except (ValueError, TypeError, KeyError):
        return text
    return json.dumps({**content, "run": lines}).encode()


def _content(content: Any, salt: str) -> dict[str, Any]:
    """A line, parsed from JSON. Raises RunLogError where it is none."""
    line = redacted(decode(content), salt)
    if isinstance(line, Header):
        line = replace(line, name=_name(line.name, salt))
    return encode(line)


def _name(name: str, salt: str) -> str:
    return name if OF_LOADEVAL.fullmatch(name) else placeholder("run", name, salt)
