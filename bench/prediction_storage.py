"""Loaders that wait for storage: what one worker, two or both predict, and is measured.

A batch is read from a local server that is slow to answer, or limited in bandwidth, or from files
that the page cache has forgotten. Each is recorded with one worker and with two. From one run, and
from both together, other numbers of workers are predicted, and then measured by plain loops in
turns. Exit status 1 where the median error is 10% or more, or fewer than nine of ten lie in their
range, of what two workers predict, alone or with the run of one.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.prediction import HEADS, say, show, summary, summary_in_words
    from bench.prediction_loaders import Dropped, Setting, Workload, write_files
    from bench.prediction_runs import Outcome, outcome, ratios, recorded, seconds
    from bench.served import Server, fetch, started
    from bench.truth_loaders import Burn, Cost, Sleep, rounds_per_ms
else:  # a script finds its siblings by their plain names
    from prediction import HEADS, say, show, summary, summary_in_words
    from prediction_loaders import Dropped, Setting, Workload, write_files
    from prediction_runs import outcome, ratios, recorded, seconds
    from served import Server, fetch, started
    from truth_loaders import Burn, Sleep, rounds_per_ms

SETTINGS = tuple(map(Setting, (1, 2, 4, 8)))
MEDIAN_ERROR, IN_RANGE = 0.1, 0.9


@dataclass(frozen=True)
class Served(Dataset[torch.Tensor]):
    """Samples of `bytes_each` from a server, on which `cost` is spent then."""

    port: int
    bytes_each: int
    cost: Cost
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        fetch(self.port, self.bytes_each)
        self.cost(index)
        return torch.tensor(index)


def served(
    name: str, what: str, server: Server, bytes_each: int, batch_size: int, cost: Cost
) -> Workload:
    """A loader that reads from that server, which lives as long as this process."""
    _, port = started(server)

    def dataset(size: int) -> Dataset[Any]:
        return Served(port, bytes_each, cost, size)

    return Workload(name, what, dataset, batch_size, Sleep(3), epoch=200, counted=80)


def workloads(folder: Path) -> list[Workload]:
    speed = rounds_per_ms()

    def burn(ms: float) -> Burn:
        return Burn(round(ms * speed))

    files = write_files(folder / "files", 1 << 20)
    near, far, limited = Server(0.02), Server(0.1), Server(bytes_per_s=50e6)
    return [
        served("20 ms", "4 answers after 20 ms", near, 50_000, 4, burn(0.5)),
        served("100 ms", "1 answer after 100 ms", far, 400_000, 1, burn(2)),
        served("50 MB/s", "4 reads of 0.1 MB", limited, 100_000, 4, burn(1)),
        served("50 MB/s, whole", "1 read of 0.4 MB", limited, 400_000, 1, burn(4)),
        Workload("disk", "files, not cached", lambda n: Dropped(files, n), 8, Sleep(3)),
    ]


def outcomes(workload: Workload, keep: Path | None) -> Iterator[Outcome]:
    """What each run, and both, predict of each other number of workers."""
    alone, pair = (recorded(workload, workers) for workers in (1, 2))
    took_s = seconds(workload, {str(setting): setting.options() for setting in SETTINGS})
    if keep is not None:
        kept = keep / f"{workload.name.replace('/', '-')}.pickle"
        kept.write_bytes(pickle.dumps((alone, pair, took_s)))
    for name, runs, headroom, of_workers in (
        ("1 worker", [alone[0]], alone[1], (1,)),
        ("2 workers", [pair[0]], pair[1], (2,)),
        ("1 and 2", [alone[0], pair[0]], pair[1], (1, 2)),
    ):
        real = ratios(took_s, str(Setting(of_workers[-1])))
        for setting in SETTINGS:
            if setting.workers not in of_workers:
                predicted = outcome(workload, runs, headroom, setting, real[str(setting)])
                yield replace(predicted, present=name)


def main() -> int:
    """Print a table, and a summary by what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--only", action="append", help="run this workload; may be given again")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    results: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in workloads(Path(folder)):
            if workload.name in (options.only or [workload.name]):
                results += outcomes(workload, options.keep)
                say(workload.name)
    show(HEADS, [result.row() for result in results], options.markdown)
    for present in dict.fromkeys(result.present for result in results):
        of_present = [result for result in results if result.present == present]
        print(f"\nFrom {present}: {summary_in_words(summary(of_present))}")
    telling = summary([result for result in results if result.present != "1 worker"])
    is_met = telling["median_error"] < MEDIAN_ERROR and telling["in_range"] >= IN_RANGE
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
