"""The rows: a training on the device, and what loadeval says of it beside what is known of it."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from bench.gpu.loaders import PHOTOGRAPHS, OnDevice, Prefetcher, Waiting, of_photographs
from bench.gpu.referee import BATCHES, copied_ms, idle_in_waits_ms, traced
from bench.gpu.results import Result
from bench.judge import JudgeError, backends, column, compared, launched, printed
from bench.tables import in_words
from bench.zoo.costs import Burn
from bench.zoo.device import Products, device_ms, host_s
from bench.zoo.programs import Again, Samples, Training
from bench.zoo.workloads import make_photographs
from loadeval import Backend, LoaderEvaluator, compare_backends
from loadeval.core.cuda import copy_speeds

Step = Callable[[Any], object]
Measure = Callable[[Path], Iterator[Result]]

SETTLED = 10
"""Batches after which clocks, caches and queues are as they stay."""
WITHIN, WITHIN_MS = 0.05, 0.2
"""A sleep overshoots and a launch takes so long: idle times are not known better than this."""
MIB = 2**20
SHOWN = ("loss", "validation", "parameters")
"""What begins the lines that a program prints of its training."""


@dataclass(frozen=True)
class Row:
    """A case, what it shows, and about how many seconds it takes; it is stopped after twice that.

    `measure` yields results as they come, and keeps its files in the folder that it is given.
    """

    number: int
    case: str
    shows: str
    seconds: int
    measure: Measure


ROWS: list[Row] = []
"""In the order in which they are measured."""


def row(case: str, shows: str, seconds: int) -> Callable[[Measure], Measure]:
    def added(measure: Measure) -> Measure:
        ROWS.append(Row(len(ROWS) + 1, case, shows, seconds, measure))
        return measure

    return added


def named(case: str, log: Path, *rules: str, wanted: bool) -> Result:
    """Whether one of the rules finds something, as is `wanted`."""
    found = [finding.rule for finding in compared(log).findings]
    words, expected = ", ".join(found) or "none", " or ".join(rules)
    held = any(rule in found for rule in rules) is wanted
    return Result(case, expected if wanted else f"not {expected}", words, held=held)


def logged(
    folder: Path, loader: Any, step: Step, mode: str = "log", epochs: int = 1, **options: Any
) -> Path:
    options = {"overwrite": True, "probes": (), **options}
    training = Training(loader, step, epochs, close=torch.cuda.synchronize)
    return training.logged(folder / "run.jsonl", mode, **options)


def epoch(loader: Iterable[Any], step: Step) -> None:
    for batch in loader:
        step(batch)


def median_ms(values_ms: Any) -> float:
    return float(np.median(values_ms[SETTLED:]))


def is_near(measured: float, expected: float, within: float = WITHIN, least: float = 0) -> bool:
    return abs(measured - expected) <= max(within * expected, least)


# Rows 1, 2 and 12: how much faster training would be


def vision_step(model: nn.Module, dtype: torch.dtype) -> Step:
    model = model.to("cuda").train()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        images, target = (part.to("cuda", non_blocking=True) for part in batch)
        with torch.autocast("cuda", dtype=dtype):
            loss = nn.functional.cross_entropy(model(images), target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        scaler.step(optimizer)
        scaler.update()

    return step


def beside_plain_loops(
    folder: Path, loader: DataLoader[Any], step: Step, *, is_starved: bool
) -> Iterator[Result]:
    """The speed-up beside loops over the loader and over batches in memory, before and after."""
    pinned = [tuple(map(torch.Tensor.pin_memory, batch)) for batch in islice(loader, 8)]
    in_memory = Again(pinned, len(loader))
    epoch(islice(in_memory, SETTLED), step)
    real_s, ideal_s = [], []

    def plain() -> None:
        ideal_s.append(host_s(partial(epoch, in_memory, step)))
        real_s.append(host_s(partial(epoch, loader, step)))

    plain()
    log = logged(folder, loader, step, "alternate", epochs=3, probes=("gpu",))
    plain()
    said = compared(log)
    ratios = [real / ideal for real, ideal in zip(real_s, ideal_s, strict=True)]
    low, high = min(ratios), max(ratios)
    truth = f"{sum(real_s) / sum(ideal_s):.2f}x ({low:.2f}x to {high:.2f}x)"
    speedup = said.gap.steady_speedup
    if speedup is None or speedup.low is None or speedup.high is None:
        yield Result("speed-up", truth, "not known", held=False)
        return
    covers = speedup.low <= high and low <= speedup.high
    near = low * (1 - WITHIN) <= speedup.value <= high * (1 + WITHIN)
    words = in_words(speedup)
    yield Result("speed-up beside plain loops", truth, words, held=covers and near)
    starved = speedup.low > 1.1 if is_starved else speedup.high < 1.1
    wanted = "from 1.10x" if is_starved else "under 1.10x"
    yield Result("whole interval", wanted, words, held=starved)
    waits, steps = column(log, "wait_ns"), column(log, "step_ns")
    share = np.nansum(waits) / np.nansum(waits + steps)
    yield Result("1 / (1 - wait), all batches", "-", f"{1 / (1 - share):.2f}x", held=None)
    yield from beside_referee("all", folder, lambda: loader, step, apart=None)
    with LoaderEvaluator(loader, mode="replay", probes=()) as replay:
        replay_s = host_s(partial(epoch, replay, step))
    yield Result("replay", truth, f"{real_s[-1] / replay_s:.2f}x", held=None)
    for (subject, name), (real, ideal) in said.readings.items():
        if subject.startswith("GPU") and real is not None and ideal is not None:
            yield Result(
                f"{subject}, {name}", "-", f"{real:.4g} real, {ideal:.4g} ideal", held=None
            )


def network(
    module: str, name: str, folder: Path, batches: int, size: int, workers: int, *, is_starved: bool
) -> Iterator[Result]:
    """The training of a network of timm's or torchvision's from photographs."""
    try:
        models: Any = importlib.import_module(module)
    except ImportError as error:
        yield Result(name, "-", str(error), held=None)
        return
    model = models.create_model(name) if module == "timm" else models.models.get_model(name)
    dtype = torch.float16 if module == "timm" else torch.bfloat16
    loader = of_photographs(folder, batches, size, workers)
    yield from beside_plain_loops(folder, loader, vision_step(model, dtype), is_starved=is_starved)


@row(
    "mobilenetv3_small_100 of timm, batches of 32, 4 workers, mixed precision, pinned",
    "waits for data: the speed-up is that of two plain loops; 1 / (1 - wait) and replay beside it",
    60,
)
def small_network(folder: Path) -> Iterator[Result]:
    return network("timm", "mobilenetv3_small_100", folder, 100, 32, 4, is_starved=True)


@row("torchvision's vit_l_16, batches of 16, 4 workers", "keeps up: interval under 1.10x", 60)
def large_network(folder: Path) -> Iterator[Result]:
    return network("torchvision", "vit_l_16", folder, 80, 16, 4, is_starved=False)


# Rows 3 to 8: how long the device is idle in waits


def beside_referee(
    case: str, folder: Path, make: Callable[[], Any], step: Step, *, apart: bool | None = False
) -> Iterator[Result]:
    """Idle time in waits by events, and by the union of kernels, copies and memsets.

    They agree, or stand `apart` where the loader works: only the training's stream is idle longer.
    None is a figure alone.
    """
    log = logged(folder, make(), step)
    events_ms = median_ms(column(log, "gpu_idle_ns") / 1e6)
    union_ms = median_ms(idle_in_waits_ms(traced(make(), step)))
    held: bool | None = is_near(events_ms, union_ms, least=WITHIN_MS)
    expected = f"over {union_ms:.3g} ms" if apart else f"{union_ms:.3g} ms"
    if apart is not False:
        held = apart and events_ms > union_ms + WITHIN_MS
    yield Result(f"{case}: idle in a wait", expected, f"{events_ms:.3g} ms", held=held)


def idle_in_waits(folder: Path, *, syncs: bool) -> Iterator[Result]:
    for queued_ms, wait_ms in ((12.0, 6.0), (3.0, 9.0)):
        work = Products(queued_ms)
        taken_ms = float(np.median([device_ms(work) for _ in range(9)]))

        def step(batch: torch.Tensor, work: Products = work) -> None:
            work()
            if syncs:
                batch.to("cuda").item()

        case = f"{queued_ms:g} ms queued, wait of {wait_ms:g} ms"
        loader = Waiting(wait_ms, BATCHES)
        log = logged(folder, loader, step)
        waited_ms = np.array(loader.taken_ms)
        launched_ms = np.roll(column(log, "step_ns") / 1e6, 1)  # in the step before
        outlasts_ms = waited_ms if syncs else np.maximum(0, launched_ms + waited_ms - taken_ms)
        expected_ms = median_ms(outlasts_ms)
        measured_ms = median_ms(column(log, "gpu_idle_ns") / 1e6)
        held = is_near(measured_ms, expected_ms, least=WITHIN_MS)
        yield Result(case, f"{expected_ms:.3g} ms", f"{measured_ms:.3g} ms", held=held)
        yield from beside_referee(case, folder, partial(Waiting, wait_ms, BATCHES), step)
        hidden = not syncs and queued_ms > wait_ms
        yield named(f"{case}: findings", log, "hidden waits", wanted=hidden)


@row("12 ms queued, wait of 6 ms; 3 and 9 ms", "idle for max(0, wait - queued)", 20)
def asynchronous(folder: Path) -> Iterator[Result]:
    return idle_in_waits(folder, syncs=False)


@row("the same with `.item()` in each step", "idle for the whole wait", 20)
def synchronous(folder: Path) -> Iterator[Result]:
    return idle_in_waits(folder, syncs=True)


@row(
    "a prefetcher on a side stream; loaders that run kernels",
    "the training's stream is idle, and the GPU is not",
    30,
)
def other_streams(folder: Path) -> Iterator[Result]:
    work = Products(3.0)
    makes: dict[str, Callable[[], Any]] = {
        "a prefetcher's copies": partial(Prefetcher, BATCHES, 6.0, 100 * MIB // 4),
        "kernels on the loader's stream": partial(OnDevice, BATCHES, 6.0, beside=True),
        "kernels on the training's stream": partial(OnDevice, BATCHES, 6.0, beside=False),
    }
    for case, make in makes.items():
        yield from beside_referee(case, folder, make, lambda _: work(), apart=True)


@row(
    "batches of 200 MB, unpinned and blocking, and pinned; a copy in the wait",
    "a copy takes bytes over bandwidth, and is named",
    30,
)
def copies(folder: Path) -> Iterator[Result]:
    """The copy of a batch of 200 MB is long beside a step of 6 ms."""
    work, unpinned = Products(6.0), torch.ones(50 * MIB)
    taken_ms = 1e3 * host_s(lambda: copy_speeds(0))
    words = ", ".join(f"{per_s / 1e9:.3g} GB/s" for per_s in copy_speeds(0).values())
    held = bool(words) and taken_ms < 50
    yield Result("bandwidths", "in 50 ms", f"{words} in {taken_ms:.0f} ms", held=held)
    for of, batch in (("pinned", unpinned.pin_memory()), ("other", unpinned)):

        def step(batch: torch.Tensor) -> None:
            batch.to("cuda", non_blocking=batch.is_pinned())
            work()

        loader = Again([batch], BATCHES)
        found = compared(logged(folder, loader, step)).findings
        facts = {finding.rule: finding.facts for finding in found}.get("copies", {})
        said_ms, copy_ms = facts.get("copy, ns", 0.0) / 1e6, copied_ms(traced(loader, step))
        held = is_near(said_ms, copy_ms, 0.25)
        expected = f"{copy_ms:.3g} ms within 25%"
        yield Result(f"a copy of {of} memory", expected, f"{said_ms:.3g} ms", held=held)
    make = partial(map, torch.Tensor.cuda, Again([unpinned], BATCHES))
    yield from beside_referee("copied in the wait", folder, make, lambda _: work(), apart=True)


@row(
    "400 tiny kernels a step, with 0 and with 16 busy workers",
    "contention with the thread that launches",
    30,
)
def tiny_kernels(folder: Path) -> Iterator[Result]:
    """Launching takes the step's time; busy workers take CPUs from the thread that launches."""
    tiny = torch.zeros(16, device="cuda")

    def step(_batch: Any) -> None:
        for _ in range(400):
            tiny.add_(1.0)

    usable = sorted(os.sched_getaffinity(0))
    for workers, cpus in ((0, usable), (16, usable[: max(2, len(usable) // 2)])):
        os.sched_setaffinity(0, cpus)  # they share fewer than 16, so that there is contention
        try:
            burn = Burn(15.0 if workers else 0.0)
            samples = Samples(lambda number, burn=burn: burn(number) or torch.tensor([number]), 400)
            loader = DataLoader(samples, batch_size=None, num_workers=workers)
            log = logged(folder, loader, step, "alternate", probes=("host",))
            case = f"{workers} busy workers on {len(cpus)} CPUs"
            yield named(case, log, "contention", "oversubscription", wanted=bool(workers))
            yield from beside_referee(case, folder, lambda it=loader: it, step, apart=None)
        finally:
            os.sched_setaffinity(0, usable)


@row("a CUDA graph replayed; torch.compile", "a capture survives, idle time is right", 30)
def graphs(folder: Path) -> Iterator[Result]:
    """A graph is captured in the third step of the run that is logged."""
    work, recorded = Products(10.0), torch.cuda.CUDAGraph()
    work()
    served = 0

    def captured(_batch: Any) -> None:
        nonlocal served
        served += 1
        if served == 3:
            with torch.cuda.graph(recorded):
                work()
        (recorded.replay if served > 3 else work)()

    make = partial(Waiting, 4.0, BATCHES)
    logged(folder, make(), captured)
    yield Result("captured while a run is logged", "no error", "no error", held=True)
    for wait_ms in (4.0, 14.0):
        make = partial(Waiting, wait_ms, BATCHES)
        case = f"a graph of 10 ms replayed, wait of {wait_ms:g} ms"
        yield from beside_referee(case, folder, make, lambda _: recorded.replay())
    weights = torch.full((4096, 4096), 1e-3, dtype=torch.float16, device="cuda")

    def function(matrix: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            matrix = (matrix @ weights).relu()
        return matrix

    compiled: Any = torch.compile(function)
    compiled(weights)
    make = partial(Waiting, 8.0, BATCHES)
    yield from beside_referee("torch.compile", folder, make, lambda _: compiled(weights))


# Rows 9 and 10: what measuring costs, and what NVML says


@row(
    "an empty loop: log, alternate, events on and off",
    "microseconds a batch; a step is slower by under 0.5%",
    30,
)
def overhead(folder: Path) -> Iterator[Result]:
    torch.cuda.synchronize()  # the device is in use: there are events
    loader, is_used = Again([torch.zeros(8, 3, 4, 4)], 20_000), torch.cuda.is_initialized

    def loop_us(mode: Any, *, events: bool = True) -> float:
        if not events:
            torch.cuda.is_initialized = lambda: False
        try:
            log = folder / "empty.jsonl"
            options: dict[str, Any] = {"probes": (), "log_file": log, "overwrite": True}
            batches = loader if mode is None else LoaderEvaluator(loader, mode, **options)
            taken_s = host_s(partial(epoch, batches, lambda _: None))
        finally:
            torch.cuda.is_initialized = is_used
        if isinstance(batches, LoaderEvaluator):
            batches.close()
        return taken_s / len(loader) * 1e6

    kinds: dict[str, Callable[[], float]] = {
        "log": partial(loop_us, "log"),
        "log without events": partial(loop_us, "log", events=False),
        "alternate": partial(loop_us, "alternate"),
    }
    turns = [(loop_us(None), *(loop() for loop in kinds.values())) for _ in range(5)]
    bare_us, *times_us = np.median(turns, axis=0).tolist()
    for name, time_us in zip(kinds, times_us, strict=True):
        cost_us = time_us - bare_us
        held = cost_us < 20 if name == "log" else None
        expected = "under 20 us" if name == "log" else "-"
        yield Result(f"empty loop, {name}", expected, f"{cost_us:.2f} us a batch", held=held)
    work, batches = Products(5.0), Again([torch.zeros(8)], 100)

    def step(batch: torch.Tensor) -> None:
        work()
        batch.to("cuda")[0].item()

    plain_s, logged_s = [], []
    for _ in range(7):
        plain_s.append(host_s(partial(epoch, batches, step)))
        with LoaderEvaluator(batches, probes=()) as evaluator:
            logged_s.append(host_s(partial(epoch, evaluator, step)))
    slower = min(logged_s) / min(plain_s) - 1
    yield Result(
        "steps of 5 ms, log", "slower by under 0.5%", f"{slower:+.2%}", held=slower < 0.005
    )


def readings_while(folder: Path, work: Callable[[], object], seconds: float) -> dict[str, float]:
    """What the run's readings of the device say on average of a loop that does only `work`."""
    until_s = time.perf_counter() + seconds
    batches = takewhile(lambda _: time.perf_counter() < until_s, count())

    def step(_batch: Any) -> None:
        work()
        torch.cuda.synchronize()

    log = logged(folder, batches, step, probes=("gpu",), probe_interval_s=0.2)
    return {
        name: real
        for (subject, name), (real, _) in compared(log).readings.items()
        if subject.startswith("GPU") and real is not None
    }


def several(do: Callable[[], object], ms: float) -> tuple[Callable[[], object], int]:
    """What does it as often as fits into so many milliseconds of the device, and how often."""
    do()
    times = max(1, round(ms / min(device_ms(do) for _ in range(3))))
    return lambda: [do() for _ in range(times)], times


SPIN = """
extern "C" __global__ void spin(int kilocycles) {
    long long end = clock64() + 1000LL * kilocycles;
    while (clock64() < end) {}
}
"""


@row("NVML beside known loads", "within 10%", 40)
def nvml(folder: Path) -> Iterator[Result]:
    """Loads whose figures are known beside NVML's; what a driver does not count is not measured."""

    def beside(
        case: str, readings: dict[str, float], name: str, expected: float, within: float = 0.1
    ) -> Result:
        measured = readings.get(name)
        held = None if measured is None else is_near(measured, expected, within, least=3.0)
        words = "the driver gives no such counter" if measured is None else f"{measured:.4g}"
        return Result(f"{case}: {name}", f"{expected:.4g}", words, held=held)

    idle = readings_while(folder, lambda: time.sleep(0.05), 3.0)
    yield beside("no work", idle, "kernel_busy_percent", 0)
    more = torch.empty(4 * 2**30, dtype=torch.uint8, device="cuda")
    busy = readings_while(folder, Products(200.0), 4.0)
    yield beside("products", busy, "kernel_busy_percent", 100)
    used = "memory_used_bytes"
    yield beside("4 GiB more than", busy, used, idle[used] + more.nbytes)
    least_w, power_w = 1.5 * idle["power_watts"], busy["power_watts"]
    yield Result("power", f"over {least_w:.0f} W", f"{power_w:.0f} W", held=power_w > least_w)
    del more
    properties = torch.cuda.get_device_properties(0)
    sms, threads = properties.multi_processor_count, properties.max_threads_per_multi_processor
    spin = torch.cuda._compile_kernel(SPIN, "spin")
    for case, blocks in (("1,024 threads on every second SM", sms // 2), ("on every SM", sms)):
        work = partial(spin, grid=(blocks, 1, 1), block=(1024, 1, 1), args=[300_000])
        readings = readings_while(folder, work, 3.0)
        yield beside(case, readings, "sm_busy_percent", 100 * blocks / sms)
        occupancy = 100 * blocks * 1024 / (sms * threads)
        yield beside(case, readings, "sm_occupancy_percent", occupancy)
    source = torch.ones(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    piece, times = several(lambda: target.copy_(source), 200.0)
    bytes_per_s = 2 * times * source.nbytes / device_ms(piece) * 1e3
    # Both edges of the memory's clock, in kHz, and the bits of its bus.
    most = 2e3 * properties.memory_clock_rate * properties.memory_bus_width / 8
    readings = readings_while(folder, piece, 3.0)
    yield beside("copies", readings, "dram_bandwidth_percent", 100 * bytes_per_s / most)
    host = torch.ones(256 * MIB, dtype=torch.uint8).pin_memory()
    on_device = host.to("cuda")
    for name, to, of in (
        ("pcie_receive_bytes_per_s", on_device, host),
        ("pcie_transmit_bytes_per_s", host, on_device),
    ):
        piece, times = several(partial(to.copy_, of, non_blocking=True), 200.0)
        per_s = times * host.nbytes / device_ms(piece) * 1e3
        # Packets have heads.
        yield beside("copies", readings_while(folder, piece, 4.0), name, 1.1 * per_s, 0.15)


@row(
    "`loadeval run` of scripts like MNIST's and ImageNet's, deterministic",
    "losses equal to the bit",
    60,
)
def programs(folder: Path) -> Iterator[Result]:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    make_photographs(folder, PHOTOGRAPHS)

    def lines(print_it: Callable[..., str], *words: Any) -> list[str]:
        try:
            return [line for line in print_it(*words).splitlines() if line.startswith(SHOWN)]
        except JudgeError as error:
            return [str(error)[-300:]]

    for name in ("mnist", "imagenet"):
        program = ("-m", "bench.gpu.train", name, str(folder))
        bare = lines(printed, sys.executable, *program)
        measured = lines(launched, folder / f"logs of {name}", program)
        held: bool | None = bare == measured and bare[0].startswith(SHOWN)
        if not held and lines(printed, sys.executable, *program) != bare:
            held = None  # it does not repeat itself without loadeval
        same = sum(map(str.__eq__, bare, measured))
        words = f"{same} of {len(bare)} the same; {measured[-1][:200]}"
        yield Result(name, "all lines the same", words, held=held)


@row(
    "torchvision's resnet50, batches of 256, 16 workers, bfloat16",
    "real against ideal, and what the GPU does in each",
    60,
)
def picture(folder: Path) -> Iterator[Result]:
    return network("torchvision", "resnet50", folder, 40, 256, 16, is_starved=True)


@row("DALI, mixed decoding; `compare_backends` of torch and DALI", "unchanged batches", 60)
def dali(folder: Path) -> Iterator[Result]:
    try:
        nvidias: Any = importlib.import_module("nvidia.dali")
        plugin: Any = importlib.import_module("nvidia.dali.plugin.pytorch")
    except ImportError as error:
        yield Result("DALI", "-", str(error), held=None)
        return
    files, threads = [str(path) for path in make_photographs(folder, PHOTOGRAPHS)] * 32, 4

    @nvidias.pipeline_def(batch_size=16, num_threads=threads, device_id=0)  # type: ignore[untyped-decorator]  # it may be missing
    def images() -> Any:
        encoded, number = nvidias.fn.readers.file(files=files, name="Reader")
        # The hardware decoders take what share they can, and round otherwise than the others.
        image = nvidias.fn.decoders.image(encoded, device="mixed", hw_decoder_load=0.0)
        return nvidias.fn.resize(image, size=(224, 224)), number

    def iterator() -> Any:
        names = ["image", "number"]
        return plugin.DALIGenericIterator(images(), names, reader_name="Reader")

    def sums(loader: Iterable[Any]) -> list[Any]:
        return [outputs["image"].double().sum() for (outputs,) in islice(loader, 40)]

    bare = sums(iterator())
    with LoaderEvaluator(iterator(), probes=()) as evaluator:
        same = sum(map(torch.equal, bare, sums(evaluator)))
    yield Result("batches decoded on the device", "40 unchanged", f"{same}", held=same == 40)
    products = Products(5.0)

    def step(batch: Any) -> None:
        batch.to("cuda", non_blocking=True).float().mean()
        products()

    loader = of_photographs(folder, 60, 16, threads)
    two = {
        "torch": Backend(loader, lambda batch: batch[0]),
        "dali": Backend(iterator(), lambda batch: batch[0]["image"]),
    }
    compare_backends(two, step, batches=60, rounds=4, log_dir=folder / "logs", probes=())
    for backend in backends(sorted((folder / "logs").iterdir())):
        words = backend.error or in_words(backend.speedup)
        yield Result(f"compare_backends, {backend.name}", "-", words, held=None)
