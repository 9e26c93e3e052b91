// x = left + (t - from) * width / (to - from); a bar is at least half a pixel wide. The picture
// begins with the device: what a host enqueued before is a sentence, in its row where that is
// empty, else below the axis. Communication is exposed where nothing computes.
#include "sim/report/timeline_svg.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "sim/units/by.h"
#include "sim/units/convert.h"
#include "sim/units/text.h"

namespace ddpsim::report {
namespace {

constexpr double kWidth = 960;
constexpr double kRight = 18;
constexpr double kTop = 64;  // under the title and the legend
constexpr double kRow = 34;
constexpr double kBar = 24;
constexpr double kLetter = 6.3;  // pixels, of 11 px sans-serif
constexpr double kApart = 0.4;   // pixels that part two bars
constexpr const char* kMuted = "fill=\"#5c636d\"";

struct Phase {
  const char* name;
  const char* fill;
  const char* ink;  // of the text on it
};
enum class Mark : std::uint8_t {
  Forward,
  Backward,
  Communication,
  Exposed,
  Copies,
  Optimizer,
  Moves,
  Input,
  Host,
  Wait
};
constexpr By<Mark, Phase, 10> kPhases{
    {{{"forward", "#86b6dc", "#14181d"},
      {"backward", "#3f7cb5", "#ffffff"},
      {"communication", "#e2a154", "#14181d"},
      {"communication while nothing computes", "#b3311f", "#ffffff"},
      {"copies, sums, other", "#8a7bb8", "#ffffff"},
      {"optimizer", "#5d9f67", "#ffffff"},
      {"copies between GPU and host", "#b58bb0", "#14181d"},
      {"input", "#c9b458", "#14181d"},
      {"host", "#9aa1aa", "#14181d"},
      {"waiting", "#d3d6da", "#14181d"}}}};

Mark phase_of(OpKind k) {
  if (is_wait(k)) return Mark::Wait;
  if (is_move(k)) return Mark::Moves;
  if (is_communication(k)) return Mark::Communication;
  if (is_host_work(k)) return Mark::Host;
  if (is_input(k)) return Mark::Input;
  if (is_forward(k)) return Mark::Forward;
  if (is_backward(k)) return Mark::Backward;
  if (is_update(k)) return Mark::Optimizer;
  return Mark::Copies;
}

struct Bar {
  Mark phase;
  double begin = 0;  // ms from the start of the step
  double end = 0;
  std::string label;  // what is written on it
  std::string title;  // what a pointer is shown
};

struct Strip {
  std::string name;
  std::vector<Bar> bars;
};

bool computes(Mark phase) {
  return phase == Mark::Forward || phase == Mark::Backward || phase == Mark::Copies ||
         phase == Mark::Optimizer;
}

std::string as_xml(const std::string& text) {
  std::string out;
  for (char c : text)
    out += c == '&'   ? std::string("&amp;")
           : c == '<' ? std::string("&lt;")
           : c == '"' ? std::string("&quot;")
                      : std::string(1, c);
  return out;
}

// 1, 2 or 5 times a power of ten, so that at most ten ticks stand on the axis.
double tick_of(double length) {
  double tick = 1e-6;
  for (int k = 0; length / tick > 10; ++k) tick *= k % 3 == 1 ? 2.5 : 2;
  return tick;
}

class Picture {
 public:
  explicit Picture(const Run& run) : run_(run) {
    const Span* last = nullptr;
    for (const Span& s : run.spans)
      if (!last || s.end > last->end) last = &s;
    if (!last) return;
    rank_ = last->actor;
    count_ = last->count;
    for (const Span& s : run.spans)
      if (s.actor == rank_ && s.end > s.begin) spans_.push_back(&s);
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span* a, const Span* b) {
      return a->lane != b->lane ? a->lane < b->lane : a->begin < b->begin;
    });
    for (const Span* s : spans_) {
      left_ = std::max(left_, 24 + kLetter * static_cast<double>(lane_of(*s).size()));
      to_ = std::max(to_, milliseconds(s->end - run.spans_from));
      if (!is_host_work(s->kind)) from_ = std::min(from_, milliseconds(s->begin - run.spans_from));
    }
    for (const Span* s : spans_) add(*s);
    for (const Strip& r : strips_)
      for (const Bar& b : r.bars)
        if (computes(b.phase)) computed_.push_back({b.begin, b.end});
    std::sort(computed_.begin(), computed_.end());
  }

  std::string svg(const std::string& title) const {
    const double rows = kRow * static_cast<double>(strips_.size());
    const bool below = !ahead_.empty() && !strips_[ahead_in_].bars.empty();
    const double height = kTop + rows + (below ? 52 : 34);
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}"
        "\" height=\"{1:.0f}\" font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" "
        "font-size=\"11\" role=\"img\">\n<title>{2}</title>\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" rx=\"6\" fill=\"#fdfcfa\"/>\n",
        kWidth, height, as_xml(title));
    std::string who = fmt::format("rank {}", rank_);
    if (count_ > 1) who += fmt::format(", and {} identical to it", count_ - 1);
    out += text(16, 24, title, "font-size=\"15\" font-weight=\"bold\"") + legend();
    out += text(kWidth - kRight, 24, who, "text-anchor=\"end\" fill=\"#5c636d\"");
    if (to_ > from_) out += axis(kTop + rows + 6);
    for (std::size_t k = 0; k < strips_.size(); ++k)
      out += row(strips_[k], kTop + kRow * static_cast<double>(k));
    const double in_row = kTop + kRow * static_cast<double>(ahead_in_) + kBar / 2 + 4;
    if (below) out += text(16, height - 10, strips_[ahead_in_].name + " " + ahead_, kMuted);
    if (!below && !ahead_.empty()) out += text(left_ + 4, in_row, ahead_, kMuted);
    return out + "</svg>\n";
  }

 private:
  void add(const Span& s) {
    Bar b{phase_of(s.kind), milliseconds(s.begin - run_.spans_from),
          milliseconds(s.end - run_.spans_from), "", ""};
    if (b.begin < from_ && ahead_.empty()) {
      ahead_in_ = &row_for(s, b) - strips_.data();
      ahead_ =
          fmt::format("ran ahead: began {} before the step", to_string(run_.spans_from - s.begin));
    }
    if (b.end <= from_) return;
    b.begin = std::max(b.begin, from_);
    b.label =
        b.phase == Mark::Communication ? s.op.substr(s.op.rfind('/') + 1) : kPhases[b.phase].name;
    b.title = fmt::format("{}: {}", s.op, to_string(s.end - s.begin));
    Strip& r = row_for(s, b);
    bool joins = !r.bars.empty() && r.bars.back().phase == b.phase &&
                 b.phase != Mark::Communication && x(b.begin) - x(r.bars.back().end) < kApart;
    if (!joins) return r.bars.push_back(std::move(b));
    r.bars.back().end = std::max(r.bars.back().end, b.end);
    r.bars.back().title = b.label;
  }

  // The lane's first row that is free when the bar begins.
  Strip& row_for(const Span& s, const Bar& b) {
    for (Strip& r : strips_)
      if (r.name == lane_of(s) && (r.bars.empty() || r.bars.back().end <= b.begin + 1e-9)) return r;
    return strips_.emplace_back(Strip{lane_of(s), {}});
  }

  std::string lane_of(const Span& s) const { return name_of(s.lane, run_.streams); }

  // The parts of a bar that overlap no computation.
  std::vector<std::pair<double, double>> exposed(const Bar& b) const {
    std::vector<std::pair<double, double>> out;
    double from = b.begin;
    for (const auto& [begin, end] : computed_) {
      if (begin >= b.end) break;
      if (begin > from) out.push_back({from, begin});
      from = std::max(from, end);
    }
    if (from < b.end) out.push_back({from, b.end});
    return out;
  }

  double x(double t) const {
    return left_ + (t - from_) * (kWidth - left_ - kRight) / (to_ - from_);
  }

  static std::string text(double at, double y, const std::string& what, const char* how) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at, y, how, as_xml(what));
  }

  std::string legend() const {
    std::string out;
    double at = 16;
    for (Mark m : kPhases.names()) {
      bool is_here = std::any_of(strips_.begin(), strips_.end(), [&](const Strip& r) {
        return std::any_of(r.bars.begin(), r.bars.end(), [&](const Bar& bar) {
          return m == Mark::Exposed ? bar.phase == Mark::Communication && !exposed(bar).empty()
                                    : m == bar.phase;
        });
      });
      if (!is_here) continue;
      std::string name = kPhases[m].name;
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"37\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{}\"/>\n", at,
          kPhases[m].fill);
      out += text(at + 16, 46.5, name, "fill=\"#1b1f24\"");
      at += 34 + kLetter * static_cast<double>(name.size());
    }
    return out;
  }

  std::string axis(double bottom) const {
    std::string out;
    double tick = tick_of(to_ - from_);
    for (auto k = static_cast<std::int64_t>(from_ / tick);
         static_cast<double>(k) * tick <= to_ * (1 + 1e-9); ++k) {
      double at = x(static_cast<double>(k) * tick);
      if (at < left_ - 0.01) continue;
      out += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#dcdcd8\"/>\n",
          at, kTop - 6, bottom);
      std::string label = fmt::format("{:g}{}", static_cast<double>(k) * tick, k == 0 ? " ms" : "");
      out += text(at, bottom + 15, label, "text-anchor=\"middle\" fill=\"#5c636d\"");
    }
    return out;
  }

  std::string rect(double begin, double end, double y, Mark phase, const std::string& title) const {
    return fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" "
        "fill=\"{}\"><title>{}</title></rect>\n",
        x(begin), y, std::max(0.5, x(end) - x(begin)), kBar, kPhases[phase].fill, as_xml(title));
  }

  std::string row(const Strip& r, double y) const {
    std::string out = text(left_ - 10, y + kBar / 2 + 4, r.name, "text-anchor=\"end\"");
    for (const Bar& b : r.bars) {
      out += rect(b.begin, b.end, y, b.phase, b.title);
      Mark ground = b.phase;
      if (b.phase == Mark::Communication)
        for (const auto& [begin, end] : exposed(b)) {
          out += rect(begin, end, y, Mark::Exposed, b.title);
          if (x(begin) < x(b.begin) + 8 && x(end) > x(b.begin) + 8) ground = Mark::Exposed;
        }
      if (kLetter * static_cast<double>(b.label.size()) + 8 < x(b.end) - x(b.begin))
        out += text(x(b.begin) + 4, y + kBar / 2 + 4, b.label,
                    fmt::format("fill=\"{}\"", kPhases[ground].ink).c_str());
    }
    return out;
  }

  const Run& run_;
  std::vector<const Span*> spans_;
  std::vector<Strip> strips_;
  std::vector<std::pair<double, double>> computed_;  // ms, ascending
  int rank_ = 0;
  int count_ = 1;
  std::string ahead_;         // what was done before the picture begins; "" = nothing
  std::size_t ahead_in_ = 0;  // of strips_
  double left_ = 80;
  double from_ = 0;  // ms
  double to_ = 0;
};

}  // namespace

std::string timeline_svg(const Run& run, const std::string& title) {
  return Picture(run).svg(title);
}

}  // namespace ddpsim::report
