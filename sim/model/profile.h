// Profile: calibrated (or published) numbers of one kind of hardware and software. File format:
// docs/formats.md.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/kernels.h"
#include "sim/model/power.h"
#include "sim/model/workload.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim {

enum class Evidence : std::uint8_t {
  Measured,
  Datasheet,
  Published
};  // Published: fitted to tables that others measured and published
inline constexpr By<Evidence, const char*, 3> kEvidence{"measured", "datasheet", "published"};
constexpr const auto& names_of(Evidence) {
  return kEvidence;
}

// Fractions of a published peak; low is the pessimistic end.
struct Range {
  double low = 1;
  double mid = 1;
  double high = 1;
};
enum class Level : std::uint8_t { Low, Mid, High };
double at(const Range& r, Level level);

// A correction at one size (bytes of a chunk, or picoseconds of an ideal duration); linear in
// between.
struct Knot {
  std::int64_t at = 0;
  double factor = 1;
};

inline constexpr std::array<const char*, 3> kKernelClasses{
    "gemm", "conv", "attention"};  // order of ComputeSection's arrays

struct ComputeSection {
  Evidence basis = Evidence::Datasheet;
  std::string source;
  int capability =
      0;        // of an NVIDIA GPU, times ten: 70 V100, 80 A100, 90 H100, 100 B200; 0 = not said
  int sms = 0;  // streaming multiprocessors; 0 = not said
  double clock_hz = 0;                       // boost clock of the datasheet; 0 = not said
  ByPrecision peak_flops{};                  // flop/s by Precision; 0 = not offered
  std::array<Range, 3> efficiency{};         // gemm, conv, attention
  std::array<std::vector<Knot>, 3> stretch;  // the same classes: how much longer than flops / (peak
                                             // * efficiency), by that duration; empty = not at all
};
struct MemorySection {
  Evidence basis = Evidence::Datasheet;
  std::string source;
  double bandwidth_bytes_per_s = 0;
  Range efficiency;
  Duration kernel;            // device time of one small kernel
  std::vector<Knot> stretch;  // how much longer a kernel takes than its traffic / (bandwidth *
                              // efficiency), by that duration; empty = not at all
  double shared_bytes_per_s =
      0;  // of a machine on which several hosts are emulated (Cluster::emulated_on_cores): all of
          // them together; 0 = each its own
  double half_divide_bytes_per_s = 0;   // a CPU divides halves in software (compression hooks): one
                                        // thread, bytes of halves; 0 = as fast as memory
  double thin_product_bytes_per_s = 0;  // one thread of a CPU passes over a matrix so fast in its
                                        // product with a few columns (PowerSGD), bytes of the
                                        // matrix; 0 = as fast as memory
  Bytes capacity;
};
struct HostSection {
  Evidence basis = Evidence::Datasheet;
  std::string source;
  Duration launch;              // host time to enqueue one kernel
  Duration hook;                // DDP's hook for one parameter
  Duration collective_launch;   // enqueue of one collective by c10d
  Duration traverse;            // graph traversal of find_unused_parameters, per parameter
  Duration small_operator;      // CPU: one operator on a small tensor that a hook in Python calls;
                                // 0: memory.kernel
  std::vector<CallCost> calls;  // of modules and their nodes of autograd; others: launch a kernel
  Range call_factor;            // how many times as long `calls` take here; low takes most
};
// A time over occasions: low is the shortest that was seen, mid the profile's own.
struct DurationRange {
  Duration low;
  Duration mid;
  Duration high;
};
// What messages cost beside their bytes where hosts share a machine is how it schedules their
// threads, which differs from machine to machine and from one occasion to another. Each occasion
// was fitted by itself (calib/fit/occasions.h).
struct Occasions {
  int count = 0;       // 2 or more, the profile's own among them
  std::string source;  // which machines, when
  DurationRange latency;
  DurationRange message_core;
};
struct TransportSection {
  Evidence basis = Evidence::Datasheet;
  std::string source;
  Duration launch;                     // once per collective
  Duration latency;                    // one step, Simple protocol
  std::optional<Duration> ll_latency;  // one step, LL protocol
  Duration message_core;               // of `latency`: what needs a core; on shared cores
                                       // (Cluster::emulated_on_cores) messages take it in turn
  Bytes send_buffer;       // backend tcp: bytes of a connection that its sender need not wait for
  double step_factor = 1;  // NCCL: what a step takes, as a multiple of NCCL's own number (and of
                           // what latency adds to it); 0.01 to 100. Other backends do not ask
                           // for it
  Duration rendezvous;     // NCCL: what a message longer than the link's eager limit takes more
                           // (LinkSpec::eager)
  double ll_max_bytes_per_s = 0;  // bus bandwidth that LL reaches at most: no price asks; 0 = none
  double cpu_ps_per_byte = 0;  // core time to send and receive one byte, both ends; matters where
                               // computation shares those cores
  Range efficiency;            // of the link rate
  std::optional<Range> host_memory;  // NCCL, PCIe: of the link's rate, in each direction, where two
                                     // GPUs reach one another through the host's memory, and read
                                     // and write there at once; absent = efficiency
  std::optional<Range> thread_bytes_per_s;  // NCCL, sockets: what one thread sends while it
                                            // receives as much; absent = no limit
  double one_way = 1;  // NCCL: how many times as fast a rank is that only sends or only receives,
                       // where one thread copies both (between ranks of one host); 1 to 2
  std::vector<Knot> knots;             // correction of the transfer by bytes per step and channel
  std::optional<Occasions> occasions;  // of latency and message_core; absent = seen on one at most
};
// Of one class of kernels: fitted / measured - 1 over shapes that the fit saw, or that it did not.
struct KernelResidual {
  std::string kernel;  // "gemm bf16", "conv fp32", "memory"
  bool held_out = false;
  int points = 0;
  double least = 0;  // flops, or bytes of traffic (memory): the sizes over which it holds
  double most = 0;
  double median_error = 0;  // of |error|
  double p90_error = 0;
};
struct Profile {
  std::string name;
  std::string hardware;
  DeviceKind kind = DeviceKind::Gpu;
  ComputeSection compute;
  MemorySection memory;
  HostSection host;
  std::map<std::string, TransportSection> transports;
  std::optional<Evidence> interference_basis;  // absent = the section is
  std::optional<Evidence> reduction_basis;
  std::optional<KernelCosts> costs;   // measured kernels; of layers that say what they compute
  std::optional<PowerSection> power;  // absent: no limit is felt
  Range sm_hold{0, 0,
                0};  // share of a device's compute rate that a running communication kernel takes
  std::optional<Range>
      memory_hold;  // the same of what memory decides (copies, optimizer); absent = sm_hold
  // What a communication kernel of so many blocks (NCCL: channels) of 132 SMs takes of products and
  // of what memory decides; sm_hold and memory_hold are of kUsualBlocks. By blocks; empty = as much
  // whatever their number.
  struct HoldAt {
    int blocks = 0;
    double products = 0, memory = 0;
  };
  std::vector<HoldAt> hold_at;
  std::optional<Range> rank_cv;  // coefficient of variation of the computation of ranks, from step
                                 // to step and from GPU to GPU (low = varies most); absent = alike
  double reduction_bytes_per_s = 0;       // one worker thread, float32; 0 = not limiting
  double half_reduction_bytes_per_s = 0;  // the same for float16 and bfloat16; 0 = as float32
  std::vector<KernelResidual>
      kernels;  // what the fit of kernels left, and over which sizes it holds
  std::vector<std::string>
      fitted_from;  // scenario hashes of the Runs that the fit saw: their predictions are in-sample
  std::vector<std::string> unknown;  // sentences: what of this hardware is not modelled; in answers
  double step_residual = 0;  // 80 % of the fit's own step predictions were within this fraction of
                             // the measured step; 0 = unknown (interval from ranges)
  bool measured() const;     // every section
};

Problem validate(const Profile& p);
inline constexpr double kUsualBlocks = 20;
// What a communication kernel of so many channels takes, as a multiple of what one of kUsualBlocks
// does. 1 where the profile does not say, or 0 channels are known.
double hold_factor(const Profile& p, int channels, bool memory);
// Piecewise linear between knots, constant outside; 1 without knots.
double correction(const std::vector<Knot>& knots, double x);

}  // namespace ddpsim
