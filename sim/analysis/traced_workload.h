// A trace's median iteration as a captured Workload.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/trace.h"
#include "sim/analysis/traced_layers.h"
#include "sim/model/workload.h"

namespace ddpsim::analysis {

struct ImportSetting {
  std::string name;
  int batch = 0;                    // samples per rank; 0 = the model's, or 1
  const Workload* model = nullptr;  // whose tensors these are; none: the trace's own shapes
  std::optional<Precision> precision;
  std::string device;  // name of the CPU; of a GPU the trace says it
};

struct ImportedWorkload {
  Workload workload;  // without layers
  struct Layer {
    TracedLayer time;
    std::vector<TensorIndex> tensors;
    std::vector<TensorIndex> frozen;
  };
  std::vector<Layer> layers;      // of the workload; empty: only the whole is known
  std::vector<TracedStep> steps;  // those of the trace
  std::size_t median = 0;         // the one that it is made of
  std::vector<std::string> notes;
};

// Bytes that the all-reduces of a step's backward carry; -1: one of them does not say.
std::int64_t reduced_elements(const Trace& trace, const TracedStep& step);

// Throws InputError: nothing says how large the gradients are, or the model is another one.
// `remedy`: how to record what is missing.
ImportedWorkload workload_of(const Trace& trace, const ImportSetting& setting,
                             const std::string& remedy);

}  // namespace ddpsim::analysis
