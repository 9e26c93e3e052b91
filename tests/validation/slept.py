"""Recordings of executed steps whose layers slept: their data, and a workload of them."""
import json


def layers_of(said):
    """Name, bytes of each parameter, and milliseconds forward and backward of each layer."""
    return [
        [x["name"], x["param_bytes"], x["fwd_ms"], x["bwd_ms"]] for x in said["model"]["layers"]
    ]


def write_data(path, models, cases):
    """A case a line."""
    lines = [json.dumps(c, separators=(",", ":")) for c in cases]
    text = json.dumps({"models": models}, separators=(",", ":"))[:-1]
    path.write_text(text + ',\n"cases":[\n' + ",\n".join(lines) + "\n]}\n")


def workload(layers, source, forward_s, backward_s=None):
    """All layers late alike; without `backward_s` those of backward as those of forward."""
    late = forward_s * 1e3 / sum(forward for _, _, forward, _ in layers)
    later = late
    if backward_s:
        later = (backward_s - forward_s) * 1e3 / sum(backward for _, _, _, backward in layers)
    tensors, arrival, ready, at = [], [], [], 0.0
    for name, sizes, _, _ in layers:
        tensors += [
            {"name": f"{name}.{k}", "shape": [b // 4], "dtype": "float32"}
            for k, b in enumerate(sizes)
        ]
    last = len(tensors)
    for _, sizes, _, backward in reversed(layers):
        at += backward * later
        last -= len(sizes)
        arrival += range(last, last + len(sizes))
        ready += [round(at * 1e9)] * len(sizes)
    return {
        "schema": "ddpsim.workload/1",
        "name": "executed-elsewhere",
        "model": "slept layers",
        "basis": "captured",
        "batch": 1,
        "precision": "fp32",
        "device": {"kind": "cpu", "name": "slept"},
        "source": source,
        "optimizer": {
            "name": "sgd",
            "momentum": False,
            "weight_decay": False,
            "foreach": False,
            "fused": False,
        },
        "tensors": tensors,
        "buffers": [],
        "arrival": arrival,
        "times": {
            "forward_ps": round(forward_s * 1e12),
            "backward_ps": round(at * 1e9),
            "optimizer_ps": 0,
            "ready_ps": ready,
        },
    }
