"""What the lines of code that workers were in tell: what blocks them, and which work is slow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from loadeval.inside.stages import LibraryCall, Stages

FROM_DISK = 0.3
"""The disk blocks workers if at least this share of the bytes is read from it."""
LEAST_FROM_DISK = 16_384
"""The least bytes of a batch from the disk: less may be Python's own files."""
FUTEX, SLEEPS = "futex", "nanosleep"
LOCKS = (FUTEX, "flock", "locks_", "do_lock_file", "fcntl_setlk", "sem_", "semaphore")
DISKS = ("folio_wait", "io_schedule", "bit_wait_io", "wait_on_page", "filemap", "blk", "dio_")
"""How Linux names the places where a process waits for a lock, or for a disk."""
ONE_AT_A_TIME = 0.35
"""If one worker works at a time, all work differs from the loader's time by at most this share."""
THREADS = re.compile(r"(concurrent\.futures|queue|threading|multiprocessing\.pool|fsspec)\..+")
"""Functions in which a thread waits for others of its own process, by their full names."""
MOSTLY = 0.5
"""A worker waits for its own threads where it is seen in these, or they compute, for so long."""


MUCH_READ = 8.0
"""Bytes read for each byte of a batch, from which on most of what is read is not used."""
READ_BYTES_PER_NS = 0.1
"""Who loads reads that fast, at least, if reading matters: 100 MB/s.

An image is decoded at a tenth of that, counted in compressed bytes, and is cropped afterwards.
"""
AMPLIFIED = "far more is read than used"
FORMATS = {
    "a compressed archive is unpacked": r"numpy\.lib\.\w*npyio\w*\.(NpzFile\.)?__getitem__"
    r"|(zlib|gzip|bz2|lzma)\..+|zipfile\b.*\.(ZipExtFile\..+|ZipFile\.(read|open))",
    "a row of a table is selected": r"pandas\.core\.indexing\..+|pandas\..*\.(DataFrame|Series)\."
    r"(__getitem__|xs|iterrows|itertuples|query)",
    "a tensor is built from Python objects": r"(torch\.)?(as_)?tensor",
    "text is parsed": r"(json|csv|ast|yaml|xml|pandas\.io)\..+",
    "a part of a columnar file is read": r"pyarrow\.(parquet|feather|dataset)\b.*\.(read|read_\w+|"
    r"to_table)|(.+\.)?(to_pandas|to_pylist|read_row_groups?|get_batch)",
    "a chunked array is read": r"h5py\..*\b(dataset|Dataset)\..+|zarr\..+",
    "a file with an index is opened": r"h5py\..*\b(files|File)\..+|zipfile\b.*\.ZipFile\.__init__"
    r"|tarfile\..+|pyarrow\.parquet\..*\bParquetFile\.__init__|lmdb\.open|sqlite3\.connect",
}
"""Functions that read data in a form that is slow sample by sample, by their full names.

Until Python 3.10 a method has no name of its class. The first form that fits counts.
"""


def blockage(stages: Stages, workers: int, blocked: float) -> Literal["lock", "disk", "other"]:
    """What blocks `workers` that are blocked for a share of fetching and collating.

    Other is storage, the network, another process, or threads of their own.
    """
    line = stages.blocked_line
    blocked_in = "" if line is None else line.blocked_in
    read, from_disk = stages.read_bytes, stages.disk_bytes
    is_read = read and from_disk and from_disk >= max(FROM_DISK * read, LEAST_FROM_DISK)
    if blocked_in.startswith(DISKS) or is_read:
        return "disk"
    if FUTEX in blocked_in and (workers <= 1 or awaits_threads(stages)):
        return "other"
    if blocked_in.startswith(LOCKS):
        return "lock"
    # SQLite, for one, sleeps and tries again while another has its lock. Then what workers do
    # meanwhile adds up to the loader's time.
    active_ns = (1 - blocked) * (stages.fetch_ns + stages.collate_ns)
    is_serial = abs(active_ns - stages.total_ns) <= ONE_AT_A_TIME * stages.total_ns
    return "lock" if blocked_in.endswith(SLEEPS) and workers > 1 and is_serial else "other"


def awaits_threads(stages: Stages) -> bool:
    """Whether a worker that is blocked by a futex waits for threads of its own process.

    No other worker can hold these up. The functions that it waits in say so, or the threads compute
    meanwhile.
    """
    blocked = sum(line.blocked_share for line in stages.code)
    awaited = sum(call.share for call in stages.calls if THREADS.fullmatch(call.function))
    return awaited >= MOSTLY * blocked or computing_threads(stages) > 0


def computing_threads(stages: Stages) -> float:
    """The share of the time blocked by a futex in which other threads of a worker compute.

    0 where that is so little that it may be for something else.
    """
    line, blocked_ns = stages.blocked_line, stages.blocked_ns or 0.0
    if line is None or FUTEX not in line.blocked_in or not blocked_ns:
        return 0.0
    share = min((stages.other_cpu_ns or 0.0) / blocked_ns, 1.0)
    return share if share >= MOSTLY else 0.0


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """A form of the data, of FORMATS or AMPLIFIED, that takes a `share` of fetch and collate.

    `name` is the line of the program, and what it calls: `data.py:31 __getitem__ > json.loads`.
    `amplification` is how many bytes are read for one of a batch; None where that is not known.
    """

    form: str
    name: str
    share: float
    amplification: float | None


def slow_format(stages: Stages, batch_bytes: float | None, least_share: float) -> SlowFormat | None:
    """The form of the data that takes `least_share` of loading or more; None where none does."""
    calls: dict[str, list[LibraryCall]] = {}
    for call in stages.calls:
        forms = (form for form, names in FORMATS.items() if re.fullmatch(names, call.function))
        calls.setdefault(next(forms, ""), []).append(call)
    calls.pop("", None)
    shares = {form: sum(call.share for call in of_form) for form, of_form in calls.items()}
    most = max(shares, key=shares.__getitem__, default="")
    read, line = stages.read_bytes, stages.line
    amplification = read / batch_bytes if read is not None and batch_bytes else None
    if most and shares[most] >= least_share:
        return SlowFormat(most, calls[most][0].name, shares[most], amplification)
    if read is None or amplification is None or line is None or line.share < least_share:
        return None
    is_fast = read >= READ_BYTES_PER_NS * (stages.fetch_ns + stages.collate_ns)
    if amplification < MUCH_READ or not is_fast:
        return None
    share = line.share * (1 - 1 / amplification)
    return SlowFormat(AMPLIFIED, line.name, share, amplification)
