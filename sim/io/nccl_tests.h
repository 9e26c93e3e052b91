// Results of nccl-tests, as people keep them: the text of every version, the JSON of `-J FILE`, and
// CSV tables with a column for each printed one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/model/run.h"

namespace ddpsim::io {

// A number as printed: what it rounds is within value - half and value + half.
struct Printed {
  double value = 0;
  double half = 0;
};
// "183.5", "1.2e+07"; nothing else.
std::optional<Printed> parse_printed(std::string_view text);

// One of the two halves of a row.
struct NcclTestsTime {
  Printed time_us;
  Printed algbw;                // GB/s
  Printed busbw;                // GB/s
  std::vector<double> each_us;  // of each iteration, where the file has them
  std::int64_t wrong =
      0;  // elements whose sum was not right ("#wrong"); 0 also where the file does not say
};

struct NcclTestsRow {
  int line = 0;  // in the file, from 1; results of JSON from 1
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  std::string type;
  std::string redop;  // "none", "" where there is no such column
  int root = -1;      // -1 = none, or no such column
  std::optional<NcclTestsTime> out_of_place;
  std::optional<NcclTestsTime> in_place;
};

struct NcclTestsDevice {
  int rank = 0;
  int group = 0;
  std::string pid;
  std::string host;
  std::string name;
};

// Rows of one table: one run of one operation under one setting.
struct NcclTestsTable {
  std::string op;  // "all_reduce", ...; "" = the file does not say
  bool op_is_sure =
      false;  // the program itself says it; else it is from a command line that stands before
  std::string forced_kind;     // CSV: "ALGO" or "PROTO"; "" = nothing is forced
  std::string forced_value;    // "Ring"
  bool host_time = false;      // -C: the times are the host's, not the collective's
  std::int64_t min_bytes = 0;  // declared; 0 = not said
  std::int64_t max_bytes = 0;
  std::int64_t step = 0;
  bool step_is_factor = true;
  bool footer = false;
  std::vector<NcclTestsDevice> devices;
  int gpus_per_process = 0;  // threads x GPUs of a thread; 0 = not said
  std::vector<NcclTestsRow> rows;
  std::vector<std::string> dropped;  // a sentence for each damaged row
  int ranks = 0;                     // that the file says; 0 = it does not
  int firsts = 0;  // processes that call themselves its rank 0: more than one were no one job
};

struct NcclTests {
  std::vector<NcclTestsTable> tables;
  std::string tests_version;                       // of nccl-tests
  std::string nccl;                                // of NCCL, "" = not said
  bool expects_footer = false;                     // false for CSV
  std::map<std::string, std::string> environment;  // NCCL_*
};

// By its first characters: JSON, CSV or text. Throws InputError if there is no row of nccl-tests in
// it.
NcclTests read_nccl_tests(const std::string& text, const std::string& file);
NcclTests read_nccl_tests_text(const std::string& text, const std::string& file);
NcclTests read_nccl_tests_csv(const std::string& text, const std::string& file);
NcclTests read_nccl_tests_json(const std::string& text, const std::string& file);

// "all_reduce_perf", "AllReduce", "all_reduce" -> "all_reduce"; "" = unknown.
std::string nccl_tests_op(std::string_view name);
// Names of all operations, for messages.
std::vector<std::string> nccl_tests_ops();
// Bytes of an element of nccl-tests' type; 0 = unknown.
int nccl_tests_element_bytes(std::string_view type);
// busbw / algbw for n ranks. REQUIRES: op known, n >= 1. (In early versions, all-gather and
// reduce-scatter printed size / time x this as algbw, and the same as busbw.)
double nccl_tests_bus_factor(std::string_view op, int n);

// What is known beside the file.
struct NcclTestsSetting {
  std::string op;      // "" = what the file says
  std::string forced;  // "ALGO=Ring": which of several forced tables; "" = the only one
  int ranks = 0;       // 0 = what the file says
  int hosts = 0;
  int gpus_per_process = -1;  // -1 = what the file says
  std::string nccl;
  std::string gpu;
  std::string cluster;
  std::string source;
  std::map<std::string, std::string> environment;  // before what the file says
  EvidenceClass evidence = EvidenceClass::Published;
  std::string file;  // for errors
};

struct NcclTestsRun {
  Run run;
  std::vector<std::string>
      notes;  // for stderr: what was dropped, what is missing, what was inferred
};
// One table as a Run. Rows whose numbers contradict each other are dropped, and named. Throws
// InputError where ranks contradict the bandwidths, a choice is needed, or nothing is left.
NcclTestsRun run_of(const NcclTests& tests, const NcclTestsSetting& setting);

// A rank or a group, as a file has it: n, or the nearest number from `least` to 2^20.
inline int within_2_20(std::int64_t n, int least) {
  return static_cast<int>(std::clamp<std::int64_t>(n, least, 1 << 20));
}

}  // namespace ddpsim::io
