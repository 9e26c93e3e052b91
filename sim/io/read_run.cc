// The name of an operation says what it is (docs/formats.md, program listing); everything else is
// in its key.
#include "sim/io/schema/run_fields.h"

namespace ddpsim::io {
namespace {

// An operation whose word no shipped system has.
OpKind read_kind(const Reader& r) {
  OpKind k;
  read_fields(r, k);
  if (k.does == Does::Move)
    r.at("does").fail("copies to and from the host have words of shipped systems only");
  if (is_collective(k)) Codec<Operation>::read(r.at("operation"), k.operation);
  return k;
}

OpKind kind_of(const Reader& r) {
  std::string text = r.text();
  if (std::optional<OpKind> kind = systems::kind_of(text)) return *kind;
  r.fail("\"" + text.substr(0, 80) +
         "\" is no operation of a Program; names are those of `ddpsim show program`, for example "
         "allreduce/bucket.0");
}

// Each of them names a tensor of the Run. `at`: where they stand.
template <class At>
void check_tensors(At at, const Run& run, const std::vector<TensorIndex>& tensors) {
  for (std::size_t k = 0; k < tensors.size(); ++k)
    if (tensors[k] >= run.tensor_names.size())
      at().items()[k].fail("the run names " + std::to_string(run.tensor_names.size()) +
                           " tensors, counted from 0");
}

void check_arrivals(const Reader& r, const char* key, const LayerProfile& l,
                    const std::vector<Duration>& ready) {
  if (ready.size() != l.arrival.size())
    r.at(key).fail("one value per arrival is expected: " + std::to_string(l.arrival.size()));
}

void finish_layers(const Reader& r, const Run& run, LayerProfile& l) {
  check_tensors([&] { return r.at("arrival"); }, run, l.arrival);
  check_arrivals(r, "ready_ps", l, l.ready);
  if (!r.has("host_forward_ps")) return;
  HostTimes& host = l.host.emplace();
  host.forward = {read_count(r.at("host_forward_ps"), kADuration)};
  host.backward = {read_count(r.at("host_backward_ps"), kADuration)};
  host.optimizer = {read_count(r.at("host_optimizer_ps"), kADuration)};
  Codec<decltype(lasting(host.ready))>::read(r.at("host_ready_ps"), lasting(host.ready));
  check_arrivals(r, "host_ready_ps", l, host.ready);
}

}  // namespace

// REQUIRES: its other keys, and the steps and streams of the Run, are read.
void finish(const Reader& r, const Run& run, Span& s) {
  if (static_cast<std::size_t>(s.step) >= run.steps.size())
    r.at("step").fail("the run has " + std::to_string(run.steps.size()) + " steps, counted from 0");
  s.kind = r.has("kind") ? read_kind(r.at("kind")) : kind_of(r.at("op"));
  if (is_collective(s.kind)) {
    Codec<AsTensorIndices>::read(r.at("tensors"), {s.tensors});
    s.bytes = read_count(r.at("bytes"), kANumberOfBytes);
    s.algorithm = r.at("algorithm").text();
    for (const char* key : {"dtype", "group"})  // of a trace, for people
      if (r.has(key)) r.at(key).text();
    if (r.has("kind") && !s.tensors.empty()) s.kind.touches = Touches::Tensor;
  }
  if (s.end < s.begin) r.at("end_ps").fail("ends before it begins");
}

Run read_run(const Json& j, const std::string& file) {
  Reader r(j, file);
  Run run;
  read_file_fields(r, run, kRunSchema);
  if (run.layers) finish_layers(r.at("layers"), run, *run.layers);
  if (run.kind == RunKind::Measured)
    for (std::size_t k = 0; k < run.spans.size(); ++k)
      check_tensors([&] { return r.at("spans").items()[k].at("tensors"); }, run,
                    run.spans[k].tensors);
  if (run.steps.empty() && run.samples.empty())
    r.fail("a run has steps or samples, this one has neither");
  return run;
}

}  // namespace ddpsim::io
