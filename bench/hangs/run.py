"""How often each planted hang is named, and no slow loader called one.

Exit status 1 where one was not.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from bench.hangs.planted import HANGS, HEALTHY, run


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all programs by default")
    parser.add_argument("--times", type=int, default=20, metavar="N")
    parser.add_argument("--at-once", type=int, default=1, metavar="N")
    options = parser.parse_args()
    chosen = [
        each for each in (*HANGS, *HEALTHY) if not options.names or each.name in options.names
    ]
    missed = 0
    for planted in chosen:
        with ThreadPoolExecutor(options.at_once) as threads:
            ends = list(threads.map(run, [planted] * options.times))
        right = [end for end in ends if end.is_as(planted)]
        name = " ".join((planted.name, *planted.arguments))
        longest_s = max(end.took_s for end in ends)
        what = "not called a hang" if planted.is_healthy else "named"
        say(f"{name:20} {what} {len(right)} of {len(ends)} times; at most {longest_s:.0f} s")
        for end in ends:
            if end not in right:
                missed += 1
                say(f"  exit code {end.code}, {end.stacks} files of stacks:\n{end.err}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
