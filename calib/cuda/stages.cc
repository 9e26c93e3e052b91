#include "calib/cuda/stages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "calib/cuda/bench.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/products.h"
#include "calib/fit/shapes.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::int64_t second_level_cache() {
  int bytes = 0;
  DDPSIM_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0));
  return std::max(bytes, 1 << 20);
}

// Operands lie one after another in a pool of several caches' size, so that a launch does not find
// what the one before it left there.
class Pool {
 public:
  explicit Pool(std::int64_t at_least)
      : bytes_(std::max(at_least, 4 * second_level_cache()) / 16 * 16), memory_(bytes_) {}
  // Pseudo-random halves (and floats) of a moderate size, again before each shape: zeros would save
  // power, what was computed before might have grown, and clocks would show both.
  void fill(cudaStream_t s) const { launch_fill(memory_.at(), bytes_, s); }
  // The k-th place for `bytes`.
  std::int64_t place(int k, std::int64_t bytes) const {
    std::int64_t slot = (bytes + 255) / 256 * 256;
    std::int64_t slots = std::max<std::int64_t>(1, bytes_ / slot);
    return k % slots * slot;
  }
  void* at(int k, std::int64_t bytes) const { return memory_.at(place(k, bytes)); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_;
  DeviceMemory memory_;
};

// Of convolutions: as large as the largest that was asked for.
class Workspace {
 public:
  // What the device has left, less a sixteenth: it comes in pieces.
  Workspace() {
    std::size_t free = 0;
    std::size_t total = 0;
    DDPSIM_CUDA(cudaMemGetInfo(&free, &total));
    limit_ = static_cast<std::int64_t>(free / 16 * 15);
  }
  std::int64_t limit() const { return limit_; }
  void* at_least(std::int64_t bytes) {
    if (bytes > bytes_) {
      memory_ = DeviceMemory();  // before there is another
      bytes_ = 0;
      try {
        memory_ = DeviceMemory(bytes);
      } catch (const std::runtime_error&) {
        cudaGetLastError();  // or the next launch would be refused for it
        throw;
      }
      bytes_ = bytes;
    }
    return memory_.at();
  }

 private:
  std::int64_t limit_ = 0;
  std::int64_t bytes_ = 0;
  DeviceMemory memory_;
};

// Nothing where the library offers no algorithm: the Run says so.
template <class F>
std::unique_ptr<Product> made(Bench& b, const std::string& what, F make) {
  try {
    return make();
  } catch (const std::runtime_error& e) {
    b.skip(what, e.what());
    return nullptr;
  }
}

constexpr int kMoves = 8;
constexpr std::int64_t kTraffic[kMoves] = {8, 12, 4, 6, 8, 12, 20, 28};  // bytes an element
constexpr std::int64_t kOperands[kMoves] = {8, 8, 4,  6,
                                            8, 8, 12, 16};  // bytes an element that exist

void launch_move(Move m, void* at, std::int64_t n, cudaStream_t s) {
  auto* a = static_cast<float*>(at);
  switch (m) {
    case Move::Scale:
      return launch_scale(a, a + n, n, 0.25f, s);
    case Move::Add:
      return launch_add(a, a + n, n, s);
    case Move::Zero:
      return launch_zero(a, n, s);
    case Move::Cast:
      return launch_cast(a, a + n, n, s);
    case Move::Normalise:
      return launch_normalise(a, a + n, n / 1024, 1024, s);
    case Move::Sgd:
      return launch_sgd(a, a + n, n, s);
    case Move::Momentum:
      return launch_momentum(a, a + n, a + 2 * n, n, s);
    case Move::Adam:
      return launch_adam(a, a + n, a + 2 * n, a + 3 * n, n, s);
  }
}

}  // namespace

void measure_memory(Run& run, const Budget& budget) {
  Bench b(run, budget);
  Pool pool(memory_elements()[3] * 16);
  for (std::int64_t n : memory_elements())
    for (int m = 0; m < kMoves; ++m) {
      if (!b.has_time("move of " + std::to_string(n) + " elements")) return;
      auto move = static_cast<Move>(m);
      std::int64_t operands = kOperands[m] * n;
      if (operands > pool.bytes() || (move == Move::Normalise && n < 1024)) continue;
      pool.fill(b.stream());
      b.device("move", {{"kernel", m}, {"elements", n}, {"traffic", kTraffic[m] * n}},
               [&](int k) { launch_move(move, pool.at(k, operands), n, b.stream()); });
    }
}

void measure_gemm(Run& run, const Budget& budget) {
  Bench b(run, budget);
  DeviceMemory workspace(kWorkspace);
  std::int64_t most = 0;
  for (const Gemm& g : gemm_shapes())
    most = std::max(most, static_cast<std::int64_t>(bytes(g, Precision::Fp32)) +
                              1024);  // operands begin at multiples of 256
  Pool pool(most);
  pool.fill(b.stream());
  // A second of work without a pause, at the clock that training runs at; readings of 20 products.
  if (auto large = made(b, "sustained gemm", [] {
        return make_gemm({8192, 8192, 8192}, Precision::Bf16);
      })) {
    EventOwner begin;
    EventOwner end;
    Sample sustained{"gemm_sustained", parameters(Gemm{8192, 8192, 8192}, Precision::Bf16), {}};
    for (int k = 0; k < 40; ++k) {
      DDPSIM_CUDA(cudaEventRecord(begin, b.stream()));
      for (int i = 0; i < 20; ++i)
        large->launch(pool.at(i, large->bytes()), workspace.at(), b.stream());
      DDPSIM_CUDA(cudaEventRecord(end, b.stream()));
      DDPSIM_CUDA(cudaEventSynchronize(end));
      sustained.durations.push_back(
          {std::max<std::int64_t>(1, elapsed_ns(begin, end) / 20) * 1000});
    }
    run.samples.push_back(std::move(sustained));
  }
  for (Precision p : {Precision::Bf16, Precision::Tf32, Precision::Fp32, Precision::Fp16})
    for (const Gemm& g : gemm_shapes()) {
      std::string what = "gemm " + std::to_string(g.m) + "x" + std::to_string(g.n) + "x" +
                         std::to_string(g.k) + " " + name_of(p);
      if (!b.has_time(what)) return;
      if (auto product = made(b, what, [&] { return make_gemm(g, p); })) {
        pool.fill(b.stream());
        b.device("gemm", parameters(g, p), [&](int k) {
          product->launch(pool.at(k, product->bytes()), workspace.at(), b.stream());
        });
      }
    }
}

void measure_conv(Run& run, const Budget& budget) {
  Bench b(run, budget);
  std::int64_t most = 0;
  for (const Conv& c : conv_shapes())
    most = std::max(most, static_cast<std::int64_t>(bytes(c, Precision::Fp32)) + 1024);
  Pool pool(most);
  Workspace workspace;
  Trial trial{pool.at(0, most), [&](std::int64_t n) { return workspace.at_least(n); }, b.stream()};
  struct Question {
    Precision p;
    Conv c;
    Pass pass;
    ConvMode mode;
  };
  // What the fit takes, then benchmark mode. Of the first shape both at once: a smoke has time for
  // a few.
  std::vector<Question> questions;
  for (ConvMode mode : {ConvMode::Heuristics, ConvMode::Benchmark})
    for (Precision p : {Precision::Tf32, Precision::Bf16, Precision::Fp32})
      for (const Conv& c : conv_shapes())
        for (Pass pass : {Pass::Forward, Pass::WeightGradient, Pass::DataGradient})
          questions.push_back({p, c, pass, mode});
  auto half = questions.begin() + static_cast<std::ptrdiff_t>(questions.size() / 2);
  std::rotate(questions.begin() + 3, half, half + 3);
  for (const auto& [p, c, pass, mode] : questions) {
    bool tried = mode == ConvMode::Benchmark;
    std::string what = "conv of " + std::to_string(c.channels) + " to " +
                       std::to_string(c.filters) + " channels at " + std::to_string(c.size) + " " +
                       name_of(pass) + " " + name_of(p) + (tried ? " in benchmark mode" : "");
    if (!b.has_time(what)) return;
    if (tried) pool.fill(b.stream());
    void* at = nullptr;
    auto product = made(b, what, [&, &c = c, &pass = pass, &p = p] {
      auto chosen = tried ? make_conv(c, pass, p, workspace.limit(), trial)
                          : make_conv(c, pass, p, workspace.limit());
      at = workspace.at_least(chosen->workspace());
      return chosen;
    });
    if (!product) continue;
    pool.fill(b.stream());
    auto said = parameters(c, pass, p);
    said["mode"] = static_cast<std::int64_t>(mode);
    said.merge(product->chosen());
    b.device("conv", std::move(said),
             [&](int k) { product->launch(pool.at(k, product->bytes()), at, b.stream()); });
  }
}

void measure_host(Run& run, const Budget& budget) {
  Bench b(run, budget);
  EventOwner event(false);
  EventOwner timed;
  StreamOwner other;
  // Each takes milliseconds on a GPU that works; one that does not is given up with the time.
  if (!b.has_time("launch")) return;
  b.host("launch", {}, 200, [&] { launch_nothing(b.stream()); });
  if (!b.has_time("kernel_gap")) return;
  b.device("kernel_gap", {}, [&](int) { launch_nothing(b.stream()); });
  if (!b.has_time("event_record")) return;
  b.host("event_record", {}, 200, [&] { DDPSIM_CUDA(cudaEventRecord(event, b.stream())); });
  if (!b.has_time("event_record_timed")) return;
  b.host("event_record_timed", {}, 200, [&] { DDPSIM_CUDA(cudaEventRecord(timed, b.stream())); });
  if (!b.has_time("event_wait")) return;
  b.host(
      "event_wait", {}, 200, [&] { DDPSIM_CUDA(cudaStreamWaitEvent(other, event, 0)); },
      [&] {  // an event that has not happened
        launch_spin(5'000'000, b.stream());
        DDPSIM_CUDA(cudaEventRecord(event, b.stream()));
      });
  if (!b.has_time("stream_synchronize")) return;
  b.host("stream_synchronize", {}, 200, [&] { DDPSIM_CUDA(cudaStreamSynchronize(b.stream())); });
  // One stream's kernel after another's, by an event: what an all-reduce waits after its bucket is
  // full.
  if (!b.has_time("event_handover")) return;
  b.device("event_handover", {}, [&](int) {
    DDPSIM_CUDA(cudaEventRecord(event, b.stream()));
    DDPSIM_CUDA(cudaStreamWaitEvent(other, event, 0));
    launch_nothing(other);
    DDPSIM_CUDA(cudaEventRecord(event, other));
    DDPSIM_CUDA(cudaStreamWaitEvent(b.stream(), event, 0));
  });
  if (!b.has_time("launch_and_synchronize")) return;
  b.host("launch_and_synchronize", {}, 1, [&] {
    launch_nothing(b.stream());
    DDPSIM_CUDA(cudaStreamSynchronize(b.stream()));
  });
}

void measure_copies(Run& run, const Budget& budget) {
  Bench b(run, budget);
  constexpr std::int64_t kMost = 256 * kMiB;
  DeviceMemory device(2 * kMost);
  PinnedMemory pinned(kMost);
  std::vector<char> pageable(static_cast<std::size_t>(kMost), 1);
  int gpus = 0;
  DDPSIM_CUDA(cudaGetDeviceCount(&gpus));
  std::unique_ptr<DeviceMemory> there;
  if (gpus > 1) {
    DDPSIM_CUDA(cudaSetDevice(1));
    there = std::make_unique<DeviceMemory>(kMost);
    DDPSIM_CUDA(cudaSetDevice(0));
  } else {
    b.skip("copies to a peer", "this machine has one GPU");
  }
  for (std::int64_t bytes :
       {16 * kMiB, kMiB / 16, kMost, kMiB / 1024, kMiB, kMiB / 4, 64 * kMiB, 4 * kMiB})
    for (Copy kind : {Copy::HostToDevicePinned, Copy::DeviceToHostPinned, Copy::DeviceToDevice,
                      Copy::HostToDevicePageable, Copy::DeviceToHostPageable, Copy::Peer}) {
      if (!b.has_time("copy of " + std::to_string(bytes) + " bytes")) return;
      std::map<std::string, std::int64_t> parameters{{"kind", static_cast<std::int64_t>(kind)},
                                                     {"bytes", bytes}};
      auto size = static_cast<std::size_t>(bytes);
      // Further on each time, so that a cache does not have it.
      auto place = [&](int k) { return k * bytes % (kMost - bytes + 1) / 256 * 256; };
      auto copy = [&](void* to, const void* from, cudaMemcpyKind how) {
        DDPSIM_CUDA(cudaMemcpyAsync(to, from, size, how, b.stream()));
      };
      switch (kind) {
        case Copy::HostToDevicePinned:
          b.device("copy", parameters,
                   [&](int) { copy(device.at(), pinned.at(), cudaMemcpyHostToDevice); });
          break;
        case Copy::DeviceToHostPinned:
          b.device("copy", parameters,
                   [&](int) { copy(pinned.at(), device.at(), cudaMemcpyDeviceToHost); });
          break;
        case Copy::DeviceToDevice:
          b.device("copy", parameters, [&](int k) {
            copy(device.at(kMost + place(k)), device.at(place(k)), cudaMemcpyDeviceToDevice);
          });
          break;
        // Pageable memory: the call itself waits.
        case Copy::HostToDevicePageable:
          b.host("copy", parameters, 1, [&] {
            copy(device.at(), pageable.data(), cudaMemcpyHostToDevice);
            DDPSIM_CUDA(cudaStreamSynchronize(b.stream()));
          });
          break;
        case Copy::DeviceToHostPageable:
          b.host("copy", parameters, 1, [&] {
            copy(pageable.data(), device.at(), cudaMemcpyDeviceToHost);
            DDPSIM_CUDA(cudaStreamSynchronize(b.stream()));
          });
          break;
        case Copy::Peer:
          if (there)
            b.device("copy", parameters, [&](int) {
              DDPSIM_CUDA(cudaMemcpyPeerAsync(there->at(), 1, device.at(), 0, size, b.stream()));
            });
          break;
      }
    }
}

void measure_interference(Run& run, const Budget& budget) {
  Bench b(run, budget);
  run.skipped.push_back({"a real collective beside computation",
                         "ranks of one GPU would share what is measured: a kernel of ours with a "
                         "communication kernel's blocks, threads and traffic stands in"});
  Pool pool(1024 * kMiB);
  pool.fill(b.stream());
  constexpr std::int64_t kBeside = 256 * kMiB;
  DeviceMemory traffic(kBeside);
  launch_zero(traffic.floats(), kBeside / 4, b.stream());
  DDPSIM_CUDA(cudaStreamSynchronize(b.stream()));
  DeviceMemory moved(8);
  PinnedMemory pinned(sizeof(int));
  Workspace room;
  auto* stop = static_cast<int*>(pinned.at());
  int least = 0;
  int highest = 0;
  DDPSIM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &highest));
  StreamOwner beside(highest);

  Gemm g{4096, 4096, 4096};
  Conv c{64, 128, 28, 128, 3};
  auto gemm = made(b, "interference with a gemm", [&] { return make_gemm(g, Precision::Bf16); });
  auto conv = made(b, "interference with a convolution",
                   [&] { return make_conv(c, Pass::Forward, Precision::Tf32, room.limit()); });
  void* workspace = room.at_least(std::max(kWorkspace, conv ? conv->workspace() : 0));
  constexpr std::int64_t kElements = 32 << 20;
  struct Victim {
    std::int64_t number;  // 0 gemm, 1 conv, 2 memory-bound
    std::function<void(int)> launch;
  };
  std::vector<Victim> victims;
  if (gemm)
    victims.push_back(
        {0, [&](int k) { gemm->launch(pool.at(k, gemm->bytes()), workspace, b.stream()); }});
  if (conv)
    victims.push_back(
        {1, [&](int k) { conv->launch(pool.at(k, conv->bytes()), workspace, b.stream()); }});
  victims.push_back({2, [&](int k) {
                       auto* a = static_cast<float*>(pool.at(k, 8 * kElements));
                       launch_scale(a, a + kElements, kElements, 0.5f, b.stream());
                     }});
  // Its first launch loads code, which is no part of what it moves.
  *stop = 1;
  launch_traffic(traffic.floats(), kBeside / 4, 1, 512, 0, 1'000'000, stop,
                 static_cast<unsigned long long*>(moved.at()), beside);
  DDPSIM_CUDA(cudaStreamSynchronize(beside));
  // Blocks as NCCL has channels; bytes per microsecond of a block: about what a link gives it,
  // twice that, and as much as it can.
  for (const Victim& v : victims) {
    b.device("interference",
             {{"victim", v.number}, {"blocks", 0}, {"threads", 0}, {"bytes_per_us", 0}}, v.launch);
    for (int blocks : {16, 24, 8, 32, 4, 2})
      for (int rate : {0, 20'000, 40'000}) {
        if (!b.has_time("interference with " + std::to_string(blocks) + " blocks", 1)) return;
        *stop = 0;
        DDPSIM_CUDA(cudaMemsetAsync(moved.at(), 0, 8, beside));
        constexpr std::int64_t kAtMost = 5'000'000'000;
        EventOwner begin;
        EventOwner end;
        DDPSIM_CUDA(cudaEventRecord(begin, beside));
        launch_traffic(traffic.floats(), kBeside / 4, blocks, 512, rate, kAtMost, stop,
                       static_cast<unsigned long long*>(moved.at()), beside);
        DDPSIM_CUDA(cudaEventRecord(end, beside));
        std::size_t before = run.samples.size();
        b.device(
            "interference",
            {{"victim", v.number}, {"blocks", blocks}, {"threads", 512}, {"bytes_per_us", rate}},
            v.launch);
        *reinterpret_cast<volatile int*>(stop) = 1;
        DDPSIM_CUDA(cudaStreamSynchronize(beside));
        unsigned long long bytes = 0;
        DDPSIM_CUDA(cudaMemcpy(&bytes, moved.at(), 8, cudaMemcpyDeviceToHost));
        std::int64_t from_ns = elapsed_ns(begin, end);
        double reached = static_cast<double>(bytes) / static_cast<double>(from_ns) * 1e3 / blocks;
        std::string why = from_ns >= kAtMost ? "the traffic beside it ended before it did"
                          : rate > 0 && reached < 0.9 * rate
                              ? "a block moved " + std::to_string(static_cast<int>(reached)) +
                                    " bytes a microsecond"
                              : "";
        if (!why.empty()) {
          run.samples.resize(before);
          b.skip("interference with " + std::to_string(blocks) + " blocks at " +
                     std::to_string(rate) + " bytes a microsecond",
                 why);
          continue;
        }
        // What the stand-in really moved while the victim ran.
        run.samples.push_back({"interference_traffic",
                               {{"victim", v.number},
                                {"blocks", blocks},
                                {"bytes_per_us", rate},
                                {"bytes", static_cast<std::int64_t>(bytes)}},
                               {{from_ns * 1000}}});
      }
  }
}

}  // namespace ddpsim::calib::cuda
