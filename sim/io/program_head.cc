#include "sim/io/program_head.h"

#include <algorithm>

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
  head.file.ranks = r.at("ranks").small(1, 1 << 20);
  if (r.has("name")) head.file.name = r.at("name").text();
  if (r.has("batch")) head.file.batch = r.at("batch").small(1, 1'000'000);
  if (r.has("micro_steps")) program.micro_steps = r.at("micro_steps").small(1, 10'000);
  program.worker_threads = r.has("worker_threads") ? r.at("worker_threads").small(1, 1024) : 0;
  if (r.has("at_once")) program.at_once = r.at("at_once").small(0, 1 << 20);
  if (r.has("core_share")) {
    program.core_share = r.at("core_share").number();
    if (!(program.core_share >= 0 && program.core_share <= 1))
      r.at("core_share").fail("expected a share from 0 to 1");
  }
  if (r.has("products")) {
    program.products = r.at("products").number();
    if (!(program.products >= 0 && program.products <= 1))
      r.at("products").fail("expected a share from 0 to 1");
  }
  if (r.has("kernel_ps")) {
    program.kernel = {r.at("kernel_ps").integer()};
    if (program.kernel.ps < 0) r.at("kernel_ps").fail("expected picoseconds, at least 0");
  }
  if (r.has("rank")) head.rank = r.at("rank").small(0, (1 << 20) - 1);
  program.groups = read_groups(r, head.file.ranks);
  if (r.has("servers")) {
    const Reader s = r.at("servers");
    s.only({"count", "synchronous", "staleness", "own_hosts"});
    Servers& servers = program.servers.emplace();
    servers.count = s.at("count").small(1, static_cast<int>(kMostServers));
    if (s.has("synchronous")) servers.synchronous = s.at("synchronous").boolean();
    if (s.has("staleness")) servers.staleness = s.at("staleness").small(-1, 1'000'000);
    if (s.has("own_hosts")) servers.own_hosts = s.at("own_hosts").boolean();
  }
  for (const RankGroups& g : program.groups)
    if (g.server >= 0 && (!program.servers || g.server >= program.servers->count))
      r.at("groups")
          .at(g.name.c_str())
          .at("server")
          .fail("is a number below the count of the file's \"servers\"");
  head.placed = r.has("device");
  if (head.placed) {
    auto stated = static_cast<DeviceKind>(r.at("device").choice({"cpu", "gpu"}));
    if (stated != program.device)
      r.at("device").fail(
          std::string("the program is of ") + (stated == DeviceKind::Cpu ? "CPUs" : "GPUs") +
          " and the cluster is of " + (stated == DeviceKind::Cpu ? "GPUs" : "CPUs") +
          ": who launches and who waits differs; lower it for that cluster (ddpsim show "
          "program)");
  }
  if (r.has("backend"))
    head.file.backend =
        static_cast<Backend>(r.at("backend").choice({"nccl", "gloo", "tcp", "mpi"}));
  if (r.has("streams")) {
    for (const Reader& s : r.at("streams").items()) program.streams.push_back(s.text());
    if (program.streams.size() > kMostStreams)
      r.at("streams").fail("at most " + std::to_string(kMostStreams) + " streams of its own");
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
    t.only({"name", "kind", "shape", "dtype"});
    Tensor tensor;
    tensor.name = t.at("name").text();
    std::int64_t elements = 1;
    for (const Reader& d : t.at("shape").items()) {
      tensor.shape.push_back(between(d, 0, kMostBytesOfOne, "a size"));
      if (elements > 0 && tensor.shape.back() > kMostBytesOfOne / 8 / elements)
        t.at("shape").fail("more elements than any device holds");
      elements *= tensor.shape.back();
    }
    all += elements;
    if (all > kMostBytesOfOne / 8) t.at("shape").fail("more elements than any device holds");
    tensor.dtype = read_dtype(t.at("dtype"));
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
