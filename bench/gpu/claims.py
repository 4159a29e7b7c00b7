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
    """The tests of the file, as pytest's -k."""


ESTIMATE = Claim(
    "estimate", "The speed-up is that of plain loops, whose step is asynchronous", "5%"
)
ESTIMATE_COVERS = Claim(
    "estimate's interval",
    "Its 95% CI covers that of plain loops: in 20 cases together, each is asked at 99.75%",
    "",
)
IDLE = Claim(
    "GPU idle while waiting",
    "Of k ms of queued kernels and a wait of w ms, the GPU is idle for max(0, w - k)",
    "5%, or 0.2 ms",
)
IDLE_HIDDEN = Claim("hidden waits", "A wait that queued work hides is called hidden", "")
IDLE_COST = Claim("cost of events", "The events around a wait cost under 10 us a batch", "")
IDLE_NO_SYNC = Claim("no synchronisation", "No batch of a log run waits for the device", "")
BATCHES_KEPT = Claim(
    "batches on the device",
    "Batches that a loader makes on the device, in memory that it reuses or on a stream of its "
    "own, come as they were made, and so do copies of them",
    "",
)
BATCHES_PINNED = Claim(
    "pinned batches", "Batches in pinned memory stay in pinned memory, copies included", ""
)
COPIES_BOUNDED = Claim(
    "memory of copies",
    "Copies on the device take `max_cache_bytes` at most, and leave the training its memory",
    "",
)
COPIES_NO_SYNC = Claim(
    "no synchronisation of copies",
    "No step waits for the device, whether batches come from the loader or are copies on it",
    "",
)
IN_PLACE = Claim(
    "in-place changes", "A step that changes its batch on the device is found, and harms none", ""
)
CUDA_FAILURE = Claim(
    "failures of CUDA", "A program whose CUDA fails ends as without loadeval, with its log", ""
)
GRAPH_CAPTURE = Claim(
    "capture of a graph", "A CUDA graph can be captured while a run is logged", ""
)
FAULTS = Claim(
    "findings",
    "Unpinned memory, slow pinning, hidden waits, an idle GPU and contention with the thread that "
    "launches kernels are named, and not in healthy twins",
    "",
)
PIN_MEMORY = Claim(
    "advice to pin memory",
    "Advice to pin memory promises no speed-up; followed, it does not slow training down",
    "5%",
)
OVERHEAD_LOG = Claim(
    "overhead of log mode", "A logged batch costs 3x the floor at most, and its two events", "10%"
)
OVERHEAD_ALTERNATE = Claim(
    "overhead of alternate mode",
    "An alternating run takes 1.5x the time of a plain run at most",
    "",
)
OVERHEAD_REPLAY = Claim(
    "overhead of replay", "Replay is as fast as a loop over batches in device memory", "5%"
)

NVML_DEVICE = Claim(
    "the right GPU", "The GPU that CUDA uses is read, whatever CUDA_VISIBLE_DEVICES says", ""
)
NVML_MEMORY = Claim("GPU memory", "Memory used follows what is allocated and freed", "1%")
NVML_BUSY = Claim(
    "kernel busy", "It is 0% without work, and 100% with any kernel, however small", "3 points"
)
NVML_COUNTERS = Claim(
    "SM and memory activity",
    "They are those of kernels of known occupancy and of copies of known bandwidth",
    "10%, or 0.3 points",
)
NVML_PCIE = Claim(
    "PCIe", "Throughput is that of copies of known size, with the heads of packets", "-5% to 25%"
)
NVML_POWER = Claim("GPU power", "It rises with work", "")
NVML_CLOCK = Claim("SM clock", "It is that of a kernel of known cycles", "3%")
NVML_COST = Claim(
    "cost of reading a GPU",
    "Readings take under 2% of a CPU, 50 ms each at most, and do not slow kernels",
    "3%",
)

PROGRAMS = Claim(
    "programs", "`loadeval run` changes no loss of a program on the device", "to the bit"
)
PROGRAMS_LOADER = Claim(
    "programs' loaders", "The loader that a program trains from is called its training loader", ""
)
PROGRAMS_VERDICT = Claim(
    "programs' verdicts",
    "Programs run in alternate mode to their end, and their speed-up is 1x or more within its CI",
    "",
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
    Part(
        "test_nvml.py",
        60,
        (
            *(NVML_DEVICE, NVML_MEMORY, NVML_BUSY, NVML_COUNTERS),
            *(NVML_PCIE, NVML_POWER, NVML_CLOCK, NVML_COST),
        ),
    ),
    Part(
        "test_batches.py",
        60,
        (
            *(BATCHES_KEPT, BATCHES_PINNED, COPIES_BOUNDED, COPIES_NO_SYNC),
            *(IN_PLACE, CUDA_FAILURE, GRAPH_CAPTURE),
        ),
    ),
    Part("test_findings.py", 60, (FAULTS, PIN_MEMORY)),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "graph"),
    Part("test_programs.py", 60, (PROGRAMS, PROGRAMS_LOADER), "losses"),
    Part("test_overhead.py", 60, (OVERHEAD_LOG, OVERHEAD_ALTERNATE, OVERHEAD_REPLAY)),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "amp"),
    Part("test_estimate.py", 60, (ESTIMATE, ESTIMATE_COVERS), "compile"),
    Part("test_programs.py", 60, (RANKS,), "ranks"),
    Part("test_programs.py", 60, (PROGRAMS_VERDICT,), "plausible"),
    Part("test_dali.py", 60, (DALI, DALI_BACKENDS)),
)
