"""What looking takes of the CPUs: inside a DataLoader, at the host, and from outside by `attach`.

Inside: each subject is iterated with its stages timed and without, in turns; CPU time of workers
and training process together, as the median of the differences of neighbours. Of the others it is
the CPU time of the readings themselves: a training loses no more of one that is free.
"""

import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader

from bench.tables import show
from bench.zoo.images import Compose
from bench.zoo.programs import Samples
from loadeval import LoaderEvaluator
from loadeval.probes.host import HostProbe  # no public name reads once

PAIRS = 15
BATCHES = 1500
LARGE = 256
READINGS = 20
HOST_EVERY_S = 2.0
"""How often the host is read by default."""
ATTACHED_S = 20
ATTACH = """
from importlib.metadata import entry_points

(command,) = entry_points(group="console_scripts", name="loadeval")
run = command.load()
print("ready", flush=True)
input()
run()
"""
"""The command, which looks once it is told to: what it imports until then does not count."""


def of_samples(sample: Any, per_batch: int, transforms: int = 0, **how: Any) -> DataLoader[Any]:
    batches = BATCHES if per_batch == 1 else BATCHES // 10
    samples = Samples(lambda _: samples.transform(sample), per_batch * batches)
    samples.transform = Compose([lambda x: x] * transforms)
    options = {"num_workers": 1, "collate_fn": lambda samples: samples[0], **how}
    return DataLoader(samples, batch_size=per_batch, **options)


def cpu_s(whose: int = resource.RUSAGE_CHILDREN) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def epoch_cpu_s(make: Callable[[], DataLoader[Any]], *, stages: bool) -> float:
    """CPU time of an epoch, its workers' included."""
    evaluator = LoaderEvaluator(make(), stages=stages)
    before = cpu_s() + cpu_s(resource.RUSAGE_SELF)
    for _ in evaluator:
        pass
    evaluator.close()
    return cpu_s() + cpu_s(resource.RUSAGE_SELF) - before


def inside() -> list[tuple[str, str, str]]:
    """Nanoseconds for a sample, a batch and a transform, each with what is aimed at."""
    samples = LARGE * BATCHES // 10
    record = {"x": torch.zeros(3, 8), "y": 1, "name": "a name"}
    # Eight transforms, so that the sample's own part is small beside them.
    subjects = {
        "sample: int": (partial(of_samples, 1, LARGE), samples, 150),
        "sample: dict": (partial(of_samples, record, LARGE), samples, 150),
        "batch: int": (partial(of_samples, 1, 1), BATCHES, 6000),
        "batch: dict": (partial(of_samples, record, 1, collate_fn=None), BATCHES, 6000),
        "transform": (partial(of_samples, 1, LARGE, 8, num_workers=0), 8 * samples, 500),
    }
    rows = []
    for name, (make, units, limit_ns) in subjects.items():
        added_ns = []
        for _ in range(PAIRS):
            arms = random.sample([False, True], 2)
            took_s = {stages: epoch_cpu_s(make, stages=stages) for stages in arms}
            added_ns.append((took_s[True] - took_s[False]) / units * 1e9)
        median_ns = statistics.median(added_ns)
        said = f"{limit_ns:,} ns{' MISSED' if median_ns > limit_ns else ''}"
        rows.append((f"inside, {name}", f"{median_ns:,.0f} ns", said))
    return rows


def host() -> list[tuple[str, str, str]]:
    probe = HostProbe()
    probe.open()
    began_s = time.thread_time()
    for _ in range(READINGS):
        time.sleep(HOST_EVERY_S)  # what is costly is read now and then
        probe.read()
    share = (time.thread_time() - began_s) / READINGS / HOST_EVERY_S
    probe.close()
    return [("host", f"{share:.2%} of a CPU", "1%")]


def attach() -> list[tuple[str, str, str]]:
    """`loadeval attach` to a training that goes on, its start apart, which is mostly imports."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-m", "bench.zoo.whole", "endless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as trained:
        trained.stdout.readline()
        time.sleep(5)
        words = ["attach", str(trained.pid), "--seconds", str(ATTACHED_S), "--json"]
        before_s = cpu_s()
        with subprocess.Popen([sys.executable, "-c", ATTACH, *words], **pipes) as looks:
            looks.stdout.readline()
            times = psutil.Process(looks.pid).cpu_times()
            start_s = times.user + times.system
            looks.communicate(b"\n")
        cpus = (cpu_s() - before_s - start_s) / ATTACHED_S
        trained.kill()
    return [("attach", f"{cpus:.3f} CPUs, and {start_s:.1f} s of one to start", "0.02")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    parts = {"inside": inside, "host": host, "attach": attach}
    rows = (row for name in sys.argv[1:] or parts for row in parts[name]())
    show(("looking", "takes", "aimed at"), rows)
