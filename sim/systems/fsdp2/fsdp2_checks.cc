#include <string>
#include <utility>

#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp2/lowered.h"

namespace ddpsim::systems {

Problem validate_fsdp2(const Plan& p, const Workload& w, DeviceKind device) {
  if (Problem problem = validate_units(p, w, device)) return problem;
  const FsdpPlan& f = fsdp_of(p);
  using pytorch::Change;
  if (!p.pytorch.has(Change::FullyShard))
    return {"/plan/pytorch", std::string("fully_shard is modelled as of PyTorch ") +
                                 first_with(Change::FullyShard) + " and later; " +
                                 name_of(p.pytorch) + " has FSDP1 (\"fsdp\")"};
  if (!p.pytorch.has(Change::SeveralInputs))
    for (auto [knob, set] :
         {std::pair{"separate_reduce_scatter_group", f.separate_reduce_scatter_group},
          std::pair{"reduce_scatter_max_input_buffers", f.reduce_scatter_max_input_buffers != 1}})
      if (set)
        return {std::string("/plan/") + knob,
                "PyTorch 2.13 is the first to have it (--set "
                "pytorch=2.13)"};
  struct Count {
    const char* knob;
    std::int64_t value, least;
  };
  // Where set_modules_to_backward_prefetch names nothing, the unit before is gathered ahead.
  for (const Count& c :
       {Count{"forward_prefetch_units", f.forward_prefetch_units, 0},
        Count{"backward_prefetch_units", f.backward_prefetch_units, 1},
        Count{"reduce_scatter_max_input_buffers", f.reduce_scatter_max_input_buffers, 1}})
    if (c.value < c.least || c.value > 1000)
      return {std::string("/plan/") + c.knob, std::to_string(c.least) + " to 1,000"};
  return {};
}

}  // namespace ddpsim::systems
