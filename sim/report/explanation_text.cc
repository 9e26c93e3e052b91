#include "sim/report/explanation_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/report/diagnosis_text.h"
#include "sim/report/text.h"

namespace ddpsim::report {
namespace {

using predict::Explanation;

// What decides, and until when.
std::string decision(const Explanation& e) {
  std::string out = decision_sentence(e.diagnosis);
  if (!e.diagnosis.resource()) return out;
  if (e.moves_at)
    return out + fmt::format("; {:g} times as fast, {} decides", *e.moves_at,
                             predict::name_of(*e.moves_to));
  return out + "; it would still decide at 8 times its speed";
}

struct Table {
  bool markdown;
  std::string text;
  // `width`: of each column but the first, right-aligned; negative: left-aligned.
  std::vector<int> widths;
  void row(const std::vector<std::string>& cells) {
    if (markdown) {
      text += "|";
      for (const std::string& c : cells) text += " " + c + " |";
    } else {
      text += " ";
      for (std::size_t i = 0; i < cells.size(); ++i)
        text += widths[i] < 0 ? fmt::format(" {:<{}}", cells[i], -widths[i])
                              : fmt::format(" {:>{}}", cells[i], widths[i]);
      while (text.back() == ' ') text.pop_back();
    }
    text += "\n";
  }
  void head(const std::vector<std::string>& cells) {
    row(cells);
    if (!markdown) return;
    text += "|";
    for (std::size_t i = 0; i < cells.size(); ++i) text += "---|";
    text += "\n";
  }
};

std::string percent(double v) {
  return fmt::format("{:.0f} %", 100 * v);
}

}  // namespace

std::string explanation_page(const std::string& question, const Explanation& e, bool markdown) {
  std::string out = (markdown ? "**" : "") +
                    fmt::format("step {}: {}", to_string(e.step), decision(e)) +
                    (markdown ? "**" : "") + "\n\n";
  if (e.counted > 1)
    out += fmt::format(
        "the step is the mean of {}; the path, the tenths and the times of "
        "collectives are those of the last, {}\n\n",
        e.counted, to_string(e.last));
  out += question + "\n\n";
  auto title = [&](const std::string& s) { out += markdown ? "### " + s + "\n\n" : s + "\n"; };
  title(fmt::format("what the step waits for, on rank {}, which ends last", e.actor));
  for (const std::string& w : e.words) out += (markdown ? "" : "  ") + w + "\n";
  out += "\n";
  std::vector<predict::BucketExposure> exposed;
  for (const auto& b : e.buckets)
    if (fraction(b.exposed, e.step) > 0.001) exposed.push_back(b);
  for (const auto& o : e.others)
    if (fraction(o.exposed, e.step) > 0.001) exposed.push_back({o.name, -1, {}, {}, {}, o.exposed});
  std::stable_sort(exposed.begin(), exposed.end(),
                   [](const auto& a, const auto& b) { return a.exposed > b.exposed; });
  bool none = std::all_of(e.buckets.begin(), e.buckets.end(), [](const auto& b) {
    return b.begin == b.end;
  });  // one rank reduces in no time
  const char* called = e.reduces && e.others.empty() ? "gradient all-reduces" : "collectives";
  title(none ? "no gradient is reduced: there is one rank"
        : exposed.empty()
            ? fmt::format("all {} {} are hidden behind computation", e.buckets.size(), called)
            : fmt::format("{} of {} {} are exposed; communication that nothing hides: {}",
                          exposed.size(), e.buckets.size() + e.others.size(), called,
                          to_string(e.exposed)));
  if (!exposed.empty()) {
    constexpr std::size_t kShown = 8;
    std::size_t widest = 14;
    for (std::size_t i = 0; i < std::min(exposed.size(), kShown); ++i)
      widest = std::max(widest, exposed[i].name.size());
    Table t{markdown, "", {-static_cast<int>(widest), 11, 11, 11, 11, 11}};
    t.head({"", "bytes", "ready", "begin", "end", "exposed"});
    for (std::size_t i = 0; i < std::min(exposed.size(), kShown); ++i) {
      const auto& b = exposed[i];
      if (b.bytes < 0) {  // no bucket: what it is exposed for is all that is known
        t.row({b.name, "", "", "", "", to_string(b.exposed)});
        continue;
      }
      t.row({b.name, to_string(Bytes{b.bytes}), to_string(b.ready), to_string(b.begin),
             to_string(b.end), to_string(b.exposed)});
    }
    out += t.text;
  }
  out += "\n";
  title("what decides, tenth by tenth of the step");
  Table over{markdown, "", {-12, 10, 14, 14, -24}};
  over.head({"", "computing", "communicating", "link needed", markdown ? "decides" : " decides"});
  for (std::size_t k = 0; k < e.deciles.size(); ++k) {
    const auto& d = e.deciles[k];
    over.row({fmt::format("{} to {} %", 10 * k, 10 * k + 10), percent(d.computing),
              percent(d.communicating), percent(d.link), " " + d.decides});
  }
  out += over.text;
  if (!e.link.name.empty()) {
    out += fmt::format("{}  link: {} ({}), the busiest, needed {:.0f} % of the step\n",
                       markdown ? "\n" : "", e.link.name, to_string(e.link.bandwidth),
                       100 * e.link.busy);
    bool above = std::any_of(e.deciles.begin(), e.deciles.end(),
                             [](const auto& d) { return d.link >= 1.005; });
    if (above)
      out +=
          "  above 100 %: bytes are counted evenly over their collective's time, and others pass "
          "there, or a saved burst at the link's peak rate\n";
  }
  out += "\n";
  title("10 % faster (each simulated)");
  Table fast{markdown, "", {-28, 11, 9}};
  fast.head({"", "step", "gain"});
  for (const auto& s : e.diagnosis.sensitivity)
    fast.row({predict::name_of(s.resource), to_string(s.step),
              fmt::format("{:+.2f} %", -100 * fraction(e.step - s.step, e.step))});
  out += fast.text;
  return out;
}

}  // namespace ddpsim::report
