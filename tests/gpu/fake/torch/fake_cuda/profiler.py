"""``torch.profiler.profile``: what the ledger holds, as Kineto's events say it (PyTorch 2.x)."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

from .clock import host
from .cuda import charge_profiler
from .device import Ran, device


class KinetoEvent:
    def __init__(self, ran: Ran) -> None:
        self.ran = ran

    def name(self) -> str:
        return self.ran.name

    def start_ns(self) -> int:
        return self.ran.begin // 1000

    def end_ns(self) -> int:
        return self.ran.end // 1000

    def duration_ns(self) -> int:
        return self.ran.end // 1000 - self.ran.begin // 1000

    def device_type(self) -> str:
        return "DeviceType.CPU" if self.ran.stream < 0 else "DeviceType.CUDA"

    def device_resource_id(self) -> int:
        return self.ran.stream


class Profile:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.begin = 0
        self.profiler: Any = None

    def __enter__(self) -> "Profile":
        charge_profiler()
        self.begin = host.ps
        return self

    start = __enter__

    def __exit__(self, *_: Any) -> None:
        mine: List[KinetoEvent] = [KinetoEvent(r) for r in device.ledger if r.begin >= self.begin]
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: mine))

    stop = __exit__


def install() -> None:
    import torch.profiler

    torch.profiler.profile = Profile
