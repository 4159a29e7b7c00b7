"""What loadeval promises on a GPU: each claim has tests that measure it there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """`text` says what holds, `tolerance` how near the measured values must be."""

    name: str
    text: str
    tolerance: str


@dataclass(frozen=True)
class Part:
    """A test file that runs in a process of its own, `limit_s` at most."""

    file: str
    limit_s: int
    claims: tuple[Claim, ...]
    keyword: str = ""
    """Which tests of the file, as pytest's -k."""


ESTIMATE = Claim(
    "estimate", "The speed-up is that of plain loops, whose step is asynchronous", "5%"
)
ESTIMATE_COVERS = Claim("estimate's interval", "Its 95% CI covers that of plain loops", "")
IDLE = Claim(
    "GPU idle while waiting",
    "Of k ms of queued kernels and a wait of w ms, the GPU is idle for max(0, w - k)",
    "5%, or 0.2 ms",
)
IDLE_HIDDEN = Claim("hidden waits", "A wait that queued work hides is called hidden", "")
IDLE_COST = Claim("cost of events", "The events around a wait cost under 10 us a batch", "")
IDLE_NO_SYNC = Claim("no synchronisation", "No batch of a log run waits for the device", "")
PROGRAMS = Claim(
    "programs", "`loadeval run` changes no loss of a program on the device", "to the bit"
)
PROGRAMS_LOADER = Claim(
    "programs' loaders", "The loader that a program trains from is called its training loader", ""
)
PROGRAMS_VERDICT = Claim(
    "programs' verdicts", "`--mode alternate` ends well, and its 95% CI reaches 1x or more", ""
)
RANKS = Claim(
    "ranks", "Ranks that share a device train the same, and each has its part in the job", ""
)
DALI = Claim("DALI", "Images that DALI decodes on the device arrive unchanged", "to the bit")
DALI_BACKENDS = Claim(
    "DALI as a backend", "`compare_backends` measures DALI on the device beside a DataLoader", ""
)

PARTS = (
    Part("test_idle.py", 60, (IDLE, IDLE_HIDDEN, IDLE_COST, IDLE_NO_SYNC)),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "matmul"),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "graph"),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "compile"),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "amp"),
    Part("test_programs.py", 60, (PROGRAMS, PROGRAMS_LOADER), "loops"),
    Part("test_programs.py", 60, (PROGRAMS, PROGRAMS_LOADER), "frameworks"),
    Part("test_programs.py", 60, (PROGRAMS_VERDICT,), "plausible"),
    Part("test_programs.py", 60, (RANKS,), "ranks"),
    Part("test_dali.py", 60, (DALI, DALI_BACKENDS)),
)
