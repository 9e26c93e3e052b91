// Keys of a profile's file (ddpsim.profile/1).
#pragma once

#include "sim/io/known_errors.h"
#include "sim/io/schema/kernel_fields.h"
#include "sim/model/profile.h"

namespace ddpsim::io {

inline constexpr const char* kProfileSchema = "ddpsim.profile/1";

// A value for each class of kernels, in the order of kKernelClasses: all of them, or the lists that
// are not empty.
template <class T>
struct Codec<std::array<T, kKernelClasses.size()>> {
  using Array = std::array<T, kKernelClasses.size()>;
  static constexpr bool kAll = std::is_same_v<T, Range>;
  static void read(const Reader& r, Array& into) {
    r.only({kKernelClasses.begin(), kKernelClasses.end()});
    for (std::size_t i = 0; i < into.size(); ++i)
      if (kAll || r.has(kKernelClasses[i])) Codec<T>::read(r.at(kKernelClasses[i]), into[i]);
  }
  static OrderedJson write(const Array& v) {
    OrderedJson j = OrderedJson::object();
    for (std::size_t i = 0; i < v.size(); ++i)
      if (OrderedJson one = Codec<T>::write(v[i]); kAll || !one.empty())
        j[kKernelClasses[i]] = std::move(one);
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Section;
    for (const char* name : kKernelClasses) {
      FieldRecord& one = f.fields.emplace_back();
      one.key = name;
      one.help = std::string("of ") + name;
      one.required = kAll;
      Codec<T>::list(one);
    }
  }
};

template <class V>
void fields(V& v, Range& r) {
  v.required("low", r.low, "the pessimistic end");
  v.required("mid", r.mid, "what is expected");
  v.required("high", r.high, "the optimistic end");
}
template <class V>
void fields(V& v, DurationRange& r) {
  v.required("low", as_ps(r.low), "the shortest that was seen");
  v.required("mid", as_ps(r.mid), "the profile's own");
  v.required("high", as_ps(r.high), "the longest that was seen");
}

// A knot's place is a duration or a size: two spellings of one struct.
struct ChunkKnots {
  std::vector<Knot>& value;
};
inline ChunkKnots by_chunk(std::vector<Knot>& v) {
  return {v};
}
template <const char* kAt>
struct KnotCodec {
  static void read(const Reader& r, std::vector<Knot>& into) {
    for (const Reader& k : r.items()) {
      k.only({kAt, "factor"});
      into.push_back({k.at(kAt).integer(), k.at("factor").number()});
    }
  }
  static OrderedJson write(const std::vector<Knot>& v) {
    OrderedJson j = OrderedJson::array();
    for (const Knot& k : v) j.push_back({{kAt, k.at}, {"factor", k.factor}});
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    FieldRecord& one = f.fields.emplace_back();
    one.kind = FieldKind::Section;
    one.fields.resize(2);
    one.fields[0].key = kAt;
    one.fields[0].kind = FieldKind::Whole;
    one.fields[0].help = "where it holds; linear in between";
    one.fields[1].key = "factor";
    one.fields[1].kind = FieldKind::Number;
    one.fields[1].help = "how many times as long";
    for (FieldRecord& part : one.fields) part.required = true;
  }
};
inline constexpr char kIdealPs[] = "ideal_ps";
inline constexpr char kChunkBytes[] = "chunk_bytes";
template <>
struct Codec<std::vector<Knot>> : KnotCodec<kIdealPs> {};
template <>
struct Codec<ChunkKnots> {
  static void read(const Reader& r, ChunkKnots into) {
    KnotCodec<kChunkBytes>::read(r, into.value);
  }
  static OrderedJson write(ChunkKnots v) { return KnotCodec<kChunkBytes>::write(v.value); }
  static void list(FieldRecord& f) { KnotCodec<kChunkBytes>::list(f); }
};

template <class V>
void fields(V& v, ComputeSection& c) {
  v.required("basis", c.basis, "how its numbers were found");
  v.required("source", c.source, "where they are from");
  v.field("compute_capability", c.capability, "of an NVIDIA GPU, times ten: 80 A100, 90 H100")
      .range(10, 999);
  v.field("sms", c.sms, "streaming multiprocessors").range(1, 100'000);
  v.field("clock_hz", c.clock_hz, "boost clock of the datasheet")
      .unit("Hz")
      .range(1e8, 1e10, "100 MHz to 10 GHz, in Hz");
  v.required("peak_flops", as_peaks(c.peak_flops), "by precision; without sparsity");
  v.required("efficiency", c.efficiency, "fractions of the peak that kernels reach");
  v.field("stretch", c.stretch,
          "how much longer than flops / (peak * efficiency), by that duration");
  v.template elsewhere<KnownErrors::Described>(
      "described_error", "computation described over computation that captures measured, less 1");
}
template <class V>
void fields(V& v, KnownErrors::Described& d) {
  v.required("captures", d.captures, "how many").range(1, 1e6);
  v.required("median", d.median, "-0.3: described as 30 % too short")
      .must(d.median > -1 && d.median < 10, "a share of the measured time: above -1, below 10");
  v.required("source", d.source, "the report that lists them");
}

template <class V>
void fields(V& v, MemorySection& m) {
  v.required("basis", m.basis, "how its numbers were found");
  v.required("source", m.source, "where they are from");
  v.required("bandwidth_bytes_per_s", m.bandwidth_bytes_per_s, "peak").unit("bytes/s");
  v.required("efficiency", m.efficiency, "fractions of the peak that kernels reach");
  v.required("kernel_ps", as_ps(m.kernel), "device time of one small kernel");
  v.field("stretch", m.stretch, "how much longer than traffic / (bandwidth * efficiency)");
  v.field("shared_bytes_per_s", m.shared_bytes_per_s,
          "of a machine that several hosts are emulated on: all of them together")
      .unit("bytes/s")
      .positive("a positive rate; leave it out where hosts have memory of their own");
  v.field("half_divide_bytes_per_s", m.half_divide_bytes_per_s,
          "one thread of a CPU divides halves so fast, bytes of halves")
      .unit("bytes/s")
      .positive("a positive rate; leave it out where halves are divided as fast as memory allows");
  v.field("thin_product_bytes_per_s", m.thin_product_bytes_per_s,
          "one thread of a CPU reads a matrix so fast in its product with a few columns")
      .unit("bytes/s")
      .positive("a positive rate; leave it out where such products are as fast as memory allows");
  v.field("capacity_bytes", as_bytes(m.capacity), "of the device");
}

template <class V>
void fields(V& v, HostSection& h) {
  v.required("basis", h.basis, "how its numbers were found");
  v.required("source", h.source, "where they are from");
  v.required("launch_ps", as_ps(h.launch), "host time to enqueue one kernel");
  v.required("hook_ps", as_ps(h.hook), "DDP's hook of one parameter");
  v.required("collective_launch_ps", as_ps(h.collective_launch), "c10d enqueues one collective");
  v.required("traverse_ps", as_ps(h.traverse), "find_unused_parameters, a parameter");
  v.field("small_operator_ps", as_ps(h.small_operator),
          "CPU: an operator on a small tensor that a hook in Python calls");
  v.field("calls", h.calls, "host times of modules and of their nodes of autograd");
  v.field("call_factor", h.call_factor, "how many times as long calls take here");
}
template <class V>
void fields(V& v, CallCost& c) {
  v.required("op", c.op, "module");
  v.required("forward_ps", as_ps(c.forward), "its call");
  v.required("backward_ps", as_ps(c.backward), "its node of autograd");
}

template <class V>
void fields(V& v, Occasions& o) {
  v.required("count", o.count, "the profile's own among them").range(2, 1e6);
  v.required("source", o.source, "which machines, when");
  v.required("latency_ps", o.latency, "as the transport's latency_ps");
  v.field("message_core_ps", o.message_core, "as the transport's message_core_ps");
}

template <class V>
void fields(V& v, TransportSection& t) {
  v.required("basis", t.basis, "how its numbers were found");
  v.required("source", t.source, "where they are from");
  v.required("launch_ps", as_ps(t.launch), "once a collective");
  v.required("latency_ps", as_ps(t.latency), "one step; NCCL: of protocol Simple");
  v.field("message_core_ps", as_ps(t.message_core), "a core's part of latency_ps")
      .must(t.message_core <= t.latency, "is a part of latency_ps, and cannot be longer");
  v.field("send_buffer_bytes", as_bytes(t.send_buffer),
          "backend tcp: what a sender need not wait for")
      .must(t.send_buffer.count >= 0, "expected 0 or more bytes");
  v.field("ll_latency_ps", as_ps(t.ll_latency), "one step of NCCL's protocol LL");
  v.field("step_factor", t.step_factor, "NCCL: a step, as a multiple of NCCL's own number");
  v.field("rendezvous_ps", as_ps(t.rendezvous),
          "NCCL: what a message beyond the link's eager limit takes more");
  v.field("ll_max_bytes_per_s", t.ll_max_bytes_per_s, "bus bandwidth that LL reaches at most")
      .unit("bytes/s")
      .positive("a positive rate; leave it out if unknown");
  v.field("cpu_ps_per_byte", t.cpu_ps_per_byte, "core time of one byte, both ends")
      .unit("ps/byte")
      .range(0, 1e6, "0 to a million picoseconds a byte");
  v.required("efficiency", t.efficiency, "fractions of the link's rate");
  v.field("host_memory", t.host_memory,
          "NCCL, PCIe: the same where GPUs reach one another through the host's memory");
  v.field("thread_bytes_per_s", t.thread_bytes_per_s,
          "NCCL, sockets: what a thread sends while it receives as much")
      .unit("bytes/s");
  v.field("one_way", t.one_way, "NCCL: how many times as fast a rank is that only sends");
  v.field("knots", by_chunk(t.knots), "correction of the transfer by bytes a step and channel");
  v.field("occasions", t.occasions, "latencies over occasions");
  v.template elsewhere<double>("table_residual",
                               "80 % of the fit's table of collectives is within this fraction");
}

template <class V>
void fields(V& v, Profile::HoldAt& h) {
  v.required("blocks", h.blocks, "of a communication kernel").range(1, 10'000);
  v.required("products", h.products, "what it takes of products' rate");
  v.required("memory", h.memory, "and of what memory decides");
}
template <class V>
void fields(V& v, KernelResidual& k) {
  v.required("kernel", k.kernel, "\"gemm bf16\", \"memory\"");
  v.required("held_out", k.held_out, "of shapes that the fit did not see");
  v.required("points", k.points, "shapes");
  v.required("least", k.least, "flops, or bytes of traffic, from which it holds");
  v.required("most", k.most, "to which it holds");
  v.required("median_error", k.median_error, "of |fitted / measured - 1|");
  v.required("p90_error", k.p90_error, "its 90th percentile");
}

// As a file has them. `source`: of sections whose own is not kept.
inline std::optional<KernelsFile> kernels_file(const Profile& p) {
  if (!p.costs) return std::nullopt;
  KernelsFile f;
  f.costs = *p.costs;
  if (p.costs->carried_from.empty()) return f;
  f.basis = "carried";
  f.from = p.costs->carried_from;
  f.fed = p.costs->fed;
  f.common = p.costs->common;
  f.common_conv = p.costs->common_conv;
  return f;
}
inline std::optional<PowerFile> power_file(const Profile& p) {
  if (!p.power) return std::nullopt;
  return PowerFile{p.power->like ? "carried" : "measured", *p.power};
}
template <class V>
void source_field(V& v, const char* fitted, const std::optional<Evidence>& basis) {
  const bool here = fitted && basis == Evidence::Measured;
  v.elsewhere(
      "source",
      [&] { return std::optional<std::string>(here ? fitted : "as in the base profile"); },
      "where they are from");
}

template <class V>
void fields(V& v, Profile& p) {
  v.schema(kProfileSchema);
  v.other("extends", FieldKind::Text, "the base or profile that this file says the difference to");
  v.required("name", p.name, "as --profile takes it");
  v.required("hardware", p.hardware, "what it is of, for people");
  v.required("kind", p.kind, "of the device");
  v.required("compute", p.compute, "matrix products, convolutions, attention");
  v.required("memory", p.memory, "of the device");
  v.required("host", p.host, "times of the host's thread");
  v.elsewhere(
      "kernels", [&] { return kernels_file(p); }, "kernels, one by one, of a measured GPU");
  v.elsewhere(
      "power", [&] { return power_file(p); }, "limit and draw of the board");
  v.required("transports", p.transports, "by the transport's name in clusters");
  v.section(
      "interference", false, "what a communication kernel takes of computation",
      [&](auto& s) {
        s.required("basis", p.interference_basis, "how its numbers were found");
        source_field(s, "fitted from kernels beside a communication kernel's stand-in",
                     p.interference_basis);
        s.required("sm_hold", p.sm_hold, "share of the device's compute rate");
        s.field("memory_hold", p.memory_hold, "the same of what memory decides");
        s.field("by_blocks", p.hold_at, "the same by the kernel's blocks (NCCL: channels)");
      },
      p.interference_basis.has_value());
  v.field("unknown", p.unknown, "sentences: what of this hardware is not modelled");
  v.section(
      "stragglers", false, "how computation varies from rank to rank",
      [&](auto& s) {
        s.elsewhere(
             "basis", [&] { return std::optional(Evidence::Published); },
             "how its numbers were found")
            .required();
        source_field(s, nullptr, {});
        s.required("cv", p.rank_cv, "coefficient of variation of a rank's computation");
      },
      p.rank_cv.has_value());
  v.section(
      "reduction", false, "what adds up on a CPU",
      [&](auto& s) {
        s.required("basis", p.reduction_basis, "how its numbers were found");
        source_field(s, "fitted from executed collectives", p.reduction_basis);
        s.required("bytes_per_s", p.reduction_bytes_per_s, "one worker thread, float32")
            .unit("bytes/s")
            .positive("a positive rate; leave \"reduction\" out if unknown");
        s.field("half_bytes_per_s", p.half_reduction_bytes_per_s, "float16 and bfloat16")
            .unit("bytes/s")
            .range(1e-9, 1e15, "a positive rate; leave it out if unknown");
      },
      p.reduction_basis.has_value());
  v.section("fit", false, "what a fit saw, and left", [&](auto& s) {
    s.required("scenarios", p.fitted_from, "hashes of the Runs that the fit saw");
    s.field("step_residual", p.step_residual,
            "80 % of the fit's own predictions were within this fraction of the measured step")
        .must(p.step_residual >= 0 && p.step_residual < 1, "a fraction from 0 to 1")
        .always();
    s.other("residuals", FieldKind::Any, "rows for people");
    s.field("kernels", p.kernels, "what the fit of kernels left");
  });
}

}  // namespace ddpsim::io
