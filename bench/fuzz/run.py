"""Reads files that were mutated, and gives those that can be read to the commands.

    python -m bench.fuzz.run [--inputs N] [--commands N] [--seed N]

Prints what became of them. What is no error of loadeval's, too slow, too large, or does not name
its line is printed with how to do it again, and ends this with exit status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.fuzz.commands import COMMANDS, OF_FOLDERS, give
from bench.fuzz.mutations import drawn, mutated
from bench.fuzz.readers import MOST_MB, peak_mb, read_all_ways
from bench.fuzz.seeds import PROCESS, seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INPUTS, GIVEN = 100_000, 4_000
AT_ONCE, APART = 250, 1_000
"""Inputs of a part, and those after which a process ends: what libraries keep is not ours."""
JOBS = 0.2
"""The share of what is given to commands that is the folder of a job."""
SECOND_RUNS = ("replay.jsonl", "log.jsonl", "alternate.jsonl")
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of this process alone is made there
cached_seeds = cache(seeds)


@dataclass
class FuzzResults:
    """What became of some inputs: how many of each kind, and what went wrong, by where it did."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)
    nbytes: int = 0
    slowest_s: float = 0.0
    peak_mb: float = 0.0

    def add(self, other: FuzzResults) -> None:
        """Take what became of others too."""
        self.outcomes.update(other.outcomes)
        self.wrong = {**other.wrong, **self.wrong}
        self.nbytes += other.nbytes
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.peak_mb = max(self.peak_mb, other.peak_mb)


def read_one(place: str, folder: Path, results: FuzzResults) -> None:
    """Read the input that `place` names in every way."""
    rng = random.Random(place)
    name = rng.choice(list(cached_seeds()))
    path = folder / name
    path.write_bytes(mutated(cached_seeds()[name], drawn(rng)))
    results.nbytes += path.stat().st_size
    results.outcomes[name, read_all_ways(path)] += 1


def give_one(place: str, folder: Path, results: FuzzResults) -> None:
    """Give the input that `place` names to a command."""
    rng = random.Random(place)
    words = rng.choice(COMMANDS)
    names = list(cached_seeds())
    if rng.random() < JOBS and words[0] in OF_FOLDERS:
        ranks = [name for name in names if name.startswith("rank")]
        chosen = rng.choice(ranks)
        for name in ranks:
            if name != PROCESS or rng.random() < JOBS:
                mutations = drawn(rng) if name in (chosen, PROCESS) else []
                (folder / name).write_bytes(mutated(cached_seeds()[name], mutations))
        paths = [folder]
    else:
        # What cannot be read says nothing of what comes after it.
        chosen = rng.choice([name for name in names if name != PROCESS])
        paths = [folder / chosen]
        paths[0].write_bytes(mutated(cached_seeds()[chosen], drawn(rng)))
        while read_all_ways(paths[0]) == "refused":
            paths[0].write_bytes(mutated(cached_seeds()[chosen], drawn(rng)))
        if words[0] in {"compare", "report"} and rng.random() < JOBS:
            name = rng.choice(SECOND_RUNS)
            paths.append(folder / f"second-{name}")
            paths[1].write_bytes(cached_seeds()[name])
    results.nbytes += sum(path.stat().st_size for path in folder.iterdir())
    began_s = time.process_time()
    results.outcomes[words[0], give(words, paths, folder)] += 1
    results.slowest_s = max(results.slowest_s, time.process_time() - began_s)


def some(
    work: Callable[[str, Path, FuzzResults], None], places: Iterable[str], *, keep: bool = False
) -> FuzzResults:
    """What becomes of the inputs that `places` name."""
    warnings.simplefilter("error")  # NumPy's too: a user would see them
    results = FuzzResults()
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        for place in places:
            own = Path(folder, "own")
            own.mkdir()
            try:
                work(place, own, results)
            except Exception as error:
                if keep:
                    raise
                *_, last = traceback.extract_tb(error.__traceback__)
                where = f"{type(error).__name__} at {last.filename}:{last.lineno}"
                results.wrong[where] = f"--again {place!r}\n{traceback.format_exc(limit=-6)}"
            shutil.rmtree(own)
    results.peak_mb = peak_mb()
    return results


def in_processes(
    work: Callable[[str, Path, FuzzResults], None], count: int, seed: int
) -> FuzzResults:
    """What becomes of `count` inputs, in as many processes as there are CPUs."""
    name = work.__name__
    places = [f"{name} {seed} {number}" for number in range(count)]
    parts = [places[at : at + AT_ONCE] for at in range(0, count, AT_ONCE)]
    results = FuzzResults()
    together = (os.cpu_count() or 1) * APART // AT_ONCE
    for at in range(0, len(parts), together):  # figures and pages are kept by their libraries
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            for part in pool.map(partial(some, work), parts[at : at + together]):
                results.add(part)
    return results


def went_well(name: str, results: FuzzResults) -> bool:
    """Whether nothing was wrong with them; prints what became of them."""
    outcomes: Counter[str] = Counter()
    for (_, outcome), count in results.outcomes.items():
        outcomes[outcome] += count
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(
        f"{name}: {results.outcomes.total():,} inputs, {results.nbytes / 1e6:,.0f} MB: {said}; "
        f"slowest {results.slowest_s:.1f} s, memory at most {results.peak_mb:.0f} MB",
        flush=True,
    )
    for where, how in results.wrong.items():
        print(f"\nwrong: {where}\n{how}")
    return not results.wrong and results.peak_mb < MOST_MB


def main() -> int:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--commands", type=int, default=GIVEN)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", help="one input that was wrong")
    options = parser.parse_args()
    if options.again is not None:
        work = read_one if options.again.startswith(read_one.__name__) else give_one
        some(work, [options.again], keep=True)
        return 0
    good = [
        went_well("read", in_processes(read_one, options.inputs, options.seed)),
        went_well("given to commands", in_processes(give_one, options.commands, options.seed)),
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
