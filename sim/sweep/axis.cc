#include "sim/sweep/axis.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "sim/model/error.h"
#include "sim/units/number.h"

namespace ddpsim::sweep {
namespace {

struct Quantity {
  double number = 0;
  std::string unit;
};

bool parse_quantity(const std::string& text, Quantity& out) {
  auto n = leading_number(text);
  if (!n) return false;
  out.number = n->value;
  out.unit = text.substr(n->length);
  // A release, "0.14.2", is no number.
  return out.unit.find_first_of(":,=") == std::string::npos && !out.unit.starts_with('.');
}

std::string print(double number, const std::string& unit) {
  return fmt::format("{:.12g}{}", number, unit);
}

// "a,b,[1,2]": commas inside brackets and quotes do not part.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out(1);
  int depth = 0;
  bool quoted = false;
  for (char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !quoted)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

std::vector<std::string> split_range(const std::string& text) {
  std::vector<std::string> out(1);
  for (char c : text) {
    if (c == ':')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

// FROM:TO[:+STEP|:xFACTOR]. False: the text is no range.
bool add_range(const std::string& blame, const std::string& text, std::vector<std::string>& out) {
  std::vector<std::string> parts = split_range(text);
  Quantity from;
  Quantity to;
  if (parts.size() < 2) return false;
  auto fail = [&](const std::string& why) { throw InputError{blame, "\"" + text + "\" " + why}; };
  if (!parse_quantity(parts[0], from)) {
    bool digits =
        !parts[0].empty() && parts[0].find_first_not_of("0123456789.eE+-") == std::string::npos;
    if (digits) fail("begins with what is not a number, or with one that is too large");
    return false;
  }
  if (parts.size() > 3) fail("is not a range; write FROM:TO, FROM:TO:+STEP or FROM:TO:xFACTOR");
  if (!parse_quantity(parts[1], to)) fail("ends with what is not a number");
  if (from.unit != to.unit)
    fail(fmt::format("mixes units (\"{}\" and \"{}\"); give both ends the same one", from.unit,
                     to.unit));
  bool geometric = false;
  double step = 1;
  if (parts.size() == 3) {
    const std::string& s = parts[2];
    Quantity q;
    if (s.size() < 2 || (s[0] != 'x' && s[0] != '+') || !parse_quantity(s.substr(1), q))
      fail(
          "has no step that ddpsim reads; write :+STEP or :xFACTOR, for example 10:100:+10 or "
          "1:64:x2");
    if (!q.unit.empty() && q.unit != from.unit)
      fail(fmt::format("mixes units (\"{}\" and \"{}\")", from.unit, q.unit));
    geometric = s[0] == 'x';
    step = q.number;
  }
  if (geometric && step <= 1) fail("has a factor that is not above 1");
  if (!geometric && step <= 0) fail("has a step that is not above 0");
  if (geometric && from.number <= 0) fail("starts at or below 0, from where no factor leads on");
  if (to.number < from.number) fail("is empty: it ends before it starts");
  constexpr double kMostValues = 1e6;
  constexpr double kClose = 1e-9;
  if (!geometric && (to.number - from.number) / step > kMostValues)
    fail(fmt::format("has more than {:.0f} values", kMostValues));
  double count = 0;
  for (double v = from.number; v <= to.number * (1 + kClose) + (geometric ? 0 : step * kClose);
       v = geometric ? v * step : from.number + count * step) {
    out.push_back(print(v, from.unit));
    if (++count > kMostValues) fail(fmt::format("has more than {:.0f} values", kMostValues));
  }
  return true;
}

}  // namespace

Axis parse_axis(const std::string& flag, const std::string& text) {
  std::string blame = flag + " " + text;
  auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError{blame, "expected FIELD=VALUES, for example " + flag +
                                " bucket_cap_mb=1,5,25 or " + flag + " cluster.hosts=1:64:x2"};
  Axis out;
  out.fields.push_back(text.substr(0, equals));
  std::vector<std::string> values;
  for (const std::string& item : split_list(text.substr(equals + 1))) {
    if (item.empty()) throw InputError{blame, "has an empty value"};
    if (auto dots = item.find("..");
        dots != std::string::npos && item.find_first_not_of("0123456789.") == std::string::npos)
      throw InputError{blame, "\"" + item + "\" is no range; write " + item.substr(0, dots) + ":" +
                                  item.substr(item.find_last_of('.') + 1) +
                                  ":x2 (doubled) or :+10 (in steps of 10)"};
    if (!add_range(blame, item, values)) values.push_back(item);
  }
  // Numbers of one list have one unit.
  Quantity first;
  bool number = parse_quantity(values.front(), first);
  for (const std::string& v : values) {
    Quantity q;
    if (number && parse_quantity(v, q) && q.unit.empty() != first.unit.empty())
      throw InputError{blame, "mixes numbers with and without a unit (\"" + values.front() +
                                  "\" and \"" + v + "\")"};
  }
  std::set<std::string> seen;
  for (const std::string& v : values) {
    // Of zipped fields only what they are together must differ.
    if (!seen.insert(v).second && flag != "--zip")
      throw InputError{blame, "has the value " + v + " twice"};
    out.values.push_back({v});
  }
  return out;
}

Axis zip(const std::vector<Axis>& axes) {
  Axis out = axes.front();
  for (std::size_t k = 1; k < axes.size(); ++k) {
    const Axis& a = axes[k];
    if (a.values.size() != out.values.size())
      throw InputError{
          "--zip",
          fmt::format("{} has {} values and {} has {}; zipped fields change together",
                      out.fields.front(), out.values.size(), a.fields.front(), a.values.size())};
    out.fields.push_back(a.fields.front());
    for (std::size_t i = 0; i < a.values.size(); ++i) out.values[i].push_back(a.values[i].front());
  }
  std::set<std::vector<std::string>> seen;
  for (const auto& together : out.values)
    if (!seen.insert(together).second)
      throw InputError{"--zip", fmt::format("has the values {} twice", fmt::join(together, ", "))};
  return out;
}

std::int64_t points_of(const std::vector<Axis>& axes) {
  std::set<std::string> fields;
  double product = 1;
  for (const Axis& a : axes) {
    for (const std::string& f : a.fields)
      if (!fields.insert(f.starts_with("plan.") ? f.substr(5) : f).second)
        throw InputError{"--axis " + f, "is named twice"};
    product *= static_cast<double>(a.values.size());
  }
  if (product > static_cast<double>(kMostPoints))
    throw InputError{"--axis",
                     fmt::format("{:.3g} points are more than {}; fewer values, or several sweeps",
                                 product, kMostPoints)};
  return static_cast<std::int64_t>(product);
}

std::vector<std::string> values_at(const std::vector<Axis>& axes, std::int64_t point) {
  std::vector<const std::vector<std::string>*> chosen(axes.size());
  for (std::size_t k = axes.size(); k-- > 0;) {
    std::int64_t n = axes[k].values.size();
    chosen[k] = &axes[k].values[point % n];
    point /= n;
  }
  std::vector<std::string> out;
  for (const auto* values : chosen) out.insert(out.end(), values->begin(), values->end());
  return out;
}

std::vector<std::string> fields_of(const std::vector<Axis>& axes) {
  std::vector<std::string> out;
  for (const Axis& a : axes) out.insert(out.end(), a.fields.begin(), a.fields.end());
  return out;
}

}  // namespace ddpsim::sweep
