// Names of operations that a system of sim/strategy has are read as that system's words, where they
// mean the same; every other operation is a word of its own, with the kind that the file gives it.
#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "sim/io/program_file.h"
#include "sim/strategy/words.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kMostPicoseconds = 1'000'000'000'000'000;  // of one operation
constexpr std::int64_t kMostOfStep = 10 * kMostPicoseconds;
constexpr std::int64_t kMostBytesOfOne = 1'000'000'000'000'000;
constexpr std::int64_t kMostCount = 1'000'000'000;
constexpr std::size_t kMostSteps = 64;
std::int64_t between(const Reader& r, std::int64_t low, std::int64_t high, const char* what) {
  std::int64_t v = r.integer();
  if (v < low || v > high)
    r.fail("expected " + std::string(what) + " from " + std::to_string(low) + " to " +
           std::to_string(high) + ", found " + std::to_string(v));
  return v;
}
// Where the key may be left out.
std::int64_t count_of(const Reader& r, const char* key, std::int64_t high, const char* what) {
  return r.has(key) ? between(r.at(key), 0, high, what) : 0;
}

// One of an enumeration, by its name.
template <class Enum>
Enum choice(const Reader& r, Enum last) {
  std::vector<const char*> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) names.push_back(name_of(static_cast<Enum>(i)));
  return static_cast<Enum>(r.choice(names));
}

bool all_digits(std::string_view s) {
  return !s.empty() && s.size() < 9 &&
         std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What a file says of an operation, beyond what Op holds.
struct Carried {
  std::string name;
  OpKind kind;  // its `of` and `touches` are found out
  std::vector<TensorIndex> tensors;
  std::int64_t divided = 0;  // bytes
};

// A step's operations, until all names are known.
struct Listed {
  std::vector<Reader> ops;
  std::vector<Carried> carried;
  std::unordered_map<std::string, std::uint32_t> number_of;
};

// "allreduce/bucket.7": 7. -1: no number below the most that a step has of operations.
std::size_t last_number(const std::string& name) {
  std::string_view digits = name;
  digits.remove_prefix(name.find_last_not_of("0123456789") + 1);
  if (!all_digits(digits)) return std::size_t(-1);
  std::size_t n = std::stoul(std::string(digits));
  return n < kMostListedOps ? n : std::size_t(-1);
}

class ProgramReader {
 public:
  ProgramReader(const Json& j, const std::string& file, DeviceKind device) : r_(j, file) {
    r_.schema("ddpsim.program/1");
    r_.only(kProgramKeys);
    out_.program.device = device;
  }

  ProgramFile read() {
    read_head();
    read_tensors();
    std::vector<Reader> steps = r_.at("steps").items();
    if (steps.empty()) r_.at("steps").fail("has no step");
    if (steps.size() > kMostSteps) r_.at("steps").fail("has more than 64 steps; keep the last few");
    for (std::size_t k = 0; k < steps.size(); ++k) read_step(steps[k], k, k + 1 == steps.size());
    // Buckets that operations number; those of labels come after them.
    std::size_t numbered = 0;
    for (const Listed& l : listed_)
      for (const Carried& c : l.carried) numbered = std::max(numbered, last_number(c.name) + 1);
    program_.labels.resize(numbered);
    for (std::size_t k = 0; k < steps_.size(); ++k)
      for (std::uint32_t i = 0; i < steps_[k].ops.size(); ++i) name_op(listed_[k], steps_[k], i);
    program_.steady = std::move(steps_.back());
    steps_.pop_back();
    program_.warmup = std::move(steps_);
    return std::move(out_);
  }

 private:
  // ---- the head

  void read_head() {
    out_.ranks = r_.at("ranks").small(1, 1 << 20);
    if (r_.has("name")) out_.name = r_.at("name").text();
    if (r_.has("batch")) out_.batch = r_.at("batch").small(1, 1'000'000);
    if (r_.has("micro_steps")) program_.micro_steps = r_.at("micro_steps").small(1, 10'000);
    program_.worker_threads = r_.has("worker_threads") ? r_.at("worker_threads").small(1, 1024) : 0;
    if (r_.has("at_once")) program_.at_once = r_.at("at_once").small(0, 1 << 20);
    if (r_.has("core_share")) {
      program_.core_share = r_.at("core_share").number();
      if (!(program_.core_share >= 0 && program_.core_share <= 1))
        r_.at("core_share").fail("expected a share from 0 to 1");
    }
    if (r_.has("rank")) rank_ = r_.at("rank").small(0, (1 << 20) - 1);
    program_.groups = read_groups(r_, out_.ranks);
    placed_ = r_.has("device");
    if (placed_) {
      auto stated = static_cast<DeviceKind>(r_.at("device").choice({"cpu", "gpu"}));
      if (stated != program_.device)
        r_.at("device").fail(
            std::string("the program is of ") + (stated == DeviceKind::Cpu ? "CPUs" : "GPUs") +
            " and the cluster is of " + (stated == DeviceKind::Cpu ? "GPUs" : "CPUs") +
            ": who launches and who waits differs; lower it for that cluster (ddpsim show "
            "program)");
    }
    if (r_.has("backend"))
      out_.backend = static_cast<Backend>(r_.at("backend").choice({"nccl", "gloo", "tcp"}));
    if (r_.has("streams")) {
      for (const Reader& s : r_.at("streams").items()) program_.streams.push_back(s.text());
      if (program_.streams.size() > kMostStreams)
        r_.at("streams").fail("at most " + std::to_string(kMostStreams) + " streams of its own");
    }
    for (std::size_t k = 0; k < kLanes; ++k) lanes_.push_back(name_of(static_cast<Lane>(k), {}));
    for (const std::string& s : program_.streams) {
      if (s.empty() || std::find(lanes_.begin(), lanes_.end(), s) != lanes_.end())
        r_.at("streams").fail("\"" + s + "\" is no name for a stream of its own");
      lanes_.push_back(s);
    }
    if (!placed_ && r_.has("origin")) {
      const Json& origin = r_.at("origin").json();
      if (origin.is_object() && origin.contains("software") && origin["software"].is_string())
        out_.recorded_from = origin["software"];
    }
  }

  void read_tensors() {
    std::int64_t all = 0;
    for (const Reader& t : r_.at("tensors").items()) {
      t.only({"name", "kind", "shape", "dtype"});
      Tensor tensor;
      tensor.name = t.at("name").text();
      std::int64_t elements = 1;
      for (const Reader& d : t.at("shape").items()) {
        tensor.shape.push_back(between(d, 0, kMostBytesOfOne, "a size"));
        if (elements > 0 && tensor.shape.back() > kMostBytesOfOne / 8 / elements)
          t.at("shape").fail("more elements than any device holds");
        elements *= tensor.shape.back();
      }
      all += elements;
      if (all > kMostBytesOfOne / 8) t.at("shape").fail("more elements than any device holds");
      tensor.dtype = read_dtype(t.at("dtype"));
      if (!tensors_.emplace(tensor.name, static_cast<TensorIndex>(out_.tensors.size())).second)
        t.at("name").fail("stands twice");
      program_.tensor_names.push_back(tensor.name);
      program_.tensor_bytes.push_back(tensor.bytes().count);
      out_.tensors.push_back(std::move(tensor));
    }
    out_.of_any_ranks = true;
  }

  static DType read_dtype(const Reader& r) {
    if (!r.json().is_string()) r.fail("expected one dtype; a collective of several is not played");
    auto dtype = parse_dtype(r.text());
    if (!dtype)
      r.fail("\"" + r.text() +
             "\" is not a dtype; known are float32, float16, bfloat16, float64, "
             "int64, int32, uint8, bool");
    return *dtype;
  }

  // ---- steps

  StepKind kind_of_step(const Reader& r, std::size_t number, bool last) const {
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

  void read_step(const Reader& r, std::size_t number, bool last) {
    r.only({"kind", "ops"});
    StepProgram step;
    step.kind = kind_of_step(r.at("kind"), number, last);
    Listed listed{r.at("ops").items(), {}, {}};
    if (listed.ops.empty()) r.at("ops").fail("a step has at least one operation");
    if (listed.ops.size() > kMostListedOps) r.fail("more than a million operations in a step");
    Duration total;
    for (const Reader& o : listed.ops) {
      o.only(kOperationKeys);
      auto index = static_cast<std::uint32_t>(step.ops.size());
      Carried c;
      step.ops.push_back(read_op(o, c));
      total += step.ops.back().duration;
      if (total.ps > kMostOfStep) o.fail("the step's operations take more than 10,000 seconds");
      if (c.name.empty()) o.at("op").fail("an operation needs a name");
      read_waits(o, index, listed.number_of, step);
      if (!listed.number_of.emplace(c.name, index).second)
        o.at("op").fail("stands twice in this step");
      listed.carried.push_back(std::move(c));
    }
    steps_.push_back(std::move(step));
    listed_.push_back(std::move(listed));
  }

  // An operation waits for some that stand before it, so that there is no circle.
  static void read_waits(const Reader& o, std::uint32_t index,
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

  Lane read_lane(const Reader& r) const {
    std::string name = r.text();
    auto it = std::find(lanes_.begin(), lanes_.end(), name);
    if (it == lanes_.end()) {
      std::string known;
      for (const std::string& l : lanes_) known += (known.empty() ? "" : ", ") + l;
      r.fail("\"" + name + "\" is not a lane; known are " + known +
             " (the file's \"streams\" add lanes)");
    }
    auto lane = static_cast<Lane>(it - lanes_.begin());
    if (placed_ || program_.device == DeviceKind::Gpu) return lane;
    return lane == Lane::Compute ? Lane::Host : lane == Lane::Comm ? Lane::Worker : lane;
  }

  Op read_op(const Reader& o, Carried& c) {
    Op op;
    c.name = o.at("op").text();
    op.lane = read_lane(o.at("lane"));
    read_kind(o, c);
    std::int64_t sliced = 0;  // elements
    bool slices = false;
    for (const Reader& t : o.at("tensors").items()) {
      c.tensors.push_back(tensor(t, sliced, slices));
      if (sliced > kMostBytesOfOne / 8) t.fail("more elements than any device holds");
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
      if (o.has("root") && is_broadcast(c.kind) && op.group == 0)
        op.root = static_cast<std::int32_t>(
            between(o.at("root"), 0, std::max(1, out_.ranks) - 1, "a rank of the job,"));
      if (op.root > 0) out_.of_any_ranks = false;
      check_collective(o, op, c, sliced, slices);
    } else if (is_input(c.kind) && op.lane != Lane::Host && number_of(op.lane) < kLanes)
      o.at("lane").fail("input is made on a stream of its own, and waited for on the host");
    else if (op.lane == Lane::Worker && c.kind.does == Does::Compute)
      o.at("lane").fail("the workers compute nothing; they run collectives, copy and launch");
    else
      read_cost(o, op, c);
    return op;
  }

  void read_kind(const Reader& o, Carried& c) {
    if (o.has("operation")) {
      std::string name = o.at("operation").text();
      auto operation = parse_operation(name);
      if (!operation)
        o.at("operation")
            .fail("\"" + name +
                  "\" is no collective that ddpsim plays; it plays all_reduce and broadcast, and "
                  "over NCCL all_gather and reduce_scatter");
      c.kind.operation = *operation;
    }
    if (o.has("does"))
      c.kind.does = choice(o.at("does"), Does::Move);
    else if (o.has("operation"))
      c.kind.does = Does::Communicate;
    else if (!o.has("duration_ps"))
      o.fail("says neither what it does (\"does\") nor how long it takes (\"duration_ps\")");
    if (is_collective(c.kind) && !o.has("operation"))
      o.fail("communicates, and does not say what: \"operation\" is missing");
    if (!is_collective(c.kind) && o.has("operation"))
      o.at("operation").fail("is of what communicates; \"does\" says otherwise");
    if (o.has("phase")) {
      constexpr Phase kPhases[] = {Phase::Between, Phase::Forward, Phase::Backward, Phase::Reduced,
                                   Phase::Update,  Phase::Update,  Phase::Between};
      c.kind.phase = kPhases[o.at("phase").choice(
          {"between", "forward", "backward", "reduced", "update", "step", "init"})];
    }
    if (o.has("divides")) c.kind.divides = o.at("divides").boolean();
  }

  // "P", or a slice of it, "P[from:to]": elements.
  TensorIndex tensor(const Reader& r, std::int64_t& sliced, bool& slices) const {
    std::string name = r.text();
    if (auto it = tensors_.find(name); it != tensors_.end()) {
      sliced += out_.tensors[it->second].elements();
      return it->second;
    }
    auto open = name.rfind('[');
    auto colon = name.rfind(':');
    if (open != std::string::npos && colon != std::string::npos && open < colon &&
        name.ends_with("]")) {
      std::string from = name.substr(open + 1, colon - open - 1);
      std::string to = name.substr(colon + 1, name.size() - colon - 2);
      auto it = tensors_.find(name.substr(0, open));
      auto number = [](const std::string& s) {
        bool plain =
            !s.empty() && s.size() < 17 && s.find_first_not_of("0123456789") == std::string::npos;
        return plain ? std::stoll(s) : -1;
      };
      if (it != tensors_.end()) {
        if (number(from) < 0 || number(to) <= number(from) ||
            number(to) > out_.tensors[it->second].elements())
          r.fail("is no slice of \"" + it->first + "\", which has " +
                 std::to_string(out_.tensors[it->second].elements()) + " elements");
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
    const std::vector<std::int64_t> ranks = read_group(r, out_.ranks, rank_, program_.groups);
    if (ranks.empty()) return 0;
    out_.of_any_ranks = false;
    const std::int64_t size = std::ssize(ranks);
    const std::int64_t stride = size == 1 ? 1 : ranks[1] - ranks[0];
    std::string text;
    for (std::int64_t m : ranks) text += (text.empty() ? "" : ",") + std::to_string(m);
    bool regular =
        stride > 0 && out_.ranks % (size * stride) == 0 && ranks[0] % (size * stride) < stride;
    for (std::int64_t i = 0; i < size; ++i)
      regular = regular && ranks[static_cast<std::size_t>(i)] == ranks[0] + i * stride;
    if (!regular)
      r.fail("is of the ranks " + (text.size() > 100 ? text.substr(0, 100) + "..." : text) +
             "; ddpsim plays groups of equally many ranks, equally far apart, of which the job "
             "is made up");
    RankGroups wanted{"", static_cast<int>(size), static_cast<int>(stride)};
    for (std::size_t k = 0; k < program_.groups.size(); ++k) {
      wanted.name = program_.groups[k].name;
      if (program_.groups[k] == wanted) return static_cast<std::uint8_t>(k + 1);
    }
    if (program_.groups.size() >= kMostGroups) r.fail("at most 100 groups");
    wanted.name = text;
    program_.groups.push_back(wanted);
    return static_cast<std::uint8_t>(program_.groups.size());
  }

  void check_collective(const Reader& o, const Op& op, const Carried& c, std::int64_t elements,
                        bool slices) {
    bool sum = c.kind.operation == Operation::AllReduce;
    if ((!sum && !is_broadcast(c.kind)) || slices) out_.of_any_ranks = false;
    // Groups may each have a part of the tensors.
    if (c.tensors.empty() || !o.has("dtype") || op.group > 0) return;
    std::int64_t more = count_of(o, "unrecognised_elements", kMostBytesOfOne, "elements");
    std::int64_t expected = (elements + more) * element_size(op.dtype);
    bool whole = sum || is_broadcast(c.kind);  // others are padded, or list a part
    if (whole ? op.bytes == expected : op.bytes >= expected) return;
    o.at("bytes").fail("its tensors are " + std::to_string(expected) + " bytes in " +
                       name_of(op.dtype) + ", and it says " + std::to_string(op.bytes));
  }

  void read_cost(const Reader& o, Op& op, Carried& c) {
    if (o.has("cost"))
      op.cost = choice(o.at("cost"), Cost::Traverse);
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

  // ---- names

  void name_op(const Listed& listed, StepProgram& step, std::uint32_t i) {
    const Carried& c = listed.carried[i];
    Op& op = step.ops[i];
    if (is_launch(c.kind)) {
      constexpr std::string_view kPrefix = "launch/";
      auto it = c.name.starts_with(kPrefix) ? listed.number_of.find(c.name.substr(kPrefix.size()))
                                            : listed.number_of.end();
      if (it == listed.number_of.end())
        listed.ops[i].at("op").fail(
            "a launch is called launch/X, where X is the operation that it launches");
      op.kind = strategy::kLaunch.kind;
      op.word = number_of_word(strategy::kLaunch.name);
      op.subject = it->second;
      return;
    }
    for (const OpWord& word : strategy::all_words())
      if (names(word, c, step, i)) return;
    op.word = number_of_word("");
    op.micro = -1;
    op.kind = c.kind;
    op.kind.of = Of::Label;
    op.kind.touches = c.tensors.empty() ? Touches::Nothing : Touches::Bucket;
    op.subject = number_of_label(c, op, step);
    divide(op, c, step);
  }

  // Whether this word says all that the file says of the operation; if so it is that.
  bool names(const OpWord& word, const Carried& c, StepProgram& step, std::uint32_t i) {
    if (word.kind.does != c.kind.does || word.kind.phase != c.kind.phase ||
        word.kind.divides != c.kind.divides ||
        (is_collective(c.kind) && word.kind.operation != c.kind.operation))
      return false;
    std::string_view rest = c.name;
    int micro = -1;
    if (auto slash = rest.find('/'); word.kind.in_micro_step && rest.starts_with("micro") &&
                                     slash != std::string_view::npos &&
                                     all_digits(rest.substr(5, slash - 5)) && slash < 10) {
      micro = std::stoi(std::string(rest.substr(5, slash - 5)));
      rest.remove_prefix(slash + 1);
    }
    if (!rest.starts_with(word.name)) return false;
    rest.remove_prefix(std::strlen(word.name));
    Op op = step.ops[i];
    op.kind = word.kind;
    op.word = number_of_word(word.name);
    op.micro = static_cast<std::int16_t>(micro);
    if (!find_subject(rest, op)) return false;
    bool of_bucket = op.kind.touches == Touches::Bucket;
    if (of_bucket && op.kind.of == Of::Nothing) op.subject = 0;
    if (of_bucket ? !holds(step, op.subject, c.tensors) : tensors_of_word(op) != c.tensors)
      return false;
    step.ops[i] = op;
    if (name_of(program_, step, i) != c.name) return false;  // "micro007/fwd"
    if (of_bucket) fill(step, op.subject, c, op);
    divide(op, c, step);
    return true;
  }

  bool find_subject(std::string_view rest, Op& op) {
    switch (op.kind.of) {
      case Of::Nothing:
        return rest.empty();
      case Of::Number:
      case Of::Bucket:
        if (!all_digits(rest)) return false;
        op.subject = static_cast<std::uint32_t>(std::stoul(std::string(rest)));
        return op.kind.of == Of::Number || op.subject < program_.labels.size();
      case Of::Tensor: {
        auto it = tensors_.find(std::string(rest));
        if (it == tensors_.end()) return false;
        op.subject = it->second;
        return true;
      }
      case Of::Label: {
        auto [it, fresh] =
            labels_.emplace(rest, static_cast<std::uint32_t>(program_.labels.size()));
        if (fresh) program_.labels.emplace_back(rest);
        op.subject = it->second;
        return !rest.empty();
      }
      case Of::Operation:
        return false;  // launches are read by themselves
    }
    return false;
  }

  std::vector<TensorIndex> tensors_of_word(const Op& op) const {
    if (op.kind.touches == Touches::Tensor) return {op.subject};
    std::vector<TensorIndex> all;
    if (op.kind.touches == Touches::Everything)
      for (TensorIndex t = 0; t < program_.tensor_names.size(); ++t) all.push_back(t);
    return all;
  }

  std::uint16_t number_of_word(const char* name) {
    auto at = std::find(program_.words.begin(), program_.words.end(), name);
    auto number = static_cast<std::uint16_t>(at - program_.words.begin());
    if (at == program_.words.end()) program_.words.emplace_back(name);
    return number;
  }

  // Of an operation that is its own word: its name, whose bucket is not another's.
  std::uint32_t number_of_label(const Carried& c, const Op& op, StepProgram& step) {
    auto [it, fresh] = labels_.emplace(c.name, static_cast<std::uint32_t>(program_.labels.size()));
    if (fresh) program_.labels.push_back(c.name);
    std::uint32_t label = it->second;
    if (op.kind.touches == Touches::Bucket) {
      if (!holds(step, label, c.tensors)) {
        label = static_cast<std::uint32_t>(program_.labels.size());
        program_.labels.push_back(c.name);
      }
      fill(step, label, c, op);
    }
    return label;
  }

  // Whether the step's bucket of this number is free, or has these tensors.
  static bool holds(const StepProgram& step, std::size_t bucket,
                    const std::vector<TensorIndex>& tensors) {
    return !tensors.empty() &&
           (bucket >= step.buckets.size() || step.buckets[bucket].tensors.empty() ||
            step.buckets[bucket].tensors == tensors);
  }
  void fill(StepProgram& step, std::size_t bucket, const Carried& c, const Op& op) const {
    if (bucket >= step.buckets.size()) step.buckets.resize(bucket + 1);
    Bucket& b = step.buckets[bucket];
    b.tensors = c.tensors;
    b.bytes = {};
    for (TensorIndex t : c.tensors) b.bytes += Bytes{program_.tensor_bytes[t]};
    if (!is_collective(op.kind)) return;
    b.wire_bytes = {op.bytes};
    b.dtype = op.dtype;
  }
  static void divide(const Op& op, const Carried& c, StepProgram& step) {
    if (op.cost != Cost::HalfDivision) return;
    if (op.subject >= step.buckets.size()) step.buckets.resize(op.subject + 1);
    step.buckets[op.subject].wire_bytes = {c.divided};
  }

  Reader r_;
  ProgramFile out_;
  Program& program_ = out_.program;
  int rank_ = 0;         // whose Program it is
  bool placed_ = false;  // the file says on what device it is
  std::vector<std::string> lanes_;
  std::unordered_map<std::string, TensorIndex> tensors_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::vector<StepProgram> steps_;
  std::vector<Listed> listed_;  // of each
};

}  // namespace

ProgramFile read_playable(const Json& j, const std::string& file, DeviceKind device) {
  return ProgramReader(j, file, device).read();
}

}  // namespace ddpsim::io
