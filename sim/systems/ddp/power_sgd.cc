// PyTorch's powerSGD_hook, once it compresses. Of a bucket, on the compute stream (CPU: the host):
//
//   [gradients + error of the step before; a copy]  small tensors into one  Q orthogonal  P = M Q
//   all-reduce of small tensors; then, in its future's callback: divided, copied back;
//   all-reduce of P; then: P orthogonal, Q = M^T P;
//   all-reduce of Q; then: divided, M = P Q^T; GPU: the host waits for the device; [error = copy -
//   M]
//
// M are the parameters' gradients as matrices. Over NCCL callbacks run when they are registered,
// on streams of their own, so a bucket's three all-reduces are issued before the next gradient; the
// host's wait in the last one ends what backward had overlapped.
//
// Source: torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py, 1.13 and 2.7.
#include "sim/systems/ddp/power_sgd.h"

#include <algorithm>

#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kPowerFeedback = bucket_word("add_error/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kPowerWhole = bucket_word("join_whole/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kPowerP = bucket_word("make_p/bucket.", Does::Copy, Phase::Backward);
// What they send is no gradient: none of them carries tensors.
constexpr OpWord kPowerReduceWhole{
    "allreduce/powersgd_whole.",
    {.does = Does::Communicate, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kPowerReduceP{
    "allreduce/powersgd_p.",
    {.does = Does::Communicate, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kPowerReduceQ{
    "allreduce/powersgd_q.",
    {.does = Does::Communicate, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kPowerUnpack =
    bucket_word("average_whole/bucket.", Does::Copy, Phase::Reduced, Operation::AllReduce, true);
constexpr OpWord kPowerQ = bucket_word("make_q/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kPowerDecompress = bucket_word("multiply_pq/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kPowerSynchronize{"wait/powersgd.",
                                   {.does = Does::Wait, .phase = Phase::Reduced, .of = Of::Bucket}};
constexpr OpWord kPowerError = bucket_word("keep_error/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kPowerWords[] = {
    kPowerFeedback, kPowerWhole, kPowerP,          kPowerReduceWhole, kPowerReduceP, kPowerReduceQ,
    kPowerUnpack,   kPowerQ,     kPowerDecompress, kPowerSynchronize, kPowerError};

constexpr std::int64_t kTensorsOfJoin = 128;  // of a launch of torch.cat

// Of a matrix: Gram-Schmidt's norm and division of each column, and for each but the last a
// product, a sum, a product and a difference; above two columns, of floats, a QR decomposition:
// its factorisation and its product.
std::int64_t orthogonal_kernels(std::int64_t rank, DType type) {
  const bool halves = element_size(type) == 2;
  return rank <= 2 || halves ? 2 * rank + 4 * (rank - 1) : 2;
}

class PowerSgdHook {
 public:
  PowerSgdHook(StepBuilder& b, std::uint32_t k, const PowerSgdParts& parts, const DdpPlan& plan,
               Lane stream)
      : b_(b),
        k_(k),
        parts_(parts),
        plan_(plan),
        stream_(stream),
        type_(b.step.buckets[k].dtype),
        size_(element_size(type_)),
        bytes_(b.step.buckets[k].bytes.count) {}

  std::uint32_t run() {
    if (plan_.use_error_feedback) {
      b_.main(kPowerFeedback, k_, bytes_, {.traffic = 5 * bytes_, .kernels = 2});
      b_.allocate(Holds::Temporaries, bytes_);
    }
    const std::int64_t whole = size_ * parts_.whole;
    if (whole > 0)
      b_.main(kPowerWhole, k_, whole, {.traffic = 2 * whole, .kernels = joins(), .thin = true});
    const std::int64_t m = size_ * parts_.compressed;
    const std::int64_t p = size_ * parts_.p;
    const std::int64_t q = size_ * parts_.q;
    // Random numbers of every step come from the host, a copy for each matrix.
    const std::int64_t fill = plan_.warm_start ? 0 : parts_.matrices;
    if (m > 0)
      b_.main(kPowerP, k_, p,
              {.traffic = m + 3 * q + p,
               .kernels = orthogonal() + fill + parts_.matrices,
               .thin = true});
    last_ = kNoOp;
    reduce(kPowerReduceWhole, whole);
    if (whole > 0)
      after(kPowerUnpack, whole,
            {.traffic = 4 * whole, .kernels = 1 + parts_.whole_tensors, .thin = true});
    reduce(kPowerReduceP, p);
    if (m > 0)
      after(kPowerQ, q,
            {.traffic = m + 3 * p + q, .kernels = orthogonal() + parts_.matrices, .thin = true});
    reduce(kPowerReduceQ, q);
    if (m > 0)
      after(kPowerDecompress, m,
            {.traffic = 2 * q + p + q + m, .kernels = 1 + parts_.matrices, .thin = true});
    if (b_.gpu()) b_.wait(kPowerSynchronize, k_, last_);
    if (plan_.use_error_feedback) {
      after(kPowerError, bytes_, {.traffic = 3 * bytes_});
      b_.release(Holds::Temporaries, bytes_);
    }
    return last_;
  }

 private:
  // On a CPU Python's look at each tensor lasts as long as an operator; a GPU waits for none of it.
  std::int64_t joins() const {
    return b_.gpu() ? (parts_.whole_tensors + kTensorsOfJoin - 1) / kTensorsOfJoin
                    : parts_.whole_tensors;
  }
  std::int64_t orthogonal() const {
    return parts_.matrices * orthogonal_kernels(plan_.matrix_approximation_rank, type_);
  }
  void reduce(const OpWord& word, std::int64_t bytes) {
    if (bytes == 0) return;
    if (b_.gpu() && last_ != kNoOp) {
      last_ = b_.collective_after(word, k_, bytes, type_, std::span(&last_, 1));
      return;
    }
    const std::uint32_t before = last_;
    last_ = b_.collective(word, k_, bytes, type_);
    b_.add_dep(last_, before);
  }
  // In the callback of the future of what was before.
  void after(const OpWord& word, std::int64_t bytes, Work work) {
    last_ = b_.gpu() ? b_.on_stream(stream_, word, k_, bytes, work, std::span(&last_, 1))
                     : b_.callback(word, k_, bytes, work, last_);
  }

  StepBuilder& b_;
  const std::uint32_t k_;
  const PowerSgdParts& parts_;
  const DdpPlan& plan_;
  const Lane stream_;
  const DType type_;
  const std::int64_t size_;
  const std::int64_t bytes_;
  std::uint32_t last_ = kNoOp;
};

}  // namespace

std::span<const OpWord> power_sgd_words() {
  return kPowerWords;
}

PowerSgdParts power_sgd_parts(const Workload& w, const std::vector<TensorIndex>& tensors,
                              const DdpPlan& plan) {
  PowerSgdParts out;
  for (TensorIndex t : tensors) {
    const std::int64_t elements = w.tensors[t].elements();
    const std::int64_t n = w.tensors[t].shape.empty() ? 1 : w.tensors[t].shape.front();
    const std::int64_t m = n > 0 ? elements / n : 0;
    const std::int64_t r = std::min({n, m, plan.matrix_approximation_rank});
    const double compressed = static_cast<double>((n + m) * r);
    if (compressed * plan.min_compression_rate.value_or(2) < static_cast<double>(n * m)) {
      out.compressed += elements;
      ++out.matrices;
      out.p += n * r;
      out.q += m * r;
    } else {
      out.whole += elements;
      ++out.whole_tensors;
    }
  }
  return out;
}

std::int64_t power_sgd_bytes(const Workload& w, const Plan& plan) {
  if (ddp_of(plan).comm_hook != CommHook::PowerSgd) return 0;
  std::int64_t kept = ddp_of(plan).use_error_feedback ? w.gradient_bytes().count : 0;
  if (!ddp_of(plan).warm_start) return kept;
  for (const auto& bucket : steady_buckets(w, plan)) {
    const PowerSgdParts parts = power_sgd_parts(w, bucket, ddp_of(plan));
    kept += (parts.p + parts.q) * element_size(w.tensors[bucket.front()].dtype);
  }
  return kept;
}

Problem check_power_sgd(const Plan& plan, const Workload& w, DeviceKind device) {
  if (ddp_of(plan).comm_hook != CommHook::PowerSgd) return {};
  if (backend_of(plan, device) != Backend::Gloo) return {};
  const std::size_t buckets = steady_buckets(w, plan).size();
  if (buckets < 2) return {};
  return {"/plan/comm_hook",
          "powerSGD over gloo ends with an error where there are several buckets, here " +
              std::to_string(buckets) +
              ": ranks issue their callbacks' all-reduces in different orders (one bucket: "
              "--set bucket_cap_mb=100000 --set first_bucket_bytes=100000000000)"};
}

std::uint32_t reduce_by_power_sgd(StepBuilder& b, std::uint32_t k, const PowerSgdParts& parts,
                                  const DdpPlan& plan, Lane stream) {
  return PowerSgdHook(b, k, parts, plan, stream).run();
}

}  // namespace ddpsim::systems
