// The configuration of NCCL's example tuner plugin: which algorithm, protocol and number of
// channels for which size.
//
//   collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks
//   [,numPipeOps[,regBuff]]
//
// Byte ranges are inclusive, the first line that matches wins, -1 is any. Source: NCCL 2.28.9,
// ext-tuner/example (plugin.c pluginGetCollInfo, scripts/optimize_config.py).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/model/error.h"

namespace ddpsim::report {

inline constexpr std::int64_t kTunerMostBytes = INT64_MAX;

struct TunerRow {
  std::string collective;      // broadcast, reduce, allgather, reducescatter, allreduce
  std::int64_t min_bytes = 0;  // inclusive
  std::int64_t max_bytes = kTunerMostBytes;
  std::string algorithm;  // tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat
  std::string protocol;   // ll, ll128, simple
  int channels = 0;       // at least 1: the plugin turns "any" into one channel
  int nodes = -1;         // -1 = any
  int ranks = -1;         // -1 = any
  bool operator==(const TunerRow&) const = default;
};

// What a row, or the ranges of the rows of one (collective, nodes, ranks), breaks; path "/3" is the
// fourth row. Of each such group the ranges begin at 0, follow one another without gap or overlap,
// and end at kTunerMostBytes.
Problem validate(std::span<const TunerRow> rows);

// The file: what made it and what it must not be changed to, the rows, and at the end one line for
// all sizes of each (collective, nodes, ranks), with the choice of its largest sizes. `made_of`:
// for the comment. REQUIRES: validate found nothing, at least one row.
std::string tuner_csv(std::span<const TunerRow> rows, std::string_view made_of = "");

// Who else reads such files, each in a form of its own (docs/formats.md, nccl-tuner):
//   Ncclx  NCCLX, torchcomms' NCCL (NCCLX_TUNER_CONFIG_FILE): sizes per rank, nodes and ranks a
//          node, in intervals; what no line matches is NCCL's own choice. Source: torchcomms
//          46726f15, comms/ncclx/meta/tuner (README.md, MetaTuner.cc, CsvConfigParse.h)
//   Rccl   AMD's (NCCL_TUNER_CONFIG_FILE, or share/rccl/tuner/rccl_tuner_ARCH.csv): the example
//          plugin's columns, without its one channel. Source: rocm-systems 22af4d53,
//          projects/rccl/src/plugin/tuner/csv_tuner.cc
enum class TunerConsumer { Example, Ncclx, Rccl };
inline constexpr const char* kTunerConsumers[] = {"example", "ncclx", "rccl"};
// What the consumer has no way to say of these rows; path "/3" is the fourth row.
Problem cannot_say(std::span<const TunerRow> rows, TunerConsumer consumer);
// REQUIRES: validate and cannot_say found nothing, at least one row.
std::string tuner_csv(std::span<const TunerRow> rows, std::string_view made_of,
                      TunerConsumer consumer);

// Somebody's measurements, a row for each (collective, size, choice), with a header:
// collective,size_bytes,algorithm,protocol,channels,nodes,ranks and at least one of latency_us,
// bandwidth_gbps, cost_metric; pipeOps and regBuff are passed over.
struct TunerPoint {
  std::string collective;
  std::int64_t bytes = 0;
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  int nodes = -1;
  int ranks = -1;
  double cost = 0;  // less is better
};
// `metric`: "latency_us", "bandwidth_gbps", "cost_metric"; "" = the first of these that there is.
// Throws InputError with FILE:LINE.
std::vector<TunerPoint> parse_tuner_points(const std::string& text, const std::string& file,
                                           const std::string& metric);

// The cheapest choice for each size (the first of equals); between two sizes the border is where
// each is as far from it as the other, as a ratio. Valid rows, neighbours that are alike made one,
// in order of collective, nodes, ranks.
std::vector<TunerRow> best_rows(std::span<const TunerPoint> points);

}  // namespace ddpsim::report
