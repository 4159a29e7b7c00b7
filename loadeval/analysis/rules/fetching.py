"""What workers do too slowly for training: transforms, data formats, functions, collating."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.inside.formats import MUCH_READ, Misuse
from loadeval.analysis.inside.worker_memory import copies_of
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.inside import DOMINATES
from loadeval.analysis.rules.stages import MOST_OF_IT, finding_inside, looks_inside, or_workers

if TYPE_CHECKING:
    from loadeval.analysis.inside.transforms import TransformTime
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.inside import Inside

LEAST_COPIED = 16_000_000
"""Python itself, and what it has imported, make a worker copy some megabytes."""
SAMPLED_TOO_OFTEN = 0.1
"""The share of a line in fetching and collating may be seen too large by as much."""
MUCH_SMALLER = 4.0
"""A transform had better come after one that makes samples so many times smaller."""
SAME_SIZE = 2.0
"""A transform whose samples become so many times larger or smaller changes their size itself."""
OF_MISUSE = {
    Misuse.ARCHIVE: Advice.STORE_UNCOMPRESSED,
    Misuse.ROW_OF_TABLE: Advice.COLUMNS_AS_ARRAYS,
    Misuse.LIST: Advice.KEEP_ARRAYS,
    Misuse.TEXT: Advice.PARSE_ONCE,
    Misuse.ROW_GROUP: Advice.SMALLER_ROW_GROUPS,
    Misuse.CHUNK: Advice.CHUNK_BY_SAMPLE,
    Misuse.OPENED: Advice.OPEN_ONCE,
    Misuse.AMPLIFIED: Advice.READ_WHAT_IS_USED,
}


@looks_inside
def slow_transform(case: Case, inside: Inside) -> Answer:
    """One transform takes most of loading a batch."""
    part = inside.part
    if part is None or not inside.computes or inside.tokenises:
        return None
    values: dict[str, Value] = {
        "name": part.name,
        "share": part.share,
        "call_ns": part.ns / part.calls,
        "calls": part.calls,
    }
    cheaper = Remark(Advice.CHEAPER_NAMED, {"name": part.name})
    return finding_inside(
        case,
        Rule.SLOW_TRANSFORM,
        Remark(Problem.TRANSFORM_SLOW, values),
        (
            *_mostly_in(inside, part),
            *_behind_what_shrinks(inside, part),
            cheaper,
            *or_workers(case, inside),
        ),
        facts(
            ("its share of loading a batch", part.share, "share"),
            ("in a batch", part.ns, "ns"),
            ("calls in a batch", part.calls, "calls"),
        ),
    )


def _mostly_in(inside: Inside, part: TransformTime) -> tuple[Remark, ...]:
    """In which line the transform spends most of its time, where that was seen.

    It is one of its own class or name; else, of one that dominates, the line that does.
    """
    own = (
        line
        for line in inside.stages.code
        if line.function == part.function or line.function.startswith(f"{part.function}.")
    )
    line = next((line for line in own if line.share >= MOST_OF_IT * part.share), None)
    if line is None and inside.line and min(inside.line.share, part.share) >= DOMINATES:
        line = inside.line
    return () if line is None else (Remark(Advice.MOSTLY_IN, {"place": line.name}),)


def _behind_what_shrinks(inside: Inside, part: TransformTime) -> tuple[Remark, ...]:
    """To call it after a transform behind it that leaves so much less of a sample.

    It must not itself change how large a sample is.
    """
    sizes = list(inside.stages.sizes)
    place = next((place for place, size in enumerate(sizes) if size.name == part.name), None)
    if place is None:
        return ()
    own = sizes[place]
    handled = min(own.before, own.after)
    if max(own.before, own.after) >= SAME_SIZE * max(handled, 1.0):
        return ()
    smaller = next(
        (size for size in sizes[place + 1 :] if handled >= MUCH_SMALLER * max(size.after, 1.0)),
        None,
    )
    if smaller is None:
        return ()
    values: dict[str, Value] = {
        "name": part.name,
        "elements": handled,
        "smaller": smaller.name,
        "left": smaller.after,
        "ratio": handled / max(smaller.after, 1.0),
    }
    return (Remark(Advice.CALL_AFTER, values),)


@looks_inside
def copied_pages(case: Case, inside: Inside) -> Answer:
    """Forked workers copy the pages of the objects that they read.

    It is not that where pages are new rather than copied, as those of arrays that are made for each
    sample, or where the kernel has little to do.
    """
    method, workers = case.loader.start_method, inside.workers
    if not workers or method not in (None, "fork"):
        return Remark(Unknown.NOT_FORKED)
    copies = copies_of(case.real)
    if copies is None:
        return Remark(Unknown.WORKER_MEMORY_NOT_READ)
    if copies.copied_bytes < LEAST_COPIED or copies.of_faults < MOST_OF_IT:
        return None
    return finding_inside(
        case,
        Rule.COPIED_PAGES,
        Remark(
            Problem.PAGES_COPIED,
            {
                "copied_bytes": copies.copied_bytes,
                "shared_bytes": copies.shared_bytes,
                "all_bytes": copies.copied_bytes * workers,
                "share": copies.share,
            },
        ),
        (Remark(Advice.PACK_DATASET),),
        facts(
            ("copied by each worker", copies.copied_bytes, "bytes"),
            ("shared with training at its start", copies.shared_bytes, "bytes"),
            ("Python objects of the dataset, estimated", case.loader.dataset_objects, "objects"),
            ("their size, estimated", case.loader.dataset_object_bytes, "bytes"),
            ("pages copied for a batch", copies.faults, "pages"),
            ("kernel time of that, of CPU time", copies.share, "share"),
        ),
    )


@looks_inside
def data_format(case: Case, inside: Inside) -> Answer:
    """The data is in a form that is slow to read sample by sample."""
    form = inside.slow_format
    if form is None and inside.stages.code and not inside.stages.calls:
        return Remark(Unknown.CALLS_NOT_SEEN)
    if form is None or inside.part is not None or not inside.computes:
        return None
    problem = Problem.FORMAT_SLOW
    values: dict[str, Value] = {"place": form.name, "share": form.share}
    read, used = inside.stages.read_bytes, case.summary.bytes_per_batch
    if form.amplification is not None and form.amplification >= MUCH_READ:
        problem = Problem.MORE_READ_THAN_USED
        values |= {"times": form.amplification, "read_bytes": read, "batch_bytes": used}
    return finding_inside(
        case,
        Rule.DATA_FORMAT,
        Remark(problem, values),
        (Remark(OF_MISUSE[form.misuse]), *or_workers(case, inside)),
        facts(
            ("its share of loading a batch", form.share, "share"),
            ("read in a batch", read, "bytes"),
            ("size of a batch", used, "bytes"),
            ("files opened for a sample", inside.stages.opened_files, "files"),
        ),
    )


@looks_inside
def slow_fetch(case: Case, inside: Inside) -> Answer:
    """One function of the dataset takes most of loading a batch, besides what it copies."""
    line, copying = inside.line, copied_pages(case)
    if inside.part is not None or not inside.computes or inside.collates:
        return None
    if inside.slow_format or inside.tokenises:
        return None
    copied = copying.problem.values["share"] if isinstance(copying, Finding) else 0.0
    if line is None or line.share - float(copied or 0.0) < DOMINATES:
        return None
    return finding_inside(
        case,
        Rule.SLOW_FETCH,
        Remark(Problem.CODE_SLOW, {"place": line.name, "share": line.share}),
        (Remark(Advice.CHEAPER_NAMED, {"name": line.function}), *or_workers(case, inside)),
        facts(("its share of loading a batch", line.share, "share")),
    )


@looks_inside
def slow_collate(case: Case, inside: Inside) -> Answer:
    """Collating takes a large part of loading a batch."""
    if not inside.collates or inside.tokenises or isinstance(data_format(case), Finding):
        return None
    collate_ns, fetch_ns = inside.stages.collate_ns, inside.stages.fetch_ns
    share = collate_ns / (collate_ns + fetch_ns)
    line = inside.line
    # A line that was seen for longer than fetching takes is the collate function's.
    is_named = line is not None and line.share >= max(1 - share + SAMPLED_TOO_OFTEN, DOMINATES)
    name = line.function if line is not None and is_named else "The collate function"
    return finding_inside(
        case,
        Rule.SLOW_COLLATE,
        Remark(Problem.COLLATE_SLOW, {"name": name, "collate_ns": collate_ns, "share": share}),
        (Remark(Advice.CHEAPER_COLLATE), *or_workers(case, inside)),
        facts(("collate", collate_ns, "ns"), ("fetch", fetch_ns, "ns")),
    )


@looks_inside
def tokenising(case: Case, inside: Inside) -> Answer:
    """Texts are tokenised while they are loaded, in every epoch anew."""
    if not inside.tokenises:
        return None
    share = inside.tokenising
    is_known = case.loader.sampler is not None and case.length.epochs > 1
    problem = Problem.TOKENISES_AGAIN if is_known else Problem.TOKENISES
    return finding_inside(
        case,
        Rule.TOKENISING,
        Remark(problem, {"share": share, "place": next(iter(inside.tokenisers))}),
        (Remark(Advice.TOKENISE_ONCE), *or_workers(case, inside)),
        facts(
            ("tokenising, of loading a batch", share, "share"),
            ("epochs", case.length.epochs, "epochs"),
        ),
    )
