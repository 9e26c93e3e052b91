// Devices is what computes on the device of each class of ranks, and what collectives take of it
// meanwhile. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "sim/cost/roofline.h"
#include "sim/play/job.h"
#include "sim/play/kernel_wait.h"

namespace ddpsim::predict {

class Devices {
 public:
  using TaskId = engine::TaskId;
  using Price = collective::Price;

  explicit Devices(Job& job) : job_(job) {}

  // Before anything is added to the graph.
  void make() {
    double hold = at(job_.profile.sm_hold, job_.options.level);
    if (job_.program.device == DeviceKind::Gpu && job_.comm.ranks() > 1 &&
        (hold > 0 || job_.profile.memory_hold ||
         (job_.comm.backend() == Backend::Nccl && job_.program.kernel.ps > 0)))
      make_device_resources(hold);
  }

  bool are_shared() const { return !device_[0].empty(); }
  // At what a kernel of class c goes on: products, or what memory decides.
  engine::FlowId flow(const Op& op, std::size_t c) const {
    return device_flow_[moves_memory(op)][c];
  }

  // The mean rank's kernel holds its share of the device from when it begins, until the last one's
  // has begun, too.
  TaskId after_kernels(const KernelWait& wait, std::size_t c, TaskId ready) {
    return add_wait(c, wait.last - wait.mean, add_wait(c, wait.mean, ready));
  }

  // What a collective takes of class c's device from one task to another.
  void hold(TaskId from, TaskId to, std::size_t c, const Price& price) {
    for (std::size_t k = 0; k < (job_.profile.memory_hold ? 2u : 1u); ++k)
      job_.graph.add_hold(from, to, {device_[k][c], hold_of(k, price)});
  }

 private:
  // Of each class: what computes, and, where it is known apart, what moves memory.
  void make_device_resources(double hold) {
    holds_ = {hold,
              job_.profile.memory_hold ? at(*job_.profile.memory_hold, job_.options.level) : hold};
    // Computation is products and what memory decides, in turns.
    mixed_ = job_.profile.memory_hold ? job_.program.products : 1;
    for (std::size_t c = 0; c < job_.classes.size(); ++c)
      for (std::size_t k = 0; k < device_.size(); ++k) {
        bool shared = k == 1 && !job_.profile.memory_hold;
        device_[k].push_back(shared ? device_[0][c]
                                    : job_.graph.add_resource({1, 0, 0, false, kMostHeld}));
        engine::Demand d{device_[k].back(), 1};
        device_flow_[k].push_back(shared ? device_flow_[0][c]
                                         : job_.graph.add_flow(std::span(&d, 1), 1, 1));
      }
  }
  // What a kernel waits for while the class's device computes goes at next to no rate beside
  // computation, and so fast that it hardly counts where nothing runs.
  engine::FlowId wait_flow(std::size_t c) {
    while (wait_flow_.size() <= c) {
      engine::Demand d{device_[0][wait_flow_.size()], 1};
      wait_flow_.push_back(job_.graph.add_flow(std::span(&d, 1), kBehindComputation, 1));
    }
    return wait_flow_[c];
  }
  TaskId add_wait(std::size_t c, Duration beside_computation, TaskId after) {
    const auto ps = static_cast<double>(beside_computation.ps);
    TaskId t = job_.graph.add_task({}, kBehindComputation * ps, wait_flow(c));
    job_.graph.add_edge(after, t);
    return t;
  }

  // What a collective takes of computation (0) and of what memory decides (1).
  double hold_of(std::size_t k, const Price& price) const {
    const double memory = holds_[1] * hold_factor(job_.profile, price.channels, true);
    if (k == 1) return memory;
    const double products = holds_[0] * hold_factor(job_.profile, price.channels, false);
    return mixed_ * products + (1 - mixed_) * memory;
  }
  static bool moves_memory(const Op& op) { return op.traffic > 0 || is_update(op.kind); }

  Job& job_;
  std::array<std::vector<engine::ResourceId>, 2>
      device_;  // products, memory; by class; empty: nothing is held
  std::array<std::vector<engine::FlowId>, 2> device_flow_;
  std::vector<engine::FlowId> wait_flow_;  // by class
  static constexpr double kBehindComputation = 1e-3;
  // Of a device, by all collectives at once: they wait for its kernels, which need the rest.
  static constexpr double kMostHeld = 0.6;
  std::array<double, 2> holds_{};
  double mixed_ = 1;
};

}  // namespace ddpsim::predict
