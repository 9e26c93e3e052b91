// CSV:
// size_bytes,count,type,redop,root,oop_time_us,oop_algbw_GBs,oop_busbw_GBs,oop_err,ip_time_us,
// ip_algbw_GBs,ip_busbw_GBs,ip_err,
// in any order; forced_kind and forced_value make a table for each pair of them.
#include <algorithm>
#include <map>

#include "sim/io/csv.h"
#include "sim/io/json_reader.h"
#include "sim/io/nccl_tests.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

using Fields = std::vector<std::string_view>;

constexpr const char* kColumns[] = {"size_bytes", "count",       "type",          "redop",
                                    "root",       "oop_time_us", "oop_algbw_GBs", "oop_busbw_GBs",
                                    "oop_err",    "ip_time_us",  "ip_algbw_GBs",  "ip_busbw_GBs",
                                    "ip_err",     "forced_kind", "forced_value"};
enum Column {
  kSize,
  kCount,
  kType,
  kRedop,
  kRoot,
  kOutTime,
  kOutAlg,
  kOutBus,
  kOutErr,
  kInTime,
  kInAlg,
  kInBus,
  kInErr,
  kKind,
  kValue,
  kColumnsN
};

std::vector<int> header_of(const Fields& names, const std::string& file) {
  std::vector<int> at(kColumnsN, -1);
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto known = std::find(std::begin(kColumns), std::end(kColumns), names[i]);
    if (known == std::end(kColumns)) {
      std::string name(names[i]);
      std::string hint = nearest(name, {std::begin(kColumns), std::end(kColumns)});
      throw InputError{file + ":1", "unknown column \"" + name.substr(0, 40) + "\"" +
                                        (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)")};
    }
    int& place = at[known - std::begin(kColumns)];
    if (place >= 0)
      throw InputError{file + ":1", "column \"" + std::string(names[i]) + "\" appears twice"};
    place = static_cast<int>(i);
  }
  for (Column c : {kSize, kCount, kType, kOutTime, kOutAlg, kOutBus})
    if (at[c] < 0)
      throw InputError{file + ":1", std::string("column \"") + kColumns[c] + "\" is missing"};
  if ((at[kKind] < 0) != (at[kValue] < 0))
    throw InputError{file + ":1", "forced_kind and forced_value go together"};
  return at;
}

std::optional<std::int64_t> whole(const std::string& s) {
  auto v = parse_integer(s);
  return v && *v >= 0 ? v : std::nullopt;
}

}  // namespace

NcclTests read_nccl_tests_csv(const std::string& text, const std::string& file) {
  constexpr std::size_t kMostTables = 1000;
  NcclTests out;
  std::map<std::pair<std::string, std::string>, std::size_t> index;  // forced kind and value
  std::vector<int> at;
  for (const CsvLine& line : csv_lines(text, file)) {
    const Fields& f = line.fields;
    int number = line.number;
    if (at.empty()) {
      at = header_of(f, file);
      continue;
    }
    auto field = [&](Column c) {
      return at[c] >= 0 && static_cast<std::size_t>(at[c]) < f.size() ? std::string(f[at[c]])
                                                                      : std::string();
    };
    auto [place, fresh] = index.try_emplace({field(kKind), field(kValue)}, out.tables.size());
    if (fresh && index.size() > kMostTables)
      throw InputError{
          line.where,
          "forces more than 1,000 different things; nccl-tests are not forced into so many"};
    if (fresh) out.tables.push_back({});
    NcclTestsTable* table = &out.tables[place->second];
    table->forced_kind = place->first.first;
    table->forced_value = place->first.second;
    auto drop = [&](const std::string& why) {
      table->dropped.push_back("line " + std::to_string(number) + " is dropped: " + why);
    };
    const std::int64_t named = std::count_if(at.begin(), at.end(), [](int x) { return x >= 0; });
    if (std::ssize(f) != named) {
      drop("it has " + std::to_string(f.size()) + " fields, the header " + std::to_string(named));
      continue;
    }
    NcclTestsRow row;
    row.line = number;
    auto bytes = whole(field(kSize));
    auto count = whole(field(kCount));
    if (!bytes || !count) {
      drop("\"" + (bytes ? field(kCount) : field(kSize)).substr(0, 40) +
           "\" is not a whole number");
      continue;
    }
    row.bytes = *bytes;
    row.count = *count;
    row.type = field(kType);
    row.redop = field(kRedop);
    if (auto root = whole(field(kRoot)); root && *root < (1 << 20))
      row.root = static_cast<int>(*root);
    std::string wrong;
    auto half = [&](Column time, Column alg, Column bus,
                    Column err) -> std::optional<NcclTestsTime> {
      if (field(time).empty() || field(time) == "N/A") return {};
      auto t = parse_printed(field(time));
      auto a = parse_printed(field(alg));
      auto b = parse_printed(field(bus));
      if (t && a && b)
        return NcclTestsTime{
            *t, *a, *b, {}, whole(field(err)).value_or(0)};  // older versions print an error, which
                                                             // is no whole number
      wrong = !t ? field(time) : !a ? field(alg) : field(bus);
      return {};
    };
    row.out_of_place = half(kOutTime, kOutAlg, kOutBus, kOutErr);
    row.in_place = half(kInTime, kInAlg, kInBus, kInErr);
    if (!wrong.empty())
      drop("\"" + wrong.substr(0, 40) + "\" is not a number");
    else if (!row.out_of_place && !row.in_place)
      drop("it has no time");
    else
      table->rows.push_back(std::move(row));
  }
  if (out.tables.empty()) throw InputError{file, "has a header and no row"};
  return out;
}

}  // namespace ddpsim::io
