#include "sim/io/kineto.h"

#include "sim/io/trace_collector.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

analysis::Trace collect(const std::string& path, bool marks_alone, TimeSpan span) {
  analysis::Trace trace;
  trace.file = path;
  ByteStream stream(path);
  TraceCollector collector(trace, marks_alone, span.from, span.to);
  KinetoHead head = parse_kineto(stream, path, [&](KinetoEvent& e) { collector(e); });
  trace.rank = head.rank >= 0 && head.rank < (1 << 24) ? static_cast<int>(head.rank) : -1;
  trace.world = head.world > 0 && head.world < (1 << 24) ? static_cast<int>(head.world) : 0;
  trace.backend = head.backend;
  trace.gpu = head.gpu;
  collector.finish();
  return trace;
}

}  // namespace

std::string kineto_remedy() {
  return "record whole steps, with shapes: with torch.profiler.profile(record_shapes=True, "
         "schedule=torch.profiler.schedule(wait=5, warmup=2, active=5), on_trace_ready=lambda p: "
         "p.export_chrome_trace(f\"rank{rank}.json.gz\")) as prof: and, at the end of each step, "
         "prof.step()";
}

analysis::Trace read_kineto(const std::string& path, int iterations) {
  analysis::Trace marks = collect(path, true, {{INT64_MIN}, {INT64_MAX}});
  std::vector<analysis::Iteration> all = analysis::iterations(marks);
  if (all.empty())
    throw InputError{path,
                     "no whole iteration is in this trace: of ProfilerStep#N none holds an "
                     "Optimizer.step, and no Optimizer.step comes twice; " +
                         kineto_remedy()};
  return collect(path, false, last_of(all, iterations));
}

}  // namespace ddpsim::io
