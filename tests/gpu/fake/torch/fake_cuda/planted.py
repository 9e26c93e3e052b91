"""What is planted in the CUDA device that is not there. Units are in the names; shares are of 1.

The file that ``DDPSIM_FAKE_TORCH`` names changes values: "key value" a line. Nothing else says how
long anything takes.
"""
from __future__ import annotations

import os
from types import SimpleNamespace

DEFAULT = {
    # The device: a kernel takes kernel_us + FLOPs / rate + bytes / memory_bytes_per_s.
    "fp32": 5e9,
    "tf32": 2e10,
    "bf16": 4e10,
    "fp16": 3.8e10,  # FLOP/s of products, by precision
    "conv": 0.6,  # share of these that convolutions reach
    "memory_bytes_per_s": 2e9,
    "kernel_us": 5.0,
    "latency_us": 6.0,  # from the end of a launch to the start on an idle device
    "cold_ms": 10.0,  # until the device has worked for so long,
    "cold": 0.6,  # it works at this share of its speed
    "queue": 1024.0,  # launches that may wait; then the host waits
    "cycles_per_s": 1.5e9,  # of torch.cuda._sleep
    # The host.
    "call_us": 4.0,  # a call of an operator on device tensors
    "launch_us": 6.0,  # and each kernel that it launches
    "first_use_us": 2000.0,  # the first launch of a kernel loads its code
    "event_us": 1.0,
    "synchronize_us": 2.0,
    "clock_us": 0.02,  # a look at the clock
    "profiler": 2.0,  # host times once torch.profiler was used: its hooks stay
    # Copies between host and device.
    "pcie_bytes_per_s": 4e9,  # page-locked
    "pageable_bytes_per_s": 1e9,
    # Memory.
    "device_bytes": 80e9,
    "context_bytes": 5e8,  # what the driver takes
    # Communication between ranks: all-reduce of S bytes among n: nccl_us + 2 (n - 1) / n S / rate,
    # all-gather and reduce-scatter (S = the whole) half of the second term, broadcast S / rate.
    "nccl_us": 200.0,
    "nccl_bytes_per_s": 1e9,
    "nccl_call_us": 20.0,  # the host's share of a collective
    "devices": 1.0,
}


def read() -> SimpleNamespace:
    """The planted values as attributes."""
    values = dict(DEFAULT)
    path = os.environ.get("DDPSIM_FAKE_TORCH")
    if path:
        with open(path, encoding="utf-8") as file:
            for line in file:
                key, value = line.split()
                if key not in values:
                    raise SystemExit(f"fake CUDA: nothing is called \"{key}\"")
                values[key] = float(value)
    return SimpleNamespace(**values)


planted = read()
