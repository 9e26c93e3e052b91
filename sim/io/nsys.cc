// Ranges, calls and kernels of an export become the events that PyTorch's profiler would have
// written of them; TraceCollector knows what these are. A process is the part of a GlobalId above
// its 24 bits of thread.
#include "sim/io/nsys.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "sim/io/sqlite.h"
#include "sim/io/trace_collector.h"
#include "sim/model/error.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kThreads = 1 << 24;
constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr const char* kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* kRanges = "NVTX_EVENTS";

bool has(const std::vector<std::string>& columns, const char* name) {
  return std::find(columns.begin(), columns.end(), name) != columns.end();
}

// What a range of emit_nvtx is named: "NAME, seq = 1, op_id = 2, sizes = [[64, 3], []]".
struct RangeName {
  std::string name;
  std::int64_t sequence = -1;
  bool shaped = false;
  std::vector<std::int64_t> shape;  // of the first input
};
RangeName parse_range(const std::string& text) {
  RangeName out;
  std::size_t end = text.size();
  for (const char* word : {", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "})
    end = std::min(end, text.find(word));
  out.name = text.substr(0, end);
  constexpr std::string_view kSequence = ", seq = ";
  if (std::size_t seq = text.find(kSequence, end); seq != std::string::npos)
    std::from_chars(text.data() + seq + kSequence.size(), text.data() + text.size(), out.sequence);
  constexpr std::string_view kSizes = ", sizes = [[";
  std::size_t at = text.find(kSizes, end);
  if (at == std::string::npos) return out;
  out.shaped = true;
  const char* from = text.data() + at + kSizes.size();
  const char* last = text.data() + text.size();
  while (from < last && *from != ']') {
    std::int64_t n = 0;
    auto [next, error] = std::from_chars(from, last, n);
    if (error != std::errc{} || n < 0) {
      out.shaped = false;
      return out;
    }
    out.shape.push_back(n);
    from = next;
    while (from < last && (*from == ',' || *from == ' ')) ++from;
  }
  return out;
}

// What NCCL's kernel of a sum adds: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)",
// "ncclKernel_AllReduce_RING_LL_Sum_float(...)". Copies are of bytes, whatever these are.
std::string summed_type(const std::string& kernel) {
  if (kernel.find("Reduce") == std::string::npos) return "";
  std::string name = kernel.substr(0, kernel.find('('));
  constexpr std::pair<const char*, const char*> kSummedTypes[] = {
      {"f32", "float"},     {"float", "float"},       {"f16", "half"},   {"half", "half"},
      {"bf16", "bfloat16"}, {"bfloat16", "bfloat16"}, {"f64", "double"}, {"double", "double"}};
  for (auto [word, type] : kSummedTypes) {
    std::string token = std::string("_") + word;
    for (std::size_t at = name.find(token); at != std::string::npos; at = name.find(token, at + 1))
      if (at + token.size() == name.size() || name[at + token.size()] == '_') return type;
  }
  return "";
}

class Export {
 public:
  explicit Export(const std::string& path) : path_(path), db_(path) {
    need(kRanges, {"start", "end", "globalTid", "text"},
         "no range of NVTX is in it: " + nsys_remedy());
    need(kKernels, {"start", "end", "deviceId", "streamId", "correlationId"},
         "no kernel of a GPU is in it: " + nsys_remedy());
    need(kCalls, {"start", "end", "globalTid", "correlationId", "nameId"},
         "no call of CUDA is in it, which tells when a kernel was enqueued: " + nsys_remedy());
    need("StringIds", {"id", "value"}, "is no whole export of Nsight Systems; export it again");
    if (has(db_.columns("TARGET_INFO_SESSION_START_TIME"), "utcEpochNs")) {
      Sqlite::Rows rows(db_, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME");
      if (rows.next()) begun_us_ = std::max<std::int64_t>(rows.integer(0) / kNsPerUs, 0);
    }
    // A range's text is in the table itself, or one of all strings.
    bool registered = has(db_.columns(kRanges), "textId");
    text_ = registered ? "COALESCE(n.text, s.value)" : "n.text";
    ranges_ = std::string(" FROM ") + kRanges + " AS n" +
              (registered ? " LEFT JOIN StringIds AS s ON s.id = n.textId" : "") +
              " WHERE n.\"end\" >= n.start";
  }

  // Those in which an optimizer steps, or the profiler's schedule does.
  std::vector<std::int64_t> processes() {
    std::set<std::int64_t> found;
    Sqlite::Rows rows(db_, "SELECT DISTINCT n.globalTid / 16777216" + ranges_ + " AND " + marks());
    while (rows.next()) found.insert(rows.integer(0));
    std::vector<std::pair<std::int64_t, std::int64_t>> by_device;
    for (std::int64_t p : found) by_device.emplace_back(device_of(p, found.size() == 1), p);
    std::sort(by_device.begin(), by_device.end());
    std::vector<std::int64_t> out;
    for (auto [device, process] : by_device) out.push_back(process);
    return out;
  }

  // Whether the last one to be collected has one that is no collective's.
  bool has_kernels() const { return kernels_; }

  analysis::Trace collect(std::int64_t process, bool alone, bool marks_alone, TimeSpan span) {
    analysis::Trace trace;
    trace.file = path_;
    if (!alone) trace.file += " (process " + std::to_string(process % kThreads) + ")";
    trace.base_us = begun_us_;
    TraceCollector collector(trace, marks_alone, span.from, span.to);
    collector.count_from(begun_us_);
    std::vector<std::int64_t> window{process, ns(span.from), ns(span.to)};
    add_ranges(collector, marks_alone, window);
    if (!marks_alone) {
      add_calls(collector, window);
      add_kernels(collector, window, alone);
      for (const char* table : {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
                                "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"})
        add_others(collector, table, window, alone);
      trace.gpu = gpu();
    }
    collector.finish();
    return trace;
  }

 private:
  static std::int64_t ns(TimePoint t) { return t.ps / kNanosecond.ps; }
  std::string marks() const {
    return "(" + text_ + " LIKE 'Optimizer.step#%' OR " + text_ + " LIKE 'ProfilerStep%')";
  }
  void need(const char* table, std::initializer_list<const char*> wanted, const std::string& none) {
    std::vector<std::string> columns = db_.columns(table);
    if (columns.empty()) throw InputError{path_, std::string(table) + " is nowhere: " + none};
    for (const char* column : wanted)
      if (!has(columns, column))
        throw InputError{path_, std::string(table) + " has no column " + column +
                                    ": it is of a schema that ddpsim does not know; export it with "
                                    "Nsight Systems 2020.3 or later (nsys export --type sqlite)"};
  }
  // The first on which a process computes.
  std::int64_t device_of(std::int64_t process, bool alone) {
    if (alone || !has(db_.columns(kKernels), "globalPid")) return 0;
    Sqlite::Rows rows(
        db_,
        std::string("SELECT MIN(deviceId) FROM ") + kKernels + " WHERE globalPid / 16777216 = ?",
        {process});
    return rows.next() ? rows.integer(0) : 0;
  }
  KinetoEvent event(const Sqlite::Rows& row, const char* category, std::string name,
                    const std::string& process, const std::string& thread) const {
    KinetoEvent e;
    e.category = category;
    e.name = std::move(name);
    e.process = process;
    e.thread = thread;
    std::int64_t begin = row.integer(0);
    e.begin_us = begun_us_ + begin / kNsPerUs;
    e.begin_ps = begin % kNsPerUs * kNanosecond.ps;
    e.duration_ps = (row.integer(1) - begin) * kNanosecond.ps;
    return e;
  }
  void add_ranges(TraceCollector& to, bool marks_alone, const std::vector<std::int64_t>& window) {
    Sqlite::Rows rows(db_,
                      "SELECT n.start, n.\"end\", n.globalTid, " + text_ + ranges_ +
                          " AND n.globalTid / 16777216 = ? AND n.\"end\" >= ? AND n.start < ?" +
                          (marks_alone ? " AND " + marks() : "") +
                          " ORDER BY n.start, n.\"end\" DESC",
                      window);
    while (rows.next()) {
      RangeName name = parse_range(rows.text(3));
      KinetoEvent e = event(rows, "cpu_op", name.name, "host", std::to_string(rows.integer(2)));
      e.sequence = name.sequence;
      e.typed = name.shaped;
      e.shape = std::move(name.shape);
      // The export says no types; analysis asks for a gradient's.
      if (e.name == "torch::autograd::AccumulateGrad") e.input_type = "float";
      to(e);
    }
  }
  void add_calls(TraceCollector& to, const std::vector<std::int64_t>& window) {
    Sqlite::Rows rows(
        db_,
        std::string("SELECT r.start, r.\"end\", r.globalTid, s.value, r.correlationId "
                    "FROM ") +
            kCalls +
            " AS r LEFT JOIN StringIds AS s ON s.id = r.nameId WHERE r.\"end\" >= "
            "r.start AND r.globalTid / 16777216 = ? AND r.\"end\" >= ? AND r.start < ?",
        window);
    while (rows.next()) {
      KinetoEvent e =
          event(rows, "cuda_runtime", rows.text(3), "host", std::to_string(rows.integer(2)));
      e.correlation = rows.integer(4, -1);
      to(e);
    }
  }
  std::string of_process(const char* table, bool alone) {
    if (has(db_.columns(table), "globalPid")) return "k.globalPid / 16777216 = ?1";
    if (alone) return "?1 = ?1";
    throw InputError{path_, std::string(table) +
                                " does not say of which process its rows are, and several train; "
                                "export it with Nsight Systems 2020.3 or later, or record each "
                                "process by itself"};
  }
  void add_kernels(TraceCollector& to, const std::vector<std::int64_t>& window, bool alone) {
    kernels_ = false;
    std::vector<std::string> columns = db_.columns(kKernels);
    const char* name = has(columns, "demangledName") ? "demangledName"
                       : has(columns, "shortName")   ? "shortName"
                                                     : "name";
    if (!has(columns, name))
      throw InputError{path_, std::string(kKernels) + " has no names; export it again"};
    Sqlite::Rows rows(db_,
                      "SELECT k.start, k.\"end\", k.deviceId, k.streamId, k.correlationId, s.value "
                      "FROM " +
                          std::string(kKernels) + " AS k LEFT JOIN StringIds AS s ON s.id = k." +
                          name + " WHERE k.\"end\" >= k.start AND " + of_process(kKernels, alone) +
                          " AND k.\"end\" >= ?2 AND k.start < ?3",
                      window);
    while (rows.next()) {
      KinetoEvent e = event(rows, "kernel", rows.text(5), device(rows), stream(rows));
      e.correlation = rows.integer(4, -1);
      const bool collective = e.name.starts_with("nccl");
      if (collective) e.dtype = summed_type(e.name);
      kernels_ = kernels_ || !collective;
      to(e);
    }
  }
  void add_others(TraceCollector& to, const char* table, const std::vector<std::int64_t>& window,
                  bool alone) {
    if (db_.columns(table).empty()) return;
    need(table, {"start", "end", "deviceId", "streamId", "correlationId"}, "");
    Sqlite::Rows rows(db_,
                      "SELECT k.start, k.\"end\", k.deviceId, k.streamId, k.correlationId FROM " +
                          std::string(table) + " AS k WHERE k.\"end\" >= k.start AND " +
                          of_process(table, alone) + " AND k.\"end\" >= ?2 AND k.start < ?3",
                      window);
    while (rows.next()) {
      KinetoEvent e = event(rows, "gpu_memcpy", table, device(rows), stream(rows));
      e.correlation = rows.integer(4, -1);
      to(e);
    }
  }
  static std::string device(const Sqlite::Rows& row) {
    return "device " + std::to_string(row.integer(2));
  }
  static std::string stream(const Sqlite::Rows& row) { return std::to_string(row.integer(3)); }
  std::string gpu() {
    for (const char* table : {"TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"}) {
      if (!has(db_.columns(table), "name")) continue;
      Sqlite::Rows rows(db_, std::string("SELECT name FROM ") + table + " LIMIT 1");
      if (rows.next()) return rows.text(0);
    }
    return "";
  }

  std::string path_;
  Sqlite db_;
  std::int64_t begun_us_ = 0;
  bool kernels_ = false;
  std::string text_;
  std::string ranges_;
};

bool computes(const analysis::Trace& trace, std::initializer_list<analysis::Traced> kinds) {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const auto& e) {
    return std::find(kinds.begin(), kinds.end(), e.what) != kinds.end();
  });
}

}  // namespace

bool reads_nsys() {
  return true;
}

std::vector<analysis::Trace> read_nsys(const std::string& path, int iterations) {
  if (path.ends_with(".nsys-rep") || path.ends_with(".qdrep"))
    throw InputError{path,
                     "is a report of Nsight Systems; nsys export --type sqlite makes what ddpsim "
                     "reads of it"};
  Export file(path);
  std::vector<std::int64_t> processes = file.processes();
  bool alone = processes.size() < 2;
  std::vector<analysis::Trace> out;
  for (std::int64_t p : processes) {
    analysis::Trace marks = file.collect(p, alone, true, {{0}, {INT64_MAX}});
    std::vector<analysis::Iteration> all = analysis::iterations(marks);
    if (all.empty()) continue;
    out.push_back(file.collect(p, alone, false, last_of(all, iterations)));
    if (!computes(out.back(), {analysis::Traced::Node, analysis::Traced::Accumulate}))
      throw InputError{
          out.back().file,
          "has no range of autograd (autograd::engine::evaluate_function); " + nsys_remedy()};
    if (!file.has_kernels())
      throw InputError{
          out.back().file,
          "has no kernel in its iterations: they were not recorded, or run on a CPU; " +
              nsys_remedy()};
  }
  if (out.empty())
    throw InputError{
        path,
        "no whole iteration is in it: no range Optimizer.step#... comes twice; " + nsys_remedy()};
  return out;
}

}  // namespace ddpsim::io
