// A SAX handler: it knows at which depth an event begins, keeps the few fields that are used, and
// forgets the event when it ends. So a file of any length takes the memory of one event.
#include "sim/io/kineto_events.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include "sim/model/error.h"
#include "sim/units/convert.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::int64_t kMostDuration = 1'000'000'000'000;  // microseconds: eleven days
constexpr std::size_t kMostOfEvent = 64u << 20;  // of an event, or of a value beside the events
constexpr std::size_t kMostKey = 64;  // of a key, that are kept: no key of a trace has more

struct TraceTime {
  std::int64_t us = -1;
  std::int64_t ps = 0;
};
// Decimal digits, exact. -1: no number, or none that a trace has.
TraceTime microseconds(std::string_view text) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000'000;
  TraceTime out;
  std::size_t point = std::min(text.find('.'), text.size());
  std::string_view rest = text.substr(point);
  auto [end, error] = std::from_chars(text.data(), text.data() + point, out.us);
  bool whole = error == std::errc{} && end == text.data() + point;
  std::int64_t scale = 100'000;
  for (std::size_t k = 1; k < rest.size(); ++k) {
    whole = whole && rest[k] >= '0' && rest[k] <= '9';
    out.ps += (rest[k] - '0') * scale;
    scale /= 10;
  }
  if (whole && out.us >= 0 && out.us <= kMost) return out;
  std::optional<double> number = parse_number(text);
  if (!number || !(*number >= 0 && *number <= 1e18)) return {};
  out.us = static_cast<std::int64_t>(*number);
  out.ps = static_cast<std::int64_t>((*number - static_cast<double>(out.us)) * kPsPerUs);
  return out;
}

class Handler {
 public:
  using Json = nlohmann::json;
  Handler(ByteStream& stream, std::string file, const std::function<void(KinetoEvent&)>& each)
      : stream_(stream), file_(std::move(file)), each_(each) {
    met();
  }
  KinetoHead head;

  bool null() { return scalar("", ""); }
  bool boolean(bool) { return scalar("", ""); }
  bool number_integer(Json::number_integer_t v) { return scalar(std::to_string(v), ""); }
  bool number_unsigned(Json::number_unsigned_t v) { return scalar(std::to_string(v), ""); }
  bool number_float(Json::number_float_t, const std::string& text) { return scalar(text, ""); }
  bool string(std::string& text) { return scalar("", text); }
  bool binary(Json::binary_t&) { return false; }
  bool key(std::string& text) {
    met();
    keys_.back().assign(text, 0, kMostKey);
    return true;
  }
  bool start_object(std::size_t) { return open('{'); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open('['); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) {
    throw InputError{file_, "is no whole JSON: it breaks off or is damaged at byte " +
                                std::to_string(at) + "; fetch it again, or record it again"};
  }

 private:
  // A string that never ends would fill the memory before it is met, and so would an event.
  void met() {
    if (!in_event()) stream_.allow(kMostOfEvent, "one value or event");
  }
  std::size_t depth() const { return kinds_.size(); }
  bool open(char kind) {
    met();
    if (depth() == kMostDepth)
      throw InputError{file_, "is nested deeper than 64 levels, and is no trace"};
    if (depth() == 0) {
      head.object = kind == '{';
      if (kind == '[') events_at_ = 1, head.events = true;
    }
    if (depth() == 1 && head.object && keys_[0] == "traceEvents" && kind == '[')
      events_at_ = 2, head.events = true;
    kinds_.push_back(kind);
    keys_.emplace_back();
    counts_.push_back(0);
    if (in_event() && depth() == events_at_ + 1) event_ = {};
    return true;
  }
  bool close() {
    met();
    if (in_event() && depth() == events_at_ + 1 && kinds_.back() == '{') each_(event_);
    kinds_.pop_back();
    keys_.pop_back();
    counts_.pop_back();
    if (events_at_ == 2 && depth() == 1) events_at_ = 0;
    if (depth() > 0) ++counts_.back();
    return true;
  }
  bool in_event() const { return events_at_ > 0 && depth() > events_at_; }
  bool scalar(const std::string& number, const std::string& text) {
    met();
    if (depth() == 0)
      throw InputError{file_, "is no trace: expected an object with \"traceEvents\", or a list"};
    if (in_event())
      field(number, text);
    else if (head.object)
      beside(number, text);
    ++counts_.back();
    return true;
  }
  void beside(const std::string& number, const std::string& text) {
    if (depth() == 2 && keys_[0] == "distributedInfo") {
      if (keys_[1] == "rank") head.rank = whole(number, -1);
      if (keys_[1] == "world_size") head.world = whole(number, 0);
      if (keys_[1] == "backend") head.backend = text;
    }
    if (depth() == 3 && keys_[0] == "deviceProperties" && keys_[2] == "name" && head.gpu.empty())
      head.gpu = text;
  }
  static std::int64_t whole(const std::string& number, std::int64_t otherwise) {
    std::int64_t v = 0;
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), v);
    return error == std::errc{} && end == number.data() + number.size() ? v : otherwise;
  }
  void time(bool begins, const std::string& text) {
    TraceTime t = microseconds(text);
    if (begins) {
      event_.begin_us = t.us;
      event_.begin_ps = t.ps;
    } else if (t.us >= 0 && t.us < kMostDuration) {
      event_.duration_ps = t.us * kMicrosecond.ps + t.ps;
    }
  }
  void field(const std::string& number, const std::string& text) {
    std::size_t inside = depth() - events_at_;  // 1: of the event, 2: of its arguments
    const std::string& key = keys_[events_at_];
    if (inside == 1) {
      if (key == "ph")
        event_.phase = text;
      else if (key == "cat")
        event_.category = text;
      else if (key == "name")
        event_.name = text;
      else if (key == "pid")
        event_.process = number + text;
      else if (key == "tid")
        event_.thread = number + text;
      else if (key == "ts" || key == "dur")
        time(key == "ts", number + text);
      return;
    }
    if (key != "args") return;
    const std::string& name = keys_[events_at_ + 1];
    if (inside == 2) {
      if (name == "correlation")
        event_.correlation = whole(number, -1);
      else if (name == "Sequence number")
        event_.sequence = whole(number, -1);
      else if (name == "Collective name")
        event_.collective = text;
      else if (name == "In msg nelems")
        event_.in_elements = whole(number, -1);
      else if (name == "Seq")
        event_.collective_sequence = whole(number, -1);
      else if (name == "Out msg nelems")
        event_.out_elements = whole(number, -1);
      else if (name == "Group size")
        event_.group_size = whole(number, -1);
      else if (name == "dtype")
        event_.dtype = text;
      else if (name == "Process Group Name" || name == "Process Group ID")
        event_.group = number + text;
      else if (name == "Process Group Ranks")
        event_.group_ranks = text;
    } else if (inside == 3 && counts_[events_at_ + 2] == 0 && name == "Input type") {
      event_.typed = true;
      event_.input_type = text;
    } else if (inside == 4 && counts_[events_at_ + 2] == 0 && name == "Input Dims") {
      event_.shape.push_back(whole(number, -1));
    }
  }

  ByteStream& stream_;
  std::string file_;
  const std::function<void(KinetoEvent&)>& each_;
  std::vector<char> kinds_;
  std::vector<std::string> keys_;
  std::vector<std::size_t> counts_;  // of each open object or list, values that have ended
  std::size_t events_at_ = 0;        // depth of the list of events; 0: outside
  KinetoEvent event_;
};

}  // namespace

KinetoHead parse_kineto(ByteStream& stream, const std::string& file,
                        const std::function<void(KinetoEvent&)>& each) {
  Handler handler(stream, file, each);
  if (stream.at_end()) throw InputError{file, "is empty, and no trace"};
  nlohmann::json::sax_parse(ByteIterator(stream), ByteIterator(), &handler);
  if (!handler.head.events)
    throw InputError{file, "is no trace of PyTorch's profiler: it has no list \"traceEvents\""};
  return handler.head;
}

}  // namespace ddpsim::io
