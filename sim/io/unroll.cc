// A workload whose blocks are alike says the rows of one: {"repeat": 95, "from": 1, "of": [rows]}
// in `tensors`, `frozen` and `layers`. Here are all of them.
#include "sim/io/unroll.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ddpsim::io {
namespace {

constexpr std::int64_t kMostTimes = 10'000;
constexpr std::size_t kMostBytes = 64u << 20;  // of text, as of a file that says them all

bool is_repeated(const Json& row) {
  return row.is_object() && row.contains("repeat");
}

// Rows of `tensors` that repeat, as they are in the unrolled list.
struct Repeated {
  std::size_t first;
  std::size_t rows;
  std::size_t times;
};

void number(Json& row, std::int64_t n) {
  if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) return;
  std::string name = row["name"].get<std::string>();
  if (std::size_t at = name.find("{}"); at != std::string::npos)
    row["name"] = name.replace(at, 2, std::to_string(n));
}

// `each`: (row, its reader, repetition); `repeated`: (block), where one begins.
template <class Each, class Begins>
Json unroll(const Reader& list, Each each, Begins begins) {
  Json out = Json::array();
  std::size_t bytes = 0;
  for (const Reader& entry : list.items()) {
    if (!is_repeated(entry.json())) {
      out.push_back(entry.json());
      continue;
    }
    entry.only({"repeat", "from", "of"});
    const std::size_t times = entry.at("repeat").small(1, kMostTimes);
    const int from = entry.has("from") ? entry.at("from").small(0, kMostTimes) : 0;
    const std::vector<Reader> rows = entry.at("of").items();
    if (rows.empty()) entry.at("of").fail("a block has one row at least");
    bytes += times * entry.json()["of"].dump().size();
    if (bytes > kMostBytes)
      entry.fail("is larger than 64 MiB when written out; no file of ddpsim is");
    begins(Repeated{out.size(), rows.size(), times});
    for (std::size_t k = 0; k < times; ++k)
      for (const Reader& row : rows) {
        if (is_repeated(row.json())) row.fail("a block holds no other block");
        Json one = row.json();
        number(one, from + static_cast<std::int64_t>(k));
        each(one, row, k);
        out.push_back(std::move(one));
      }
  }
  return out;
}

// What the k-th repetition of a layer has in place of a tensor of the first one.
std::size_t moved(const Reader& index, const std::vector<Repeated>& tensors, std::size_t k) {
  const std::int64_t i = index.integer();
  for (const Repeated& r : tensors) {
    const std::int64_t first = r.first;
    const std::int64_t rows = r.rows;
    if (i < first || i >= first + rows * static_cast<std::int64_t>(r.times)) continue;
    const auto to = static_cast<std::size_t>(i) + k * r.rows;
    if (to >= r.first + r.rows * r.times)
      index.fail("tensors repeat " + std::to_string(r.times) + " times, and this layer more often");
    return to;
  }
  index.fail("a layer that repeats has tensors that repeat");
}

Json arrival_of(const Json& layers) {
  Json out = Json::array();
  for (std::size_t l = layers.size(); l-- > 0;)
    if (layers[l].is_object() && layers[l].contains("tensors") && layers[l]["tensors"].is_array())
      for (const Json& t : layers[l]["tensors"]) out.push_back(t);
  return out;
}

}  // namespace

bool repeats(const Json& document) {
  if (!document.is_object()) return false;
  for (const char* key : {"tensors", "frozen", "layers"})
    if (document.contains(key) && document[key].is_array() &&
        std::any_of(document[key].begin(), document[key].end(), is_repeated))
      return true;
  return false;
}

Json unrolled(const Json& document, const std::string& file) {
  const Reader r(document, file);
  Json out = document;
  const std::array<const char*, 2> kinds{"tensors", "frozen"};  // of parameters
  std::array<std::vector<Repeated>, 2> repeated;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (i == 0 || r.has(kinds[i]))
      out[kinds[i]] = unroll(
          r.at(kinds[i]), [](Json&, const Reader&, std::size_t) {},
          [&](const Repeated& block) { repeated[i].push_back(block); });
  out["layers"] = unroll(
      r.at("layers"),
      [&](Json& layer, const Reader& row, std::size_t k) {
        for (std::size_t i = 0; i < kinds.size(); ++i) {
          if (i > 0 && !row.has(kinds[i])) continue;
          Json indices = Json::array();
          for (const Reader& index : row.at(kinds[i]).items())
            indices.push_back(moved(index, repeated[i], k));
          layer[kinds[i]] = std::move(indices);
        }
      },
      [](const Repeated&) {});
  if (!r.has("arrival")) out["arrival"] = arrival_of(out["layers"]);
  return out;
}

}  // namespace ddpsim::io
