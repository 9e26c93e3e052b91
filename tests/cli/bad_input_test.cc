// Bad input: exit code 2, nothing on stdout, one line on stderr that names the file or flag, the
// place and the remedy, nothing written.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <ostream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;

// In `args` and `says`: BAD/ is tests/cli/bad/, TMP/ a folder of the test's own.
struct Case {
  const char* name;
  std::vector<std::string> args;
  std::vector<std::string> says;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const std::vector<std::string> kCpu{"predict", "--workload", "mlp784-50-10-cpu", "--cluster",
                                    "ethernet-10g"};
const std::vector<std::string> kGpu{"predict", "--workload", "mlp784-50-10", "--cluster",
                                    "hgx-h100"};
std::vector<std::string> cluster(const std::string& file) {
  return {"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "BAD/" + file};
}
std::vector<std::string> workload(const std::string& file) {
  return {"predict", "--workload", "BAD/" + file, "--cluster", "ethernet-10g"};
}
std::vector<std::string> scenario(const std::string& file) {
  return {"predict", "BAD/" + file};
}
std::vector<std::string> profile(const std::string& file) {
  return kCpu + std::vector<std::string>{"--profile", "BAD/" + file};
}
std::vector<std::string> set(const std::vector<std::string>& question, const std::string& setting) {
  return question + std::vector<std::string>{"--set", setting};
}

const std::vector<Case> kCases{
    // Input.
    {"InputOfNoRate",
     set(kGpu, "input.samples_per_s=0"),
     {"--set input.samples_per_s=0 ", "above 0"}},
    {"InputOfAnotherKey",
     set(kGpu, "input.rate=3"),
     {"--set input.rate=3 ", "unknown key", "samples_per_s"}},
    {"InputThatNeverComes", set(kGpu, "input.samples_per_s=1e-12"), {"ddpsim counts up to"}},
    {"InputOfAProgram",
     {"predict", "--program", "p.json", "--cluster", "hgx-h100", "--set", "input.samples_per_s=3"},
     {"--set input.samples_per_s=3: ", "a program has its input in it"}},
    {"InputOfWhatIsExecuted",
     {"run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star", "--set",
      "input.samples_per_s=3"},
     {"#/input: ", "--set input=null"}},
    // A number of one device.
    {"MeasuredStepWithoutUnit",
     kGpu + std::vector<std::string>{"--measured-step", "97"},
     {"--measured-step 97: ", "no unit", "1.5ms"}},
    {"MeasuredStepOfNoTime",
     kGpu + std::vector<std::string>{"--measured-step", "0ms"},
     {"--measured-step 0ms: ", "takes some time"}},
    {"MeasuredStepSetToNoTime",
     set(kGpu, "measured_step=0ms"),
     {"--set measured_step=0ms ", "takes some time"}},
    {"MeasuredStepTooLong",
     kGpu + std::vector<std::string>{"--measured-step", "100000min"},
     {"--measured-step 100000min: ", "ddpsim counts up to"}},
    {"MeasuredStepAndRate",
     kGpu + std::vector<std::string>{"--measured-step", "97ms", "--samples-per-s", "1365"},
     {"--measured-step 97ms: ", "--samples-per-s", "one of the two"}},
    {"MeasuredRateIsNoNumber",
     kGpu + std::vector<std::string>{"--samples-per-s", "many"},
     {"--samples-per-s many: ", "positive number"}},
    {"MeasuredStepOfAProgram",
     {"predict", "--program", "p.json", "--cluster", "hgx-h100", "--measured-step", "97ms"},
     {"--measured-step 97ms: ", "a program"}},
    {"MeasuredStepOfACollective",
     {"explain", "--op", "all_reduce", "--cluster", "hgx-h100", "--measured-step", "97ms"},
     {"--measured-step 97ms: ", "about a step"}},
    {"MeasuredStepOfManyWorkloads",
     {"sweep", "--cluster", "hgx-h100", "--measured-step", "97ms", "--axis",
      "workload=resnet50,resnet18"},
     {"--axis workload: ", "of one workload on one device"}},
    {"MeasuredStepOfManyDevices",
     {"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--set", "measured_step=97ms",
      "--axis", "profile.memory.kernel_ps=1000000,2000000"},
     {"--axis profile.memory.kernel_ps: ", "of one workload on one device"}},
    // Quantities.
    {"MissingUnit",
     cluster("cluster-no-unit.json"),
     {"BAD/cluster-no-unit.json#/link/bandwidth: ",
      "\"40G\" has no unit (did you mean 40GB/s or 40Gb/s?)"}},
    {"WrongUnit",
     cluster("cluster-wrong-unit.json"),
     {"cluster-wrong-unit.json#/link/bandwidth: ", "unknown unit \"GHz\"", "such as \"100Gb/s\""}},
    {"BareNumber",
     cluster("cluster-bare-number.json"),
     {"cluster-bare-number.json#/link/latency: ", "no unit", "\"5us\""}},
    {"NegativeSize",
     cluster("cluster-negative-size.json"),
     {"cluster-negative-size.json#/link/burst: ", "negative", "\"64KiB\""}},
    {"ZeroBandwidth",
     cluster("cluster-zero-bandwidth.json"),
     {"cluster-zero-bandwidth.json#/link/bandwidth: ", "positive"}},
    {"ZeroStaging",
     set(kGpu, "cluster.link.staging=0Gb/s"),
     {"#/link/staging): a bandwidth is positive", "left out"}},
    {"ZeroPeak", set(kGpu, "cluster.link.peak=0GB/s"), {"#/link/peak): ", "is positive"}},
    {"ZeroHostMemory", set(kGpu, "cluster.host_memory=0GB/s"), {"#/host_memory): ", "is positive"}},
    {"ZeroRateOfSums",
     set(kCpu, "profile.reduction.bytes_per_s=0"),
     {"#/reduction/bytes_per_s): a positive rate", "leave"}},
    {"ZeroRateOfLl",
     set(kGpu, "profile.transports.nvlink.ll_max_bytes_per_s=0"),
     {"#/transports/nvlink/ll_max_bytes_per_s): a positive rate", "leave it out"}},
    {"NegativePeakOfTheSameChip",
     {"predict", "--workload", "mlp784-50-10", "--cluster", "gpu-ethernet-10g", "--set",
      "profile.power.like.peak_flops.bf16=-5"},
     {"#/power/like/peak_flops/bf16): a peak rate is positive"}},
    {"SlowestBandwidth",
     cluster("cluster-slowest.json"),
     {"cluster-slowest.json#/link/bandwidth: ", "1 kb/s"}},
    {"Fraction",
     workload("workload-fraction.json"),
     {"workload-fraction.json#/times/backward_ps: ", "whole number", "2000.5"}},
    {"HugeInteger",
     workload("workload-huge-integer.json"),
     {"workload-huge-integer.json#/times/backward_ps: ", "64-bit"}},
    {"Centuries",
     workload("workload-centuries.json"),
     {"workload-centuries.json#/times: ", "at most a day"}},
    {"NotANumber", workload("workload-nan.json"), {"workload-nan.json: not valid JSON", "line 11"}},
    {"Infinity",
     workload("workload-infinity.json"),
     {"workload-infinity.json: not valid JSON", "line 11"}},
    {"Exponent999",
     workload("workload-1e999.json"),
     {"workload-1e999.json: not valid JSON", "1e999"}},
    // Files.
    {"MissingFile",
     workload("missing.json"),
     {"--workload: ", "missing.json\": no such workload file"}},
    {"MissingScenario", scenario("missing.json"), {"missing.json: no such file"}},
    {"WorkloadAsScenario",
     {"predict", "resnet50"},
     {"resnet50: no such scenario file", "--workload"}},
    {"Folder", cluster(""), {"BAD/: is a folder"}},
    {"EmptyFile",
     {"predict", "TMP/empty.json"},
     {"TMP/empty.json: the file is empty; expected JSON"}},
    {"BlankFile",
     {"predict", "TMP/blank.json"},
     {"TMP/blank.json: the file is empty; expected JSON"}},
    {"BinaryFile", {"predict", "TMP/binary.json"}, {"TMP/binary.json: not valid JSON"}},
    {"NotUtf8", {"predict", "TMP/latin1.json"}, {"TMP/latin1.json: not valid JSON", "UTF-8"}},
    {"NestedAMillionDeep",
     {"predict", "TMP/nested.json"},
     {"TMP/nested.json: nested deeper than 64 levels"}},
    {"UnreadableFile",
     {"predict", "TMP/unreadable.json"},
     {"TMP/unreadable.json: cannot be read: "}},
    {"Pipe", {"predict", "TMP/pipe.json"}, {"TMP/pipe.json: is not a regular file"}},
    {"EndlessDevice", {"predict", "/dev/zero"}, {"/dev/zero: is not a regular file"}},
    {"TruncatedFile",
     workload("workload-truncated.json"),
     {"workload-truncated.json: not valid JSON (truncated?)", "line "}},
    {"List",
     scenario("scenario-list.json"),
     {"scenario-list.json#: ", "\"schema\": \"ddpsim.scenario/1\"", "found a list"}},
    {"DuplicateKey",
     workload("workload-duplicate-key.json"),
     {"workload-duplicate-key.json: ", "\"batch\" appears twice"}},
    {"WrongSchemaVersion",
     cluster("cluster-wrong-schema-version.json"),
     {"cluster-wrong-schema-version.json#/schema: ", "ddpsim.cluster/2",
      "reads \"ddpsim.cluster/1\""}},
    {"MissingSchema",
     cluster("cluster-no-schema.json"),
     {"cluster-no-schema.json#: no \"schema\"", "\"ddpsim.cluster/1\""}},
    {"WorkloadAsCluster",
     cluster("workload-good.json"),
     {"workload-good.json#/schema: ", "a cluster (\"ddpsim.cluster/1\") is expected"}},
    {"ClusterAsWorkload",
     workload("cluster-good.json"),
     {"cluster-good.json#/schema: ", "a workload (\"ddpsim.workload/1\") is expected"}},
    {"FileNamedInScenarioIsMissing",
     scenario("scenario-workload.json"),
     {"scenario-workload.json#/workload: ", "bad/missing/tiny.json\": no such workload file"}},
    // Clusters.
    {"UnknownKey",
     cluster("cluster-unknown-key.json"),
     {"cluster-unknown-key.json#/devices_per_hots: unknown key (did you mean "
      "\"devices_per_host\"?)"}},
    {"UnknownPattern",
     cluster("cluster-pattern.json"),
     {"cluster-pattern.json#/pattern: ", "\"startt\"", "did you mean \"star\"?"}},
    {"KeyOfAnotherPattern",
     cluster("cluster-other-patterns-key.json"),
     {"cluster-other-patterns-key.json#/racks: ", "belongs to pattern \"racks\", not \"star\""}},
    {"ZeroHosts",
     cluster("cluster-zero-hosts.json"),
     {"cluster-zero-hosts.json#/hosts: ", "at least one host"}},
    {"BillionHosts",
     cluster("cluster-many-hosts.json"),
     {"cluster-many-hosts.json#/hosts: ", "131,072"}},
    {"HugeHosts",
     cluster("cluster-huge-hosts.json"),
     {"cluster-huge-hosts.json#/hosts: ", "64-bit"}},
    {"FatTreeOfBillions",
     cluster("cluster-fat-tree-links.json"),
     {"cluster-fat-tree-links.json#/spines: ", "1,048,576"}},
    {"NoIntra",
     cluster("cluster-no-intra.json"),
     {"cluster-no-intra.json#/intra: ", "link from each device"}},
    {"SlowLinkHost",
     cluster("cluster-slow-links.json"),
     {"cluster-slow-links.json#/slow_links/0/host: ", "no host 2; the cluster has 2"}},
    {"SlowLinkTwice",
     cluster("cluster-slow-links-twice.json"),
     {"cluster-slow-links-twice.json#/slow_links/1/host: ", "host 1 is named twice"}},
    {"BurstWithoutPeak",
     cluster("cluster-burst-alone.json"),
     {"cluster-burst-alone.json#/link: ", "give both or neither"}},
    {"PeakBelowBandwidth",
     cluster("cluster-low-peak.json"),
     {"cluster-low-peak.json#/link/peak: ", "at least the bandwidth"}},
    {"OversubscriptionZero",
     cluster("cluster-oversubscription.json"),
     {"cluster-oversubscription.json#/oversubscription: ", "1:1 to 1000:1"}},
    {"OversubscriptionInWords",
     cluster("cluster-ratio.json"),
     {"cluster-ratio.json#/oversubscription: ", "\"2:1\""}},
    {"DanglingLink",
     cluster("graph-dangling.json"),
     {"graph-dangling.json#/links/1/to: no node is named \"switch\""}},
    {"UnreachableHost",
     cluster("graph-unreachable.json"),
     {"graph-unreachable.json#/links: no path from host 0 to host 1"}},
    {"GraphWithoutHosts",
     cluster("graph-no-host.json"),
     {"graph-no-host.json#/", "at least one", "host"}},
    {"NodeTwice",
     cluster("graph-node-twice.json"),
     {"graph-node-twice.json#/nodes/1/name: \"h0\" appears twice"}},
    {"TransportNotInProfile",
     cluster("cluster-transport.json"),
     {"cluster-transport.json: ", "transport \"rdma\"", "profile \"cpu-generic.datasheet\""}},
    {"ProfileOfClusterUnknown",
     cluster("cluster-profile.json"),
     {"cluster-profile.json#/device/profile: ", "did you mean \"cpu-generic.datasheet\"?"}},
    // Workloads.
    {"DuplicateTensorName",
     workload("workload-duplicate-name.json"),
     {"workload-duplicate-name.json#/tensors/1/name: \"a\" appears twice"}},
    {"NoTensors",
     workload("workload-empty-tensors.json"),
     {"workload-empty-tensors.json#/tensors: ", "at least one parameter"}},
    {"ArrivalOutOfRange",
     workload("workload-arrival-range.json"),
     {"workload-arrival-range.json#/arrival/1: no tensor has index 2; there are 2"}},
    {"ArrivesTwice",
     workload("workload-arrival-twice.json"),
     {"workload-arrival-twice.json#/arrival/1: tensor 1 arrives twice"}},
    {"ReadyFalls",
     workload("workload-ready-falls.json"),
     {"workload-ready-falls.json#/times/ready_ps/1: ", "never fall"}},
    {"ReadyAfterBackward",
     workload("workload-ready-late.json"),
     {"workload-ready-late.json#/times/ready_ps/1: ", "later than the end of backward"}},
    {"ReadyTooShort",
     workload("workload-ready-short.json"),
     {"workload-ready-short.json#/times/ready_ps: has 1 entries; arrival has 2"}},
    {"LayersDoNotGiveArrival",
     workload("workload-layers.json"),
     {"workload-layers.json#/layers: ", "does not give \"arrival\""}},
    {"UnknownDtype",
     workload("workload-dtype.json"),
     {"workload-dtype.json#/tensors/1/dtype: unknown dtype", "float32"}},
    {"ShapeOverflows",
     workload("workload-shape.json"),
     {"workload-shape.json#/tensors/0/shape: more than 2^50 elements"}},
    {"NegativeShape",
     workload("workload-negative-shape.json"),
     {"workload-negative-shape.json#/tensors/0/shape: dimension -2 is not positive"}},
    {"UnknownPrecision",
     workload("workload-precision.json"),
     {"workload-precision.json#/precision: \"fp8\"", "\"bf16\""}},
    {"CapturedBatchSet",
     set(kCpu, "workload.batch=128"),
     {"--set workload.batch=128: ", "captured at one batch", "described workload"}},
    {"NoSequence",
     {"predict", "--workload", "resnet18", "--cluster", "hgx-h100", "--set",
      "workload.sequence=128"},
     {"--set workload.sequence=128 ", "resnet18.json#/sequence", "the model has no sequence"}},
    {"SequenceBeyondPositions",
     {"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--set",
      "workload.sequence=2048"},
     {"--set workload.sequence=2048 ", "learned 1024 positions"}},
    {"CapturedOnCpuRunOnGpu",
     {"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "hgx-h100"},
     {"workloads/mlp784-50-10-cpu.json: ", "captured on a CPU", "described workload"}},
    // Profiles.
    {"RangeOutOfOrder",
     profile("profile-range.json"),
     {"profile-range.json#/memory/efficiency: low <= mid <= high"}},
    {"NegativeTime",
     profile("profile-negative-time.json"),
     {"profile-negative-time.json#/host/hook_ps: a time is not negative"}},
    {"ProfileLacksTransport",
     profile("profile-other-transport.json"),
     {"topologies/ethernet-10g.json: ", "transport \"tcp\"", "profile \"cpu\""}},
    {"PrecisionNotInProfile",
     {"predict", "--workload", "mlp784-50-10", "--cluster", "ethernet-10g", "--set",
      "workload.precision=bf16"},
     {"workloads/mlp784-50-10.json: ", "no peak_flops for precision bf16"}},
    {"TwoProfiles",
     kCpu + std::vector<std::string>{"--profile", "cpu-generic.datasheet", "--profile",
                                     "h100-sxm.datasheet"},
     {"--profile: one profile at a time"}},
    {"ProfileOfTheOtherKind",
     kCpu + std::vector<std::string>{"--profile", "h100-sxm.datasheet"},
     {"topologies/ethernet-10g.json#/device/kind: ", "CPUs", "--profile"}},
    // Plans.
    {"TensorParallelKey",
     scenario("scenario-tensor-parallel.json"),
     {"scenario-tensor-parallel.json#/plan/tensor_parallel: ", "data parallelism only",
      "remove it"}},
    {"PipelineParallelSystem",
     scenario("scenario-pipeline-system.json"),
     {"scenario-pipeline-system.json#/plan/system: ", "not data parallelism", "\"pytorch_ddp\""}},
    {"PipelineParallelScenario",
     scenario("scenario-top-pipeline.json"),
     {"scenario-top-pipeline.json#/pipeline_parallel: ", "data parallelism only"}},
    {"TensorParallelFlag",
     kCpu + std::vector<std::string>{"--plan", "tensor_parallel"},
     {"--plan tensor_parallel: ", "not data parallelism", "\"pytorch_ddp\""}},
    {"UnknownSystem",
     kCpu + std::vector<std::string>{"--plan", "pytorch_dpp"},
     {"--plan pytorch_dpp: ", "did you mean \"pytorch_ddp\"?"}},
    {"UnknownKnobInPlanFile",
     kCpu + std::vector<std::string>{"--plan", "BAD/plan-unknown.json"},
     {"BAD/plan-unknown.json#/bucket_cap: ", "did you mean \"bucket_cap_mb\"?"}},
    {"VersionAsNumber",
     scenario("scenario-version.json"),
     {"scenario-version.json#/plan/pytorch: ", "text in quotes", "\"2.7\""}},
    {"UnknownVersion",
     scenario("scenario-unknown-version.json"),
     {"scenario-unknown-version.json#/plan/pytorch: \"2.15\" is no release of PyTorch that was "
      "read",
      "1.11 to 2.14"}},
    {"CapWithUnit",
     scenario("scenario-cap-text.json"),
     {"scenario-cap-text.json#/plan/bucket_cap_mb: ", "bare number of MiB", "25"}},
    {"CapNegative",
     set(kCpu, "bucket_cap_mb=-1"),
     {"--set bucket_cap_mb=-1: ", "positive number of MiB"}},
    {"CapZero",
     set(kCpu, "bucket_cap_mb=0"),
     {"--set bucket_cap_mb=0: ", "positive number of MiB"}},
    {"CapHuge", set(kCpu, "bucket_cap_mb=1e300"), {"--set bucket_cap_mb=1e300: ", "at most 1e6"}},
    {"KnobOfAnotherSystem",
     scenario("scenario-averaging-cap.json"),
     {"scenario-averaging-cap.json#/plan/bucket_cap_mb: ", "knob of pytorch_ddp"}},
    {"NcclOnCpu", set(kCpu, "backend=nccl"), {"--set backend=nccl: ", "use gloo"}},
    {"GlooOnGpu",
     set(set(kGpu, "backend=gloo"), "optimizer_in_backward=true"),
     {"--set optimizer_in_backward=true: ", "use nccl"}},
    {"UnusedParameterWithoutFlag",
     set(kCpu, "unused_parameters=[\"fc1.bias\"]"),
     {"--set unused_parameters=", "fc1.bias", "find_unused_parameters"}},
    {"UnknownUnusedParameter",
     set(kCpu, "unused_parameters=[\"fc9.bias\"]"),
     {"--set unused_parameters=", "no parameter \"fc9.bias\""}},
    {"ZeroAccumulationSteps",
     set(kCpu, "accumulation_steps=0"),
     {"--set accumulation_steps=0: ", "1 to 10,000"}},
    {"BooleanAsText",
     set(kCpu, "static_graph=yes"),
     {"--set static_graph=yes", "expected true or false"}},
    // Ranks.
    {"ZeroRanks",
     scenario("scenario-zero-ranks.json"),
     {"scenario-zero-ranks.json#/ranks: ", "at least one rank"}},
    {"NegativeRanks",
     scenario("scenario-negative-ranks.json"),
     {"scenario-negative-ranks.json#/ranks: ", "at least one rank"}},
    {"HugeRanks",
     scenario("scenario-huge-ranks.json"),
     {"scenario-huge-ranks.json#/ranks: ", "64-bit"}},
    {"RanksAsText",
     scenario("scenario-text-ranks.json"),
     {"scenario-text-ranks.json#/ranks: ", "whole number"}},
    {"MoreRanksThanDevices",
     scenario("scenario-too-many-ranks.json"),
     {"scenario-too-many-ranks.json#/ranks: ", "99 ranks", "72 devices", "raise cluster.hosts"}},
    {"MoreRanksThanDevicesByFlag",
     set(kCpu, "cluster.hosts=8") + std::vector<std::string>{"--ranks", "9"},
     {"--ranks 9: ", "8 devices"}},
    {"NegativeRanksFlag",
     kCpu + std::vector<std::string>{"--ranks", "-1"},
     {"--ranks -1: ", "at least one rank"}},
    {"RanksFlagInWords",
     kCpu + std::vector<std::string>{"--ranks", "four"},
     {"--ranks four: ", "whole number"}},
    {"RankOrderTwice",
     scenario("scenario-rank-order-twice.json"),
     {"scenario-rank-order-twice.json#/rank_order/2: device 1 already has a rank"}},
    {"RankOrderLength",
     scenario("scenario-rank-order-short.json"),
     {"scenario-rank-order-short.json#/rank_order: names 3 devices for 4 ranks"}},
    {"RankOrderRange",
     scenario("scenario-rank-order-range.json"),
     {"scenario-rank-order-range.json#/rank_order/3: no device 8"}},
    {"SlowRankOutOfRange",
     scenario("scenario-slow-rank.json"),
     {"scenario-slow-rank.json#/slow_ranks/4: no rank 4; there are 4"}},
    {"SlowRankInWords",
     scenario("scenario-slow-rank-name.json"),
     {"scenario-slow-rank-name.json#/slow_ranks/last: ", "not a rank number"}},
    {"SlowRankZero",
     scenario("scenario-slow-rank-zero.json"),
     {"scenario-slow-rank-zero.json#/slow_ranks/3: ", "above 0"}},
    {"JitterNegative",
     scenario("scenario-jitter-cv.json"),
     {"scenario-jitter-cv.json#/jitter/cv: 0 to 1"}},
    {"JitterWithoutSamples",
     scenario("scenario-jitter-samples.json"),
     {"scenario-jitter-samples.json#/jitter/samples: 1 to 10,000"}},
    // Flags.
    {"UnknownCommand", {"predcit"}, {"\"predcit\" is not a command (did you mean \"predict\"?)"}},
    {"UnknownFlag",
     kCpu + std::vector<std::string>{"--rank", "4"},
     {"--rank is not a flag", "did you mean --ranks?"}},
    {"MissingValue",
     kCpu + std::vector<std::string>{"--ranks"},
     {"--ranks: ", "needs a value, found --out"}},
    {"FlagTwice", kCpu + std::vector<std::string>{"--ranks", "2", "--ranks", "4"}, {"--ranks"}},
    {"ExtraArgument", kCpu + std::vector<std::string>{"BAD/scenario-list.json", "more"}, {"more"}},
    {"BadFormat",
     kCpu + std::vector<std::string>{"--format", "yaml"},
     {"--format", "\"yaml\"", "table, csv, json"}},
    {"BadFormatOfTrace",
     {"trace", "--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g", "--format", "csv"},
     {"--format", "\"csv\"", "json"}},
    {"BadFidelity",
     kCpu + std::vector<std::string>{"--fidelity", "exact"},
     {"--fidelity exact: ", "collective or message"}},
    {"SetWithoutEquals", set(kCpu, "bucket_cap_mb"), {"--set bucket_cap_mb: ", "PATH=VALUE"}},
    {"UnknownAlgorithm",
     set(set(kCpu, "backend=tcp"), "algorithm=halving_dubbling"),
     {"--set algorithm=halving_dubbling ", "did you mean \"halving_doubling\"?"}},
    {"AlgorithmOfAnotherBackend",
     set(kCpu, "algorithm=bcube"),
     {"algorithm", "is a knob of backend tcp, and the plan's backend is gloo"}},
    {"GlooAlgorithmOfAnotherBackend",
     set(set(kCpu, "backend=tcp"), "gloo_algorithm=bcube"),
     {"gloo_algorithm", "is a knob of backend gloo, and the plan's backend is tcp"}},
    {"MpiOnGpus",
     {"predict", "--workload", "resnet18", "--cluster", "hgx-h100", "--set", "backend=mpi"},
     {"backend", "mpi with CUDA tensors", "use nccl"}},
    {"GlooOnGpusOfAnotherSystem",
     {"predict", "--workload", "resnet18", "--cluster", "dgx-h100", "--plan", "horovod", "--set",
      "backend=gloo"},
     {"backend", "is modelled of pytorch_ddp and averaging, not of horovod", "use nccl"}},
    {"GlooOnGpusWithoutReduceScatter",
     {"predict", "--workload", "gpt2-small", "--cluster", "dgx-h100", "--plan", "fsdp", "--set",
      "backend=gloo"},
     {"backend", "has no reduce-scatter for fsdp", "use nccl, or pytorch_ddp"}},
    {"GlooOnGpusWithPowerSgd",
     {"predict", "--workload", "resnet18", "--cluster", "dgx-h100", "--set", "backend=gloo",
      "--set", "comm_hook=powerSGD"},
     {"comm_hook", "is modelled without it", "use nccl"}},
    {"GlooOnGpusWithoutALinkToTheHost",
     {"predict", "--workload", "resnet18", "--cluster", "gpu-ethernet-10g", "--set",
      "backend=gloo"},
     {"cluster", "draws no PCIe (or C2C) link", "dgx-h100"}},
    {"GlooOnEmulatedGpus",
     {"predict", "--workload", "resnet18", "--cluster", "testbed-gpu", "--set", "backend=gloo"},
     {"backend", "emulates them", "leave backend out"}},
    {"MpiOfAnotherVersion",
     set(set(kCpu, "backend=mpi"), "open_mpi=3.1"),
     {"open_mpi", "\"3.1\"", "4.0, 4.1 and 5.0"}},
    {"OpenMpiOfAnotherBackend", set(kCpu, "open_mpi=4.1"), {"open_mpi", "is of backend mpi"}},
    {"MpiAlgorithmWithoutDynamicRules",
     set(set(kCpu, "backend=mpi"), "OMPI_MCA_coll_tuned_allreduce_algorithm=4"),
     {"OMPI_MCA_coll_tuned_allreduce_algorithm", "OMPI_MCA_coll_tuned_use_dynamic_rules=1"}},
    {"MpiUnknownVariable",
     set(set(kCpu, "backend=mpi"), "OMPI_MCA_coll_tuned_alltoall_algorithm=4"),
     {"OMPI_MCA_coll_tuned_alltoall_algorithm", "those are", "OMPI_MCA_btl_tcp_eager_limit"}},
    {"MpiReadsNoNcclVariable",
     set(set(kCpu, "backend=mpi"), "NCCL_ALGO=ring"),
     {"NCCL_ALGO", "is not a variable of Open MPI"}},
    {"MpiHasNoHalves",
     set(set(kCpu, "backend=mpi"), "comm_hook=fp16_compress"),
     {"comm_hook", "ProcessGroupMPI has no type", "gloo"}},
    {"UnknownGlooAlgorithm",
     set(kCpu, "gloo_algorithm=rink"),
     {"--set gloo_algorithm=rink ", "did you mean \"ring\"?"}},
    {"SetUnknownKnob",
     set(kCpu, "bucket_cap_md=5"),
     {"--set bucket_cap_md=5 ", "did you mean \"bucket_cap_mb\"?"}},
    {"SetUnknownField",
     set(kCpu, "cluster.host=4"),
     {"--set cluster.host=4 ", "ethernet-10g.json#/host", "did you mean \"hosts\"?"}},
    {"SetIndexOutOfRange",
     set(kCpu, "workload.tensors.4.name=x"),
     {"--set workload.tensors.4.name=x: ", "list of 4"}},
    {"SetInsideANumber",
     set(kCpu, "cluster.hosts.x=1"),
     {"--set cluster.hosts.x=1: ", "not inside an object"}},
    {"SetEmptyName", set(kCpu, "cluster..hosts=1"), {"--set cluster..hosts=1: ", "empty name"}},
    {"SetNested",
     set(kCpu, "plan.comm_hook=" + std::string(20000, '[') + std::string(20000, ']')),
     {"--set plan.comm_hook=", "..."}},
    {"SetNotUtf8", set(kCpu, "workload.model=\xff"), {"--set", "UTF-8"}},
    {"SetBareNumber",
     set(kCpu, "cluster.link.bandwidth=25"),
     {"--set cluster.link.bandwidth=25 ", "#/link/bandwidth", "no unit"}},
    {"SetZeroHosts", set(kCpu, "cluster.hosts=0"), {"--set cluster.hosts=0 ", "at least one host"}},
    {"UnknownWorkload",
     {"predict", "--workload", "resnet5", "--cluster", "hgx-h100"},
     {"--workload: \"resnet5\": ", "did you mean \"resnet50\"?"}},
    {"UnknownCluster",
     {"predict", "--workload", "resnet50", "--cluster", "hgx-h10"},
     {"--cluster: \"hgx-h10\": ", "did you mean \"hgx-h100\"?"}},
    {"UnknownProfile",
     kCpu + std::vector<std::string>{"--profile", "cpu-generic"},
     {"--profile: \"cpu-generic\": ", "ddpsim list"}},
    {"ControlCharacters",
     {"predict", "--workload", "a\x1b[31m\nb", "--cluster", "hgx-h100"},
     {"--workload: \"a [31m b\": "}},
    {"NoWorkload",
     {"predict", "--cluster", "hgx-h100"},
     {"--workload: no workload given", "ddpsim list workloads"}},
    {"NoCluster",
     {"predict", "--workload", "resnet50"},
     {"--cluster: no cluster given", "ddpsim list clusters"}},
    {"ListUnknown", {"list", "worklaods"}, {"list worklaods: ", "did you mean \"workloads\"?"}},
    {"ListAllAsJson",
     {"list", "--format", "json"},
     {"list: ", "workloads, clusters, profiles, plans"}},
    {"ShowUnknown", {"show", "programme"}, {"show programme: ", "did you mean \"program\"?"}},
    {"ShowNothing", {"show", "workload"}, {"show workload: ", "NAME"}},
    {"ShowInvalidFile",
     {"show", "cluster", "BAD/cluster-zero-hosts.json"},
     {"cluster-zero-hosts.json#/hosts: "}},
    {"ShowFileAsCsv",
     {"show", "cluster", "hgx-h100", "--format", "csv"},
     {"--format csv: ", "JSON"}},
    {"ShowFileWithSet",
     {"show", "cluster", "hgx-h100", "--set", "cluster.hosts=2"},
     {"--set cluster.hosts=2: ", "leave --set out"}},
    {"MessageFidelityTooLarge",
     kGpu + std::vector<std::string>{"--set", "cluster.hosts=256", "--fidelity", "message"},
     {"--fidelity message: ", "1,024", "--fidelity collective"}},
    {"TimeBeyondTheClock",
     set(kCpu, "jitter={\"cv\":0.1,\"samples\":10000}") +
         std::vector<std::string>{"--set", "cluster.link.bandwidth=1kb/s"},
     {"seconds", "rate too small"}},
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class BadInput : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("ddpsim_bad_" + std::string(GetParam().name) + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    write("empty.json", "");
    write("blank.json", " \n\t\n");
    write("binary.json", std::string("\x7f"
                                     "ELF\x02\x01\x00\x00\x1b[31m\xfe\xff",
                                     14));
    write("latin1.json", "{\"schema\": \"ddpsim.scenario/1\", \"description\": \"caf\xe9\"}");
    write("nested.json", std::string(1'000'000, '['));
    // /proc/self/mem: a regular file whose beginning even root cannot read.
    fs::create_symlink("/proc/self/mem", folder_ / "unreadable.json");
    ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string expand(std::string text) const {
    for (auto [mark, value] :
         {std::pair<std::string, std::string>{"BAD/", source_path("tests/cli/bad/")},
          {"TMP/", folder_.string() + "/"}})
      if (auto at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), value);
    return text;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  fs::path folder_;
};

void expect_refused(const Outcome& o, const Args& args = {}) {
  EXPECT_EQ(o.code, 2) << o.err;
  expect_no_answer(o, args);
  ASSERT_FALSE(o.err.empty());
  EXPECT_TRUE(o.err.starts_with("ddpsim: ")) << o.err;
  EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << "more than one line: " << o.err;
  EXPECT_LT(o.err.size(), 1500u);
  for (char c : o.err)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n')
        << "control character " << static_cast<int>(c);
}

TEST_P(BadInput, IsRefusedInOneSentence) {
  const Case& c = GetParam();
  std::vector<std::string> args;
  for (const std::string& a : c.args) args.push_back(expand(a));
  args.push_back("--out");
  args.push_back((folder_ / "answer").string());
  auto before = files();
  const double from = cpu_seconds();
  Outcome o = ddpsim(args);
  EXPECT_LT(cpu_seconds() - from, 5);
  expect_refused(o, args);
  for (const std::string& s : c.says)
    EXPECT_NE(o.err.find(expand(s)), std::string::npos)
        << "expected: " << s << "\nfound: " << o.err;
  EXPECT_EQ(files(), before) << "something was written";
}

INSTANTIATE_TEST_SUITE_P(Cli, BadInput, testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

// Each file in bad/ is used, so that none lies there broken for another reason than its name says.
TEST(BadInputFiles, AreAllUsed) {
  for (const auto& entry : fs::directory_iterator(source_path("tests/cli/bad"))) {
    std::string name = "BAD/" + entry.path().filename().string();
    bool used = std::any_of(kCases.begin(), kCases.end(), [&](const Case& c) {
      return std::find(c.args.begin(), c.args.end(), name) != c.args.end();
    });
    EXPECT_TRUE(used) << name;
  }
}

// The unbroken originals are accepted: the cases above fail for what was broken.
TEST(BadInputFiles, DescendFromGoodOnes) {
  Outcome o = ddpsim({"predict", "--workload", source_path("tests/cli/bad/workload-good.json"),
                      "--cluster", source_path("tests/cli/bad/cluster-good.json")});
  EXPECT_EQ(o.code, 0) << o.err;
}

class BadOutput : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_out_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "folder");
    std::ofstream(folder_ / "file") << "before";
  }
  void TearDown() override { fs::remove_all(folder_); }
  Outcome predict_to(const fs::path& path) const {
    return ddpsim({kCpu[0], kCpu[1], kCpu[2], kCpu[3], kCpu[4], "--out", path.string()});
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::recursive_directory_iterator(folder_),
                                                  fs::recursive_directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(BadOutput, IsRefusedInOneSentence) {
  for (const fs::path& path :
       {folder_ / "missing" / "answer.json", folder_ / "folder", folder_ / "file" / "answer.json",
        fs::path("/proc/self/answer.json")}) {
    Outcome o = predict_to(path);
    expect_refused(o);
    EXPECT_NE(o.err.find(path.string() + ": cannot be written: "), std::string::npos) << o.err;
    EXPECT_EQ(entries(), 2u) << path;
  }
  EXPECT_EQ(read(folder_ / "file"), "before");
}

TEST_F(BadOutput, LeavesThePreviousAnswerWhenTheQuestionIsBad) {
  Outcome o = ddpsim({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g",
                      "--ranks", "0", "--out", (folder_ / "file").string()});
  expect_refused(o);
  EXPECT_EQ(read(folder_ / "file"), "before");
}

// Of devices and pipes only a pipe of the test's own is written: as root, a regression here would
// replace a real device, such as /dev/null.
TEST_F(BadOutput, KeepsAPipeAPipeAndALinkALink) {
  fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(predict_to(pipe).code, 0);
  char first = 0;
  EXPECT_EQ(::read(reader, &first, 1), 1);
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(fs::symlink_status(pipe)));
  fs::create_symlink(folder_ / "file", folder_ / "link");
  EXPECT_EQ(predict_to(folder_ / "link").code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_NE(read(folder_ / "file"), "before");
  EXPECT_EQ(entries(), 4u);
}

TEST_F(BadOutput, SaysThatTheDiskIsFull) {
  // As a full disk does, a limit on the size of files makes the write fail halfway.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Outcome o = predict_to(folder_ / "file");
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  expect_refused(o);
  EXPECT_NE(o.err.find("/file: cannot be written: File too large"), std::string::npos) << o.err;
  EXPECT_EQ(read(folder_ / "file"), "before");
  EXPECT_EQ(entries(), 2u) << "a temporary is left";
}

}  // namespace
}  // namespace ddpsim::test
