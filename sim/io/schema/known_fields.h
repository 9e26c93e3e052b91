// Keys of the tables of known errors (ddpsim.known_errors/1) and of GPUs' names (ddpsim.gpus/1).
#pragma once

#include "sim/io/known_errors.h"
#include "sim/io/schema/fields.h"

namespace ddpsim::io {

inline constexpr const char* kKnownErrorsSchema = "ddpsim.known_errors/1";
inline constexpr const char* kGpusSchema = "ddpsim.gpus/1";

template <class V>
void fields(V& v, KnownFamily& f) {
  v.required("system", f.system, "as --plan takes it; \"any\": one GPU");
  v.required("hosts", f.hosts, "\"one_gpu\", \"one_host\" or \"several_hosts\"");
  v.required("profile", f.profile, "by name");
  v.required("precision", f.precision, "precision of the workload");
  v.required("rows", f.rows, "published steps of that kind").range(1, 1'000'000);
  v.required("sources", f.sources, "that published them").range(1, 1'000'000);
  v.required("median", f.median, "predicted / measured - 1");
  v.required("report", f.report, "that lists the rows");
}
struct KnownErrorsFile {
  std::vector<KnownFamily> families;
};
template <class V>
void fields(V& v, KnownErrorsFile& f) {
  v.schema(kKnownErrorsSchema);
  v.required("families", f.families, "how far predictions of published steps are off, by kind");
}

struct NamedGpu {
  std::string profile;
  std::vector<std::string> names;
  std::optional<int> capability;
};
template <class V>
void fields(V& v, NamedGpu& g) {
  v.required("profile", g.profile, "by name");
  v.required("names", g.names, "as published tables call the GPU");
  v.field("compute_capability", g.capability,
          "times ten: where nothing else is known of such a GPU, its profile is taken")
      .range(10, 999);
}
struct GpusFile {
  std::vector<NamedGpu> gpus;
};
template <class V>
void fields(V& v, GpusFile& f) {
  v.schema(kGpusSchema);
  v.required("gpus", f.gpus, "GPUs that have a shipped profile");
}

}  // namespace ddpsim::io
