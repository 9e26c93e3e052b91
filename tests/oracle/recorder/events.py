"""Writes down what a system asks of its device for the recorders of all systems.

An event goes into the list in `into`. `now` says what the system is about, which an event may tell:
the last gradient, the unit that the host works for.
"""
import contextlib
import functools
import types

import torch
import torch.distributed as dist

SIZE = {torch.float64: 8, torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
SIZE |= {torch.int64: 8, torch.int32: 4, torch.int8: 1, torch.uint8: 1}
into = [None]  # where events go; None: nowhere
current = ["main"]  # stack of streams
now = {"gradient": None}
issued = {}  # of each stream: how many operations, where a system's recorder counts them
counting = [False]
on_host = set()  # storages; empty: nothing is offloaded, and all are where they are


def log(*event):
    if into[0] is not None:
        into[0].append(list(event))


def begin(**said):
    """A recording begins: nothing is left of the one before."""
    torch.manual_seed(0)
    Stream.made = Group.made = 0
    into[0], current[:] = None, ["main"]
    on_host.clear()
    now.update(gradient=None, **said)


@contextlib.contextmanager
def setting(key, value):
    was, now[key] = now[key], value
    try:
        yield
    finally:
        now[key] = was


def nothing(*_, **__):
    return None


def put(holder, **members):
    for name, value in members.items():
        setattr(holder, name, value)


def around(*holders, **calls):
    """A call is called in place of the function of its name, which it gets as first argument."""

    def wrapped(old, call):
        return functools.wraps(old)(lambda *args, **kwargs: call(old, *args, **kwargs))

    for name, call in calls.items():
        old = getattr(holders[0], name)
        new = wrapped(old, call)
        for holder in holders:
            if getattr(holder, name, None) is old:
                setattr(holder, name, new)


# --- a device that only writes down
def before_now(stream):
    return [issued.get(stream, 0)] if counting[0] else []


class Stream:
    names, made = [], 0  # of those that a system makes, in its order

    def __init__(self, priority=0, name=None):
        known = Stream.made < len(Stream.names)
        self.name = name or (Stream.names[Stream.made] if known else f"stream{Stream.made}")
        Stream.made += name is None

    def record_event(self):
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event):
        log("w", self.name, event.stream, "event", *event.after)

    def wait_stream(self, other):
        log("w", self.name, other.name, "stream", *before_now(other.name))

    def synchronize(self):
        log("h", "stream.synchronize", self.name)


class Event:
    def __init__(self, **_):
        self.stream = None

    def record(self, stream=None):
        self.stream = stream.name if stream else current[-1]
        self.after = before_now(self.stream)

    def query(self):
        return False

    def synchronize(self):
        log("h", "event.synchronize", "ev@" + self.stream)


@contextlib.contextmanager
def inside(stream):
    current.append(stream.name)
    try:
        yield
    finally:
        current.pop()


DEVICE = types.SimpleNamespace(
    is_available=lambda: True, current_device=lambda: 0, device_count=lambda: 8,
    Stream=Stream, Event=Event, stream=inside, synchronize=nothing,
    current_stream=lambda *_: Stream(name=current[-1]),
)


def away(tensor):
    """Is it on the host while others are on a device?"""
    return bool(on_host) and tensor.storage().data_ptr() in on_host


# --- process groups that only write down
class Group(dist.ProcessGroup):
    made = 0

    def __init__(self, rank, size, name=None):
        super().__init__(rank, size)
        self.name = name or f"g{Group.made}"
        Group.made += name is None


class Work:
    def __init__(self, on, *after):
        self.on, self.after = on, after

    def wait(self):
        log("w", current[-1], self.on, "work", *self.after)


def bytes_of(*tensors):
    return sum(t.numel() * SIZE[t.dtype] for t in tensors)


def told(op, whole, asynchronous=False, **group):
    """A collective, in the words of every recording; `whole` is its larger tensor."""
    said = {"op": op, "elements": whole.numel(), "dtype": str(whole.dtype)[6:]}
    said |= {"bytes": bytes_of(whole), **group, "queue": current[-1]}
    return {**said, "async": bool(asynchronous)}


# --- a model and its steps
def freeze(model, frozen):
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(tuple(frozen)))


def mark_modules(model):
    """Each module with parameters of its own says when it runs."""
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, __, name=name: log("f", name))


def mark_gradient(tensor, index):
    def arrived(_):
        now["gradient"] = index
        log("g", index)

    tensor.register_hook(arrived)


def add_step(steps, seen):
    """A step that is like an earlier one says so."""
    same = [s["step"] for s in steps if seen.items() <= s.items()]
    steps.append({"step": len(steps), **({"same_as": same[0]} if same else seen)})
