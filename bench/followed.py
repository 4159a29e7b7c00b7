"""What loadeval says to change, changed: its figures beside what the program gains by it.

The list of what to do, about a program with three planted mistakes: the speed-up predicted by each
action and those before it. Each is applied, and measured by whole programs in turns, without
loadeval. Exit status 1 where following the lists does not bring it within 10% of its best.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.judge import Action, compared, launched, printed
from bench.tables import in_words, parser_of, ratio_of, show

LISTS = 3
"""After so many lists all that can be changed is changed."""
TURNS = 3
NEAR = 1.1
MENDED = {"num_workers": 2, "persistent_workers": True, "faster": 100}
"""The three planted mistakes undone; the training step is the limit then."""


def program(changes: dict[str, Any]) -> tuple[str, ...]:
    return ("-m", "bench.zoo.whole", "three_mistakes", json.dumps(changes))


def batch_s(changes: dict[str, Any]) -> float:
    return float(printed(sys.executable, *program(changes)))


def followed(action: Action, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes with that of the action, if the program can make it."""
    if action.setting is not None:
        return {**changes, action.setting: action.proposed}
    return {**changes, "faster": changes["faster"] * (action.times or 1)}


def rows(changes: dict[str, Any]) -> Iterator[list[str]]:
    """A row for each action of each list that the program can follow; `changes` get them all."""
    for number in range(1, LISTS + 1):
        with TemporaryDirectory() as folder:
            launched(Path(folder) / "logs", program(changes), "--mode", "alternate")
            actions = compared(Path(folder) / "logs").actions
        steps, made = [dict(changes)], []
        for action in actions:
            after = followed(action, steps[-1])
            if after != steps[-1]:
                steps.append(after)
                made.append(action)
        if not made:
            return
        turns = [[batch_s(step) for step in steps] for _ in range(TURNS)]
        before, *times = zip(*turns, strict=True)
        for action, taken in zip(made, times, strict=True):
            measured, is_in_range = ratio_of(before, taken), "-"
            if action.speedup is not None:
                low, high = action.speedup.bounds
                is_in_range = "yes" if low <= measured.value <= high else "no"
            shown = (in_words(action.speedup), in_words(measured))
            yield [str(number), action.says, *shown, is_in_range]
        changes |= steps[-1]


def main() -> int:
    parser_of(__doc__).parse_args()
    changes: dict[str, Any] = {"faster": 1}
    show(("list", "what to do", "predicted", "measured", "in range"), rows(changes))
    over = batch_s(changes) / batch_s(MENDED)
    print(f"\n{over:.2f} times as long as without the mistakes")
    return int(over > NEAR)


if __name__ == "__main__":
    raise SystemExit(main())
