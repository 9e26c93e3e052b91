// ddpsim.program/1, with all that playing it needs: what read_playable() reads back is the same
// Program.
#include "sim/io/schema/program_fields.h"

namespace ddpsim::io {

std::vector<std::string> listed_tensors(const ProgramOp& o) {
  const Program& p = o.program;
  std::vector<std::string> names;
  for (TensorIndex t : tensors_of(p, o.step, o.index)) names.push_back(p.tensor_names[t]);
  if (!carries_bucket(o.op.kind)) return names;
  const Bucket& bucket = o.step.buckets[o.op.subject];
  for (std::size_t k = 0; k < bucket.slices.size(); ++k) {
    const auto [from, to] = bucket.slices[k];
    if ((to - from) * element_size(bucket.dtype) != p.tensor_bytes[bucket.tensors[k]])
      names[k] += "[" + std::to_string(from) + ":" + std::to_string(to) + "]";
  }
  return names;
}

std::vector<std::string> listed_waits(const ProgramOp& o) {
  std::vector<std::string> waits;
  for (std::uint32_t d : deps_of(o.step, o.index)) waits.push_back(name_of(o.program, o.step, d));
  std::sort(waits.begin(), waits.end());
  return waits;
}

std::vector<ProgramOp> listed_ops(const ProgramStep& s) {
  std::vector<ProgramOp> out;
  out.reserve(s.step.ops.size());
  for (std::uint32_t i = 0; i < s.step.ops.size(); ++i)
    out.push_back({s.program, s.step, i, s.step.ops[i]});
  // In the order in which the host makes them.
  for (const MemoryChange& c : s.step.memory) out[c.op].memory.push_back(c);
  return out;
}

std::vector<ProgramStep> listed_steps(const Program& p) {
  std::vector<ProgramStep> out;
  for (const StepProgram& s : p.warmup) out.push_back({p, s});
  out.push_back({p, p.steady});
  return out;
}

OrderedJson write_program(const Program& p, const Workload& w, int ranks) {
  ProgramFile file;
  file.name = w.name;
  file.backend = p.backend;
  file.ranks = ranks;
  file.batch = w.batch;  // 0: of a program that was given, and does not say one
  file.tensors = w.tensors;
  ProgramJob job{file, const_cast<Program&>(p)};  // a writer changes nothing
  job.device = p.device;
  job.worker_threads = p.worker_threads;
  if (p.core_share >= 0) job.core_share = p.core_share;
  return write_fields(job);
}

}  // namespace ddpsim::io
