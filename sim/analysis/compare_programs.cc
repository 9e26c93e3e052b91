#include "sim/analysis/compare_programs.h"

#include <algorithm>

namespace ddpsim::analysis {
namespace {

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) out += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMost) out += ", ... (" + std::to_string(names.size()) + ")";
  return out;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

bool alike(const ListedCollective& a, const ListedCollective& b) {
  return a.operation == b.operation && a.bytes == b.bytes &&
         (a.tensors.empty() || b.tensors.empty() || sorted(a.tensors) == sorted(b.tensors));
}

// The longest common subsequence: for each of `a` the index of its partner in `b`, or b.size().
std::vector<std::size_t> aligned(const std::vector<ListedCollective>& a,
                                 const std::vector<ListedCollective>& b) {
  std::vector<std::vector<std::uint32_t>> longest(a.size() + 1,
                                                  std::vector<std::uint32_t>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      longest[i][j] = alike(a[i], b[j]) ? longest[i + 1][j + 1] + 1
                                        : std::max(longest[i + 1][j], longest[i][j + 1]);
  std::vector<std::size_t> out(a.size(), b.size());
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (alike(a[i], b[j]))
      out[i++] = j++;
    else if (longest[i + 1][j] >= longest[i][j + 1])
      ++i;
    else
      ++j;
  }
  return out;
}

std::string differing(const char* what, const std::string& a, const std::string& b) {
  return std::string(what) + " " + (a.empty() ? "none" : a) + " against " +
         (b.empty() ? "none" : b);
}

// What two that are alike differ in; "" = nothing.
std::string difference(const ListedCollective& a, const ListedCollective& b) {
  std::string out;
  auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (!a.dtype.empty() && !b.dtype.empty() && a.dtype != b.dtype)
    add(differing("dtype", a.dtype, b.dtype));
  if (a.group != b.group)
    add(differing("group", a.group.empty() ? "all" : a.group, b.group.empty() ? "all" : b.group));
  if (!a.tensors.empty() && !b.tensors.empty() && a.tensors != b.tensors) {
    auto at = std::mismatch(a.tensors.begin(), a.tensors.end(), b.tensors.begin());
    add(differing("order of its tensors:", *at.first, *at.second));
  }
  if (a.after != b.after) add(differing("waits for the gradient", a.after, b.after));
  return out;
}

std::string missing(const ListedCollective& c, const char* which) {
  std::string tensors = c.tensors.empty() ? "" : " of " + list_of(c.tensors);
  return c.operation + ", " + std::to_string(c.bytes) + " bytes" + tensors + ": only in the " +
         which;
}

void compare_step(std::size_t number, const ListedStep& a, const ListedStep& b,
                  ProgramComparison& out) {
  std::vector<std::size_t> partner = aligned(a.collectives, b.collectives);
  auto add = [&](const std::string& first, const std::string& second, std::string what) {
    out.differences.push_back({number, first, second, std::move(what)});
  };
  if (!a.gradients.empty() && !b.gradients.empty() && a.gradients != b.gradients) {
    std::size_t k = 0;
    while (k < a.gradients.size() && k < b.gradients.size() && a.gradients[k] == b.gradients[k])
      ++k;
    auto name = [k](const ListedStep& s) {
      return k < s.gradients.size() ? s.gradients[k] : std::string();
    };
    add("", "",
        "order of gradients, from number " + std::to_string(k) +
            " on: " + differing("", name(a), name(b)));
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < a.collectives.size(); ++i) {
    const ListedCollective& c = a.collectives[i];
    ++out.collectives;
    if (partner[i] == b.collectives.size()) {
      add(c.op, "", missing(c, "first"));
      continue;
    }
    for (; next < partner[i]; ++next)
      add("", b.collectives[next].op, missing(b.collectives[next], "second"));
    next = partner[i] + 1;
    const ListedCollective& d = b.collectives[partner[i]];
    std::string what = difference(c, d);
    if (what.empty())
      ++out.equal;
    else
      add(c.op, d.op, what);
  }
  for (; next < b.collectives.size(); ++next)
    add("", b.collectives[next].op, missing(b.collectives[next], "second"));
}

}  // namespace

ProgramComparison compare_programs(const ListedProgram& first, const ListedProgram& second) {
  ProgramComparison out;
  out.steps = std::max(first.steps.size(), second.steps.size());
  auto step = [](const ListedProgram& p, std::size_t k) -> const ListedStep& {
    return p.steps[std::min(k, p.steps.size() - 1)];
  };
  for (std::size_t k = 0; k < out.steps; ++k) compare_step(k, step(first, k), step(second, k), out);
  return out;
}

}  // namespace ddpsim::analysis
