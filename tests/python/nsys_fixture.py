"""Writes traces of PyTorch's profiler as Nsight Systems would have exported the same run: an SQLite
file with the tables and columns of NVIDIA's "SQLite Schema Reference", whose ranges of NVTX are
named as torch.autograd.profiler.emit_nvtx names them ("NAME, op_id = 7, sizes = [[64, 3], []]")."""
import gzip
import json
import sqlite3
from decimal import Decimal

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,
  busLocation TEXT, isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER,
  memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, pwGpuId INTEGER, uuid TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER NOT NULL REFERENCES StringIds(id), returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
  registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
  graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER,
  srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER,
  graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL,
  graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
  endGlobalTid INTEGER, textId INTEGER REFERENCES StringIds(id), domainId INTEGER,
  uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
"""
RANGE, MARK, DOMAIN = 59, 34, 75


def events_of(trace):
    document = json.loads(gzip.open(trace).read(), parse_float=Decimal)
    # Nobody marks steps for Nsight Systems: the profiler's schedule does for its own traces.
    document["traceEvents"] = [
        e for e in document["traceEvents"] if not e["name"].startswith("ProfilerStep")
    ]
    return document


class Export:
    def __init__(self, path, older=False):
        path.unlink(missing_ok=True)
        self.base = sqlite3.connect(path)
        tables = TABLES
        if older:  # before 2020.3 neither processes of kernels nor registered strings of ranges
            tables = tables.replace("correlationId INTEGER, globalPid INTEGER,",
                                    "correlationId INTEGER,")  # fmt: skip
            tables = tables.replace("textId INTEGER REFERENCES StringIds(id), ", "")
        self.older = older
        self.base.executescript(tables)
        self.base.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.1.1')")
        self.strings = {}

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.base.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings[text], text))
        return self.strings[text]

    def insert(self, table, **values):
        columns = {r[1]: r[3] for r in self.base.execute(f"PRAGMA table_info({table})")}
        row = {c: values.get(c, 0 if required else None) for c, required in columns.items()}
        self.base.execute(
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", list(row.values())
        )

    def session(self, gpu, began_ns):
        self.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=began_ns)
        self.insert("TARGET_INFO_GPU", name=gpu)

    def add(self, document, pid, device, began_ns, late_ns=0, registered=False):
        """One process; its times count from the session's begin."""
        process = (3 << 48) | (pid << 24)
        around = None
        for e in sorted(document["traceEvents"], key=lambda e: (e["ts"], -e["dur"])):
            start = round(e["ts"] * 1000) - began_ns + late_ns
            end = start + round(e["dur"] * 1000)
            category, name, args = e["cat"], e["name"], e.get("args", {})
            if category in ("cpu_op", "user_annotation"):
                if name == "record_param_comms":
                    around = (e["ts"] + e["dur"], args)
                shapes = args.get("Input Dims")
                if name.startswith("nccl:") and around and e["ts"] < around[0]:
                    shapes = [[around[1]["In msg nelems"]]]
                number = args.get("Sequence number", -1)
                text = name if number < 0 else f"{name}, seq = {number}"
                text += f", op_id = {self.base.total_changes}"
                if shapes:
                    text += ", sizes = [" + ", ".join(str(s) for s in shapes) + "]"
                as_string = registered and not self.older
                self.insert(
                    "NVTX_EVENTS", start=start, end=end, eventType=RANGE,
                    globalTid=process | (e["tid"] & 0xFFFFFF),
                    text=None if as_string else text,
                    textId=self.string(text) if as_string else None, domainId=0)  # fmt: skip
            elif category.endswith("_runtime"):
                self.insert(
                    "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end,
                    globalTid=process | (e["tid"] & 0xFFFFFF),
                    correlationId=args.get("correlation"),
                    nameId=self.string(name + "_v7000"))  # fmt: skip
            else:
                common = dict(start=start, end=end, deviceId=device, contextId=1,
                              streamId=args["stream"], correlationId=args["correlation"],
                              globalPid=process)  # fmt: skip
                if category == "kernel":
                    self.insert("CUPTI_ACTIVITY_KIND_KERNEL", **common,
                                demangledName=self.string(name),
                                shortName=self.string(name.split("<")[0]))  # fmt: skip
                else:
                    table = "MEMCPY" if category == "gpu_memcpy" else "MEMSET"
                    self.insert(f"CUPTI_ACTIVITY_KIND_{table}", **common)
        # What else is among the ranges: a domain's name, a mark, one that never ended.
        for kind, text in ((DOMAIN, "NCCL"), (MARK, "mark"), (RANGE, "Optimizer.step#SGD.step")):
            self.insert("NVTX_EVENTS", start=5, eventType=kind, text=text, globalTid=process | 1)

    def close(self):
        self.base.commit()
        self.base.close()
