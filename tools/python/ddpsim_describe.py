#!/usr/bin/env python3
"""Describe a PyTorch model as a ddpsim workload without a GPU and without the model's memory.
``ddpsim describe`` runs this file.

    ddpsim describe --factory train.py:make -o mine.json
    ddpsim predict --workload mine.json --cluster hgx-h100 --ranks 8

The factory is that of ddpsim_capture.py. Nothing is computed: parameters and activations have
shapes and no data, and every operator of forward and backward is written down with its operations,
bytes and kernels (``ddpsim.workload/1``, basis ``described``; docs/formats.md). It is described at
three batches, which says what scales with the batch.
"""
from __future__ import annotations

import argparse
import json
import math
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import torch  # noqa: E402
from ddpsim_absent import Absent, described_with  # noqa: E402
from ddpsim_capture import CaptureError, Keywords  # noqa: E402
from ddpsim_batches import Batches  # noqa: E402
from ddpsim_guard import Guard  # noqa: E402
from ddpsim_layers import described_layers  # noqa: E402
from ddpsim_meta import META, WithoutMemory, moved_to_meta  # noqa: E402
from ddpsim_own_work import amount as operations  # noqa: E402
from ddpsim_own_work import size  # noqa: E402
from ddpsim_trace import Tracer  # noqa: E402
from torch import Tensor, nn  # noqa: E402

GPU = torch.device("cuda")  # a name here: nothing touches it
SHOWN = 5  # names in a sentence
ANY_GPU = {"kind": "gpu", "name": "any; times from the profile's roofline"}


class Made(NamedTuple):
    """What a factory returns, on the meta device where it is large."""

    model: nn.Module
    inputs: Tuple[Any, ...]
    loss_fn: Optional[cap.LossFn]
    optimizer: Optional[torch.optim.Optimizer]


class Described(NamedTuple):
    workload: cap.Workload
    traces: List[Tracer]


def made_by(args: argparse.Namespace) -> Made:
    try:
        with WithoutMemory():
            if args.model:
                model, inputs = cap.named_model(args.model, args.batch or 32, args.image)
                model.train()
                made: Tuple[Any, ...] = (model, inputs, None, None)
            else:
                made = cap.made_by_factory(args.factory)
    except CaptureError as error:
        if "CUDA" in str(error) or "NVIDIA" in str(error):
            raise CaptureError(
                f"{str(error).rstrip('.')}: nothing is computed here, so let the factory make the"
                " model and its inputs on the CPU"
            ) from None
        raise
    return Made(made[0], cap.as_inputs(made[1]), made[2], made[3])


def first_batch(inputs: Tuple[Any, ...]) -> int:
    for t in cap.tensors_in([dict(i) if isinstance(i, Keywords) else i for i in inputs]):
        if t.dim() > 0 and t.shape[0] > 0:
            return int(t.shape[0])
    raise CaptureError("the inputs have no tensor whose first dimension is the batch: give --batch")


def at_batch(value: Any, was: int, batch: int) -> Any:
    """Inputs with another batch, in what has the batch first."""
    if isinstance(value, Tensor):
        if value.dim() == 0 or value.shape[0] != was or was == batch:
            return value
        rows = torch.arange(batch) % was
        if value.device.type == "meta":
            return torch.empty((batch, *value.shape[1:]), dtype=value.dtype, device=META)
        return value.index_select(0, rows)
    if isinstance(value, Keywords):
        return Keywords({k: at_batch(v, was, batch) for k, v in value.items()})
    if isinstance(value, dict):
        return {k: at_batch(v, was, batch) for k, v in value.items()}
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(at_batch(v, was, batch) for v in value)
    return value


def traced(made: Made, inputs: Tuple[Any, ...]) -> Tracer:
    inputs = without_values(inputs)
    tracer = Tracer(made.model)
    if not tracer.parameters:
        raise CaptureError("the model has no parameter that requires a gradient")
    dummy: Any = None
    step = cap.Step(
        made.model, inputs, None, made.loss_fn, dummy, "fp32", META, tracer.parameters
    )  # fmt: skip
    try:
        tracer.step(step.loss)
    except CaptureError:
        raise
    except (RuntimeError, NotImplementedError, AssertionError, TypeError, ValueError) as error:
        raise CaptureError(f"the model's step failed: {cap.where_it_failed(error)}") from error
    return tracer


def without_values(value: Any) -> Any:
    """Numbers have no values; indices that are few keep theirs."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(META)
    if isinstance(value, (Keywords, dict)):
        return type(value)({k: without_values(v) for k, v in value.items()})
    if type(value) in (tuple, list):
        return type(value)(without_values(v) for v in value)
    return value


def batches_of(made: Made, batch: int, notes: List[str]) -> Batches:
    was = first_batch(made.inputs)
    begin = at_batch(made.inputs, was, batch)
    # Of one sample dimensions are one, which takes no copies: two samples say what one costs.
    sizes = [n * max(batch, 2) for n in (1, 2, 3)]
    try:
        traces = [traced(made, at_batch(begin, batch, n)) for n in sizes]
        return Batches(sizes, traces)
    except CaptureError as error:
        first = traced(made, begin)
        notes.append(
            f"described at batch {batch} alone: with --set workload.batch traffic of weights also"
            f" scales, because at other batches {error}"
        )
        return Batches([batch], [first])


def describe(made: Made, args: argparse.Namespace) -> Described:
    """A workload of what a factory made."""
    notes: List[str] = []
    trainable = [p for p in made.model.parameters() if p.requires_grad]
    some = trainable[:1] or [nn.Parameter(torch.zeros(1))]
    optimizer = made.optimizer or cap.default_optimizer(args.optimizer, some)
    section = cap.describe_optimizer(optimizer, args.optimizer_name, GPU)
    moved_to_meta(made.model)
    batch = args.batch or first_batch(made.inputs)
    found = batches_of(made, batch, notes)
    precision = args.precision or cap.detect_precision(
        list(made.model.parameters()), torch.device("cpu")
    )
    recipe: Dict[str, Any] = (
        {"model": args.model, "batch": batch, "image": args.image}
        if args.model
        else {"factory": args.factory}
    )
    known = {"optimizer": section, "precision": precision, "batch": batch}
    return workload_of(made.model, found, known, recipe, notes, args)


def notes_of(model: nn.Module, found: Batches, batch: int, moved: int) -> List[str]:
    """Sentences about what a workload of these steps does not say exactly."""
    trace, notes = found.traces[0], []
    missing = sum(p.requires_grad for p in model.parameters()) - len(trace.arrival)
    if any(isinstance(m, nn.RNNBase) for m in model.modules()):
        notes.append(
            "recurrent layers are described as PyTorch computes them on a CPU: the gates of all"
            " inputs at once, then operators of one step after the other; cuDNN runs them as one,"
            " whose gradients may arrive in another order"
        )
    if moved:
        notes.append(f"{moved} gradients arrive later than the layer that makes them ends")
    if found.inexact:
        notes.append(
            f"numbers that do not grow in proportion to the batch, and are right at {batch} alone:"
            f" {found.inexact}"
        )
    if missing:
        notes.append(f"{missing} parameters get no gradient")
    if trace.groups:
        notes.append(
            f"{len(trace.groups)} parts are computed again in backward: layers 'recompute'; saves"
            " are what autograd keeps when forward has ended"
        )
    return notes


def source_of(found: Batches, notes: List[str], args: argparse.Namespace) -> Dict[str, Any]:
    source = cap.describe_source()
    for key in ("torch_blas", "cpu", "threads", "cuda", "cudnn", "date"):
        source.pop(key, None)
    source["tool"] = "ddpsim_describe.py"
    if args.command:
        words = args.command.split(" ")
        source["command"] = " ".join(re.sub(r"(^|=)/(?:[^/]*/)*", r"\1", w) for w in words)
    source["batches"] = list(found.batches)
    if found.traces[0].unknown:
        source["unknown_operators"] = dict(sorted(found.traces[0].unknown.items()))
    source["notes"] = notes
    return source


def channels_last(named: Sequence[Tuple[str, Tensor]]) -> bool:
    """Whether filters lie in the order that tensor cores read without conversion."""
    last = torch.channels_last
    filters = [p for _, p in named if p.dim() == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    return any(p.is_contiguous(memory_format=last) and not p.is_contiguous() for p in filters)


def workload_of(
    model: nn.Module,
    found: Batches,
    known: Dict[str, Any],
    recipe: Dict[str, Any],
    notes: List[str],
    args: argparse.Namespace,
) -> Described:
    """``known``: the sections optimizer, precision, batch; and loop, where there is one."""
    batch, precision = known["batch"], known["precision"]
    layers, moved = described_layers(found, batch)
    names = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    halves = {torch.bfloat16, torch.float16}
    pure = precision in ("bf16", "fp16") and all(p.dtype in halves for _, p in names)
    source = source_of(found, notes + notes_of(model, found, batch, moved), args)
    source["recipe"] = {**recipe, "optimizer": known["optimizer"]["name"]}
    workload = {
        "schema": cap.SCHEMA,
        "name": args.name or name_of(args),
        "model": args.model or type(model).__name__,
        "basis": "described",
        "batch": batch,
        "precision": precision,
        **({"casting": "pure"} if pure else {}),
        **({"memory_format": "channels_last"} if channels_last(names) else {}),
        "device": ANY_GPU,
        "source": source,
        **({"loop": known["loop"]} if known.get("loop") else {}),
        "optimizer": known["optimizer"],
        "tensors": cap.describe_tensors(names),
        **cap.describe_frozen(model),
        "buffers": cap.describe_tensors(list(model.named_buffers())),
        "arrival": found.traces[0].arrival,
        "layers": layers,
    }
    return Described(workload, list(found.traces))


# ---- a training script


def describe_script(args: argparse.Namespace, guard: Guard, absent: Absent) -> Described:
    """A workload of the model that a script trains, and the knobs of its plan."""
    import ddpsim_script
    from ddpsim_wrapped import Asked

    watch = ddpsim_script.Watch(Asked(args.ranks))

    def concludes(why: str) -> None:
        """While the script runs on."""
        guard.ends()
        guard.leaves(answer(args, lambda: complete(seen_of(watch, why, args), absent)))

    watch.concludes = concludes
    if args.report:
        report(args.report, running=True, where=f"--script {args.script}")
    try:
        why = ddpsim_script.run_script(args.script, args.arguments, watch, guard, args.timeout)
    finally:
        if args.report:
            args.report.write_bytes(b"")
    return seen_of(watch, why, args)


def seen_of(watch: Any, why: str, args: argparse.Namespace) -> Described:
    """The same, of what was seen; ``why``: it ended too early."""
    import ddpsim_script

    ddpsim_script.check_seen(watch, why)
    asked, model = watch.asked, watch.model
    assert model is not None
    optimizer = watch.optimizer or next(iter(watch.optimizers), None)
    if optimizer is None:
        raise CaptureError("the script makes no optimizer of torch.optim: use --factory")
    section = cap.describe_optimizer(optimizer, args.optimizer_name, GPU)
    halves = {torch.float16: "fp16", torch.bfloat16: "bf16"}
    precision = args.precision or halves.get(asked.halves or torch.float32)
    precision = precision or cap.detect_precision(list(model.parameters()), GPU)
    notes = list(asked.notes)
    found = seen_batches(watch, notes)
    batch = args.batch or watch.samples()
    if batch < 1:
        raise CaptureError("the model's inputs have no first dimension: say --batch")
    told = watch.besides()
    notes += told.notes
    loop = {**watch.loop(), **told.loop}
    known = {"optimizer": section, "precision": precision, "batch": batch, "loop": loop}
    recipe = {"script": args.script, "arguments": args.arguments, "ranks": args.ranks}
    plan = watch.plan(notes, told)
    workload, traces = workload_of(model, found, known, recipe, notes, args)
    workload["source"]["plan"] = plan
    workload["layers"] = told.layers + workload["layers"]
    if told.not_counted:
        workload["not_counted"] = told.not_counted
    if watch.compiled():
        workload["compile"] = watch.compiled()
    return Described(workload, traces)


def seen_batches(watch: Any, notes: List[str]) -> Batches:
    """Of the steps that the script ran; of the first alone where they are not alike."""
    why = "the script's steps have one batch"
    if len(watch.traces) == 3:
        try:
            return Batches(watch.batches, watch.traces)
        except CaptureError as error:
            why = str(error)
    notes.append(
        f"described at batch {watch.batches[0]} alone: with --set workload.batch traffic of weights"
        f" also scales, because {why}"
    )
    return Batches(watch.batches[:1], watch.traces[:1])


def name_of(args: argparse.Namespace) -> str:
    """Of what is described, where it goes to no file of a name."""
    if args.report is None:
        return str(args.out.stem)
    return args.model or Path(args.script or args.factory.rpartition(":")[0]).stem


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = cap.OneLineParser(
        prog="ddpsim_describe.py",
        description="Describe a PyTorch model as a ddpsim workload, without a GPU.",
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    cap.add_model_flags(what)
    what.add_argument("--script", help="a training script; its own arguments follow after --")
    add("--ranks", type=int, default=8, help="with --script: of the job that it sees (default 8)")
    add(
        "--timeout",
        type=float,
        default=600,
        help="with --script: seconds until three of its steps are seen (default 600)",
    )
    add(
        "--allow-writes",
        action="store_true",
        help="with --script: it writes its files, sends and starts processes as it always does",
    )
    add("--out", required=True, type=Path, help="file to write, such as mine.json")
    add("--batch", type=int, help="samples per step; default: read from the inputs")
    add("--image", type=int, default=224, help="with --model: image size (default 224)")
    add(
        "--optimizer",
        choices=cap.OPTIMIZERS,
        default="sgd",
        help="used if the factory gives none; default sgd (momentum)",
    )
    add("--optimizer-name", choices=cap.OPTIMIZERS, help="what stands for an unknown class")
    add(
        "--precision",
        choices=cap.PRECISIONS,
        help="default: the model's dtype; bf16 and fp16 are autocast",
    )
    add("--name", help="name of the workload (default: stem of --out)")
    # Of ddpsim describe, which runs this.
    add("--report", type=Path, help=argparse.SUPPRESS)
    add("--command", help=argparse.SUPPRESS)
    add("--scratch", help=argparse.SUPPRESS)  # a folder to make, which vanishes
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.arguments = words[end + 1 :]
    if args.arguments and not args.script:
        raise CaptureError("what follows -- are arguments of a script: name it with --script")
    return args


def run(args: argparse.Namespace, guard: Optional[Guard] = None) -> Described:
    for option in ("batch", "image", "ranks", "timeout"):
        least = 0 if option == "timeout" else 1
        if getattr(args, option) is not None and getattr(args, option) < least:
            raise CaptureError(f"--{option} must be at least {least}, not {getattr(args, option)}")
    if not args.out.absolute().parent.is_dir():
        raise CaptureError(f"--out: the directory of '{args.out}' does not exist")
    torch.manual_seed(1)
    absent = Absent()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if args.script:
            guard = guard or Guard(args.allow_writes, args.scratch)
            return complete(describe_script(args, guard, absent), absent)
        return complete(describe(made_by(args), args), absent)


def complete(found: Described, absent: Absent) -> Described:
    found.workload["described_with"] = described_with(absent.names)
    return found


def frozen_text(workload: cap.Workload) -> str:
    sizes = [(math.prod(t["shape"]), t["dtype"]) for t in workload.get("frozen", [])]
    if not sizes:
        return ""
    held = sum(n * cap.ELEMENT_SIZES[dtype] for n, dtype in sizes)
    return f" and {sum(n for n, _ in sizes):,} frozen ones ({held / 1e9:.3g} GB)"


def says(found: Described) -> List[str]:
    """Sentences about a workload: its size, its notes, what was not known."""
    workload, traces = found
    flops = sum(
        layer[d]["flops_per_sample"]
        for layer in workload["layers"]
        for d in ("forward", "backward")
    )
    out = [
        f"{sum(p.numel() for p in traces[0].parameters):,} parameters{frozen_text(workload)},"
        f" {len(workload['layers'])} layers, batch {workload['batch']},"
        f" {operations(flops * workload['batch'])} a step"
    ]
    out += workload["source"]["notes"]
    for left in workload.get("not_counted", ()):
        about = [operations(left["flops"])] if "flops" in left else []
        about += [size(left["bytes"])] if left.get("bytes") else []
        out.append(", ".join([f"not counted: {left['what']}", *(f"about {a}" for a in about)]))
    out += of_version(workload["described_with"])
    for name, count in workload["source"].get("unknown_operators", {}).items():
        out.append(
            f"operator {name} ({count} calls) is not known: it is priced by the bytes that it"
            " reads and writes"
        )
    return out


def of_version(used: Dict[str, Any]) -> List[str]:
    """Whose operators these are."""
    version, absent = used["pytorch"], used.get("absent", [])
    out = [f"operators are those of PyTorch {version} (--python names another interpreter)"]
    if absent:
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        out.append(
            f"the script asked for {', '.join(absent[:SHOWN])}{more}, which PyTorch {version}"
            " lacks: with another it may take other operators"
        )
    return out


def report(path: Path, **said: Any) -> None:
    """For ddpsim describe: `says` and `plan`, or `where` and `error`. While a script runs: `where`
    and `running`, which says that it ended Python if nothing else comes."""
    path.write_text(json.dumps(said), encoding="utf-8")


def tell_error(args: Optional[argparse.Namespace], text: str) -> None:
    if args is None or args.report is None:
        print(f"ddpsim_describe: {text}", file=sys.stderr)
        return
    named = {"--factory": args.factory, "--model": args.model, "--script": args.script}
    what = next(f"{flag} {value}" for flag, value in named.items() if value)
    if text.startswith(what):
        text = text[len(what) :].lstrip(": ")
    plain = text.encode("utf-8", "replace").decode("utf-8")  # JSON has no half characters
    report(args.report, where=what, error=plain)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Of a script it never returns: what that left to run at Python's end is not run."""
    try:
        args = parse(argv)
    except CaptureError as error:
        tell_error(None, str(error))
        return 2
    guard = Guard(args.allow_writes, args.scratch)
    if not args.script:
        return answer(args, lambda: run(args, guard))
    try:
        status = answer(args, lambda: run(args, guard))
    except Exception:
        traceback.print_exc()
        status = 1
    guard.leaves(status)


def answer(args: argparse.Namespace, describes: Callable[[], Described]) -> int:
    """Writes the workload and what is said of it, or why there is none; the exit code."""
    try:
        found = describes()
        cap.write(found.workload, args.out)
    except KeyboardInterrupt:
        return 130
    except (CaptureError, OSError, RuntimeError, MemoryError) as error:
        text = str(error).strip() or type(error).__name__
        tell_error(args, text.splitlines()[0])
        return 2
    if args.report:
        report(args.report, says=says(found), plan=found.workload["source"].get("plan", {}))
    else:
        print(f"{args.out}: " + "\n  ".join(says(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
