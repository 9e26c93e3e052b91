"""Reads and writes recordings for those who make them and those who compare them with an oracle:
tests/data/recorded_orders, whose README says what is in them."""
import gzip
import json
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data/recorded_orders"


def load(path):
    text = gzip.open(path).read() if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(text)


def write(path, said):
    text = json.dumps(said, separators=(",", ":")).encode()
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(text, 9, mtime=0))
    else:
        path.write_bytes(text.replace(b',["', b',\n["') + b"\n")
