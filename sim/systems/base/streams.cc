#include "sim/systems/base/streams.h"

#include <utility>

namespace ddpsim::systems {

void DeviceStreams::begin(StepBuilder& b) {
  b_ = &b;
  last_.assign(last_.size(), kNoOp);
  for (auto& p : pending_) p.clear();
}

void DeviceStreams::wait(Stream s, Stream other) {
  if (last_[other] != kNoOp && (other != kCompute || s != kCompute))
    pending_[s].push_back(last_[other]);
  const std::vector<std::uint32_t> theirs = pending_[other];
  pending_[s].insert(pending_[s].end(), theirs.begin(), theirs.end());
}

void DeviceStreams::wait_for(Stream s, std::uint32_t op) {
  if (op != kNoOp) pending_[s].push_back(op);
}

// A collective is on its communicator's lane, not on the stream that issued it.
std::vector<std::uint32_t> DeviceStreams::take_pending(Stream s) {
  std::vector<std::uint32_t> out = std::exchange(pending_[s], {});
  if (last_[s] != kNoOp && is_collective(b_->step.ops[last_[s]].kind)) out.push_back(last_[s]);
  return out;
}

std::uint32_t DeviceStreams::kernel(Stream s, const OpWord& word, std::uint32_t subject,
                                    std::int64_t bytes, Work work) {
  std::vector<std::uint32_t> after = take_pending(s);
  return last_[s] = b_->on_stream(lane_of(s), word, subject, bytes, work, after);
}

std::uint32_t DeviceStreams::collective(Stream s, const OpWord& word, std::uint32_t subject,
                                        std::int64_t bytes, DType type, std::uint8_t group,
                                        Lane lane) {
  std::vector<std::uint32_t> after = take_pending(s);
  if (last_[s] != kNoOp) after.push_back(last_[s]);
  last_[s] = b_->collective_after(word, subject, bytes, type, after, lane);
  b_->step.ops[last_[s]].group = group;
  return last_[s];
}

void DeviceStreams::compute(const OpWord& word, std::uint32_t subject, const Stretch& s) {
  b_->host_time(s.head);
  kernel(kCompute, word, subject, 0, {.duration = s.device});
  b_->host_time(s.host - s.head);
}

}  // namespace ddpsim::systems
