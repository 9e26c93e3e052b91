#include "sim/systems/parameter_server/record.h"

#include "sim/systems/parameter_server/parameter_server.h"
#include "sim/systems/parameter_server/plan.h"

namespace ddpsim::systems {
namespace {

std::span<const KnobRecord> parameter_server_knobs() {
  static const KnobRecord knobs[] = {
      {"servers",
       "servers",
       "1",
       "processes that have the weights between them",
       true,
       [](Plan& p) { return Field(&parameter_server_of(p).servers); },
       {1, 2, 4, 8, 16}},
      {"server_hosts", "", "shared",
       "shared: servers are on the workers' hosts, in turn; own: each on a host that has no worker",
       false,
       [](Plan&) {
         return Field(choice_of<&ParameterServerPlan::own_hosts>({"shared", "own"}));
       }},
      {"synchronous", "", "false",
       "a server sums what all workers pushed, and updates once; false: each gradient is applied "
       "when it comes",
       false, [](Plan& p) { return Field(&parameter_server_of(p).synchronous); }},
      {"staleness", "steps", "-1",
       "a worker begins a step when no other is more than so many steps behind it (SSP); -1: at "
       "once",
       false, [](Plan& p) { return Field(&parameter_server_of(p).staleness); }},
      {"placement", "", "round_robin",
       "which server a variable, or part of one, is on: in turn, or the one that has least", true,
       [](Plan&) {
         return Field(choice_of<&ParameterServerPlan::placement>({"round_robin", "by_size"}));
       }},
      {"variable_partitioner", "", "none",
       "variables are cut along their first dimension: FixedShardsPartitioner, MinSizePartitioner, "
       "MaxSizePartitioner",
       false,
       [](Plan&) {
         return Field(choice_of<&ParameterServerPlan::variable_partitioner>(
             {"none", "fixed_shards", "min_size", "max_size"}));
       }},
      {"max_shards", "shards", "0 (as many as servers; of max_size any number)",
       "num_shards of fixed_shards, max_shards of the others", false,
       [](Plan& p) { return Field(&parameter_server_of(p).max_shards); }},
      {"shard_bytes", "bytes", "262144", "min_shard_bytes of min_size, max_shard_bytes of max_size",
       false, [](Plan& p) { return Field(&parameter_server_of(p).shard_bytes); }},
      {"pull", "", "before_forward",
       "when weights come: all before forward (TensorFlow), or after_push: each behind its "
       "gradient",
       true, [](Plan&) {
         return Field(
             choice_of<&ParameterServerPlan::pull_after_push>({"before_forward", "after_push"}));
       }}};
  return knobs;
}

}  // namespace

SystemRecord parameter_server_record() {
  return {.system = kParameterServerSystem,
          .aliases = {{"parameterserverstrategy"},
                      {"parameter_servers"},
                      {"tf.distribute.parameterserverstrategy"}},
          .title = "parameter servers",
          .brief = "parameter servers",
          .units = "shards",
          .does =
              "weights on servers, which workers pull and push gradients to: together, or each at "
              "its own pace",
          .evidence =
              "schedule from source reading (TensorFlow 2.x; Ho et al. 2013 for staleness), not "
              "executed",
          .schedule =
              "schedule from source reading (TensorFlow's ParameterServerStrategy; Ho et al. 2013 "
              "for staleness), not executed; computation takes what it takes in PyTorch",
          .words = parameter_server_words(),
          .knobs = parameter_server_knobs(),
          .lower = lower_parameter_server,
          .validate = validate_parameter_server,
          .count = [](const Workload& w, const Plan& p) { return server_shards(w, p).size(); },
          .operations =
              [](const Plan&) {
                return std::vector<Operation>{Operation::Push, Operation::Pull};
              },
          .groups = server_groups,
          .backend = [](const Plan&, DeviceKind) { return std::optional(Backend::Tcp); },
          .servers =
              [](const Plan& p) {
                const ParameterServerPlan& s = parameter_server_of(p);
                return std::optional(
                    Servers{static_cast<int>(s.servers), s.synchronous, s.staleness, s.own_hosts});
              },
          .ranked = {{"synchronous", "true"}, {"pull", "after_push"}}};
}

}  // namespace ddpsim::systems
