// Gloo's worker threads as a policy: one FIFO queue, `threads` collectives at once, popped in the
// order in which they were enqueued. Reads no clock: the virtual executor and a real one drive the
// same code. Source: ProcessGroupGloo.cpp (runLoop), Options::threads = 2.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace ddpsim::systems {

struct WorkerPool {
  int threads = 2;
  int busy = 0;
  std::deque<std::uint32_t> queue;  // operations not yet picked up
};

// The host enqueued `op`. Returns the operation that a worker picks up now, if any.
inline std::optional<std::uint32_t> enqueue(WorkerPool& pool, std::uint32_t op) {
  if (pool.busy < pool.threads) {
    ++pool.busy;
    return op;
  }
  pool.queue.push_back(op);
  return std::nullopt;
}

// A worker finished its operation. Returns what it picks up next, if anything waits.
inline std::optional<std::uint32_t> finished(WorkerPool& pool) {
  if (pool.queue.empty()) {
    --pool.busy;
    return std::nullopt;
  }
  std::uint32_t next = pool.queue.front();
  pool.queue.pop_front();
  return next;
}

}  // namespace ddpsim::systems
