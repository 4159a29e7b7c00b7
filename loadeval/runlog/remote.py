"""Logs behind a URL, such as s3://bucket/job, through fsspec, which `loadeval[cluster]` has."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from loadeval.errors import RunLogError

if TYPE_CHECKING:
    from pathlib import Path

SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/+(?=[^/])")


def url_of(path: Path) -> str | None:
    """The URL that `path` was made of, which leaves it one slash; None for a local path."""
    text = path.as_posix()
    match = SCHEME.match(text)
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{text[match.end() :]}"


def text_of(path: Path) -> str:
    """`path` as a user writes it: a URL with both of its slashes."""
    return url_of(path) or str(path)


def file_system(url: str) -> Any:
    """The file system of fsspec that `url` is in. Raises RunLogError where there is none."""
    try:
        import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 - optional, and heavy

        return fsspec.core.url_to_fs(url)[0]
    except (ImportError, ValueError) as error:
        raise RunLogError(
            f"cannot read {url}: {error}; expected fsspec, and what it needs for this kind of URL: "
            "pip install 'loadeval[cluster]' s3fs (or gcsfs for gs://), or copy the logs here"
        ) from error


def open_binary(path: Path) -> BinaryIO:
    """What is at `path`, to read. Raises OSError where it cannot be opened; see `file_system`."""
    url = url_of(path)
    if url is None:
        return path.open("rb")
    return cast("BinaryIO", file_system(url).open(url, "rb"))


def file_state(path: Path, file: BinaryIO) -> tuple[tuple[int, int], int, float]:
    """The identity of `file`, at `path`, its bytes, and when it was last written to.

    The time is in seconds since 1970. Behind a URL all are the same file.
    """
    url = url_of(path)
    if url is None:
        state = os.fstat(file.fileno())
        return (state.st_dev, state.st_ino), state.st_size, state.st_mtime
    system = file_system(url)
    return (0, 0), system.size(url), system.modified(url).timestamp()


def names_in(folder: Path) -> list[str]:
    """The names of the files in `folder`. Raises OSError; see `file_system`."""
    url = url_of(folder)
    if url is None:
        return [path.name for path in folder.iterdir() if path.is_file()]
    system = file_system(url)
    system.invalidate_cache()  # a job that goes on has more each time
    paths = system.ls(url, detail=False)
    return [str(entry).rstrip("/").rsplit("/", maxsplit=1)[-1] for entry in paths]
