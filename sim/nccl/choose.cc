#include "sim/nccl/choose.h"

#include <algorithm>

#include "sim/units/number.h"

namespace ddpsim::nccl {
namespace {

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out{{}};
  for (char c : text) {
    if (c == at)
      out.emplace_back();
    else if (c != ' ')
      out.back() += c;
  }
  return out;
}

template <class Name, class Word>
std::optional<Name> find_name(const std::string& word, Word word_of) {
  for (Name n : kAll<Name>)
    if (word == word_of(n)) return n;
  return std::nullopt;
}

// Of algorithms, or of protocols: what each operation may use.
template <class Name>
using Lists = By<Operation, By<Name, bool>>;

// "ring,tree" or "^tree", for one function. None = a word is unknown (it is in `unknown`).
template <class Name>
std::optional<By<Name, bool>> parse_list(std::string list, std::string& unknown) {
  bool except = !list.empty() && list[0] == '^';
  if (except) list.erase(0, 1);
  By<Name, bool> out;
  out.fill(except);
  for (const std::string& word : split(list, ',')) {
    auto name = find_name<Name>(word, [](Name n) { return name_of(n); });
    if (!name) {
      unknown = word;
      return std::nullopt;
    }
    out[*name] = !except;
  }
  return out;
}

// "allreduce:ring,tree;broadcast:ring", or one list for all. Returns what is wrong with it.
template <class Name>
std::string apply_lists(const std::string& text, const char* examples, Lists<Name>& out) {
  std::string all = lower(text);
  std::vector<std::string> parts = split(all, ';');
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    auto colon = part.find(':');
    std::vector<Operation> operations;
    std::string list = part;
    if (colon == std::string::npos) {
      if (parts.size() > 1 && &part != &parts.front())
        return "\"" + part +
               "\" names no function; write function:list, as in "
               "allreduce:ring,tree;broadcast:ring";
      operations.assign(kAll<Operation>.begin(), kAll<Operation>.end());
    } else {
      auto op = find_name<Operation>(part.substr(0, colon), nccl_word);
      if (!op)
        return "\"" + part.substr(0, colon) +
               "\" is not a function; they are broadcast, reduce, allgather, reducescatter, "
               "allreduce";
      operations.push_back(*op);
      list = part.substr(colon + 1);
    }
    std::string unknown;
    auto allowed = parse_list<Name>(list, unknown);
    if (!allowed) return "\"" + unknown + "\" is none of " + examples;
    for (Operation op : operations) out[op] = *allowed;
  }
  return {};
}

std::int64_t element_sum_threshold(Algorithm a, Protocol p, int ranks) {
  if (is_collnet(a)) return 512;
  if (p == Protocol::Ll) return a == Algorithm::Ring ? 8LL * ranks : 8;
  return p == Protocol::Ll128 ? 8 : 64;
}

int most_threads(const System& s, const Settings& set, Algorithm a, Protocol p) {
  if (p == Protocol::Ll128) return set.ll128_threads > 0 ? set.ll128_threads : 640;
  if (is_collnet(a) || is_nvls(a)) return 640;
  if (set.threads > 0) return set.threads;
  const ChannelGraph& ring = s.graphs[GraphId::Ring];
  if (p == Protocol::Simple && a == Algorithm::Ring &&
      ring.bw_intra * ring.channels <= bytes_per_s(GBps{12}))
    return 256;
  return 512;
}

// "PXB", or 0 to 5 as before NCCL 2.4 (src/graph/paths.cc, ncclGetLevel).
std::optional<PathType> parse_level(const std::string& text) {
  constexpr std::array kNumbered{PathType::Loc, PathType::Pix, PathType::Pxb,
                                 PathType::Phb, PathType::Sys, PathType::Sys};
  if (const auto named = kPathTypes.find(text); named && *named <= PathType::Sys) return named;
  auto number = parse_integer(text);
  if (number && *number >= 0 && *number < std::ssize(kNumbered)) return kNumbered[*number];
  return std::nullopt;
}

}  // namespace

Settings::Settings() {
  for (auto& op : allowed)
    for (auto& a : op) a.fill(true);
}

const std::vector<std::string>& known_variables() {
  static const std::vector<std::string> names{"NCCL_ALGO",
                                              "NCCL_PROTO",
                                              "NCCL_MIN_CTAS",
                                              "NCCL_MAX_CTAS",
                                              "NCCL_MIN_NCHANNELS",
                                              "NCCL_MAX_NCHANNELS",
                                              "NCCL_NTHREADS",
                                              "NCCL_LL128_NTHREADS",
                                              "NCCL_BUFFSIZE",
                                              "NCCL_P2P_DISABLE",
                                              "NCCL_P2P_LEVEL",
                                              "NCCL_SHM_DISABLE",
                                              "NCCL_SOCKET_NTHREADS",
                                              "NCCL_NSOCKS_PERTHREAD",
                                              "NCCL_CROSS_NIC"};
  return names;
}

ParsedSettings parse_settings(const std::map<std::string, std::string>& environment,
                              Version version) {
  ParsedSettings out;
  out.settings.version = version;
  Settings& s = out.settings;
  auto fail = [&](const std::string& name, const std::string& why) {
    if (out.problem.message.empty()) out.problem = {name, why};
  };
  auto number = [&](const std::string& name, const std::string& text, std::int64_t least,
                    std::int64_t most) -> std::int64_t {
    auto value = parse_integer(text);
    if (value && *value >= least && *value <= most) return *value;
    fail(name, "\"" + text.substr(0, 40) + "\" is not a whole number from " +
                   std::to_string(least) + " to " + std::to_string(most));
    return least;
  };
  auto small = [&](const std::string& name, const std::string& text, int least, int most) {
    return static_cast<int>(number(name, text, least, most));
  };
  // A list for one function replaces the one for all that stands before it.
  Lists<Algorithm> algorithms;
  Lists<Protocol> protocols;
  for (Operation op : kAll<Operation>) {
    algorithms[op].fill(true);
    protocols[op].fill(true);
  }
  bool p2p_disabled = false;
  if (auto it = environment.find("NCCL_P2P_DISABLE"); it != environment.end())
    p2p_disabled = number(it->first, it->second, 0, 1) == 1;
  if (p2p_disabled) s.p2p_level = PathType::Loc;
  for (const auto& [name, text] : environment) {
    if (name == "NCCL_ALGO") {
      std::string why = apply_lists(
          text, "ring, tree, collnetdirect, collnetchain, nvls, nvlstree, pat", algorithms);
      if (!why.empty()) fail(name, why);
    } else if (name == "NCCL_PROTO") {
      std::string why = apply_lists(text, "ll, ll128, simple", protocols);
      if (!why.empty()) fail(name, why);
    } else if (name == "NCCL_MIN_CTAS" || name == "NCCL_MIN_NCHANNELS") {
      s.min_channels = small(name, text, 1, 64);
    } else if (name == "NCCL_MAX_CTAS" || name == "NCCL_MAX_NCHANNELS") {
      s.max_channels = small(name, text, 1, 64);
    } else if (name == "NCCL_NTHREADS") {
      s.threads = small(name, text, 64, 512);
    } else if (name == "NCCL_LL128_NTHREADS") {
      s.ll128_threads = small(name, text, 160, 640);
    } else if (name == "NCCL_BUFFSIZE") {
      s.buffer_bytes = number(name, text, 4096, 1LL << 30);
    } else if (name == "NCCL_CROSS_NIC") {
      s.cross_nic = small(name, text, 0, 2);
    } else if (name == "NCCL_P2P_LEVEL") {
      auto level = parse_level(text);
      if (!level)
        fail(name, "\"" + text.substr(0, 40) +
                       "\" is none of LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, or 0 to 5");
      else if (!p2p_disabled)
        s.p2p_level = level;
    } else if (name == "NCCL_SHM_DISABLE") {
      s.shared_memory = number(name, text, 0, 1) == 0;
    } else if (name == "NCCL_SOCKET_NTHREADS") {
      s.socket_threads = small(name, text, 0, 16);
    } else if (name == "NCCL_NSOCKS_PERTHREAD") {
      s.sockets_per_thread = small(name, text, 1, 64);
    } else if (name != "NCCL_P2P_DISABLE") {
      fail(name, "is not a setting that ddpsim reads");
    }
  }
  for (Operation op : kAll<Operation>)
    for (Algorithm a : kAll<Algorithm>)
      for (Protocol p : kAll<Protocol>) s.allowed[op][a][p] = algorithms[op][a] && protocols[op][p];
  if (s.min_channels > 0 && s.max_channels > 0 && s.min_channels > s.max_channels)
    fail("NCCL_MIN_CTAS", "is above NCCL_MAX_CTAS");
  constexpr int kMostSockets = 64;
  if (s.socket_threads.value_or(1) * s.sockets_per_thread > kMostSockets)
    fail("NCCL_NSOCKS_PERTHREAD",
         "times NCCL_SOCKET_NTHREADS is above " + std::to_string(kMostSockets) + ", NCCL's most");
  return out;
}

std::vector<Candidate> candidates(const System& s, const Table& table, const Settings& set,
                                  Operation op, std::int64_t bytes) {
  std::vector<Candidate> out;
  for (Algorithm a : kAll<Algorithm>)
    for (Protocol p : kAll<Protocol>) {
      Candidate c{a, p, estimate(s, table, op, a, p, bytes), {}};
      if (!c.estimate) c.why_not = "not available";
      if (!set.allowed[op][a][p]) {
        c.estimate.reset();
        c.why_not = "excluded by NCCL_ALGO or NCCL_PROTO";
      }
      out.push_back(std::move(c));
    }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    if (a.estimate.has_value() != b.estimate.has_value()) return a.estimate.has_value();
    return a.estimate && *a.estimate < *b.estimate;
  });
  return out;
}

namespace {

// What a tuner made cheapest.
const Tuned* tuned_for(const System& s, const Table& table, const Settings& set, Operation op,
                       std::int64_t bytes) {
  for (const Tuned& t : set.tuned) {
    const bool fits = t.op == op && bytes >= t.from && bytes <= t.to &&
                      (t.nodes == 0 || t.nodes == s.nodes) && (t.ranks == 0 || t.ranks == s.ranks);
    if (fits && set.allowed[op][t.algorithm][t.protocol] &&
        estimate(s, table, op, t.algorithm, t.protocol, bytes))
      return &t;
  }
  return nullptr;
}

}  // namespace

std::optional<Choice> choose(const System& s, const Table& table, const Settings& set, Operation op,
                             std::int64_t bytes) {
  if (const Tuned* t = tuned_for(s, table, set, op, bytes))
    return complete(s, table, set, op, t->algorithm, t->protocol, bytes, t->channels);
  std::optional<Microseconds> least;
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  for (Algorithm a : kAll<Algorithm>)
    for (Protocol p : kAll<Protocol>) {
      if (!set.allowed[op][a][p]) continue;
      auto time = estimate(s, table, op, a, p, bytes);
      if (!time || (least && *least <= *time)) continue;
      least = time;
      algorithm = a;
      protocol = p;
    }
  if (least) return complete(s, table, set, op, algorithm, protocol, bytes);
  if (set.version.has(Change::NothingAllowedIsAnError) || s.ranks < 2) return std::nullopt;
  for (Protocol p : kAll<Protocol>)
    if (table[Algorithm::Ring][p].bandwidth > GBps{} && set.allowed[op][Algorithm::Ring][p])
      return complete(s, table, set, op, Algorithm::Ring, p, bytes);
  Settings open;
  open.version = set.version;
  return complete(s, table, open, op, Algorithm::Ring, Protocol::Simple, bytes);
}

namespace {

void set_channels_and_threads(const System& s, const Settings& set, std::int64_t bytes,
                              int of_tuner, Choice& c) {
  const Algorithm a = c.algorithm;
  const Protocol p = c.protocol;
  int channels = communicator_channels(s, a);
  if (set.max_channels > 0) channels = std::min(channels, set.max_channels);
  channels = std::max(channels, set.min_channels);
  int threads = most_threads(s, set, a, p);
  std::int64_t threshold = element_sum_threshold(a, p, s.ranks);
  // NCCL states no threads for PAT: it does not shrink.
  if (!is_nvls(a) && a != Algorithm::Pat) {
    while (bytes < static_cast<std::int64_t>(channels) * threads * threshold && channels > 1)
      --channels;
    while (bytes < static_cast<std::int64_t>(channels) * threads * threshold && threads % 128 == 0)
      threads /= 2;
  }
  if (of_tuner > 0) channels = std::min(of_tuner, communicator_channels(s, a));
  if (p == Protocol::Simple && a == Algorithm::Ring) threads += 32;
  if (p == Protocol::Simple && a == Algorithm::Tree) threads += 128;
  c.threads = std::max(threads, 96);
  if (a == Algorithm::Tree || a == Algorithm::Pat) c.threads = 640;
  c.channels = channels;
}

// Bytes of data in one of a buffer's steps.
std::int64_t step_of(const Settings& set, Protocol p) {
  std::int64_t buffer = p == Protocol::Ll ? 512 * kKiB : p == Protocol::Ll128 ? 4915200 : 4 * kMiB;
  if (p == Protocol::Simple && set.buffer_bytes > 0) buffer = set.buffer_bytes;
  std::int64_t step = buffer / kStepsOfBuffer;
  if (p == Protocol::Ll) step /= 2;                 // half of it are flags
  if (p == Protocol::Ll128) step = step / 16 * 15;  // 120 of 128 bytes
  return step;
}

// NCCL_NVLS_CHUNKSIZE, smaller for small operations.
std::int64_t nvls_chunk(const System& s, const Settings& set, const Choice& c, std::int64_t bytes,
                        std::int64_t step) {
  const Algorithm a = c.algorithm;
  double heads = s.heads();
  std::int64_t own = set.version.has(Change::NvlsTreeHasNvlsBuffers) ? 128 * kKiB : step;
  std::int64_t chunk = a == Algorithm::Nvls ? 128 * kKiB : s.nodes >= 4 ? 64 * kKiB : own;
  auto concurrent = static_cast<std::int64_t>(heads * c.channels);
  using Limit = std::pair<std::int64_t, std::int64_t>;  // chunk, and below how many of them in all
  constexpr std::array<Limit, 4> nvls{
      {{64 * kKiB, 64}, {32 * kKiB, 8}, {16 * kKiB, 2}, {16 * kKiB, 0}}};
  constexpr std::array<Limit, 4> tree{
      {{256 * kKiB, 32}, {128 * kKiB, 16}, {64 * kKiB, 4}, {32 * kKiB, 1}}};
  for (auto [size, times] : a == Algorithm::Nvls ? nvls : tree)
    if (bytes < times * concurrent * chunk && chunk > size) chunk = size;
  return chunk;
}

// Pieces for each of what stands one behind another: to the head and from it, or the ranks of a
// node's chain.
std::int64_t collnet_chunk(const System& s, const Choice& c, std::int64_t bytes,
                           std::int64_t step) {
  bool direct = c.algorithm == Algorithm::CollnetDirect;
  auto ppn = static_cast<std::int64_t>(s.per_node());
  std::int64_t depth = direct ? std::min<std::int64_t>(ppn, 2) : ppn;
  std::int64_t chunk = direct ? step : std::min(256 * kKiB, step);
  std::int64_t parts = c.channels * (direct ? ppn : 1);
  for (auto [times, least] :
       {std::pair{64, 128 * kKiB}, {8, 64 * kKiB}, {direct ? 8 : 1, 32 * kKiB}})
    while (bytes / (parts * chunk) < times * depth && chunk > least) chunk /= 2;
  return chunk;
}

std::int64_t tree_chunk(const System& s, const Choice& c, std::int64_t bytes) {
  std::int64_t chunk = c.chunk;
  double depth = s.per_node() - 1 + floor_log2(s.nodes);
  for (auto [times, least] : {std::pair{8, 128 * kKiB}, {4, 64 * kKiB}, {1, 32 * kKiB}})
    while (static_cast<double>(bytes / (static_cast<std::int64_t>(c.channels) * chunk)) <
               times * depth &&
           chunk > least)
      chunk /= 2;
  return chunk;
}

std::int64_t ll128_tree_chunk(const System& s, const Choice& c, std::int64_t bytes) {
  std::int64_t chunk = c.chunk;
  double shape = 1 + floor_log2(s.nodes) + 0.1 * s.per_node();
  auto shrink = [&](double times, std::int64_t least) {
    while (static_cast<double>(bytes / (static_cast<std::int64_t>(c.channels) * chunk)) <
               times * shape / s.per_node() &&
           chunk > least)
      chunk /= 2;
  };
  shrink(64, 131072);
  shrink(16, 32768);
  constexpr std::int64_t kGrain = 1920;
  return std::max(kGrain, chunk / kGrain * kGrain);
}

}  // namespace

Choice complete(const System& s, const Table& table, const Settings& set, Operation op, Algorithm a,
                Protocol p, std::int64_t bytes, int of_tuner) {
  Choice c;
  c.algorithm = a;
  c.protocol = p;
  c.estimate = estimate(s, table, op, a, p, bytes).value_or(Microseconds{});
  set_channels_and_threads(s, set, bytes, of_tuner, c);
  std::int64_t step = step_of(set, p);
  bool ring = a == Algorithm::Ring && op != Operation::Broadcast && op != Operation::Reduce;
  c.chunk = ring && p == Protocol::Simple ? 4 * step : step;
  c.slice = ring && p == Protocol::Simple ? 2 * step : step;
  if (is_nvls(a)) c.chunk = c.slice = nvls_chunk(s, set, c, bytes, step);
  if (is_collnet(a)) c.chunk = c.slice = collnet_chunk(s, c, bytes, step);
  if (!set.version.has(Change::TreeKeepsItsChunk) && p == Protocol::Simple && a == Algorithm::Tree)
    c.chunk = c.slice = tree_chunk(s, c, bytes);
  if (p == Protocol::Ll128 && a == Algorithm::Tree)
    c.chunk = c.slice = ll128_tree_chunk(s, c, bytes);
  return c;
}

}  // namespace ddpsim::nccl
