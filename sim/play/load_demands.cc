#include "sim/play/load_demands.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ddpsim::predict {
namespace {

// What tells links apart.
struct LinkKind {
  double rate = 0, burst = 0, peak = 0;
  std::vector<double> load;  // by list of loads
  bool operator==(const LinkKind&) const = default;
  // No <=>: libc++ 14 (Emscripten) has none of vectors.
  bool operator<(const LinkKind& o) const {
    return std::tie(rate, burst, peak, load) < std::tie(o.rate, o.burst, o.peak, o.load);
  }
};

bool as_fast(const topology::Link& a, const topology::Link& b) {
  return a.bandwidth == b.bandwidth && a.transport == b.transport && a.staging == b.staging;
}

// A communicator's lists of loads: each pattern's, then each of its rounds'.
class LoadLists {
 public:
  explicit LoadLists(const collective::Communicator& comm) {
    for (const collective::Pattern& p : comm.patterns) {
      const std::size_t rounds = p.by_round ? p.rounds.size() : 0;
      for (std::size_t k = 0; k <= rounds; ++k) {
        lists_.push_back(k == 0 ? &p.load : &p.rounds[k - 1].load);
        place_.emplace_back(static_cast<std::size_t>(&p - comm.patterns.data()), k);
      }
    }
    at_.assign(lists_.size(), 0);
  }
  std::size_t size() const { return lists_.size(); }
  std::pair<std::size_t, std::size_t> place(std::size_t list) const { return place_[list]; }
  // The next link of any list; UINT32_MAX = there is none.
  topology::LinkId next() const {
    topology::LinkId link = UINT32_MAX;
    for (std::size_t k = 0; k < lists_.size(); ++k)
      if (at_[k] < lists_[k]->size()) link = std::min(link, (*lists_[k])[at_[k]].link);
    return link;
  }
  // What each list puts on it. REQUIRES: links ascending.
  void take(topology::LinkId link, std::vector<double>& load) {
    load.assign(lists_.size(), 0);
    for (std::size_t k = 0; k < lists_.size(); ++k) {
      const std::vector<collective::LinkLoad>& list = *lists_[k];
      if (at_[k] < list.size() && list[at_[k]].link < link)
        at_[k] = std::lower_bound(list.begin() + at_[k], list.end(), link,
                                  [](const auto& l, topology::LinkId id) { return l.link < id; }) -
                 list.begin();
      if (at_[k] < list.size() && list[at_[k]].link == link) load[k] = list[at_[k]++].per_byte;
    }
  }

 private:
  std::vector<const std::vector<collective::LinkLoad>*> lists_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // pattern, 0 or 1 + its round
  std::vector<std::size_t> at_;                             // by list: the next of its links
};

}  // namespace

std::vector<topology::LinkId> distinct_links(const collective::Communicator& comm) {
  struct Kind {
    std::int64_t bandwidth, staging, burst, peak;
    std::uint8_t transport;
    std::vector<double> load;
    bool operator==(const Kind&) const = default;
    bool operator<(const Kind& o) const {
      return std::tie(bandwidth, staging, burst, peak, transport, load) <
             std::tie(o.bandwidth, o.staging, o.burst, o.peak, o.transport, o.load);
    }
  };
  LoadLists lists(comm);
  std::set<Kind> seen;
  std::vector<topology::LinkId> out;
  Kind last{};
  Kind kind{};
  for (topology::LinkId id = lists.next(); id != UINT32_MAX; id = lists.next()) {
    lists.take(id, kind.load);
    const topology::Link& l = comm.fabric->links()[id];
    kind.bandwidth = l.bandwidth.bits_per_s;
    kind.staging = l.staging.bits_per_s;
    kind.burst = l.burst.count;
    kind.peak = l.peak.bits_per_s;
    kind.transport = l.transport;
    if (kind == last) continue;
    last = kind;
    if (seen.insert(kind).second) out.push_back(id);
  }
  return out;
}

std::vector<std::vector<std::vector<engine::Demand>>> load_demands(
    const collective::Communicator& comm, const Profile& profile, Level level, bool fold,
    const std::function<engine::ResourceId(topology::LinkId)>& resource) {
  std::vector<std::vector<std::vector<engine::Demand>>> out;
  for (const collective::Pattern& p : comm.patterns)
    out.emplace_back(1 + (p.by_round ? p.rounds.size() : 0));
  LoadLists lists(comm);
  const bool listed = fold && !comm.distinct.empty();
  std::size_t number = 0;
  auto next = [&] {
    if (!listed) return lists.next();
    return number < comm.distinct.size() ? comm.distinct[number++] : UINT32_MAX;
  };
  std::set<LinkKind> seen;
  LinkKind last;
  LinkKind kind;
  const topology::Link* before = nullptr;
  for (topology::LinkId link = next(); link != UINT32_MAX; link = next()) {
    const bool first = before == nullptr;
    lists.take(link, kind.load);
    const topology::Link& l = comm.fabric->links()[link];
    if (first || !as_fast(*before, l))
      kind.rate = collective::link_rate(comm, profile, level, link);
    before = &l;
    kind.burst = static_cast<double>(l.burst.count);
    kind.peak = l.peak.bytes_per_ps();
    bool as_before = fold && !first && kind == last;
    last = kind;
    if (as_before || (fold && !seen.insert(kind).second)) continue;
    engine::ResourceId id = resource(link);
    for (std::size_t k = 0; k < lists.size(); ++k)
      if (kind.load[k] > 0)
        out[lists.place(k).first][lists.place(k).second].push_back({id, kind.load[k]});
  }
  return out;
}

}  // namespace ddpsim::predict
