// Keys of a Program's file (ddpsim.program/1). The keys of an operation depend on one another, and
// a step may have a million of them: readers look for their values themselves.
#pragma once

#include "sim/io/program_head.h"
#include "sim/io/schema/fields.h"

namespace ddpsim::io {

inline constexpr const char* kProgramSchema = "ddpsim.program/1";

// ---- spellings

inline constexpr char kTooManyElements[] = "more elements than any device holds";

// A recording's "step" is `update`, its "init" is `between`.
struct ListedPhase {
  Phase value{};
};
template <>
struct Codec<ListedPhase> {
  static const std::vector<const char*>& words() {
    static const std::vector<const char*> all = [] {
      std::vector<const char*> known = Codec<Phase>::words();
      known.insert(known.end(), {"step", "init"});
      return known;
    }();
    return all;
  }
  static void read(const Reader& r, ListedPhase& into);  // listed_step.cc
  static OrderedJson write(ListedPhase v) { return name_of(v.value); }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    for (const char* word : words()) f.choices.push_back(word);
  }
};
// A text, or a list of T: what a recording names one by one.
template <class T>
struct NameOr {
  std::string name;
};
template <class T>
struct Codec<NameOr<T>> {
  static OrderedJson write(const NameOr<T>& v) { return v.name; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::OneOf;
    f.fields.resize(2);
    Codec<std::string>::list(f.fields[0]);
    Codec<std::vector<T>>::list(f.fields[1]);
  }
};

struct AsPlayedType {
  DType& value;
};
template <>
struct Codec<AsPlayedType> {
  static void read(const Reader& r, AsPlayedType into) { into.value = read_dtype(r); }
  static OrderedJson write(AsPlayedType v) { return name_of(v.value); }
  static void list(FieldRecord& f) { Codec<DType>::list(f); }
};

// Sizes of a tensor, of no more elements than a device can hold.
struct AsShape {
  std::vector<std::int64_t>& value;
};
template <>
struct Codec<AsShape> {
  static void read(const Reader& r, AsShape into) {
    std::int64_t elements = 1;
    for (const Reader& d : r.items()) {
      const std::int64_t size = between(d, 0, kMostBytesOfOne, "a size");
      into.value.push_back(size);
      if (elements > 0 && size > kMostBytesOfOne / 8 / elements) r.fail(kTooManyElements);
      elements *= size;
    }
  }
  static OrderedJson write(AsShape v) { return v.value; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    FieldRecord& one = f.fields.emplace_back();
    one.kind = FieldKind::Whole;
    one.least = 0;
    one.most = static_cast<double>(kMostBytesOfOne);
  }
};

// ---- groups, servers, tensors

struct AsHostsAlgorithm {
  std::optional<Algorithm>& value;
};
template <>
struct Codec<AsHostsAlgorithm> {
  static constexpr std::array<Algorithm, 3> kKnown{Algorithm::Ring, Algorithm::RecursiveDoubling,
                                                   Algorithm::HalvingDoubling};
  static void read(const Reader& r, AsHostsAlgorithm into) {
    into.value = parse_algorithm(r.text());
    for (Algorithm a : kKnown)
      if (into.value == a) return;
    r.fail("what the hosts' processes all-reduce by: ring, recursive_doubling or halving_doubling");
  }
  static OrderedJson write(AsHostsAlgorithm v) {
    return v.value ? OrderedJson(name_of(*v.value)) : OrderedJson();
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    for (Algorithm a : kKnown) f.choices.push_back(name_of(a));
  }
};
template <class V>
void fields(V& v, RankGroups& g) {
  v.required("size", g.size, "ranks of each group").range(1, 1 << 20);
  v.required("stride", g.stride, "from one of its ranks to the next").range(1, 1 << 20);
  v.field("by_hosts", AsHostsAlgorithm{g.by_hosts},
          "the hosts' own processes communicate, by this all-reduce; else NCCL's ranks do");
}
struct ServerGroup {
  RankGroups& group = nothing<RankGroups>();
};
template <class V>
void fields(V& v, ServerGroup& g) {
  v.required("server", g.group.server, "all ranks, with the parameter server of this number")
      .range(0, static_cast<int>(kMostServers) - 1);
}
// Where a server is named, other keys say nothing.
struct AnyGroup {
  RankGroups ranks;
  ServerGroup server;
};
template <class V>
void fields(V& v, AnyGroup& g) {
  fields(v, g.ranks);
  fields(v, g.server);
}
struct AsGroups {
  std::vector<RankGroups>& value;
  int ranks;  // of the job
};
template <>
struct Codec<AsGroups> {
  static void read(const Reader& r, AsGroups into) { into.value = read_groups(r, into.ranks); }
  static OrderedJson write(AsGroups v) {
    OrderedJson j = OrderedJson::object();
    for (RankGroups& g : v.value)
      j[g.name] = g.server >= 0 ? write_fields(ServerGroup{g}) : write_fields(g);
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Named;
    FieldRecord& one = f.fields.emplace_back();
    one.kind = FieldKind::OneOf;
    one.fields.resize(2);
    Codec<RankGroups>::list(one.fields[0]);
    Codec<ServerGroup>::list(one.fields[1]);
  }
};

template <class V>
void fields(V& v, Servers& s) {
  v.required("count", s.count, "how many there are").range(1, static_cast<int>(kMostServers));
  v.field("synchronous", s.synchronous, "a server waits for all ranks' gradients, and updates once")
      .always();
  v.field("staleness", s.staleness, "else: steps that a rank may be ahead of the slowest; -1: any")
      .range(-1, 1'000'000)
      .always();
  v.field("own_hosts", s.own_hosts, "false: they are on the hosts of the ranks, in turn").always();
}

struct ListedTensor {
  Tensor& tensor = nothing<Tensor>();
};
template <class V>
void fields(V& v, ListedTensor& l) {
  v.required("name", l.tensor.name, "as operations name it");
  v.elsewhere(
      "kind", [&] { return std::optional<std::string>("parameter"); },
      "\"parameter\" or \"buffer\"; decides nothing");
  v.required("shape", AsShape{l.tensor.shape}, "sizes of its dimensions");
  v.required("dtype", AsPlayedType{l.tensor.dtype}, "type of its elements");
}

// ---- steps

template <class V>
void fields(V& v, MemoryChange& c) {
  v.required("holds", c.holds, "as in \"memory\" of a prediction");
  v.required("bytes", c.bytes, "gained, or lost (negative)").unit("bytes");
  v.field("at_end", c.at_end, "not before the operation has ended");
}

// An operation as it is written.
struct ProgramOp {
  const Program& program = nothing<Program>();
  const StepProgram& step = nothing<StepProgram>();
  std::uint32_t index = 0;
  const Op& op = nothing<Op>();
  std::vector<MemoryChange> memory = {};
};
// Its tensors; "P[from:to]", in elements, where a bucket holds a part of P.
std::vector<std::string> listed_tensors(const ProgramOp& o);
// Names of the operations that it waits for, in order.
std::vector<std::string> listed_waits(const ProgramOp& o);

// A T where it is so.
template <class T>
std::optional<T> where_so(bool so, T value) {
  return so ? std::optional(std::move(value)) : std::nullopt;
}
inline constexpr auto kMostAsNumber = static_cast<double>(kMostBytesOfOne);

template <class V>
void cost_fields(V& v, ProgramOp& o) {
  const OpKind kind = o.op.kind;
  const bool costs = !is_collective(kind) && (!is_wait(kind) || is_server_work(kind));
  v.elsewhere(
      "cost", [&] { return where_so(costs && o.op.cost != Cost::Measured, o.op.cost); },
      "the way in which it is priced; measured where it is left out");
  v.elsewhere(
       "duration_ps",
       [&] {
         return where_so(costs && (o.op.cost == Cost::Measured || o.op.duration.ps > 0),
                         o.op.duration.ps);
       },
       "measured: how long it takes; launches: time of the host besides")
      .unit("ps")
      .range(0, static_cast<double>(kMostPicoseconds));
  v.elsewhere(
       "traffic_bytes", [&] { return where_so(costs && o.op.traffic > 0, o.op.traffic); },
       "memory: read and written")
      .unit("bytes")
      .range(0, kMostAsNumber);
  v.elsewhere(
       "kernels", [&] { return where_so(costs && o.op.kernels > 0, std::int64_t{o.op.kernels}); },
       "that run, or that a launch enqueues")
      .range(0, static_cast<double>(kMostCount));
  v.elsewhere(
       "hooks", [&] { return where_so(costs && o.op.hooks > 0, std::int64_t{o.op.hooks}); },
       "DDP's, on the host")
      .range(0, static_cast<double>(kMostCount));
  v.elsewhere(
       "divided_bytes",
       [&] {
         const bool divides = costs && o.op.cost == Cost::HalfDivision;
         return where_so(divides, divides ? o.step.buckets[o.op.subject].wire_bytes.count : 0);
       },
       "half_division: divided in half precision")
      .unit("bytes")
      .range(0, kMostAsNumber)
      .needed(where("cost", "half_division"));
}
template <class V>
void fields(V& v, ProgramOp& o) {
  const OpKind kind = o.op.kind;
  v.elsewhere(
       "lane", [&] { return std::optional(name_of(o.op.lane, o.program.streams)); },
       "host, compute, comm, worker (a pool: collectives only), callback or one of \"streams\"")
      .required();
  v.elsewhere(
       "op", [&] { return std::optional(name_of(o.program, o.step, o.index)); },
       "its name, once in a step; a launch of X is launch/X")
      .required();
  v.elsewhere(
      "does", [&] { return std::optional(kind.does); },
      "may be left out with \"operation\" (communicate) or \"duration_ps\" (compute)");
  v.elsewhere(
      "phase", [&] { return std::optional(ListedPhase{kind.phase}); },
      "where the answer counts it; a recording's \"step\" is update, its \"init\" is between");
  v.elsewhere(
       "tensors", [&] { return std::optional(listed_tensors(o)); },
       "names, in the order in which they lie in a collective; a slice is P[from:to] (elements)")
      .required();
  v.elsewhere(
       "bytes", [&] { return std::optional(o.op.bytes); },
       "that it touches; a collective's whole vector (required, as nccl-tests counts)")
      .unit("bytes")
      .range(0, kMostAsNumber)
      .needed(where("does", "communicate"));
  v.elsewhere(
      "divides", [&] { return where_so(kind.divides, true); },
      "true: it divides by the number of ranks");
  v.elsewhere(
      "operation",
      [&] { return where_so(is_collective(kind), std::string(name_of(kind.operation))); },
      "a collective's: all_reduce, broadcast, all_gather, reduce_scatter, reduce, push or pull");
  v.elsewhere(
      "group",
      [&] {
        return where_so(is_collective(kind),
                        NameOr<std::int64_t>{
                            o.op.group == 0 ? "world" : o.program.groups[o.op.group - 1u].name});
      },
      "a collective's ranks: \"world\", one of \"groups\" or a list; world where it is left out");
  v.elsewhere(
       "root",
       [&] { return where_so(is_collective(kind) && o.op.root > 0, std::int64_t{o.op.root}); },
       "a broadcast's: the rank that has the data; 0 where it is left out")
      .at_least(0);
  v.elsewhere(
      "dtype",
      [&] {  // a Program keeps of buffers the bytes only
        return where_so(is_collective(kind) && (!is_broadcast(kind) || carries_tensors(kind)),
                        NameOr<std::string>{name_of(o.op.dtype)});
      },
      "on the wire; a broadcast without one is of bytes, and one of several is not played");
  v.other("peer", FieldKind::Whole, "a recording: the other rank of a message");
  v.other("reduction", FieldKind::Text, "a recording: \"sum\", \"avg\", ...");
  v.other("async", FieldKind::Truth, "a recording: false: the script waited for it at once");
  v.other("unrecognised_elements", FieldKind::Whole,
          "a recording: elements that are neither parameter nor gradient nor buffer")
      .range(0, kMostAsNumber);
  cost_fields(v, o);
  v.elsewhere(
       "waits_for", [&] { return std::optional(listed_waits(o)); },
       "names of operations before it in this step; the one before it on its lane need not be here")
      .required();
  v.elsewhere(
      "memory", [&] { return where_so(!o.memory.empty(), o.memory); },
      "not read: what the device's memory gains or loses as the host issues the operation");
}

struct ProgramStep {
  const Program& program = nothing<Program>();
  const StepProgram& step = nothing<StepProgram>();
};
std::vector<ProgramOp> listed_ops(const ProgramStep& s);
template <class V>
void fields(V& v, ProgramStep& s) {
  v.elsewhere(
       "kind", [&] { return std::optional<std::string>(name_of(s.step.kind)); },
       "first, rebuild, and steady for the last; or step.0, step.1, ... of a recording")
      .required();
  v.elsewhere(
       "ops", [&] { return std::optional(listed_ops(s)); }, "operations: one or more")
      .required();
}

std::vector<ProgramStep> listed_steps(const Program& p);

// ---- the file

// The job; its steps are those of `program`.
struct ProgramJob {
  ProgramFile& file = nothing<ProgramFile>();
  Program& program = file.program;
  std::optional<DeviceKind> device = {};
  int rank = 0;
  std::optional<int> worker_threads = {};
  std::optional<double> core_share = {};
};
template <class V>
void fields(V& v, ProgramJob& j) {
  Program& p = j.program;
  const char* share = "expected a share from 0 to 1";
  v.schema(kProgramSchema);
  v.other("origin", FieldKind::Any, "a recording: where it is from; its \"software\" is shown");
  v.field("name", j.file.name, "the model's, for headings; the file's where it is left out")
      .always();
  v.field(
      "device", j.device,
      "another kind of cluster is refused; without it lanes compute and comm are of any device");
  v.field("backend", j.file.backend, "without it the plan's");
  v.required("ranks", j.file.ranks, "ranks of the job; the default of --ranks").range(1, 1 << 20);
  v.field("rank", j.rank, "a recording: which rank it is of").range(0, (1 << 20) - 1);
  v.field("batch", j.file.batch,
          "samples of a rank and micro-step; without it there are no samples per second")
      .range(1, 1'000'000);
  v.field("micro_steps", p.micro_steps, "accumulation: forward and backward of a step")
      .range(1, 10'000)
      .always();
  v.field("worker_threads", j.worker_threads, "threads of lane worker; without it the plan's")
      .range(1, 1024);
  v.field("streams", p.streams, "names of lanes besides the five, at most 8")
      .must(p.streams.size() <= kMostStreams, "at most 8 streams of its own");
  v.field("groups", AsGroups{p.groups, j.file.ranks},
          "ways of parting the ranks, by name: rank r is in the group of "
          "r - (r / stride mod size) x stride");
  v.field("servers", p.servers, "parameter servers: processes on hosts, which are no ranks");
  v.field("core_share", j.core_share, "share of a duration that needs a core of a shared machine")
      .range(0, 1, share);
  v.field("at_once", p.at_once, "ranks that ran on the machine while durations were measured")
      .range(0, 1 << 20);
  v.field("products", p.products,
          "share of computation that products, convolutions and attention take")
      .range(0, 1, share);
  v.field("kernel_ps", as_time(p.kernel),
          "GPU: half of forward and backward is spent in kernels that last at least so long")
      .at_least(0, "expected picoseconds, at least 0");
  v.elsewhere(
       "tensors",
       [&] {
         std::vector<ListedTensor> all;
         for (Tensor& t : j.file.tensors) all.push_back({t});
         return std::optional(all);
       },
       "tensors that operations may name")
      .required();
  v.other("init", FieldKind::Any,
          "a recording: operations before the model first ran, which are not played");
  v.elsewhere(
       "steps", [&] { return std::optional(listed_steps(p)); },
       "1 to 64: the last is repeated, those before it are played once")
      .required();
}

}  // namespace ddpsim::io
