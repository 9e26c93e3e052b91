"""Streams, events and launches of one device, in virtual time (int picoseconds).

A stream is known by the time at which it will be idle. A launch takes the host's time first; the
kernel starts when its stream is idle, and not before the launch has arrived. What ran is kept in
``device.ledger``.
"""
from __future__ import annotations

import contextlib
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Set

from .clock import host
from .planted import planted


def ps_of(us: float) -> int:
    return round(us * 1e6)


class Ran(NamedTuple):
    """A kernel, or a call of the host that the profiler would show (``stream`` -1)."""

    name: str
    stream: int
    begin: int
    end: int


class Stream:
    """Stands in for ``torch.cuda.Stream``."""

    count = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.number = Stream.count
        Stream.count += 1
        self.priority = priority
        self.tail = 0  # idle from then on

    @property
    def cuda_stream(self) -> int:
        return self.number

    stream_id = cuda_stream

    @property
    def device(self) -> Any:
        return device.torch_device()

    def arrive(self) -> int:
        """When what is launched now can start."""
        self.tail = max(self.tail, host.ps + ps_of(planted.latency_us))
        return self.tail

    def wait_event(self, event: "Event") -> None:
        host.busy(planted.event_us)
        if event.at is not None:
            self.tail = max(self.tail, event.at)
            for flight in event.covers:
                flight.waited.add(self)

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(other.record_event())

    def record_event(self, event: Optional["Event"] = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return host.look() >= self.tail

    def synchronize(self) -> None:
        host.busy(planted.synchronize_us)
        host.until(self.tail)
        device.settle()


class Event:
    """Stands in for ``torch.cuda.Event``."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.timing = enable_timing
        self.at: Optional[int] = None
        self.covers: Set[Any] = set()  # flights that are over when it has happened

    def record(self, stream: Optional[Stream] = None) -> None:
        host.busy(planted.event_us)
        stream = stream or device.current
        self.at = stream.arrive()
        self.covers = {f for f in device.in_flight.values() if stream in f.waited}

    def wait(self, stream: Optional[Stream] = None) -> None:
        (stream or device.current).wait_event(self)

    def query(self) -> bool:
        return self.at is None or host.look() >= self.at

    def synchronize(self) -> None:
        host.busy(planted.synchronize_us)
        if self.at is not None:
            host.until(self.at)
        device.settle()

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds, as CUDA gives them: refused unless both were recorded and have happened."""
        if not (self.timing and end.timing):
            raise RuntimeError("CUDA error: invalid resource handle (an event without timing)")
        if self.at is None or end.at is None:
            raise RuntimeError("CUDA error: invalid resource handle (an event not recorded)")
        if host.ps < max(self.at, end.at):
            raise RuntimeError("CUDA error: device not ready")
        return (end.at - self.at) / 1e9


class Device:
    def __init__(self) -> None:
        self.index = 0
        self.default = Stream()
        self.current = self.default
        self.streams: List[Stream] = [self.default]
        self.busy_ps = 0
        self.loaded: Set[str] = set()
        self.waiting: Deque[int] = deque()
        self.ledger: Deque[Ran] = deque(maxlen=400_000)
        self.in_flight: Dict[int, Any] = {}  # storage -> what still writes it (nccl.Flight)
        self.engine = 0  # > 0: C++ code of autograd or DDP is running

    def torch_device(self) -> Any:
        import torch

        return torch.device("cuda", self.index)

    def new_stream(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def synchronize(self) -> None:
        begin = host.ps
        host.busy(planted.synchronize_us)
        host.until(max(s.tail for s in self.streams))
        self.settle()
        self.ledger.append(Ran("cudaDeviceSynchronize", -1, begin, host.ps))

    def settle(self) -> None:
        """Collectives whose end the host has waited for are over."""
        self.in_flight = {k: f for k, f in self.in_flight.items() if f.end > host.ps}

    def launch(
        self, name: str, us: float, stream: Optional[Stream] = None, host_us: Optional[float] = None
    ) -> Stream:
        """One kernel of ``us`` microseconds at full speed."""
        stream = stream or self.current
        if name not in self.loaded:
            self.loaded.add(name)
            host.busy(planted.first_use_us)
        begin = host.ps
        host.busy(planted.launch_us if host_us is None else host_us)
        self.ledger.append(Ran("cudaLaunchKernel", -1, begin, host.ps))
        start = stream.arrive()
        if self.busy_ps < planted.cold_ms * 1e9:
            us /= planted.cold
        stream.tail = start + ps_of(us)
        self.busy_ps += stream.tail - start
        self.ledger.append(Ran(name, stream.number, start, stream.tail))
        self.waiting.append(start)
        if len(self.waiting) > planted.queue:
            host.until(self.waiting.popleft())
        return stream

    @contextlib.contextmanager
    def on(self, stream: Optional[Stream]) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def in_engine(self) -> Iterator[None]:
        self.engine += 1
        try:
            yield
        finally:
            self.engine -= 1


device = Device()
