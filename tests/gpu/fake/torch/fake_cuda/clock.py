"""The host's clock: ``time``'s clocks and ``time.sleep`` tell virtual time. Nothing waits really.

Only the thread that installed it spends virtual time. Other threads read the same clock, and sleep
really. ``time.process_time`` and the date stay real. Times are int picoseconds.
"""
from __future__ import annotations

import threading
import time

from .planted import planted

BASE_PS = 1000 * 10**12  # so that times look like times; the same in each process


class Host:
    def __init__(self) -> None:
        self.ps = BASE_PS
        self.owner = threading.get_ident()
        self.factor = 1.0  # of all that the host does

    def busy(self, us: float) -> None:
        if threading.get_ident() == self.owner:
            self.ps += round(us * self.factor * 1e6)

    def until(self, ps: int) -> None:
        self.ps = max(self.ps, ps)

    def look(self) -> int:
        if threading.get_ident() == self.owner:
            self.ps += round(planted.clock_us * 1e6)
        return self.ps


host = Host()
_sleep = time.sleep


def sleep(seconds: float) -> None:
    if threading.get_ident() == host.owner:
        host.ps += max(0, round(seconds * 1e12))
    else:
        _sleep(seconds)


def install() -> None:
    time.perf_counter_ns = time.monotonic_ns = lambda: host.look() // 1000
    time.perf_counter = time.monotonic = lambda: host.look() / 1e12
    time.sleep = sleep
