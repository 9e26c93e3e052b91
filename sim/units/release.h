// Releases of software that ddpsim models, and what differs between them: a row a difference, in a
// table of the software's own. Code asks a version whether it has() a difference; only the tables
// know which release is older.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace ddpsim {

// "0.14.5" is {0, 14, 5}. A table's "2.7" is its first patch; a text's is its last, kLast.
struct Release {
  static constexpr int kLast = std::numeric_limits<int>::max();
  int major = 0;
  int minor = 0;
  int patch = 0;
  constexpr Release() = default;
  constexpr Release(int a, int b, int c = 0) : major(a), minor(b), patch(c) {}
  consteval Release(const char* text) {
    int* const parts[] = {&major, &minor, &patch};
    for (std::size_t k = 0; *text != '\0'; ++text) {
      if (*text == '.')
        ++k;
      else
        *parts[k] = *parts[k] * 10 + (*text - '0');
    }
  }
  friend constexpr auto operator<=>(const Release&, const Release&) = default;
};
// "0.14.5"; "0.14", of which the patch is the last.
std::string to_string(Release r);
// "0.14.5", "0.14", and what a build says behind a patch: "0.14.5+cu126", "2.28.9-1".
std::optional<Release> parse_release(std::string_view text);

// A row: since when something is otherwise. `source`: a pull request, a commit, a file of the
// software's tree.
template <class Change>
struct DifferenceOf {
  Change change;
  Release since;
  std::string_view before_and_now;
  std::string_view source;
};
// A row for each change, in the order of their enumeration.
template <class Rows>
constexpr bool rows_in_order(const Rows& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].change != static_cast<decltype(rows[i].change)>(i)) return false;
  return true;
}
// The same, older ones first.
template <class Rows>
constexpr bool rows_in_order_of_time(const Rows& rows) {
  auto older = [](const auto& a, const auto& b) { return a.since < b.since; };
  return rows_in_order(rows) && std::is_sorted(rows.begin(), rows.end(), older);
}

// A release as a plan says it. Table has
//   Change, kRows                   the differences
//   kSoftware                       "DeepSpeed"
//   kOldest, kNewest, kInitially    releases that were read; the one that a plan is of by itself
//   kMonths                         whether they are months: 22.03
//   kNewer                          what is said of a newer one besides; "" = nothing
template <class Table>
class VersionOf {
 public:
  using Change = typename Table::Change;
  constexpr VersionOf() = default;
  constexpr bool has(Change c) const {
    return release_ >= Table::kRows[static_cast<std::size_t>(c)].since;
  }
  bool operator==(const VersionOf&) const = default;
  std::string name() const { return name_of(release_); }

  // None: not a release, or not between those that were read.
  static std::optional<VersionOf> parse(std::string_view text) {
    auto r = read(text);
    if (!r || *r < Table::kOldest || *r > as_read(Table::kNewest)) return std::nullopt;
    return VersionOf(*r);
  }
  // Why a text is none, with the nearest that is.
  static std::string refusal(std::string_view text) {
    const auto r = read(text);
    std::string out = "\"" + std::string(text.substr(0, 40)) + "\" is no release of " +
                      Table::kSoftware + " that was read; those are " + name_of(Table::kOldest) +
                      " to " + name_of(Table::kNewest);
    if (!r) return out;
    const bool older = *r < Table::kOldest;
    out += ", and the nearest is " + name_of(older ? Table::kOldest : Table::kNewest);
    return older || *Table::kNewer == 0 ? out : out + " (" + Table::kNewer + ")";
  }
  static std::string first_with(Change c) {
    return name_of(Table::kRows[static_cast<std::size_t>(c)].since);
  }

 private:
  constexpr explicit VersionOf(Release r) : release_(r) {}
  // A text without its patch is the last that was read.
  static std::optional<Release> read(std::string_view text) {
    auto r = parse_release(text);
    if (r && Table::kMonths && (r->minor < 1 || r->minor > 12)) return std::nullopt;
    if (r && r->patch == Release::kLast && Release(r->major, r->minor) <= Table::kNewest)
      r = std::min(*r, as_read(Table::kNewest));
    return r;
  }
  // A month has no patches.
  static constexpr Release as_read(Release r) {
    return Table::kMonths ? Release(r.major, r.minor, Release::kLast) : r;
  }
  static std::string name_of(Release r) {
    if (!Table::kMonths) return to_string(r);
    const std::string month = std::to_string(r.minor);
    return std::to_string(r.major) + (month.size() < 2 ? ".0" : ".") + month;
  }
  Release release_ = as_read(Table::kInitially);
};

}  // namespace ddpsim
