#include <algorithm>

#include "sim/systems/mirrored/mirrored.h"
#include "sim/systems/mirrored/plan.h"

namespace ddpsim::systems {

Problem validate_mirrored(const Plan& p, const Workload& w, DeviceKind device) {
  const MirroredPlan& m = mirrored_of(p);
  const bool collective = m.cross_device_ops == CrossDeviceOps::CollectiveAllReduce;
  Plan free = p;
  free.backend.reset();
  if (p.backend && *p.backend != backend_of(free, device))
    return {"/plan/backend", std::string("follows from implementation, which makes it ") +
                                 name_of(backend_of(free, device)) +
                                 " here (NCCL: nccl; RING and AUTO: tcp); leave it out"};
  if (!collective && device == DeviceKind::Cpu)
    return {"/plan/cross_device_ops", "is modelled on GPUs; on CPUs: collective_all_reduce"};
  if (device == DeviceKind::Cpu && m.implementation == TensorflowCollective::Nccl)
    return {"/plan/implementation", "NCCL needs GPUs; on CPUs: RING"};
  if (!collective && m.implementation)
    return {
        "/plan/implementation",
        "is of cross_device_ops collective_all_reduce; the others are NCCL's, or copies between "
        "GPUs"};
  if (!collective && m.bytes_per_pack != 0)
    return {"/plan/bytes_per_pack",
            "is of cross_device_ops collective_all_reduce; the others pack by num_packs"};
  if (!collective && m.eager)
    return {"/plan/eager", "is modelled of cross_device_ops collective_all_reduce"};
  if (m.bytes_per_pack < 0 || m.bytes_per_pack > std::int64_t{1} << 40)
    return {"/plan/bytes_per_pack", "0 (one pack) to 2^40 bytes"};
  const bool packs = m.cross_device_ops == CrossDeviceOps::NcclAllReduce ||
                     m.cross_device_ops == CrossDeviceOps::HierarchicalCopyAllReduce;
  if (!packs && m.num_packs != MirroredPlan{}.num_packs)
    return {"/plan/num_packs",
            "is of cross_device_ops nccl_all_reduce and hierarchical_copy_all_reduce; "
            "collective_all_reduce packs by bytes_per_pack"};
  constexpr std::int64_t kMostPacks = 10'000;
  if (m.num_packs < 0 || m.num_packs > std::min(kMostPacks, w.elements()))
    return {"/plan/num_packs",
            "0 (each gradient by itself) to 10,000, and at most an element each"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype && !m.eager && m.num_packs > 0)
      return {"/plan/system",
              "TensorFlow concatenates gradients of one type, and this workload has two (" +
                  t.name + " is " + name_of(t.dtype) +
                  "): --set eager=true reduces them one by one"};
  if (w.compile != Compile::None)
    return {"/workload/compile",
            "torch.compile is PyTorch's, and XLA is not modelled; what one device takes for a step "
            "can be given (--measured-step 97ms), with workload.compile=none"};
  return {};
}

}  // namespace ddpsim::systems
