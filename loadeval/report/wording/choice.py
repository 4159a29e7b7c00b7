"""Sentences about backends that loadeval wrote for a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loadeval.analysis.choice import MOST_DIFFERENCE, Kind, OnBadFile, Standing
from loadeval.report.formatting import (
    counted,
    duration,
    estimated,
    number,
    printable,
    share,
    short_name,
    speedup,
)
from loadeval.report.wording.backends import difference_sentence

if TYPE_CHECKING:
    from loadeval.analysis.choice import BackendChoice, BadFile, Candidate

MOST_NAMED = 3
"""A sentence names no more files."""
BRACKETS = "Brackets: 95% CI."
THROUGHPUT_TITLE = "Throughput"
ALONE_TITLE = "Each loader by itself"
STEP_TITLE = "Under the training step"
CAPTION = (
    "Throughput of each backend in {unit} per second, with 95% CIs, the fastest first: under the "
    "training step if there is one (real and ideal), and of the loader alone."
)
CODE_TITLE = "Code of {name}, which had the highest throughput"
NO_STEP = (
    "Not measured: what training would do with each. Give its step, --step module:step, or a run "
    "of yours, --like run.jsonl."
)
OUTCOMES = {
    OnBadFile.RAISES: "raises",
    OnBadFile.SKIPS: "skips it",
    OnBadFile.FILLS: "fills in the rest",
    OnBadFile.ENDS: "ends its process",
}


@dataclass(frozen=True, slots=True)
class DataWords:
    """Words about a kind of data: what is compared, by how much it differs, and what is equal.

    `differs` and `half` are heads of columns.
    """

    files: str
    compared: str
    difference: str
    differs: str
    half: str
    same_work: str


IMAGES = DataWords(
    files="files",
    compared="pixels",
    difference="{} of 255 levels on average",
    differs="pixels differ",
    half="half a file",
    same_work=(
        "If images are flipped, it is every other one, so that all loaders do the same. EXIF "
        "orientation is ignored."
    ),
)
DATA = {
    Kind.IMAGES: IMAGES,
    Kind.SHARDS: replace(
        IMAGES,
        files="images, in one shard",
        half="half an image",
        same_work=(
            "If images are flipped, it is those with an odd number of bytes, so that all loaders "
            "do the same. EXIF orientation is ignored."
        ),
    ),
    Kind.AUDIO: DataWords(
        files="files",
        compared="waveforms",
        difference="{}% (root mean square, of that of the waveform)",
        differs="waveforms differ by %",
        half="half a file",
        same_work="Recordings that are shorter than the crop are filled with zeros.",
    ),
    Kind.TEXT: DataWords(
        files="texts",
        compared="token ids",
        difference="{}%",
        differs="ids differ by %",
        half="half a text",
        same_work=(
            "Texts are truncated or padded to one length. The time in which token-file tokenizes "
            "them beforehand is not counted."
        ),
    ),
    Kind.VIDEO: replace(
        IMAGES,
        half="half a video",
        same_work=(
            "Frames are the first ones; of a video that is shorter, the last is repeated. If "
            "videos are flipped, it is every other one, so that all loaders do the same."
        ),
    ),
}


def choice_headline(choice: BackendChoice) -> str:
    """Which backend is fastest, by how much, with its interval, in one sentence."""
    first = choice.fastest
    if first is None:
        return "No backend was measured"
    trains = "trains" if choice.trained is not None else "loads"
    differences = choice.differences
    if not differences:
        return f"{first.name} is the only backend that was measured"
    if not differences[0].shown:
        level = [each.other for each in differences if not each.shown]
        *others, last = first.name, *level
        fastest = "" if len(level) == len(differences) else "the fastest: "
        return f"No difference shown between {fastest}{', '.join(others)} and {last}"
    which = "" if len(differences) == 1 else "the next, "
    ratio = estimated(differences[0].ratio, speedup)
    return f"{first.name} {trains} fastest: {ratio} as fast as {which}{differences[0].other}"


def choice_basis(choice: BackendChoice) -> str:
    """What was measured, and how."""
    where = " in shards" if choice.kind is Kind.SHARDS else ""
    files = f"{choice.measured:,} of {choice.files:,} {choice.unit}{where}"
    if choice.classes is not None:
        files = f"{files} ({counted(choice.classes, 'class', 'classes')})"
    rounds = max(
        (len(rates) for each in choice.ranked for rates in each.rounds.values()), default=0
    )
    on = " and ".join(map(str, choice.cpus))
    return (
        f"{files} in {printable(choice.folder)}: {printable(choice.transforms)}; "
        f"batches of {choice.batch_size}. Each by itself on {on} CPUs, "
        f"{counted(rounds, 'round', 'rounds')} in random order."
    )


def step_in_words(choice: BackendChoice) -> str:
    """Which step was imitated; "" where it was the user's own."""
    if choice.step is None:
        return ""
    busy = choice.step.cpus
    used = (
        "it sleeps, since the run does not say how much CPU it used"
        if busy is None
        else f"it computes for {share(min(busy, 1.0))} of that, and sleeps for the rest"
    )
    return (
        f"The step is that of the run with ideal loading, {duration(choice.step.step_ns)}: {used}."
    )


def same_work(choice: BackendChoice) -> str:
    """How the work was made equal, and the bound up to which it counts as equal."""
    data = DATA[choice.kind]
    bound = data.difference.format(f"{MOST_DIFFERENCE[choice.kind]:g}")
    return (
        f"All load the same {data.files}. {data.same_work} Files were read before, so they come "
        f"from memory. A backend whose {data.compared} differ from those of {choice.reference} by "
        f"more than {bound} is not ranked."
    )


def difference_in_words(candidate: Candidate) -> str:
    """The mean and the largest difference."""
    difference = candidate.difference
    if difference is None:
        return "not measured"
    return f"{difference.mean:.1f}, at most {difference.largest:.0f}"


def truncated_in_words(candidate: Candidate) -> str:
    """What it does with half a file, in a few words."""
    if candidate.truncated is None:
        return "not measured"
    return OUTCOMES[candidate.truncated.outcome]


def left_out(candidate: Candidate, kind: Kind) -> str:
    """Why a backend is not ranked, in a sentence; "" where it is."""
    error = printable(candidate.error or "")
    if candidate.difference is not None:
        data = DATA[kind]
        differs = data.difference.format(f"{candidate.difference.mean:.1f}")
        error = f"its {data.compared} differ by {differs}"
    return {
        Standing.MEASURED: "",
        Standing.NOT_INSTALLED: f"{candidate.name}: not installed; {candidate.install}",
        Standing.NO_GPU: f"{candidate.name}: there is no GPU that the driver knows",
        Standing.OTHER_FILES: f"{candidate.name}: reads JPEG files alone",
        Standing.FAILED: f"{candidate.name} failed: {printable(candidate.error or '')}",
        Standing.DIFFERENT: f"{candidate.name} loads something else: {error}",
    }[candidate.standing]


def not_ranked(choice: BackendChoice) -> list[str]:
    """Why backends are not ranked, a sentence each."""
    return [sentence for each in choice.candidates if (sentence := left_out(each, choice.kind))]


def bad_files(choice: BackendChoice) -> list[str]:
    """Which files are broken, or not read by all, and what each backend says, a sentence each."""
    sentences = []
    if choice.broken:
        files = counted(len(choice.broken), "file", "files")
        sentences.append(
            f"{choice.reference} does not read {files}, which are left out: {_named(choice.broken)}"
        )
    for each in choice.candidates:
        if each.broken:
            outcomes = sorted({OUTCOMES[bad.outcome] for bad in each.broken})
            sentences.append(f"{each.name}, given these: {' or '.join(outcomes)}")
        if each.unread and each.standing is Standing.MEASURED:
            files = counted(len(each.unread), "file", "files")
            sentences.append(
                f"{each.name} does not read {files}, left out for all: {_named(each.unread)}"
            )
        sentences += [f"{each.name} warns: {printable(text)}" for text in each.warned[:MOST_NAMED]]
    return sentences


def _named(files: tuple[BadFile, ...]) -> str:
    named = [
        f"{short_name(bad.name)} ({short_name(bad.error or OUTCOMES[bad.outcome], 100)})"
        for bad in files[:MOST_NAMED]
    ]
    more = len(files) - MOST_NAMED
    return ", ".join([*named, *([f"and {more:,} more"] if more > 0 else [])])


def differences_in_words(choice: BackendChoice) -> list[str]:
    """The fastest against each other one, a sentence each."""
    return [f"{difference_sentence(each)}" for each in choice.differences]


def per_cpu(candidate: Candidate, most: int) -> str:
    """Samples per second for each CPU, where it has all."""
    rate = candidate.alone.get(most)
    return "not measured" if rate is None else number(rate.value / most)
