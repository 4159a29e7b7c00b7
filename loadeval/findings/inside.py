"""What takes too long of loading a batch: a transform, a line, a format, collating, pinning."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from loadeval.data.columns import mean_known
from loadeval.estimate.memory import copies, last_read
from loadeval.estimate.steady import length_of_epochs
from loadeval.findings import (
    BLOCKED,
    COPIED_BYTES,
    DOMINATES,
    FEW,
    FEW_TENSORS_BYTES,
    LARGE,
    MATTERS,
    MOSTLY,
    MUCH_READ,
    PIPE_BYTES_PER_NS,
    READ_BYTES_PER_NS,
    TRANSFER_NS,
    TWICE,
)
from loadeval.findings.engine import Context, Do, Finding, Set, Skip, rule
from loadeval.findings.workers import SIMULATED, more_workers, slow_worker_of
from loadeval.inside.code import CodeLine, LibraryCall
from loadeval.inside.stages import FUTEX, Stages, TransformTime, asks_by_pipe
from loadeval.model.costs import TINY, Change, in_share, work_of
from loadeval.words import duration, number, share, size

TOKENISER = re.compile("tokeni[sz]", re.IGNORECASE)
"""Functions and classes that tokenise are called so: `PreTrainedTokenizerFast`, `tokenise`."""
FASTER = (
    "smaller inputs, a faster library, once for a whole batch or on the GPU, or before training"
)
FEWER_TENSORS = "send fewer and larger tensors", "stack those of a kind in collate_fn"


class Remedy(NamedTuple):
    """What to do about `functions`, a pattern of their full names, and why, or how.

    `form` is what they tell of the data, "" where nothing.
    """

    functions: str
    do: str
    because: str
    form: str = ""


AMPLIFIED = (
    Remedy(
        r"torch\..*\bload",
        "save view.clone(), or torch.load(path, mmap=True)",
        "torch.save saves all that a view is part of, and torch.load reads all of it; a file of "
        "many samples is better mapped, or split",
        "far more is read than used",
    ),
    Remedy(
        ".*",
        "read only what is used",
        "split large files, map them, seek by an index, keep what was read for the next samples",
        "far more is read than used",
    ),
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
        "decode images smaller (Image.draft), or by a faster decoder",
        "draft and reduce decode to a smaller size; loadeval backends FOLDER compares decoders",
    ),
    Remedy(
        r"(.+\.)?(resize|thumbnail|Resize\w*)",
        "resize less (Image.draft), or by a cheaper filter",
        "what is decoded to a smaller size, or lies so on disk, is resized less",
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
        "use resample_poly, or pad to a fast length",
        "scipy.signal.resample_poly; scipy.fft.next_fast_len: resample transforms all at once, "
        "which is slow where a length has a large prime factor",
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


@dataclass(frozen=True)
class SlowFormat:
    """A form of the data that takes a `share` of fetch and collate, and its `remedy`.

    `name` is the line of the program, and what it calls: `data.py:31 __getitem__ > json.loads`.
    `amplification` is how many bytes are read for one of a batch; None where that is not known.
    """

    remedy: Remedy
    name: str
    share: float
    amplification: float | None


def remedy_for(function: str, of: Sequence[Remedy] = REMEDIES) -> Remedy | None:
    """What is known of a function."""
    return next((each for each in of if re.fullmatch(each.functions, function)), None)


def called_by(line: CodeLine, inside: Stages) -> str:
    """The full name of the function that a line mostly calls; "" where that is not known."""
    calls = (each for each in inside.calls if each.place.partition(" ")[2] == line.function)
    return next((call.function for call in calls), "")


def remedy_of(line: CodeLine, inside: Stages) -> Remedy | None:
    """What is known of what a line mostly calls: by that function's full name, or by its leaf.

    What tells a form of the data is told of all lines together, see `slow_format`.
    """
    known = map(remedy_for, (called_by(line, inside), line.leaf))
    return next((each for each in known if each and not each.form), None)


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
    remedy = remedy_for(called_by(line, stages), AMPLIFIED)
    return remedy and SlowFormat(remedy, line.name, share, amplification)


Part: TypeAlias = TransformTime | CodeLine | LibraryCall | SlowFormat


def shorter(times: float, *names: str) -> Change:
    """These costs are so many times smaller."""
    return Change(
        costs=lambda costs: costs.replace(**{name: costs[name] / times for name in names})
    )


def without(*names: str) -> Change:
    """Nothing of these costs."""
    return Change(costs=lambda costs: costs.replace(**dict.fromkeys(names, 0 * costs.step_ns)))


def less(part: float | Part | None) -> Change:
    """Fetching and collating without a part of it, or a share."""
    of_it = part if isinstance(part, float) else part.share if part else 0.0
    return Change(costs=lambda costs: in_share(costs, 1 - min(of_it, 1.0)))


def twice_as_fast(name: str, part: float, because: str, place: str | None) -> Do:
    """To make something faster that has a part of fetching and collating."""
    return Do(f"make {name} twice as fast", because, place, less(part / TWICE), TWICE)


def waits_for_workers(c: Context) -> bool:
    """Whether training waits for workers that fetch and collate."""
    return c.loses and c.charged("fetch", "collate") >= LARGE


def computes(c: Context) -> bool:
    """Whether it waits for them, and they have a CPU for most of that.

    Not where it waits for one slow worker, for a few slow samples, or for what nobody gets.
    """
    if not waits_for_workers(c) or c.blocked >= BLOCKED or slow_worker_of(c) is not None:
        return False
    if c.found(thrown_away) and thrown_of(c)[0] >= DOMINATES:
        return False
    if c.model is None:
        return True
    work_ns = work_of(c.model.costs)
    in_slow_ns = (c.model.costs["part slow samples"] * work_ns).mean()
    return bool(in_slow_ns < DOMINATES * work_ns.mean())


def asks_a_process(c: Context) -> CodeLine | None:
    """The line that asks another process by a pipe, and takes so much that it is named for it."""
    line = c.stages.line if waits_for_workers(c) and not collates(c) else None
    return line if line and line.share >= DOMINATES and asks_by_pipe(c.stages, line) else None


def part_of(c: Context) -> TransformTime | None:
    """The transform that takes so much that it is named; None where none does."""
    transforms, line = c.stages.transforms, c.stages.line
    if transforms and transforms[0].share >= DOMINATES:
        # In its own code may be transforms that are not timed, such as a closure's.
        in_line = transforms[0].calls_others and line is not None and line.share >= DOMINATES
        return None if in_line else transforms[0]
    largest = next((part for part in transforms if not part.calls_others), None)
    if largest is None or 1 - sum(part.share for part in transforms) >= DOMINATES:
        return None
    return largest if largest.share >= LARGE else None


def format_of(c: Context) -> SlowFormat | None:
    """The form of the data that makes it slow to read; None where none does."""
    form = slow_format(c.stages, mean_known(c.batches.nbytes))
    return None if form and "opened" in form.remedy.form and c.opens_no_file else form


def tokenising_of(c: Context) -> tuple[float, str]:
    """The share of tokenising in loading, by lines, calls or transforms; and where it is."""
    inside = c.stages
    named: list[list[tuple[str, Part]]] = [
        [(f"{line.function} {line.leaf}", line) for line in inside.code],
        [(call.function, call) for call in inside.calls],
        [(part.name, part) for part in inside.transforms],
    ]
    # A call may be seen as not all of them.
    seen = [[each for text, each in parts if TOKENISER.search(text)] for parts in named]
    most = max(seen, key=lambda parts: sum(each.share for each in parts))
    return min(sum(each.share for each in most), 1.0), most[0].name if most else ""


def tokenises(c: Context) -> bool:
    """Whether training waits for workers that tokenise for a large part of their time.

    They are blocked meanwhile, by a futex, where threads of the tokeniser do it.
    """
    line = c.stages.blocked_line
    by_threads = line is not None and FUTEX in line.blocked_in
    at_work = by_threads or c.blocked < BLOCKED
    return at_work and waits_for_workers(c) and tokenising_of(c)[0] >= DOMINATES


def collates(c: Context) -> bool:
    """Whether training waits for workers that collate for a large part of their time."""
    return waits_for_workers(c) and c.collating >= DOMINATES


@rule("slow transform", source=SIMULATED, undo=lambda c: less(part_of(c)))
def slow_transform(c: Context) -> Finding | None:
    """One transform takes most of loading a batch.

    Shown by a transform that takes 40% of fetching and collating, without those that it calls; or
    20%, as the largest of several that take 60% together.
    Excluded by workers that are blocked for 40% of their work, one slow worker, a few slow samples,
    tokenising, and lines of another function with 40%.
    """
    part = part_of(c)
    if part is None or not computes(c) or tokenises(c):
        return None
    of_it = (each for each in c.stages.code if f"{each.function}.".startswith(f"{part.function}."))
    line = next((each for each in of_it if each.share >= MOSTLY * part.share), None)
    if line is None and c.stages.line and min(c.stages.line.share, part.share) >= DOMINATES:
        line = c.stages.line
    because, place = FASTER, None
    if line is not None:
        because, place = f"most of it is in {line.name}; {FASTER}", line.place
    return Finding(
        f"{part.name} takes {share(part.share)} of loading a batch: "
        f"{duration(part.ns / part.calls)} a call, {part.calls:,.3g} calls a batch.",
        [
            *_behind_what_shrinks(c, part),
            twice_as_fast(part.name, part.share, because, place),
            *more_workers(c),
        ],
    )


def _behind_what_shrinks(c: Context, part: TransformTime) -> list[Do]:
    """To call it after a transform behind it that leaves so much less of a sample.

    It must not itself change how large a sample is.
    """
    names = [each.name for each in c.stages.sizes]
    if part.name not in names:
        return []
    own, *behind = c.stages.sizes[names.index(part.name) :]
    handled = min(own.before, own.after)
    smaller = next((each for each in behind if handled >= TWICE * max(each.after, 1.0)), None)
    if smaller is None or max(own.before, own.after) >= TWICE * max(handled, 1.0):
        return []
    because = (
        f"it handles {number(handled)} numbers a sample (pixels times channels), and "
        f"{smaller.name} leaves {number(smaller.after)}"
    )
    change = less(part.share * (1 - max(smaller.after, 1.0) / handled))  # its time goes with it
    return [Do(f"call {part.name} after {smaller.name}", because, change=change)]


def _without_copies(c: Context) -> Change:
    copied = copies(c.run)
    left = max(1 - (copied.share if copied else 0.0), TINY)
    return shorter(1 / left, "cpu_ns", "run_queue_ns")


@rule(
    "copied pages",
    source="page faults and kernel time of the workers while they load, memory that they share",
    undo=_without_copies,
)
def copied_pages(c: Context) -> Finding | None:
    """Forked workers copy the pages of the Python objects that they read.

    Shown by workers that each copied 16 MB or more of the memory that they shared with training, if
    at least half of their page faults copied a page.
    Excluded by pages that are new rather than copied, as those of arrays made for each sample, and
    workers that are not forked.
    """
    workers = c.loader.workers
    if not workers or c.loader.start_method not in (None, "fork"):
        raise Skip("workers are not forked")
    copied = copies(c.run)
    if copied is None:
        raise Skip("the memory and page faults of workers were not read")
    if not c.loses or copied.copied_bytes < COPIED_BYTES or copied.of_faults < MOSTLY:
        return None
    because = (
        "texts as packed bytes with an array of offsets; where garbage collection touches the "
        "objects, gc.freeze() before workers start. spawn is no cure: it copies all at once"
    )
    return Finding(
        f"Each worker has copied {size(copied.copied_bytes)} of the {size(copied.shared_bytes)} "
        f"that it shared with the training process, which takes {share(copied.share)} of the CPU "
        "time of loading: reading a Python object changes its reference count, and so copies its "
        "page in a forked worker.",
        [Do("hold the dataset in NumPy arrays or tensors", because, change=_without_copies(c))],
    )


@rule(
    "data format",
    source=f"lines of code, the library functions that they call, and bytes read; {SIMULATED}",
    undo=lambda c: less(format_of(c)),
)
def data_format(c: Context) -> Finding | None:
    """The data is in a form that is slow to read sample by sample.

    Shown by functions that unpack, parse, select rows or open files, in 40% of the samples of the
    code; or 8 times the bytes of a batch that are read, at 100 MB/s.
    Excluded by a transform that is named, and what excludes it.
    """
    form = format_of(c)
    if form is None and c.stages.code and not c.stages.calls:
        raise Skip("no calls of library functions were recorded")
    if form is None or part_of(c) or not computes(c):
        return None
    says = f"{share(form.share)} of loading a batch is spent in {form.name}: {form.remedy.form}."
    if form.amplification is not None and form.amplification >= MUCH_READ:
        says = (
            f"Loading reads {size(c.stages.read_bytes or 0.0)} for a batch, "
            f"{form.amplification:,.0f} times what it hands out, and spends {share(form.share)} of "
            f"its time in {form.name}."
        )
    do_it = Do(form.remedy.do, form.remedy.because, form.name.partition(" > ")[0], less(form))
    return Finding(says, [do_it, *more_workers(c)])


@rule("slow fetch", source=SIMULATED, undo=lambda c: less(c.stages.line))
def slow_fetch(c: Context) -> Finding | None:
    """One function of the dataset takes most of loading a batch, not counting pages that it copies.

    Shown by workers that are seen in it in 40% of the samples of the code.
    Excluded by a transform, collating, a data format, tokenising or another process that is named
    for it, and what excludes these.
    """
    top = c.stages.line
    others = (collates, format_of, tokenises, asks_a_process)
    if part_of(c) is not None or not computes(c) or any(other(c) for other in others):
        return None
    copied = copies(c.run) if c.found(copied_pages) else None
    if top is None or top.share - (copied.share if copied else 0.0) < DOMINATES:
        return None
    do: list[Do] = []
    for line in c.stages.lines[:3]:  # each by its own remedy
        if line.share < MATTERS:
            continue
        says = f"make {line.function} twice as fast"
        because = f"it mostly calls {line.leaf}" if line.leaf else ""
        if remedy := remedy_of(line, c.stages):
            says, because = remedy.do, remedy.because
        says = f"{says}: {share(line.share)} of loading"
        do.append(Do(says, because, line.place, less(line.share / TWICE), TWICE))
    return Finding(
        f"{share(top.share)} of loading a batch is spent in {top.name}.", [*do, *more_workers(c)]
    )


def thrown_of(c: Context) -> tuple[float, bool]:
    """The share of the samples made that no batch has; and whether each worker makes all of them.

    Raises Skip where it was not counted how many are made.
    """
    stages = c.run.stages
    counted = stages.take((stages.made > 0) & (stages.samples > 0))
    if not len(counted):
        raise Skip("which functions make the samples was not seen")
    thrown = max(1 - counted.samples.sum() / counted.made.sum(), 0.0)
    return thrown, (counted.made == (c.loader.workers or 0) * counted.samples).all()


def only_served(c: Context) -> Change:
    """No samples are made that no batch has."""
    return less(thrown_of(c)[0] * (c.stages.line.share if c.stages.line else 1.0))


@rule(
    "samples thrown away",
    source=f"what functions of the dataset return while a batch is loaded; {SIMULATED}",
    undo=only_served,
    turn="first",
)
def thrown_away(c: Context) -> Finding | None:
    """Samples are made and then dropped, as when each worker makes all and keeps its share.

    Shown by a function that made every sample of a batch, and more samples of the same kind that
    are not in the batch.
    Excluded by a sampler: one sample may then be made of several, as by CutMix.
    """
    (thrown, each_makes_all), line = thrown_of(c), c.stages.line
    if not c.loses or thrown < MATTERS or c.loader.sampler:
        return None
    do, because = "choose samples before they are made", "by their index, name or raw bytes"
    times, each = 1 / max(1 - thrown, TINY), ""
    if each_makes_all:
        do = "divide samples among the workers before they are made"
        because = "itertools.islice(raw, id, None, num_workers), of what is not decoded yet"
        each = (
            f", as many as there are workers: each makes all, and keeps one in {c.loader.workers}"
        )
    return Finding(
        f"For each sample that is served {float(f'{times:.3g}'):,g} are made{each}.",
        [Do(do, because, line.place if line else None, only_served(c))],
        sure=False,
    )


@rule(
    "samples fit into memory",
    source="sizes of batches, the length of an epoch, and free memory",
    turn="last",
)
def fits_into_memory(c: Context) -> Finding | None:
    """What is loaded in each epoch would fit into memory, where it need not be loaded again.

    Shown by the batches of an epoch, which take half of the free memory at most.
    Excluded by waits of under 5% of the time, and fetching that is under half of the loader's.
    """
    if not c.loses or c.waiting < MATTERS or c.charged("fetch") < MOSTLY:
        return None
    ends_itself = any(end.cause == "exhausted" for end in c.run.ends)
    batches = length_of_epochs(c.run) if ends_itself else c.loader.length
    batch_bytes = mean_known(c.batches.nbytes)
    free_bytes = last_read(c.run, "memory_available_bytes")
    if c.is_rank:
        raise Skip("the samples of other ranks, which this one may have next, are not known")
    if not batches or not batch_bytes:
        raise Skip(f"the {'size of batches' if batches else 'length of an epoch'} is not known")
    if free_bytes is None:
        raise Skip("free memory was not read")
    if batches * batch_bytes > MOSTLY * free_bytes:
        return None
    return Finding(
        "If nothing in samples is random, they can be kept in memory: those of an epoch take "
        f"{size(batches * batch_bytes)}, and {size(free_bytes)} are free."
    )


@rule("slow collate", source=SIMULATED, undo=lambda c: less(c.collating))
def slow_collate(c: Context) -> Finding | None:
    """Collating takes a large part of loading a batch.

    Shown by collating that is 40% of fetching and collating.
    Excluded by fetching and collating that are under 20% of the loader's time, a data format, and
    tokenising.
    """
    if not collates(c) or tokenises(c) or format_of(c):
        return None
    part, line, took = c.collating, c.stages.line, duration(c.stages.collate_ns)
    name, place = "The collate function", None
    # A line that was seen for longer than fetching takes is the collate function's.
    # Its share may be seen too large by a tenth.
    if line is not None and line.share >= max(1 + FEW - part, DOMINATES):
        name, place = line.function, line.place
    because = (
        "stack tensors once with torch.stack, pad with one allocation, move loops into __getitem__"
    )
    return Finding(
        f"{name} takes {took} to collate a batch, {share(part)} of loading it.",
        [twice_as_fast("collate_fn", part, because, place), *more_workers(c)],
    )


@rule("tokenising", source=SIMULATED, undo=lambda c: less(tokenising_of(c)[0]))
def tokenising(c: Context) -> Finding | None:
    """Texts are tokenised while they are loaded, in every epoch anew.

    Shown by transforms, functions or calls with names like that of a tokeniser, in 40% of fetching
    and collating.
    Excluded by workers that are blocked for 40% of their work, other than by the threads of a
    tokeniser.
    """
    if not tokenises(c):
        return None
    part, place = tokenising_of(c)
    again = c.loader.sampler is not None and len({*c.run.steps.epoch.tolist()}) > 1
    because = (
        "keep the token ids as arrays, in a file that workers map, or by dataset.map(..., "
        "batched=True); texts that differ in each epoch are tokenised faster a batch at a time"
    )
    return Finding(
        f"{share(part)} of loading a batch is tokenising, in {place}"
        f"{': the same texts in each epoch' if again else ''}.",
        [Do("tokenise once, before training", because, change=less(part)), *more_workers(c)],
    )


@rule("transfer", source=SIMULATED, undo=lambda _: without("pickle_ns", "receive_ns", "lock_ns"))
def transfer(c: Context) -> Finding | None:
    """Passing a batch from its worker to the training process takes long.

    Shown by pickling and receiving that are 20% of the loader's time and 0.6 ms.
    """
    work_ns = {each.stage: each.work_ns for each in c.stages.stages}
    receive_ns = work_ns.get("receive", 0.0)
    transfer_ns = work_ns.get("pickle", 0.0) + receive_ns
    if not c.loses or c.charged("pickle", "receive") < LARGE or transfer_ns < TRANSFER_NS:
        return None
    pickled, lock_ns = c.stages.pickled_bytes or 0.0, 0.0
    if c.model is not None and c.model.costs.lock_ns.any():
        lock_ns = receive_ns - c.model.costs.receive_ns.mean()
    says = f"Passing a batch from its worker to training takes {duration(transfer_ns)}"
    change = shorter(TWICE, "pickle_ns", "receive_ns")
    if pickled / PIPE_BYTES_PER_NS >= MOSTLY * transfer_ns:
        says += f": {size(pickled)} of it go through a pipe, as all that is not a tensor does."
        do = "return tensors from the workers, not arrays"
        because = "torch.from_numpy in collate_fn: they go through shared memory"
        change = without("pickle_ns", "receive_ns", "lock_ns")
    elif lock_ns >= MOSTLY * transfer_ns:
        says += (
            ": most of it is waiting for Python's lock (the GIL) in the worker, which keeps it "
            "while it loads the next batch."
        )
        do = "call torch.multiprocessing.set_sharing_strategy('file_system')"
        because = "at the start of the script: tensors are then passed by name"
        change = without("lock_ns")
    elif pickled < FEW_TENSORS_BYTES:
        says += ": handing tensors from one process to another takes time for each, however small."
        do = "use larger batches"
        because = "or set_sharing_strategy('file_system'), which takes about half the time"
    else:
        says += f", though only {size(pickled)} of it are pickled: it has many tensors or objects."
        do, because = FEWER_TENSORS
    advice: list[Do] = [Do(do, because, change=change)]
    none, name = Change({"num_workers": 0}), c.setting("num_workers")
    if name and c.gained(none) > 0:
        advice.append(Set(name, c.loader.workers, 0, "no batch is passed then", none))
    return Finding(says, advice)


@rule("slow sampler", source=SIMULATED, undo=lambda _: without("index_ns"))
def slow_sampler(c: Context) -> Finding | None:
    """The training process takes long to choose what is loaded next.

    Shown by drawing indices that is 20% of the loader's time, or of a step; without workers 40%.
    """
    index, charged, ideal = c.stages.share_of("indices"), c.charged("indices"), c.gap.ideal
    if not c.loses or index is None or (not c.loader.workers and charged < DOMINATES):
        return None
    if charged < LARGE and (ideal is None or index.work_ns < LARGE * ideal.value):
        return None
    change = shorter(TWICE, "index_ns")
    because = "draw all indices of an epoch at once, without a loop over weights for each batch"
    return Finding(
        f"The training process spends {duration(index.work_ns)} a batch on "
        f"{c.loader.sampler or 'the sampler'}, which chooses what is loaded next.",
        [Do("make the sampler twice as fast", because, change=change, times=TWICE)],
    )


@rule("pinning", source=SIMULATED, undo=lambda _: without("pin_ns"))
def pinning(c: Context) -> Finding | None:
    """The thread that pins batches cannot keep up.

    Shown by pinning that is 20% of the loader's time.
    """
    pin = c.stages.share_of("pin")
    if not c.loses or pin is None or c.charged("pin") < LARGE:
        return None
    do, because = FEWER_TENSORS
    if 0 < (c.stages.pickled_bytes or 0) < FEW_TENSORS_BYTES:
        do = "pin fewer bytes"
        because = "pixels as uint8; or do less in pin_memory(), where batches have their own"
    return Finding(
        f"Copying a batch to pinned memory takes {duration(pin.work_ns)}.",
        [Do(do, because, change=shorter(TWICE, "pin_ns"))],
    )
