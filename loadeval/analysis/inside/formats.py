"""Data in a form that is slow to read sample by sample, by the functions that workers were in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.analysis.inside.stages import CodeLine, LibraryCall, StageReport

MUCH_READ = 8.0
"""Bytes read for each byte of a batch, from which on most of what is read is not used."""
READ_BYTES_PER_NS = 0.1
"""Who loads reads that fast, at least, if reading matters: 100 MB/s.

An image is decoded at a tenth of that, counted in compressed bytes, and is cropped afterwards.
"""


class Misuse(Enum):
    """How data is read or turned into tensors."""

    ARCHIVE = "a compressed archive is unpacked"
    ROW_OF_TABLE = "a row of a table is selected"
    LIST = "a tensor is built from Python objects"
    TEXT = "text is parsed"
    ROW_GROUP = "a part of a columnar file is read"
    CHUNK = "a chunked array is read"
    OPENED = "a file with an index is opened"
    AMPLIFIED = "far more is read than used"


FUNCTIONS: dict[Misuse, str] = {
    Misuse.ARCHIVE: r"numpy\.lib\.\w*npyio\w*\.(NpzFile\.)?__getitem__"
    r"|(zlib|gzip|bz2|lzma)\..+|zipfile\b.*\.(ZipExtFile\..+|ZipFile\.(read|open))",
    Misuse.ROW_OF_TABLE: r"pandas\.core\.indexing\..+|pandas\..*\.(DataFrame|Series)\."
    r"(__getitem__|xs|iterrows|itertuples|query)",
    Misuse.LIST: r"(torch\.)?(as_)?tensor",
    Misuse.TEXT: r"(json|csv|ast|yaml|xml|pandas\.io)\..+",
    Misuse.ROW_GROUP: r"pyarrow\.(parquet|feather|dataset)\b.*\.(read|read_\w+|to_table)"
    r"|(.+\.)?(to_pandas|to_pylist|read_row_groups?|get_batch)",
    Misuse.CHUNK: r"h5py\..*\b(dataset|Dataset)\..+|zarr\..+",
    Misuse.OPENED: r"h5py\..*\b(files|File)\..+|zipfile\b.*\.ZipFile\.__init__|tarfile\..+"
    r"|pyarrow\.parquet\..*\bParquetFile\.__init__|lmdb\.open|sqlite3\.connect",
}
"""Functions by their full names, a method without its class until Python 3.10."""
PATTERNS = {misuse: re.compile(pattern) for misuse, pattern in FUNCTIONS.items()}


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """What workers do for so large a `share` of fetching and collating.

    `name` is the line of the program, and what it calls: `data.py:31 __getitem__ > json.loads`.
    `amplification` is how many bytes are read for one of a batch; None where that is not known.
    """

    misuse: Misuse
    name: str
    share: float
    amplification: float | None


def slow_format(
    stages: StageReport, line: CodeLine | None, batch_bytes: float | None, least_share: float
) -> SlowFormat | None:
    """The form of the data that takes `least_share` of loading or more; None where none does.

    `line` is the function that workers were seen in most.
    """
    read = stages.read_bytes
    amplification = read / batch_bytes if read is not None and batch_bytes else None
    shares: dict[Misuse, float] = {}
    first: dict[Misuse, LibraryCall] = {}
    for call in stages.calls:
        misuse = _misuse_of(call.function)
        if misuse is not None:
            shares[misuse] = shares.get(misuse, 0.0) + call.share
            first.setdefault(misuse, call)
    most = max(shares, key=lambda misuse: shares[misuse], default=None)
    if most is not None and shares[most] >= least_share:
        return SlowFormat(most, first[most].name, shares[most], amplification)
    if read is None or amplification is None or line is None or line.share < least_share:
        return None
    is_fast = read >= READ_BYTES_PER_NS * (stages.fetch_ns + stages.collate_ns)
    if amplification < MUCH_READ or not is_fast:
        return None
    share = line.share * (1 - 1 / amplification)
    return SlowFormat(Misuse.AMPLIFIED, line.name, share, amplification)


def _misuse_of(function: str) -> Misuse | None:
    matching = (misuse for misuse, pattern in PATTERNS.items() if pattern.fullmatch(function))
    return next(matching, None)
