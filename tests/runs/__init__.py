"""Every run that tests share, built or recorded. Where two builders would do, take the first.

- `tests.builder`: of a few numbers; `given.write_run` writes their logs.
- `measured`: a LoaderEvaluator measures a scripted loader: `recorded` in memory, `record` to disk.
- `looked_into`: the stages of the loader are known too.
- `ranks`: synchronous training on many ranks.

DEMO and SPDL are logs of alternating runs on a machine with 4 CPUs, which other programs used
too. DEMO is that of `loadeval demo`. In SPDL 16 JPEGs of 1000 x 1000 pixels are decoded and resized
for a batch, with Pillow, two at once with `num_threads=4`. A step takes 50 ms. Left out are
readings other than those of threads, and most of what the header says of the machine.
"""

from pathlib import Path

DEMO, SPDL = (Path(__file__).with_name(f"{name}.jsonl") for name in ("demo", "spdl"))
