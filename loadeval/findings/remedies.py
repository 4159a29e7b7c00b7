"""What to do about library functions that take most of loading, and data in forms that are slow.

There is one table. Where it knows nothing of a function, only the line that calls it is named.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from loadeval.findings import DOMINATES, MUCH_READ, READ_BYTES_PER_NS
from loadeval.inside.code import CodeLine, LibraryCall
from loadeval.inside.stages import Stages


class Remedy(NamedTuple):
    """What to do about `functions`, a pattern of their full names, and why, or how.

    `form` is what they tell of the data, "" where nothing.
    """

    functions: str
    do: str
    because: str
    form: str = ""


AMPLIFIED = Remedy(
    "",
    "read only what is used",
    "split large files, map them (torch.load(path, mmap=True)), seek by an index, keep what was "
    "read for the next samples; torch.save saves all that a view is part of: save view.clone()",
    "far more is read than used",
)
REMEDIES = (
    Remedy(
        r"tarfile\.(?!open|TarFile\.(\w*open|__init__)).+",
        "read members as they come, or unpack the archive once",
        "going back in a compressed one unpacks it again from its start: read a member's bytes "
        "before they go into a shuffle buffer, or store a plain .tar",
        "members of an archive are read",
    ),
    Remedy(
        r"numpy\.lib\.\w*npyio\w*\.(NpzFile\.)?__getitem__|(zlib|gzip|bz2|lzma|_compression)\..+"
        r"|zipfile\b.*\.(ZipExtFile\..+|ZipFile\.(read|open))",
        "store arrays uncompressed, mapped",
        "as .npy files that np.load(path, mmap_mode='r') maps, or by a fast codec (zstd, lz4)",
        "a compressed archive is unpacked",
    ),
    Remedy(
        r"pandas\.core\.indexing\..+|pandas\..*\.(DataFrame|Series)\."
        r"(__getitem__|xs|iterrows|itertuples|query)",
        "take the columns as arrays, in __init__",
        "frame['column'].to_numpy(): a row of a DataFrame costs as much as thousands of elements",
        "a row of a table is selected",
    ),
    Remedy(
        r"(torch\.)?(as_)?tensor",
        "keep the data as one array, and use torch.from_numpy(array[index])",
        "tensors are slow to build from lists or dicts of Python numbers",
        "a tensor is built from Python objects",
    ),
    Remedy(
        r"(json|csv|ast|yaml|xml|pandas\.io)\..+",
        "parse once, before training or in __init__",
        "and store what is used of it as arrays",
        "text is parsed",
    ),
    Remedy(
        r"pyarrow\.(parquet|feather|dataset)\b.*\.(read|read_\w+|to_table)"
        r"|(.+\.)?(to_pandas|to_pylist|read_row_groups?|get_batch)",
        "read rows in the order of the file, or make row groups smaller",
        "a row group is decoded whole; for random order store arrays (.npy, Arrow IPC)",
        "a part of a columnar file is read",
    ),
    Remedy(
        r"h5py\..*\b(dataset|Dataset)\..+|zarr\..+",
        "store one sample in a chunk",
        "or read a batch at once (__getitems__): a chunk is read and unpacked whole",
        "a chunked array is read",
    ),
    Remedy(
        r"h5py\..*\b(files|File)\..+|zipfile\b.*\.ZipFile\.__init__|tarfile\..+"
        r"|pyarrow\.parquet\..*\bParquetFile\.__init__|lmdb\.open|sqlite3\.connect",
        "open the file once in each worker, and keep it",
        "its index is read whenever it is opened",
        "a file with an index is opened",
    ),
    Remedy(
        r"(.+\.)?ImageFile\.load|(.+\.)?(imread|imdecode|decode_(image|jpeg|png|webp))",
        "decode images faster",
        "Image.draft or reduce for smaller ones, a faster decoder: loadeval backends FOLDER",
    ),
    Remedy(
        r"(.+\.)?(resize|thumbnail|Resize\w*)",
        "resize faster",
        "decode to a smaller size (Image.draft), a cheaper filter, or smaller files on disk",
    ),
    Remedy(
        r"(.+\.)?_?(i?glob\w*|r?glob|iterdir|listdir|scandir|walk)",
        "list the folder once, in __init__",
        "it is listed for each sample",
    ),
    Remedy(
        r"(.+\.)?_?deepcopy\w*",
        "copy only what changes",
        "the rest may be shared",
    ),
    Remedy(
        r"scipy\..+\.resample|(.+\.)?signal\.resample",
        "resample faster",
        "scipy.signal.resample_poly, or pad to a length with small factors",
    ),
    Remedy(
        r"(.+\.)?(iternext\w*|iterprev\w*|cursor)",
        "keep the list of keys",
        "in an entry of its own or a file, or make keys from the index: not by going through all",
    ),
    Remedy(
        r"torch\.stack",
        "make one tensor, not one of each row",
        "index once with all indices, data[indices], or fill one that torch.empty made",
    ),
)


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """A form of the data that takes a `share` of fetch and collate, and its `remedy`.

    `name` is the line of the program, and what it calls: `data.py:31 __getitem__ > json.loads`.
    `amplification` is how many bytes are read for one of a batch; None where that is not known.
    """

    remedy: Remedy
    name: str
    share: float
    amplification: float | None


def remedy_for(function: str) -> Remedy | None:
    """What is known of a function."""
    return next((each for each in REMEDIES if re.fullmatch(each.functions, function)), None)


def remedy_of(line: CodeLine, inside: Stages) -> Remedy | None:
    """What is known of what a line mostly calls: by that function's full name, or by its leaf.

    What tells a form of the data is told of all lines together, see `slow_format`.
    """
    calls = (each for each in inside.calls if each.place.partition(" ")[2] == line.function)
    names = [*(call.function for call in [*calls][:1]), line.leaf]
    return next((each for each in map(remedy_for, names) if each and not each.form), None)


def slow_format(stages: Stages, batch_bytes: float | None) -> SlowFormat | None:
    """The form of the data that takes so much of loading that it is named; None where none does."""
    read, line = stages.read_bytes, stages.line
    amplification = read / batch_bytes if read is not None and batch_bytes else None
    calls = defaultdict[Remedy, list[LibraryCall]](list)
    for call in stages.calls:
        remedy = remedy_for(call.function)
        if remedy is not None and remedy.form:
            calls[remedy].append(call)
    shares = {remedy: sum(call.share for call in of_form) for remedy, of_form in calls.items()}
    most = max(shares, key=shares.__getitem__, default=None)
    if most is not None and shares[most] >= DOMINATES:
        return SlowFormat(most, calls[most][0].name, shares[most], amplification)
    if read is None or amplification is None or line is None or line.share < DOMINATES:
        return None
    is_fast = read >= READ_BYTES_PER_NS * (stages.fetch_ns + stages.collate_ns)
    if amplification < MUCH_READ or not is_fast:
        return None
    share = line.share * (1 - 1 / amplification)
    return SlowFormat(AMPLIFIED, line.name, share, amplification)
