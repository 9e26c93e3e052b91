// ddpsim.program/1: what `ddpsim show program --format json` and ddpsim_record_program.py write.
#include <algorithm>
#include <unordered_map>

#include "sim/analysis/compare_programs.h"
#include "sim/io/schema/program_fields.h"

namespace ddpsim::io {
namespace {

// "bwd/NAME", "micro0/bwd/NAME", or, of a recorded step's second, "bwd/NAME#1": the gradient that
// is ready when it ends.
std::string gradient_of(const std::string& op) {
  std::size_t at = op.rfind("micro", 0) == 0 ? op.find('/') + 1 : 0;
  if (op.compare(at, 4, "bwd/") != 0 || op.compare(at, std::string::npos, "bwd/tail") == 0)
    return {};
  const std::size_t number = op.rfind('#');
  const bool numbered = number != std::string::npos && number + 1 < op.size() &&
                        op.find_first_not_of("0123456789", number + 1) == std::string::npos;
  return op.substr(at + 4, numbered ? number - at - 4 : std::string::npos);
}

struct Head {
  std::int64_t ranks;
  std::int64_t rank;
  std::vector<RankGroups> groups;
};

analysis::ListedStep read_step(const Reader& r, const Head& head) {
  r.only(keys_of<ProgramStep>());
  analysis::ListedStep step;
  step.kind = r.at("kind").text();
  std::unordered_map<std::string, std::size_t> gradient;  // by operation: gradients awaited so far
  std::unordered_map<std::string, std::size_t> last;      // of each lane that is in order
  for (const Reader& o : r.at("ops").items()) {
    o.only(keys_of<ProgramOp>());
    std::string name = o.at("op").text();
    std::string lane = o.at("lane").text();
    bool in_order = lane != "worker" && lane != "callback";
    std::size_t awaited = in_order ? last[lane] : 0;
    for (const Reader& w : o.at("waits_for").items()) {
      auto it = gradient.find(w.text());
      if (it == gradient.end()) w.fail("names no operation before it in this step");
      awaited = std::max(awaited, it->second);
    }
    std::string ready = gradient_of(name);
    if (!ready.empty()) {
      step.gradients.push_back(ready);
      awaited = step.gradients.size();
    }
    if (in_order) last[lane] = awaited;
    if (!gradient.emplace(name, awaited).second) o.at("op").fail("stands twice in this step");
    if (gradient.size() > kMostListedOps) r.fail("more than a million operations in a step");
    if (!o.has("operation")) continue;
    analysis::ListedCollective c;
    c.op = name;
    c.operation = o.at("operation").text();
    if (o.has("dtype") && o.at("dtype").json().is_string()) c.dtype = o.at("dtype").text();
    if (o.has("group"))
      for (std::int64_t m : read_group(o.at("group"), head.ranks, head.rank, head.groups))
        c.group += (c.group.empty() ? "" : ",") + std::to_string(m);
    c.bytes = o.at("bytes").integer();
    Codec<std::vector<std::string>>::read(o.at("tensors"), c.tensors);
    if (awaited > 0) c.after = step.gradients[awaited - 1];
    step.collectives.push_back(std::move(c));
  }
  return step;
}

}  // namespace

std::vector<RankGroups> read_groups(const Reader& all, std::int64_t ranks) {
  std::vector<RankGroups> out;
  if (!all.json().is_object()) all.fail("expected an object: {\"shard\": {\"size\": 8, ...}}");
  for (const auto& [name, unused] : all.json().items()) {
    const Reader g = all.at(name.c_str());
    g.only(keys_of<AnyGroup>());
    RankGroups group{name};
    ReadFields v(g);
    if (g.has("server")) {
      ServerGroup server{group};
      fields(v, server);
      group.size = static_cast<int>(std::max<std::int64_t>(1, ranks));
      out.push_back(std::move(group));
      continue;
    }
    fields(v, group);
    const std::int64_t block = std::int64_t{group.size} * group.stride;
    if (name.empty() || name == "world") g.fail("\"" + name + "\" is no name for a group");
    if (ranks > 0 && ranks % block != 0)
      g.fail("groups of " + std::to_string(group.size) + " ranks, " + std::to_string(group.stride) +
             " apart, do not part " + std::to_string(ranks) + " ranks");
    out.push_back(std::move(group));
  }
  if (out.size() > kMostGroups) all.fail("at most 100 groups");
  return out;
}

std::vector<std::int64_t> read_group(const Reader& r, std::int64_t ranks, std::int64_t rank,
                                     const std::vector<RankGroups>& groups) {
  std::vector<std::int64_t> out;
  if (r.json().is_string()) {
    std::string name = r.text();
    if (name == "world") return out;
    for (const RankGroups& g : groups) {
      if (g.name != name || g.size == ranks) continue;
      std::int64_t first = rank - rank / g.stride % g.size * g.stride;
      for (int i = 0; i < g.size; ++i) out.push_back(first + std::int64_t{i} * g.stride);
    }
    bool known = std::any_of(groups.begin(), groups.end(),
                             [&](const RankGroups& g) { return g.name == name; });
    if (!known) r.fail("expected \"world\", one of the file's \"groups\" or a list of ranks");
    return out;
  }
  out = r.integers();
  std::vector<std::int64_t> sorted = out;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) r.fail("a group has at least one rank");
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    r.fail("a rank stands twice in the group");
  if (ranks > 0 && (sorted.front() < 0 || sorted.back() >= ranks))
    r.fail("ranks are 0 to " + std::to_string(ranks - 1) + "; the group has " +
           std::to_string(sorted.front() < 0 ? sorted.front() : sorted.back()));
  if (std::ssize(out) == ranks) out.clear();
  return out;
}

analysis::ListedProgram read_program(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema(kProgramSchema);
  r.only(keys_of<ProgramJob>());
  Head head{r.has("ranks") ? r.at("ranks").small(1, 1 << 20) : -1, 0, {}};
  if (r.has("rank")) head.rank = r.at("rank").small(0, (1 << 20) - 1);
  if (r.has("groups")) head.groups = read_groups(r.at("groups"), head.ranks);
  analysis::ListedProgram p;
  for (const Reader& s : r.at("steps").items()) p.steps.push_back(read_step(s, head));
  if (p.steps.empty()) r.at("steps").fail("has no step");
  return p;
}

}  // namespace ddpsim::io
