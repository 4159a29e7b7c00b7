"""A CUDA device for machines without one: streams, events and tensors, with time of its own.

Work is queued, and a thread for each stream does it in order, later: what reads a tensor too early
finds what was there before, as on a device. Each kernel takes a stated time, whatever it costs the
CPU. It exists so that the tests for real devices can be tried: their expectations, their tolerances
and their own code. What it says of loadeval on a device is nothing.
"""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

# It asks CUDA's runtime library itself, which a stand-in for torch does not see.
from loadeval.core import cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

NAME = "stand-in for a CUDA device"
UUID = "GPU-5ca1ab1e-0000-4000-8000-000000000000"
DEVICE = torch.device("cuda", 0)
FLOPS_PER_S = 2e10
CYCLES_PER_S = 1e9
PINNED_BYTES_PER_S = 12e9
PAGEABLE_BYTES_PER_S = 4e9
DEVICE_BYTES_PER_S = 500e9
LAUNCH_NS = 2_000
TOTAL_BYTES = 80 * 2**30
SMS, WARPS = 132, 64
"""Multiprocessors, and the warps that one of them holds."""
SPIN_NS = 60_000
"""The last part of a sleep, which is not slept: a thread that sleeps wakes some 60 us late."""


class Recording:
    """One recording of an event, which may be recorded again before this one passes."""

    __slots__ = ("passed", "time_ns")

    def __init__(self, time_ns: int = 0, *, passed: bool = False) -> None:
        self.time_ns = time_ns
        self.passed = passed

    def wait(self) -> None:
        """Wait until it has passed."""
        while not self.passed:
            time.sleep(SPIN_NS / 1e9)


@dataclass(frozen=True)
class Load:
    """What a task keeps busy: shares of the SMs and of all warps, and the bytes it moves in all."""

    sms: float = 0
    warps: float = 0
    dram_bytes: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


KERNEL = Load(sms=1, warps=1)
"""The load of a kernel that says nothing else."""


@dataclass
class Task:
    """Work for a stream: it takes `duration_ns`, and `work` is done at its end."""

    duration_ns: int = 0
    work: Callable[[], object] | None = None
    after: Recording | None = None
    event: Recording | None = None
    load: Load = KERNEL
    queued_ns: int = field(default_factory=time.perf_counter_ns)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self) -> None:
        """Do the work, once; earlier than its time where somebody insists."""
        with self.lock:
            work, self.work = self.work, None
            if work is not None:
                work()


class Stream:
    """A queue whose thread does its tasks one after the other."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:  # noqa: ARG002 - as torch's
        self.device = DEVICE
        self.queued = self.done = 0
        self.tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self.pending: list[Task] = []
        self.captured: list[Task] | None = None
        STREAMS.add(self)
        threading.Thread(target=_do_all, args=(weakref.ref(self), self.tasks), daemon=True).start()

    def queue(self, task: Task) -> None:
        """Queue `task`; into a graph where one is being captured."""
        if self.captured is not None:
            self.captured.append(task)
            return
        if len(self.pending) > 64:
            self.pending = [waiting for waiting in self.pending if waiting.work is not None]
        self.pending.append(task)
        self.queued += 1
        self.tasks.put(task)

    @property
    def is_idle(self) -> bool:
        """Whether all that was queued is done."""
        return self.captured is None and self.queued == self.done

    def flush(self) -> None:
        """Do the work of all tasks now; their time goes on."""
        for task in self.pending:
            task.do()
        self.pending = []

    def record_event(self, event: Event | None = None) -> Event:
        """An event that passes when all that is queued is done."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Nothing queued from now on begins before `event` has passed."""
        if event.is_recorded:
            self.queue(Task(after=event.recording))

    def wait_stream(self, stream: Stream) -> None:
        """Nothing queued from now on begins before what is queued on `stream` is done."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Wait until all is done."""
        self.record_event().synchronize()

    def query(self) -> bool:
        """Whether all is done."""
        return self.record_event().query()

    def is_capturing(self) -> bool:
        """Whether what is queued goes into a graph."""
        return self.captured is not None

    def __enter__(self) -> Self:
        _current().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current().pop()


STREAMS: weakref.WeakSet[Stream] = weakref.WeakSet()


class Event:
    """Notes when the device passes it."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.enable_timing = enable_timing
        self.is_recorded = False
        self.recording = Recording(passed=True)

    def record(self, stream: Stream | None = None) -> None:
        """Queue it, on the current stream."""
        ACCOUNT.check()
        stream = stream or current_stream()
        self.is_recorded = True
        if stream.is_idle:
            self.recording = Recording(time.perf_counter_ns(), passed=True)
            return
        self.recording = Recording()
        stream.queue(Task(event=self.recording))

    def wait(self, stream: Stream | None = None) -> None:
        """Let what `stream` is given from now on begin when this has passed."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether it has passed. To ask while another thread captures a graph ends the capture."""
        ACCOUNT.check()
        capture = ACCOUNT.capture
        if capture is not None and capture.forbids_this_thread():
            capture.is_valid = False
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return self.recording.passed

    def synchronize(self) -> None:
        """Wait until it has passed."""
        ACCOUNT.check()
        self.recording.wait()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, as CUDA's. Of an event that has not passed it is an error, as there."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("both events must be created with argument 'enable_timing=True'")
        if not (self.is_recorded and end.is_recorded and self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return (end.recording.time_ns - self.recording.time_ns) / 1e6


def _do_all(stream: weakref.ref[Stream], tasks: queue.SimpleQueue[Task]) -> None:
    end_ns = 0
    while True:
        task = tasks.get()
        begin_ns = max(end_ns, task.queued_ns)
        if task.after is not None:
            task.after.wait()
            begin_ns = max(begin_ns, task.after.time_ns)
        end_ns = begin_ns + task.duration_ns
        if task.duration_ns:
            ACCOUNT.loads.append((begin_ns, end_ns, task.load))
        if task.duration_ns or task.event is not None:
            _sleep_until(end_ns)
        task.do()
        if task.event is not None:
            task.event.time_ns = end_ns
            task.event.passed = True
        alive = stream()
        if alive is not None:
            alive.done += 1
        elif tasks.empty():  # until then a stream that nobody has any more goes on
            return
        del alive


def _sleep_until(end_ns: int) -> None:
    left_ns = end_ns - time.perf_counter_ns()
    if left_ns > SPIN_NS:
        time.sleep((left_ns - SPIN_NS) / 1e9)
    while time.perf_counter_ns() < end_ns:
        time.sleep(0)


_local = threading.local()
DEFAULT = Stream()


def _current() -> list[Stream]:
    if not hasattr(_local, "streams"):
        _local.streams = [DEFAULT]
    streams: list[Stream] = _local.streams
    return streams


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as torch's
    """The stream that this thread queues to."""
    return _current()[-1]


@contextmanager
def in_stream(stream: Stream | None) -> Iterator[None]:
    """Stands for torch.cuda.stream."""
    if stream is None:
        yield
        return
    with stream:
        yield


def synchronize(device: Any = None) -> None:  # noqa: ARG001 - as torch's
    """Wait until all streams are done."""
    ACCOUNT.check()
    ACCOUNT.synchronizations += 1
    for event in [stream.record_event() for stream in list(STREAMS)]:
        event.synchronize()


class Graph:
    """Stands for torch.cuda.CUDAGraph: what was captured, and is queued again by one call."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.tasks: list[Task] = []

    def replay(self) -> None:
        duration_ns = sum(task.duration_ns for task in self.tasks)
        works = [task.work for task in self.tasks if task.work is not None]
        current_stream().queue(Task(duration_ns, lambda: [work() for work in works]))


@dataclass
class Capture:
    """A graph that is being captured; unless `mode` is "global", other threads do not matter."""

    mode: str
    thread: int = field(default_factory=threading.get_ident)
    is_valid: bool = True

    def forbids_this_thread(self) -> bool:
        """Whether this thread may not ask about events now."""
        is_other = threading.get_ident() != self.thread
        relaxed = getattr(_local, "capture_mode", 0) == RELAXED
        return is_other and self.mode == "global" and not relaxed


RELAXED = 2


def exchange_capture_mode(mode: Any) -> None:
    """Stands for the driver's cuThreadExchangeStreamCaptureMode."""
    before = getattr(_local, "capture_mode", 0)
    _local.capture_mode, mode._obj.value = mode._obj.value, before


@contextmanager
def capturing(
    graph: Graph, *_: Any, capture_error_mode: str = "global", **__: Any
) -> Iterator[None]:
    """Stands for torch.cuda.graph."""
    synchronize()
    stream = Stream()
    stream.captured = graph.tasks
    capture = ACCOUNT.capture = Capture(capture_error_mode)
    with stream:
        yield
    stream.captured = ACCOUNT.capture = None
    if not capture.is_valid:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


@dataclass
class Account:
    """What the device holds, and was asked: for NVML's stand-in, and for tests.

    Once it has `failed`, every call fails.
    """

    bytes_held: int = 0
    most_held: int = 0
    total_bytes: int = TOTAL_BYTES
    synchronizations: int = 0
    rng: torch.Tensor | None = None
    loads: deque[tuple[int, int, Load]] = field(default_factory=lambda: deque(maxlen=100_000))
    """What tasks kept busy, from when to when."""
    capture: Capture | None = None
    failed: bool = False

    def check(self) -> None:
        """Raise what CUDA raises once it has failed."""
        if self.failed:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def take(self, nbytes: int) -> None:
        """Hold more memory."""
        if self.bytes_held + nbytes > self.total_bytes:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes} bytes.")
        self.bytes_held += nbytes
        self.most_held = max(self.most_held, self.bytes_held)

    def forget_most(self) -> None:
        """The peak is counted from now on."""
        self.most_held = self.bytes_held


ACCOUNT = Account()
PINNED: set[int] = set()


class CudaTensor(torch.Tensor):
    """A tensor in the CPU's memory that says it is on the device."""

    device = property(lambda _: DEVICE)
    is_cuda = property(lambda _: True)

    def record_stream(self, stream: Any) -> None:
        """Memory is kept here as long as queued work needs it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        flush()
        copied = on_device(plain(self).detach().clone()).requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        flush()
        return on_device, (plain(self).detach(),)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, as the CPU's."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, as the device's."""
    with torch._C.DisableTorchFunction():
        if type(tensor) is CudaTensor:
            return tensor
        storage = tensor.untyped_storage()
        if not getattr(storage, "is_of_device", False):
            ACCOUNT.take(storage.nbytes())
            storage.is_of_device = True  # type: ignore[attr-defined]  # a note of ours
            weakref.finalize(storage, _forget, storage.nbytes()).atexit = False
        return tensor.as_subclass(CudaTensor)


def _forget(nbytes: int) -> None:
    ACCOUNT.bytes_held -= nbytes


def flush() -> None:
    """Do all queued work now, in the order in which it was queued, whatever its stream."""
    streams = list(STREAMS)
    for task in sorted((task for stream in streams for task in stream.pending), key=_queued_ns):
        task.do()
    for stream in streams:
        stream.flush()


def _queued_ns(task: Task) -> int:
    return task.queued_ns


def is_of_device(device: Any) -> bool:
    """Whether an argument names the device."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    is_number = isinstance(device, int) and not isinstance(device, bool)
    return is_number or (isinstance(device, str) and device.startswith("cuda"))


class OnDevice(TorchFunctionMode):
    """Lets torch's functions know of the device, in the thread that it is entered in."""

    def __torch_function__(  # noqa: PLR0911 - a rule each
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in MOVES:
            return MOVES[name](func, *args, **kwargs)
        if is_of_device(kwargs.get("device")):
            return on_device(func(*args, **kwargs | {"device": "cpu"}))
        if not any(issubclass(kind, CudaTensor) for kind in types):
            return func(*args, **kwargs)
        if kwargs.get("device") is not None:  # a new tensor like one of the device's
            return plain(func(*args, **kwargs))
        if name in QUEUED and not _has_graph(args, kwargs):
            return QUEUED[name](*args, **kwargs)
        if name in READS:
            current_stream().synchronize()
            return func(*args, **kwargs)
        if name not in METADATA and not name.startswith("__get"):
            flush()
            _charge(name, args)
        return func(*args, **kwargs)


METADATA = {
    *("size", "dim", "numel", "stride", "nelement", "element_size", "is_contiguous", "data_ptr"),
    *("is_floating_point", "is_complex", "is_pinned", "__len__", "__repr__", "untyped_storage"),
    *(
        "storage_offset",
        "type",
        "get_device",
        "is_conj",
        "is_neg",
        "is_inference",
        "view",
        "detach",
    ),
    *("__deepcopy__", "__reduce_ex__", "__hash__", "requires_grad_", "is_same_size", "as_strided"),
}
READS = {
    *("item", "tolist", "__bool__", "__float__", "__int__", "equal", "allclose", "__index__"),
    *("nonzero", "is_nonzero", "__contains__"),
}


def _has_graph(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    every = [*args, *kwargs.values()]
    return torch.is_grad_enabled() and any(
        isinstance(argument, torch.Tensor) and argument.requires_grad for argument in every
    )


def _charge(name: str, args: tuple[Any, ...]) -> None:
    """Take the time of a product that is computed at once."""
    if name in {"linear", "matmul", "__matmul__", "mm"} and len(args) > 1:
        current_stream().queue(Task(_product_ns(args[0].shape, args[1].shape)))


def _product_ns(left: Any, right: Any) -> int:
    flops: int = 2 * math.prod(left) * (right[0] if left[-1] == right[-1] else right[-1])
    return LAUNCH_NS + round(flops / FLOPS_PER_S * 1e9)


def _queue_copy(to: torch.Tensor, source: torch.Tensor, bytes_per_s: float) -> None:
    with torch._C.DisableTorchFunction():
        is_sent, is_received = (not isinstance(tensor, CudaTensor) for tensor in (to, source))
        to, source = plain(to).data, plain(source).data  # a later change is not counted as one
        size = source.nbytes
        load = Load(
            dram_bytes=size * (2 - is_sent - is_received),
            received_bytes=size * is_received,
            sent_bytes=size * is_sent,
        )
        ns = LAUNCH_NS + round(size / bytes_per_s * 1e9)
        current_stream().queue(Task(ns, lambda: to.copy_(source), load=load))


def _moved(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to`, and what is like it."""
    target = kwargs.get("device", args[0] if args else None)
    if isinstance(target, torch.Tensor):
        target = target.device
    name = getattr(func, "__name__", "")
    to_device = is_of_device(target) or name == "cuda"
    to_host = name == "cpu" or (target is not None and str(target).startswith("cpu"))
    here = isinstance(tensor, CudaTensor)
    rest = [arg for arg in args if not (is_of_device(arg) or arg is target)]
    others = {key: value for key, value in kwargs.items() if key not in {"device", "non_blocking"}}
    non_blocking = bool(kwargs.get("non_blocking", any(arg is True for arg in args)))
    rest = [argument for argument in rest if not isinstance(argument, bool)]
    if name in {"cuda", "cpu"} or not (to_device or to_host):
        rest, others = ([], {}) if name in {"cuda", "cpu"} else (list(args), others)
    if here:
        flush()
    with torch._C.DisableTorchFunction():
        converted = tensor if not rest and not others else plain(tensor).to(*rest, **others)
    if to_device and not here:
        made = on_device(torch.empty_like(plain(converted)))
        pinned = is_pinned(tensor)
        if tensor.requires_grad:
            return on_device(plain(converted).clone())
        _queue_copy(made, converted, PINNED_BYTES_PER_S if pinned else PAGEABLE_BYTES_PER_S)
        if not (pinned and non_blocking):
            current_stream().synchronize()
        return made
    if to_host and here:
        current_stream().synchronize()
        return plain(converted).clone()
    if here:
        return tensor if converted is tensor else on_device(converted)
    return converted


def _copied_in(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    is_from_host = not isinstance(source, CudaTensor)
    if not isinstance(to, CudaTensor):
        if non_blocking and is_pinned(to):
            _queue_copy(to, source, PINNED_BYTES_PER_S)
            return to
        current_stream().synchronize()
        with torch._C.DisableTorchFunction():
            return plain(to).copy_(plain(source))
    rate = DEVICE_BYTES_PER_S
    if is_from_host:
        rate = PINNED_BYTES_PER_S if is_pinned(source) else PAGEABLE_BYTES_PER_S
    _bump(to)
    _queue_copy(to, source, rate)
    if is_from_host and not (non_blocking and is_pinned(source)):
        current_stream().synchronize()
    return to


def _cloned(tensor: torch.Tensor, **_: Any) -> torch.Tensor:
    made = on_device(torch.empty_like(plain(tensor)))
    _queue_copy(made, tensor, DEVICE_BYTES_PER_S)
    return made


def _in_place(name: str) -> Callable[..., torch.Tensor]:
    def change(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            target = plain(tensor).data  # as above
            others = [plain(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
            ns = LAUNCH_NS + round(target.nbytes / DEVICE_BYTES_PER_S * 1e9)
            _bump(tensor)
            current_stream().queue(Task(ns, lambda: getattr(target, name)(*others, **kwargs)))
        return tensor

    return change


def _bump(tensor: torch.Tensor) -> None:
    """Count a change at once, as torch does: `_version` is the host's."""
    with torch._C.DisableTorchFunction():
        tensor.detach()[:0].zero_() if tensor.dim() else None


def _product(left: torch.Tensor, right: torch.Tensor, *, out: Any = None) -> torch.Tensor:
    """A product: into `out` it only takes its time."""
    ns = _product_ns(left.shape, right.shape)
    if out is not None:
        current_stream().queue(Task(ns))
        return out  # type: ignore[no-any-return]  # a tensor
    with torch._C.DisableTorchFunction():
        first, second = plain(left), plain(right)
        made = torch.empty(*first.shape[:-1], second.shape[-1], dtype=first.dtype)
    current_stream().queue(Task(ns, lambda: torch.mm(first, second, out=made)))
    return on_device(made)


def _slept(cycles: int) -> None:
    _spin(cycles, 1, 1)


def _spin(cycles: int, blocks: int, threads: int) -> None:
    load = Load(min(1, blocks / SMS), min(1, blocks * math.ceil(threads / 32) / (SMS * WARPS)))
    current_stream().queue(Task(round(cycles / CYCLES_PER_S * 1e9), load=load))


def _compile_kernel(source: str, name: str) -> Callable[..., None]:  # noqa: ARG001 - as torch's
    """A kernel whose one argument is the thousands of cycles that it takes."""

    def launch(
        grid: tuple[int, int, int], block: tuple[int, int, int], args: list[int], **_: Any
    ) -> None:
        _spin(1000 * args[0], math.prod(grid), math.prod(block))

    return launch


def is_visible(names: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES names the device, which is the only one."""
    if names is None:
        return True
    first, *others = (name.strip() for name in names.split(","))
    is_named = first == "0" or (first.startswith("GPU-") and UUID.startswith(first))
    return is_named and first not in others[:1]


QUEUED: dict[str, Callable[..., Any]] = {
    "copy_": _copied_in,
    "clone": _cloned,
    "mm": _product,
    **{name: _in_place(name) for name in ("fill_", "zero_", "mul_", "add_", "div_", "sub_")},
}
MOVES: dict[str, Callable[..., Any]] = {"to": _moved, "cuda": _moved, "cpu": _moved}


def is_pinned(tensor: torch.Tensor, *_: Any) -> bool:
    """Whether the memory was pinned here."""
    with torch._C.DisableTorchFunction():
        return not isinstance(tensor, CudaTensor) and tensor.untyped_storage().data_ptr() in PINNED


def pin_memory(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    """A copy in memory that counts as pinned."""
    with torch._C.DisableTorchFunction():
        if isinstance(tensor, CudaTensor):
            raise RuntimeError(  # noqa: TRY004 - torch raises it
                "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
            )
        made = torch.empty_like(tensor).copy_(tensor)
        storage = made.untyped_storage()
        PINNED.add(storage.data_ptr())
        weakref.finalize(storage, PINNED.discard, storage.data_ptr()).atexit = False
        return made


def install() -> None:
    """Put it in place of torch.cuda, in this process and this thread."""
    if vars(torch.cuda)["Event"] is Event:
        return
    count = int(is_visible(os.environ.get("CUDA_VISIBLE_DEVICES")))
    properties = SimpleNamespace(
        uuid=UUID.removeprefix("GPU-"),
        name=NAME,
        major=9,
        minor=0,
        total_memory=TOTAL_BYTES,
        multi_processor_count=SMS,
        max_threads_per_multi_processor=32 * WARPS,
    )
    functions: dict[str, Any] = {
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": capturing,
        "stream": in_stream,
        "set_stream": lambda stream: _current().__setitem__(-1, stream),
        "current_stream": current_stream,
        "default_stream": lambda *_: DEFAULT,
        "is_current_stream_capturing": lambda: current_stream().is_capturing(),
        "synchronize": synchronize,
        "is_available": lambda: count > 0,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "device": nullcontext,
        "set_device": lambda _: None,
        "get_device_name": lambda *_: NAME,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (
            ACCOUNT.total_bytes - ACCOUNT.bytes_held,
            ACCOUNT.total_bytes,
        ),
        "memory_allocated": lambda *_: ACCOUNT.bytes_held,
        "memory_reserved": lambda *_: ACCOUNT.bytes_held,
        "max_memory_allocated": lambda *_: ACCOUNT.most_held,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda *_: ACCOUNT.forget_most(),
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)],
        "set_rng_state": lambda *_: None,
        "set_rng_state_all": lambda *_: None,
        "_sleep": _slept,
        "_compile_kernel": _compile_kernel,
    }
    for name, value in functions.items():
        setattr(torch.cuda, name, value)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available = lambda: True
        accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        accelerator.device_count = lambda: 1
        accelerator.current_device_index = lambda: 0
        accelerator.set_device_index = lambda _: None
        accelerator.synchronize = synchronize
        accelerator.current_stream = current_stream
    vars(torch._C)["_cuda_hasPrimaryContext"] = lambda device: device == 0
    vars(cuda)["exchange_capture_mode"] = lambda: exchange_capture_mode
    tensors: Any = torch.Tensor
    tensors.pin_memory, tensors.is_pinned = pin_memory, is_pinned
    torch.compile = lambda model=None, **_: (
        model if model is not None else (lambda function: function)
    )  # type: ignore[assignment]  # nothing compiles for it
    sys.modules["torch.cuda"].__dict__["nvtx"] = SimpleNamespace(
        range_start=lambda _: 0,
        range_end=lambda _: None,
        range_push=lambda _: 0,
        range_pop=lambda: 0,
    )
    mode: Any = OnDevice()
    mode.__enter__()  # for good: a process has it or has it not
