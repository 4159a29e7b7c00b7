"""What was measured on a device, a JSON line each, and docs/gpu.md, which shows it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HEAD = (
    "# On a GPU\n\n"
    "Is what loadeval says on a GPU true? `make gpu` compares it with work of known size, or with "
    "what `torch.profiler` sees in a run of its own, and writes this page. It takes nine minutes "
    "at most; where torch finds no CUDA device, it skips each row, and the page stays as it is.\n\n"
)


@dataclass(frozen=True)
class Result:
    """One measurement; `case` says of what, and whoever runs its row adds that and `on`: where.

    `held` is None where it could not be measured, and `measured` then says why, or where a figure
    stands beside others for comparison.
    """

    case: str
    expected: str
    measured: str
    held: bool | None
    row: int = 0
    on: str = ""

    def line(self) -> str:
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        outcome = {True: "held", False: "DID NOT HOLD", None: "-"}[self.held]
        return f"{self.row} {self.case}: expected {self.expected}; {self.measured}: {outcome}"


def read(path: Path) -> list[Result]:
    """The results in `path`, but for a line that a stop has cut off; none without the file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Result(**json.loads(line)) for line in lines if line.endswith("\n")]


def page(rows: Sequence[tuple[int, str, str]], results: Sequence[Result]) -> str:
    """The page: each row's number, case and what it shows, and its results of one run."""
    where = f"Measured on {results[-1].on}." if results else "None of it was measured so far."
    lines = [HEAD, f"{where}\n\n", "| # | case | shows | outcome |\n|---|---|---|---|\n"]
    details = []
    for number, case, shows in rows:
        own = [result for result in results if result.row == number]
        judged = [result.held for result in own if result.held is not None]
        outcome = "held" if judged else "never measured"
        if False in judged:
            outcome = f"did not hold ({judged.count(False)} of {len(judged)})"
        lines.append(f"| {number} | {case} | {shows} | {outcome} |\n")
        if own:
            details.append(f"\n## {number}. {case}\n\n| of | expected | measured | |\n")
            details.append("|---|---|---|---|\n")
        for result in own:
            held = {True: "held", False: "**did not hold**", None: "-"}[result.held]
            details.append(f"| {result.case} | {result.expected} | {result.measured} | {held} |\n")
    return "".join((*lines, *details))
