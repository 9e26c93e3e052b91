// The list of data-parallel systems, in the order in which they are listed.
#include <string>

#include "sim/systems/apex/record.h"
#include "sim/systems/averaging/record.h"
#include "sim/systems/data_parallel/record.h"
#include "sim/systems/ddp/record.h"
#include "sim/systems/fsdp/record.h"
#include "sim/systems/fsdp2/record.h"
#include "sim/systems/horovod/record.h"
#include "sim/systems/local_sgd/record.h"
#include "sim/systems/megatron/record.h"
#include "sim/systems/mirrored/record.h"
#include "sim/systems/parameter_server/record.h"
#include "sim/systems/zero/record.h"
#include "sim/systems/zero_redundancy/record.h"

namespace ddpsim::systems {

[[gnu::weak]] std::vector<SystemRecord> more_systems() {
  return {};
}

const std::vector<SystemRecord>& all_systems() {
  static const std::vector<SystemRecord> all = [] {
    std::vector<SystemRecord> own{ddp_record(),
                                  averaging_record(),
                                  fsdp_record(),
                                  fsdp2_record(),
                                  horovod_record(),
                                  zero_record(),
                                  zero_redundancy_record(),
                                  megatron_record(),
                                  apex_record(),
                                  data_parallel_record(),
                                  local_sgd_record(),
                                  mirrored_record(),
                                  multi_worker_mirrored_record(),
                                  parameter_server_record()};
    for (SystemRecord& more : more_systems()) own.push_back(std::move(more));
    return own;
  }();
  return all;
}

const SystemRecord& record_of(System s) {
  const std::vector<SystemRecord>& all = all_systems();
  for (const SystemRecord& r : all)
    if (r.system == s) return r;
  return all.front();  // REQUIRES: a system of the list
}

std::vector<Operation> sharding_operations(const Plan&) {
  return {Operation::AllGather, Operation::ReduceScatter, Operation::AllReduce};
}

}  // namespace ddpsim::systems

namespace ddpsim {

Backend backend_of(const Plan& plan, DeviceKind device) {
  if (plan.backend) return *plan.backend;
  if (auto* const own = systems::record_of(plan.system).backend)
    if (const auto backend = own(plan, device)) return *backend;
  return device == DeviceKind::Gpu ? Backend::Nccl : Backend::Gloo;
}

bool uses_no_sync(const Plan& plan) {
  return plan.no_sync.value_or(systems::record_of(plan.system).uses_no_sync);
}

bool offloads(const Plan& plan) {
  auto* const own = systems::record_of(plan.system).offloads;
  return own && own(plan);
}

bool stages_collectives(const Plan& plan, DeviceKind device) {
  return device == DeviceKind::Gpu && backend_of(plan, device) == Backend::Gloo;
}

bool on_gpus(const Plan& plan, DeviceKind device) {
  const Backend b = backend_of(plan, device);
  return device == DeviceKind::Gpu && (b == Backend::Nccl || b == Backend::Tcp);
}

bool stages_on_hosts(const Plan& plan, int ranks, int per_host) {
  auto* const own = systems::record_of(plan.system).stages_on_hosts;
  return own && own(plan, ranks, per_host);
}

std::int64_t ranks_without_inputs(const Plan& plan) {
  auto* const own = systems::record_of(plan.system).without_inputs;
  return own ? own(plan) : 0;
}

std::optional<Servers> servers_of(const Plan& plan) {
  auto* const own = systems::record_of(plan.system).servers;
  return own ? own(plan) : std::nullopt;
}

bool goes_apart(const Plan& plan) {
  const auto servers = servers_of(plan);
  return servers && servers->apart();
}

}  // namespace ddpsim
