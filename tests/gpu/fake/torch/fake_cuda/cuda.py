"""``torch.cuda``: the part of its public functions that programs use to train and to measure."""
from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, Iterator, Optional

import torch

from .clock import host
from .device import Event, Stream, device
from .memory import memory
from .planted import planted

NAME = "Fake CUDA device"


@contextlib.contextmanager
def use_device(index: Any) -> Iterator[None]:
    before = device.index
    set_device(index)
    try:
        yield
    finally:
        device.index = before


def set_device(index: Any) -> None:
    number = index if isinstance(index, int) else torch.device(index).index or 0
    if not 0 <= number < int(planted.devices):
        raise RuntimeError("CUDA error: invalid device ordinal")
    device.index = number


def properties(_: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME,
        major=9,
        minor=0,
        total_memory=int(planted.device_bytes),
        multi_processor_count=132,
        L2_cache_size=50 << 20,
    )


def sleep(cycles: int) -> None:
    device.launch(
        "spin",
        1e6
        * cycles
        / planted.cycles_per_s
        * (planted.cold if device.busy_ps < planted.cold_ms * 1e9 else 1),
    )


def free_and_total(_: Any = None) -> Any:
    taken = memory.reserved + int(planted.context_bytes)
    return int(planted.device_bytes) - taken, int(planted.device_bytes)


def no_graph(*_: Any, **__: Any) -> None:
    raise RuntimeError("fake CUDA: graphs are not captured")


def memory_functions() -> dict:
    def peak(_: Any = None) -> int:
        memory.allocated()
        return memory.peak

    return {
        "memory_allocated": lambda _=None: memory.allocated(),
        "max_memory_allocated": peak,
        "reset_peak_memory_stats": lambda _=None: memory.reset_peak(),
        "memory_reserved": lambda _=None: memory.reserved,
        "max_memory_reserved": lambda _=None: memory.reserved,
        "empty_cache": memory.empty_cache,
        "mem_get_info": free_and_total,
        "memory_stats": lambda _=None: {
            "allocated_bytes.all.current": memory.allocated(),
            "allocated_bytes.all.peak": peak(),
            "reserved_bytes.all.current": memory.reserved,
        },
    }


class FakeOutOfMemory(RuntimeError):
    pass


def install() -> None:
    def stream_of(_: Any = None) -> Stream:
        return device.current

    def choose(stream: Optional[Stream]) -> None:
        device.current = stream or device.current

    class NewStream(Stream):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            device.streams.append(self)

    cuda = torch.cuda
    plain = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_lazy_call": lambda *_, **__: None,
        "device_count": lambda: int(planted.devices),
        "current_device": lambda: device.index,
        "set_device": set_device,
        "device": use_device,
        "device_of": lambda t: use_device(max(0, t.get_device())),
        "get_device_name": lambda _=None: NAME,
        "get_device_capability": lambda _=None: (9, 0),
        "get_device_properties": properties,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda *_: False,
        "synchronize": lambda _=None: device.synchronize(),
        "Event": Event,
        "Stream": NewStream,
        "current_stream": stream_of,
        "default_stream": lambda _=None: device.default,
        "stream": device.on,
        "set_stream": choose,
        "_sleep": sleep,
        "CUDAGraph": no_graph,
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "seed_all": lambda: None,
        "clock_rate": lambda _=None: 1980,
        "power_draw": lambda _=None: 500_000,
        "temperature": lambda _=None: 50,
        "utilization": lambda _=None: 100,
        "ipc_collect": lambda: None,
        **memory_functions(),
    }
    for name, function in plain.items():
        setattr(cuda, name, function)
    cuda.streams.Event, cuda.streams.Stream = Event, NewStream
    if not hasattr(cuda, "OutOfMemoryError"):
        cuda.OutOfMemoryError = FakeOutOfMemory
    # What scales losses has a kernel for a CPU where torch.amp.GradScaler is not CUDA's alone.
    cuda.scaler_on_cpu = hasattr(torch.amp, "GradScaler")
    install_autocast()


def install_autocast() -> None:
    """Autocast of the CPU's operators stands for that of CUDA's; bf16 for fp16 before 2.3."""
    original = torch.autocast
    halves = {torch.bfloat16: torch.bfloat16}
    if hasattr(torch.amp, "GradScaler"):
        halves[torch.float16] = torch.float16

    def autocast(device_type: str, dtype: Any = None, **kwargs: Any) -> Any:
        if device_type != "cuda":
            return original(device_type, dtype=dtype, **kwargs)
        return original("cpu", dtype=halves.get(dtype, torch.bfloat16), **kwargs)

    torch.autocast = autocast
    if hasattr(torch, "amp"):
        torch.amp.autocast = autocast


def charge_profiler() -> None:
    """torch.profiler was used: its hooks stay, and the host is slower from now on."""
    host.factor = planted.profiler
