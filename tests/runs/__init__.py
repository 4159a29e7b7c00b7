"""Logs of alternating runs on a machine with 4 CPUs, which other programs used too.

One is that of `loadeval demo`. In the others 16 JPEGs of 1000 x 1000 pixels are decoded and
resized for a batch: by SPDL with Pillow, two at once with `num_threads=4`, and by DALI on two
threads. A step takes 50 and 30 ms. Left out are readings other than those of threads, and most of
what the header says of the machine.
"""

from pathlib import Path

DEMO, SPDL, DALI = (Path(__file__).with_name(f"{name}.jsonl") for name in ("demo", "spdl", "dali"))
