"""The tutorial's figures anew: its blocks at full length, their output written into the page.

    python -m tests.benchmarks.tutorial FOLDER

Takes some ten minutes, on a machine that does nothing else. The figures that the tutorial's
sentences name are not changed: read them again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.test_pages import BIN, DOCS, blocks_of, changed

PAGE = DOCS / "tutorial.md"
IMAGES = {"before.png": "tutorial-before.png", "steps.png": "tutorial-steps.png"}
TABLE = "\n\nrun  "
"""Where the table of both arms begins, which the page leaves out."""
COMMAND = re.compile(r"^\$ (?P<command>[^\n]+)\n(?P<shown>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)


def printed(command: str) -> str:
    """What `command` prints, without the table of both arms and the name of the figure."""
    print("$", command, flush=True)
    done = subprocess.run(["/bin/bash", "-c", command], check=True, stdout=subprocess.PIPE)
    text = done.stdout.decode().partition("\nFigure written")[0]
    told = "\n".join(line.rstrip() for line in text.partition(TABLE)[0].splitlines()).strip()
    print(told, flush=True)
    return f"{told}\n" if told else ""


def renewed(text: str) -> str:
    """A console block with what its commands print now."""
    return COMMAND.sub(lambda one: f"$ {one['command']}\n{printed(one['command'])}", text)


def main(folder: Path) -> None:
    """Run the page in `folder`, and write it and its figures."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    page = PAGE.read_text(encoding="utf-8")
    for block in blocks_of(PAGE):
        if block.kind == "diff":
            path = Path(str(block.file))
            path.write_text(changed(path.read_text(), block.text))
        elif block.file:
            Path(block.file).write_text(block.text)
        elif block.kind == "console":
            page = page.replace(block.text, renewed(block.text))
    PAGE.write_text(page, encoding="utf-8")
    for drawn, image in IMAGES.items():
        shutil.copy(drawn, DOCS / "images" / image)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
