#include "sim/io/program_head.h"

#include <algorithm>

#include "sim/io/schema/program_fields.h"

namespace ddpsim::io {

std::int64_t between(const Reader& r, std::int64_t low, std::int64_t high, const char* what) {
  std::int64_t v = r.integer();
  if (v < low || v > high)
    r.fail("expected " + std::string(what) + " from " + std::to_string(low) + " to " +
           std::to_string(high) + ", found " + std::to_string(v));
  return v;
}

DType read_dtype(const Reader& r) {
  if (!r.json().is_string()) r.fail("expected one dtype; a collective of several is not played");
  auto dtype = parse_dtype(r.text());
  if (!dtype)
    r.fail("\"" + r.text() +
           "\" is not a dtype; known are float32, float16, bfloat16, float64, "
           "int64, int32, uint8, bool");
  return *dtype;
}

namespace {

void read_job(const Reader& r, ProgramHead& head) {
  Program& program = head.file.program;
  ProgramJob job{head.file};
  read_fields(r, job);
  head.rank = job.rank;
  head.placed = job.device.has_value();
  program.worker_threads = job.worker_threads.value_or(0);
  if (job.core_share) program.core_share = *job.core_share;
  for (const RankGroups& g : program.groups)
    if (g.server >= 0 && (!program.servers || g.server >= program.servers->count))
      r.at("groups")
          .at(g.name.c_str())
          .at("server")
          .fail("is a number below the count of the file's \"servers\"");
  if (head.placed && job.device != program.device) {
    const bool cpus = job.device == DeviceKind::Cpu;
    r.at("device").fail(
        std::string("the program is of ") + (cpus ? "CPUs" : "GPUs") + " and the cluster is of " +
        (cpus ? "GPUs" : "CPUs") +
        ": who launches and who waits differs; lower it for that cluster (ddpsim show program)");
  }
  for (std::size_t k = 0; k < kLanes; ++k) head.lanes.push_back(name_of(static_cast<Lane>(k), {}));
  for (const std::string& s : program.streams) {
    if (s.empty() || std::find(head.lanes.begin(), head.lanes.end(), s) != head.lanes.end())
      r.at("streams").fail("\"" + s + "\" is no name for a stream of its own");
    head.lanes.push_back(s);
  }
  if (!head.placed && r.has("origin")) {
    const Json& origin = r.at("origin").json();
    if (origin.is_object() && origin.contains("software") && origin["software"].is_string())
      head.file.recorded_from = origin["software"];
  }
}

void read_tensors(const Reader& r, ProgramHead& head) {
  Program& program = head.file.program;
  std::int64_t all = 0;
  for (const Reader& t : r.at("tensors").items()) {
    Tensor tensor;
    ListedTensor listed{tensor};
    read_fields(t, listed);
    all += tensor.elements();
    if (all > kMostBytesOfOne / 8) t.at("shape").fail(kTooManyElements);
    if (!head.tensor_numbers
             .emplace(tensor.name, static_cast<TensorIndex>(head.file.tensors.size()))
             .second)
      t.at("name").fail("stands twice");
    program.tensor_names.push_back(tensor.name);
    program.tensor_bytes.push_back(tensor.bytes().count);
    head.file.tensors.push_back(std::move(tensor));
  }
  head.file.of_any_ranks = true;
}

}  // namespace

ProgramHead read_program_head(const Reader& file, DeviceKind device) {
  ProgramHead head;
  head.file.program.device = device;
  read_job(file, head);
  read_tensors(file, head);
  return head;
}

}  // namespace ddpsim::io
