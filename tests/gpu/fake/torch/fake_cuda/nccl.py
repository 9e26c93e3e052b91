"""The process group "nccl": a communication stream in virtual time, over Gloo for the values.

A collective begins when the stream of every rank has come to it, and lasts as long as planted. The
call returns at once; ``wait`` lets the current stream wait, a future's callback runs on a stream
that has waited. DDP's C++ code waits for futures where Python does not see it: what it reads is
taken to be waited for (tensors.py), and so is everything at the end of backward.
"""
from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Callable, List, Sequence, Set

import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
from torch import Tensor

from .clock import host
from .device import Event, Stream, device
from .memory import storage_of
from .planted import planted
from .tensors import tensors_in


def collective_us(op: str, size: int, ranks: int) -> float:
    """Of ``size`` bytes: the whole that is summed, gathered or scattered."""
    if ranks == 1:
        return planted.kernel_us
    share = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(op, (ranks - 1) / ranks)
    return planted.nccl_us + 1e6 * share * size / planted.nccl_bytes_per_s


class Flight:
    """What a tensor has to be waited for: a collective, or what a callback does after one."""

    def __init__(self, end: int, by_engine: bool) -> None:
        self.end, self.by_engine = end, by_engine
        self.waited: Set[Stream] = set()  # streams that do not come before its end


class FakeFuture(torch.futures.Future):
    """Has its value at once; ``done`` happens when the device has."""

    done: Event

    def wait(self) -> Any:
        self.done.wait()
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> "FakeFuture":
        out = FakeFuture()
        with device.on(callbacks()):
            self.done.wait()
            value = callback(self)
            out.done = Event()
            out.done.record()
        for t in tensors_in(value):  # DDP's C++ code waits for it, and reads
            storage = storage_of(t)
            device.in_flight[storage._cdata] = Flight(out.done.at or 0, True)
        out.set_result(value)
        return out


_callbacks: List[Stream] = []


def callbacks() -> Stream:
    if not _callbacks:
        _callbacks.append(device.new_stream())
    return _callbacks[0]


class FakeWork(dist._Work if hasattr(dist, "_Work") else dist.Work):  # type: ignore[misc]
    def __init__(self, result: Any, end: int, stream: Stream) -> None:
        super().__init__()
        self.result_ = result
        self.flight = Flight(end, device.engine > 0)
        self.flight.waited.add(stream)
        self.done = Event()
        self.done.at, self.done.covers = end, {self.flight}

    def wait(self, timeout: Any = None) -> bool:
        self.done.wait()
        self.result_ = None  # what it wrote is not kept alive
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return host.look() >= self.flight.end

    def get_future(self) -> FakeFuture:
        future = FakeFuture()
        future.done = self.done
        future.set_result(self.result_)
        self.result_ = None
        return future


class FakeNccl(dist.ProcessGroup):
    """One rank's communicator."""

    class Options(SimpleNamespace):
        pass

    def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
        super().__init__(rank, size)
        self.rank_, self.size_ = rank, size
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timedelta(seconds=120))
        self.stream = device.new_stream()
        self.works: List[FakeWork] = []  # C++ knows them by a pointer only

    def getBackendName(self) -> str:
        return "nccl"

    def name(self) -> str:
        return "nccl"

    def _set_sequence_number_for_group(self) -> None:
        pass

    def rank(self) -> int:
        return self.rank_

    def size(self) -> int:
        return self.size_

    def play(
        self, op: str, size: int, writes: Sequence[Tensor], run: Callable[[], Any], result: Any
    ) -> FakeWork:
        """``run`` makes the values; ``writes``: what the collective writes."""
        for t in tensors_in(list(writes)):
            earlier = device.in_flight.get(storage_of(t)._cdata)
            if earlier is not None and device.current not in earlier.waited and not device.engine:
                raise RuntimeError("fake CUDA: race: two collectives write a tensor")
        self.stream.wait_event(device.current.record_event())
        host.busy(planted.nccl_call_us)
        begin = torch.tensor([self.stream.arrive()], dtype=torch.int64)
        with Quiet():
            if self.size_ > 1:
                options = c10d.AllreduceOptions()
                options.reduceOp = dist.ReduceOp.MAX
                self.gloo.allreduce([begin], options).wait()
            run()
        self.stream.tail = int(begin.item())
        device.launch(f"ncclDevKernel_{op}", collective_us(op, size, self.size_), self.stream, 0.0)
        work = FakeWork(result, self.stream.tail, self.stream)
        for t in tensors_in(list(writes)):
            device.in_flight[storage_of(t)._cdata] = work.flight
        # C++ code knows a work by a pointer only, and waits for it at once or has its future.
        self.works = self.works[-8:] + [work]
        return work

    def allreduce(self, tensors: List[Tensor], opts: Any = None) -> FakeWork:
        opts = opts or c10d.AllreduceOptions()

        def run() -> None:
            for t in tensors:
                wide = t.float() if t.dtype in (torch.bfloat16, torch.float16) else t.clone()
                self.gloo.allreduce([wide], opts).wait()
                t.copy_(wide)

        return self.play("all_reduce", nbytes(tensors), tensors, run, tensors)

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any = None) -> FakeWork:
        return self.allreduce(tensors, None)

    def broadcast(self, tensors: List[Tensor], opts: Any = None) -> FakeWork:
        opts = opts or c10d.BroadcastOptions()

        def one_by_one() -> None:
            for t in tensors:
                lent([t], lambda x: self.gloo.broadcast(x, opts))

        return self.play("broadcast", nbytes(tensors), tensors, one_by_one, tensors)

    def allgather(
        self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any = None
    ) -> FakeWork:
        opts = opts or c10d.AllgatherOptions()
        return self.play(
            "all_gather",
            nbytes(outputs[0]),
            outputs[0],
            lambda: lent(
                outputs[0], lambda x: self.gloo.allgather([x], [raw(inputs[0]).clone()], opts)
            ),
            outputs,
        )

    def _allgather_base(self, output: Tensor, value: Tensor, opts: Any = None) -> FakeWork:
        parts = list(output.chunk(self.size_))
        return self.play(
            "all_gather",
            nbytes([output]),
            [output],
            lambda: lent(parts, lambda x: self.gloo.allgather([x], [raw(value).clone()])),
            output,
        )

    def _reduce_scatter_base(self, output: Tensor, value: Tensor, opts: Any = None) -> FakeWork:
        def run() -> None:
            whole = value.clone(memory_format=torch.contiguous_format).float()
            self.gloo.allreduce([whole]).wait()
            output.copy_(whole.chunk(self.size_)[self.rank_].view_as(output))

        return self.play("reduce_scatter", nbytes([value]), [output], run, output)

    def reduce(self, tensors: List[Tensor], opts: Any = None) -> FakeWork:
        opts = opts or c10d.ReduceOptions()
        return self.play(
            "reduce",
            nbytes(tensors),
            tensors,
            lambda: lent(tensors, lambda x: self.gloo.reduce(x, opts)),
            tensors,
        )

    def barrier(self, opts: Any = None) -> FakeWork:
        work = self.play("all_reduce", 4, [], lambda: self.gloo.barrier().wait(), [])
        host.until(work.flight.end)  # NCCL's barrier holds the host
        return work


class Quiet:
    """Inside, operators are neither charged nor held to the rules of a device."""

    def __enter__(self) -> None:
        from torch.utils import _python_dispatch as modes

        self.stack = []
        while modes._len_torch_dispatch_stack():
            self.stack.append(modes._pop_mode())

    def __exit__(self, *_: Any) -> None:
        from torch.utils import _python_dispatch as modes

        for mode in reversed(self.stack):
            modes._push_mode(mode)


def lent(tensors: Sequence[Tensor], call: Callable[[List[Tensor]], Any]) -> None:
    """``call`` on copies, which are copied back: Gloo's thread lets go of what it was given some
    time after ``wait``, and until then the device would have that memory in use."""
    copies = [raw(t).clone() for t in tensors]
    call(copies).wait()
    for t, c in zip(tensors, copies):
        raw(t).copy_(c)


def raw(tensor: Tensor) -> Tensor:
    """What Gloo can send: the same memory as bytes or integers."""
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor


def nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def install() -> None:
    from torch.distributed import distributed_c10d as python

    for module in (dist, python):
        module.ProcessGroupNCCL = FakeNccl
        module.is_nccl_available = lambda: True
    python._NCCL_AVAILABLE = True
    python._nccl_available = True
    reducer = dist.Reducer
    seen = [0]

    def make(*args: Any, **kwargs: Any) -> Any:
        seen[0] = 0
        with device.in_engine():
            return reducer(*args, **kwargs)

    dist.Reducer = make
    rebuild = reducer._rebuild_buckets

    def rebuilt(self: Any, *args: Any) -> Any:
        with device.in_engine():
            return rebuild(self, *args)

    reducer._rebuild_buckets = rebuilt
    log = dist.Logger.set_runtime_stats_and_log

    def logged(self: Any) -> Any:
        """DDP's logger reads timers of the device in its first ten iterations, and waits for it."""
        seen[0] += 1
        if seen[0] <= 10:
            device.synchronize()
        return log(self)

    dist.Logger.set_runtime_stats_and_log = logged
