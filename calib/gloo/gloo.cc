// Addresses are exchanged through memory that the ranks share: no file, no server.
#include "calib/gloo/gloo.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

namespace ddpsim::calib::gloo_library {
namespace {

constexpr std::size_t kKeyBytes = 64;
constexpr std::size_t kValueBytes = 64 * 1024;

struct Entry {
  std::atomic<int> written;  // 1 = key and value are there
  std::uint32_t length;
  char key[kKeyBytes];
  char value[kValueBytes];
};

// A key belongs to the rank that sets it, and each sets one or two: entries are taken one after
// another.
class SharedStore : public gloo::rendezvous::Store {
 public:
  SharedStore(std::byte* memory, int entries)
      : next_(reinterpret_cast<std::atomic<int>*>(memory)),
        entries_(reinterpret_cast<Entry*>(memory + 64)),
        count_(entries) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    if (key.size() >= kKeyBytes || data.size() > kValueBytes)
      throw std::runtime_error("gloo wants to exchange more than ddpsim keeps room for");
    int i = (*next_)++;
    if (i >= count_)
      throw std::runtime_error("gloo wants to exchange more keys than ddpsim keeps room for");
    Entry& e = entries_[i];
    std::memcpy(e.key, key.c_str(), key.size() + 1);
    std::memcpy(e.value, data.data(), data.size());
    e.length = static_cast<std::uint32_t>(data.size());
    e.written.store(1, std::memory_order_release);
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    const Entry* e = find(key);
    return {e->value, e->value + e->length};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, std::chrono::seconds(60)); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    auto until = std::chrono::steady_clock::now() + timeout;
    for (const std::string& key : keys)
      while (!find(key)) {
        if (std::chrono::steady_clock::now() > until)
          throw std::runtime_error("gloo: no address of another rank after a minute");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
  }
  static std::size_t bytes(int entries) {
    return 64 + static_cast<std::size_t>(entries) * sizeof(Entry);
  }

 private:
  const Entry* find(const std::string& key) const {
    for (int i = 0; i < count_; ++i)
      if (entries_[i].written.load(std::memory_order_acquire) == 1 && key == entries_[i].key)
        return &entries_[i];
    return nullptr;
  }
  std::atomic<int>* next_;
  Entry* entries_;
  int count_;
};

}  // namespace

bool built() {
  return true;
}

Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       Algorithm algorithm, const CollectiveOptions& options) {
  int entries = static_cast<int>(devices.size()) * 4;
  return calib::measure_all_reduce(
      fabric, devices, options, SharedStore::bytes(entries),
      [&](const RankPlace& place) -> RankPlayer {
        gloo::transport::tcp::attr attr(place.address.c_str());
        auto device = gloo::transport::tcp::CreateDevice(attr);
        auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.ranks);
        SharedStore store(place.shared, entries);
        context->connectFullMesh(store, device);
        place.meet();
        auto play = [context, algorithm, bytes = options.bytes](std::size_t k, float* data) {
          gloo::AllreduceOptions o(context);
          o.setAlgorithm(algorithm == Algorithm::Bcube ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                       : gloo::AllreduceOptions::Algorithm::RING);
          o.setOutput(data, static_cast<std::size_t>(bytes[k] / 4));
          o.setReduceFunction(
              static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
          gloo::allreduce(o);
        };
        return {play, [] { return std::int64_t{0}; }};
      });
}

}  // namespace ddpsim::calib::gloo_library
