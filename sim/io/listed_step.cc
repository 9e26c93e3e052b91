#include "sim/io/listed_step.h"

#include <algorithm>

#include "sim/io/schema/program_fields.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kMostOfStep = 10 * kMostPicoseconds;

// Where the key may be left out.
std::int64_t count_of(const Reader& r, const char* key, std::int64_t high, const char* what) {
  return r.has(key) ? between(r.at(key), 0, high, what) : 0;
}

class OperationReader {
 public:
  explicit OperationReader(ProgramHead& head) : head_(head), file_(head.file) {}

  Op read(const Reader& o, StatedOp& c) {
    Op op;
    c.name = o.at("op").text();
    op.lane = read_lane(o.at("lane"));
    read_kind(o, c);
    std::int64_t sliced = 0;  // elements
    bool slices = false;
    for (const Reader& t : o.at("tensors").items()) {
      c.tensors.push_back(tensor(t, sliced, slices));
      if (sliced > kMostBytesOfOne / 8) t.fail(kTooManyElements);
    }
    bool communicates = is_collective(c.kind);
    op.bytes = communicates || o.has("bytes")
                   ? between(o.at("bytes"), communicates ? 1 : 0, kMostBytesOfOne, "bytes")
                   : 0;
    if (o.has("dtype"))
      op.dtype = read_dtype(o.at("dtype"));
    else if (is_broadcast(c.kind))  // of bytes
      op.dtype = op.bytes % 4 == 0 ? DType::Int32 : DType::UInt8;
    if (communicates) {
      if (o.has("group")) op.group = group_number(o.at("group"));
      if (o.has("root") && (is_broadcast(c.kind) || c.kind.operation == Operation::Reduce))
        op.root = static_cast<std::int32_t>(
            op.group == 0
                ? between(o.at("root"), 0, std::max(1, file_.ranks) - 1, "a rank of the job,")
                : between(o.at("root"), 0, file_.program.groups[op.group - 1u].size - 1,
                          "a rank of its group,"));
      if (op.root > 0) file_.of_any_ranks = false;
      check_collective(o, op, c, sliced, slices);
    } else if (is_input(c.kind) && op.lane != Lane::Host && number_of(op.lane) < kLanes)
      o.at("lane").fail("input is made on a stream of its own, and waited for on the host");
    else if (op.lane == Lane::Worker && c.kind.does == Does::Compute)
      o.at("lane").fail("the workers compute nothing; they run collectives, copy and launch");
    else
      read_cost(o, op, c);
    return op;
  }

 private:
  Lane read_lane(const Reader& r) const {
    std::string name = r.text();
    auto it = std::find(head_.lanes.begin(), head_.lanes.end(), name);
    if (it == head_.lanes.end()) {
      std::string known;
      for (const std::string& l : head_.lanes) known += (known.empty() ? "" : ", ") + l;
      r.fail("\"" + name + "\" is not a lane; known are " + known +
             " (the file's \"streams\" add lanes)");
    }
    auto lane = static_cast<Lane>(it - head_.lanes.begin());
    if (head_.placed || file_.program.device == DeviceKind::Gpu) return lane;
    return lane == Lane::Compute ? Lane::Host : lane == Lane::Comm ? Lane::Worker : lane;
  }

  void read_kind(const Reader& o, StatedOp& c) {
    if (o.has("operation")) {
      std::string name = o.at("operation").text();
      auto operation = parse_operation(name);
      if (!operation)
        o.at("operation")
            .fail("\"" + name +
                  "\" is no collective that ddpsim plays; it plays all_reduce and broadcast, and "
                  "over nccl and tcp all_gather, reduce_scatter and reduce");
      c.kind.operation = *operation;
    }
    if (o.has("does"))
      Codec<Does>::read(o.at("does"), c.kind.does);
    else if (o.has("operation"))
      c.kind.does = Does::Communicate;
    else if (!o.has("duration_ps"))
      o.fail("says neither what it does (\"does\") nor how long it takes (\"duration_ps\")");
    if (is_collective(c.kind) && !o.has("operation"))
      o.fail("communicates, and does not say what: \"operation\" is missing");
    if (!is_collective(c.kind) && o.has("operation"))
      o.at("operation").fail("is of what communicates; \"does\" says otherwise");
    if (o.has("phase")) {
      ListedPhase phase;
      Codec<ListedPhase>::read(o.at("phase"), phase);
      c.kind.phase = phase.value;
    }
    if (o.has("divides")) c.kind.divides = o.at("divides").boolean();
  }

  // "P", or a slice of it, "P[from:to]": elements.
  TensorIndex tensor(const Reader& r, std::int64_t& sliced, bool& slices) const {
    std::string name = r.text();
    if (auto it = head_.tensor_numbers.find(name); it != head_.tensor_numbers.end()) {
      sliced += file_.tensors[it->second].elements();
      return it->second;
    }
    auto open = name.rfind('[');
    auto colon = name.rfind(':');
    if (open != std::string::npos && colon != std::string::npos && open < colon &&
        name.ends_with("]")) {
      std::string from = name.substr(open + 1, colon - open - 1);
      std::string to = name.substr(colon + 1, name.size() - colon - 2);
      auto it = head_.tensor_numbers.find(name.substr(0, open));
      auto number = [](const std::string& s) {
        bool plain =
            !s.empty() && s.size() < 17 && s.find_first_not_of("0123456789") == std::string::npos;
        return plain ? std::stoll(s) : -1;
      };
      if (it != head_.tensor_numbers.end()) {
        if (number(from) < 0 || number(to) <= number(from) ||
            number(to) > file_.tensors[it->second].elements())
          r.fail("is no slice of \"" + it->first + "\", which has " +
                 std::to_string(file_.tensors[it->second].elements()) + " elements");
        slices = true;
        sliced += number(to) - number(from);
        return it->second;
      }
    }
    r.fail("\"" + name + "\" is not in the file's \"tensors\"");
  }

  // A list of ranks stands for all groups of its size, as far apart: what one rank's recording says
  // of the others.
  std::uint8_t group_number(const Reader& r) {
    for (std::size_t k = 0; k < file_.program.groups.size(); ++k)
      if (const RankGroups& g = file_.program.groups[k];
          g.server >= 0 && r.json().is_string() && r.text() == g.name) {
        file_.of_any_ranks = false;
        return static_cast<std::uint8_t>(k + 1);
      }
    const std::vector<std::int64_t> ranks =
        read_group(r, file_.ranks, head_.rank, file_.program.groups);
    if (ranks.empty()) return 0;
    file_.of_any_ranks = false;
    const std::int64_t size = std::ssize(ranks);
    const std::int64_t stride = size == 1 ? 1 : ranks[1] - ranks[0];
    std::string text;
    for (std::int64_t m : ranks) text += (text.empty() ? "" : ",") + std::to_string(m);
    bool regular =
        stride > 0 && file_.ranks % (size * stride) == 0 && ranks[0] % (size * stride) < stride;
    for (std::int64_t i = 0; i < size; ++i) regular = regular && ranks[i] == ranks[0] + i * stride;
    if (!regular)
      r.fail("is of the ranks " + (text.size() > 100 ? text.substr(0, 100) + "..." : text) +
             "; ddpsim plays groups of equally many ranks, equally far apart, of which the job "
             "is made up");
    RankGroups wanted{"", static_cast<int>(size), static_cast<int>(stride)};
    for (std::size_t k = 0; k < file_.program.groups.size(); ++k) {
      wanted.name = file_.program.groups[k].name;
      wanted.by_hosts = file_.program.groups[k].by_hosts;
      if (file_.program.groups[k] == wanted) return static_cast<std::uint8_t>(k + 1);
    }
    if (file_.program.groups.size() >= kMostGroups) r.fail("at most 100 groups");
    wanted.name = text;
    wanted.by_hosts = {};
    file_.program.groups.push_back(wanted);
    return static_cast<std::uint8_t>(file_.program.groups.size());
  }

  void check_collective(const Reader& o, const Op& op, const StatedOp& c, std::int64_t elements,
                        bool slices) {
    bool sum = c.kind.operation == Operation::AllReduce;
    if ((!sum && !is_broadcast(c.kind)) || slices) file_.of_any_ranks = false;
    // Groups may each have a part of the tensors.
    if (c.tensors.empty() || !o.has("dtype") || op.group > 0) return;
    std::int64_t more = count_of(o, "unrecognised_elements", kMostBytesOfOne, "elements");
    std::int64_t expected = (elements + more) * element_size(op.dtype);
    bool whole = sum || is_broadcast(c.kind);  // others are padded, or list a part
    if (whole ? op.bytes == expected : op.bytes >= expected) return;
    o.at("bytes").fail("its tensors are " + std::to_string(expected) + " bytes in " +
                       name_of(op.dtype) + ", and it says " + std::to_string(op.bytes));
  }

  void read_cost(const Reader& o, Op& op, StatedOp& c) {
    if (o.has("cost"))
      Codec<Cost>::read(o.at("cost"), op.cost);
    else if (!o.has("duration_ps") && !is_wait(c.kind))
      o.fail("has no cost: \"duration_ps\", or \"cost\" and what it counts");
    if (op.cost == Cost::Measured && !is_wait(c.kind)) o.at("duration_ps");
    op.duration = {count_of(o, "duration_ps", kMostPicoseconds, "picoseconds")};
    op.traffic = count_of(o, "traffic_bytes", kMostBytesOfOne, "bytes");
    op.kernels = static_cast<std::int32_t>(count_of(o, "kernels", kMostCount, "a number"));
    op.hooks = static_cast<std::int32_t>(count_of(o, "hooks", kMostCount, "a number"));
    if (op.cost == Cost::HalfDivision)
      c.divided = between(o.at("divided_bytes"), 0, kMostBytesOfOne, "bytes");
  }

  ProgramHead& head_;
  ProgramFile& file_;
};

StepKind kind_of_step(const Reader& r, std::size_t number, bool last) {
  std::string kind = r.text();
  bool numbered = kind == "step." + std::to_string(number);
  if (kind == "steady" || (numbered && last)) return StepKind::Steady;
  if (last)
    r.fail("the last step is the one that is repeated: \"steady\" (or \"step." +
           std::to_string(number) + "\")");
  if (kind == "first" || (numbered && number == 0)) return StepKind::First;
  if (kind == "rebuild" || numbered) return StepKind::Rebuild;
  r.fail("expected first, rebuild or steady, or step." + std::to_string(number) +
         " of a recording");
}

// An operation waits for some that stand before it, so that there is no circle.
void read_waits(const Reader& o, std::uint32_t index,
                const std::unordered_map<std::string, std::uint32_t>& number_of,
                StepProgram& step) {
  std::vector<std::uint32_t> deps;
  for (const Reader& w : o.at("waits_for").items()) {
    auto it = number_of.find(w.text());
    if (it == number_of.end())
      w.fail("\"" + w.text() + "\" names no operation before it in this step");
    deps.push_back(it->second);
  }
  std::sort(deps.begin(), deps.end());
  deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
  for (std::size_t k = 0; k < deps.size(); ++k)
    if (k < 2)
      step.ops[index].dep[k] = deps[k];
    else
      step.extra_deps.push_back({index, deps[k]});
}

}  // namespace

void Codec<ListedPhase>::read(const Reader& r, ListedPhase& into) {
  const std::size_t k = r.choice(words());
  into.value = k < kPhases.size()    ? static_cast<Phase>(k)
               : k == kPhases.size() ? Phase::Update
                                     : Phase::Between;
}

ListedStep read_listed_step(const Reader& r, std::size_t number, bool last, ProgramHead& head) {
  OperationReader operations(head);
  r.only(keys_of<ProgramStep>());
  ListedStep listed;
  StepProgram& step = listed.step;
  step.kind = kind_of_step(r.at("kind"), number, last);
  listed.ops = r.at("ops").items();
  if (listed.ops.empty()) r.at("ops").fail("a step has at least one operation");
  if (listed.ops.size() > kMostListedOps) r.fail("more than a million operations in a step");
  Duration total;
  for (const Reader& o : listed.ops) {
    o.only(keys_of<ProgramOp>());
    auto index = step.next_op();
    StatedOp c;
    step.ops.push_back(operations.read(o, c));
    total += step.ops.back().duration;
    if (total.ps > kMostOfStep) o.fail("the step's operations take more than 10,000 seconds");
    if (c.name.empty()) o.at("op").fail("an operation needs a name");
    read_waits(o, index, listed.number_of, step);
    if (!listed.number_of.emplace(c.name, index).second)
      o.at("op").fail("stands twice in this step");
    listed.stated.push_back(std::move(c));
  }
  return listed;
}

}  // namespace ddpsim::io
