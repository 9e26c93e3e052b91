#include "calib/data_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

namespace ddpsim::calib {

namespace {

// Element i of the gradients before the first step, but for a factor of the rank.
double pattern(std::int64_t i) {
  return static_cast<double>(1 + i % 7);
}

// Sums are left where they are, so each step multiplies them by the number of ranks.
double growth(const Part& part) {
  double n = part.ranks;
  return std::pow(n, static_cast<double>(part.sequence.size() - 1)) * n * (n + 1) / 2;
}

double scale_of(const Part& part) {
  return std::exp2(std::floor(60 - std::log2(7 * growth(part))));
}

// Halves hold neither such growth nor enough digits to notice one missing summand of many. Their
// ranks' values cancel, in whole numbers that halves hold exactly: the first step's sums are 0 and
// stay so, and what missed a summand does not.
bool cancels(const Part& part, DType type) {
  return part.ranks > 1 && (type == DType::Float16 || type == DType::BFloat16);
}

double factor_of(const Part& part, int rank, DType type) {
  if (!cancels(part, type)) return scale_of(part) * (rank + 1);
  if (part.ranks % 2 == 1 && rank >= part.ranks - 3)
    return rank == part.ranks - 1 ? -2 : 1;  // three that cancel
  int magnitude = type == DType::Float16 ? 1 + rank / 2 % 3 : 1;
  return rank % 2 == 0 ? magnitude : -magnitude;
}

double expected_factor(const Part& part, DType type) {
  return cancels(part, type) ? 0 : scale_of(part) * growth(part);
}

template <class F>
void each_gradient(const Part& part, F f) {
  const Part::Step& steady = part.kinds.back();
  for (const Part::Collective& c : steady.collectives)
    if (c.gradients) f(c);
}

double load_element(const std::byte* at, DType type, std::int64_t i) {
  if (type == DType::Float32) return static_cast<double>(reinterpret_cast<const float*>(at)[i]);
  if (type == DType::Float64) return reinterpret_cast<const double*>(at)[i];
  // Halves: through sum_into's own arithmetic would prove nothing; decode here.
  std::uint16_t h = reinterpret_cast<const std::uint16_t*>(at)[i];
  if (type == DType::BFloat16) {
    std::uint32_t bits = static_cast<std::uint32_t>(h) << 16;
    float f = 0;
    std::memcpy(&f, &bits, 4);
    return static_cast<double>(f);
  }
  int exponent = (h >> 10) & 31;
  double fraction = h & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? HUGE_VAL
                                  : std::ldexp(1024 + fraction, exponent - 25);
  return h & 0x8000 ? -value : value;
}

void store_element(std::byte* at, DType type, std::int64_t i, double v) {
  if (type == DType::Float32)
    reinterpret_cast<float*>(at)[i] = static_cast<float>(v);
  else if (type == DType::Float64)
    reinterpret_cast<double*>(at)[i] = v;
  else if (type == DType::BFloat16) {
    auto f = static_cast<float>(v);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &f, 4);
    reinterpret_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(bits >> 16);
  } else {
    int exponent = 0;
    double mantissa = std::frexp(std::abs(v), &exponent);  // 0.5 <= mantissa < 1
    int biased = exponent + 14;
    int bits = biased >= 1 ? (biased << 10) | static_cast<int>((mantissa * 2 - 1) * 1024)
                           : static_cast<int>(std::ldexp(std::abs(v), 24));
    if (v < 0) bits |= 0x8000;
    reinterpret_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(bits);
  }
}

bool checkable(DType t) {
  return t == DType::Float32 || t == DType::Float64 || t == DType::Float16 || t == DType::BFloat16;
}

// Element i of what a member brings.
double brought(std::size_t member, std::int64_t i) {
  return static_cast<double>(member + 1) * pattern(i);
}

// Part of what a collective leaves at a member: the elements that are defined, and of what member
// they are (or the sum of all).
struct Left {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t from = SIZE_MAX;  // a member; SIZE_MAX = the sum
};
std::vector<Left> left_at(const Part::Collective& c, std::size_t members, std::size_t member) {
  const auto n = static_cast<std::int64_t>(members);
  const auto block = [&](std::size_t k, std::size_t from) {
    const auto i = static_cast<std::int64_t>(k);
    return Left{collective::chunk_begin(c.elements, n, i),
                collective::chunk_begin(c.elements, n, i + 1), from};
  };
  std::vector<Left> out;
  switch (c.operation) {
    case Operation::AllReduce:
      return {{0, c.elements, SIZE_MAX}};
    case Operation::ReduceScatter:
      return {block(member, SIZE_MAX)};
    case Operation::AllGather:
      for (std::size_t k = 0; k < members; ++k) out.push_back(block(k, k));
      return out;
    case Operation::Broadcast:
      return {{0, c.elements, static_cast<std::size_t>(c.root)}};
    case Operation::Reduce:
      if (member == static_cast<std::size_t>(c.root)) out = {{0, c.elements, SIZE_MAX}};
      return out;
    default:
      return out;
  }
}

std::string check_collective(const Part& part, const Part::Collective& c, int rank, Mesh& mesh) {
  const auto& groups = part.groups[c.group];
  const auto mine = std::find_if(groups.begin(), groups.end(), [&](const std::vector<int>& g) {
    return std::find(g.begin(), g.end(), rank) != g.end();
  });
  const std::size_t members = mine->size();
  const auto member =
      static_cast<std::size_t>(std::find(mine->begin(), mine->end(), rank) - mine->begin());
  const auto bytes = static_cast<std::size_t>(c.elements * element_size(c.type));
  std::vector<std::byte> data(bytes);
  for (std::int64_t i = 0; i < c.elements; ++i)
    store_element(data.data(), c.type, i, brought(member, i));
  Scratch scratch;
  mesh.play(c.schedule.ranks[rank], data.data(), c.type, scratch, c.communicator * part.lanes);
  const auto n = static_cast<double>(members);
  for (const Left& left : left_at(c, members, member))
    for (std::int64_t i = left.begin; i < left.end; ++i) {
      const double expected =
          left.from == SIZE_MAX ? n * (n + 1) / 2 * pattern(i) : brought(left.from, i);
      const double found = load_element(data.data(), c.type, i);
      if (std::abs(found - expected) <= 0.01 * expected) continue;
      return fmt::format("element {} of the {} of {} elements is {:g}, expected {:g}", i,
                         name_of(c.operation), c.elements, found, expected);
    }
  return {};
}

}  // namespace

std::string check_collectives(const Part& part, int rank, Mesh& mesh) {
  std::map<std::tuple<Operation, std::size_t, int, int>, const Part::Collective*> largest;
  for (const Part::Collective& c : part.kinds.back().collectives) {
    if (c.gradients || !checkable(c.type) || c.elements == 0) continue;
    const Part::Collective*& most = largest[{c.operation, c.group, c.root, c.communicator}];
    if (!most || c.elements > most->elements) most = &c;
  }
  for (const auto& [what, c] : largest)
    if (std::string wrong = check_collective(part, *c, rank, mesh); !wrong.empty()) return wrong;
  return {};
}

// Every step sums every byte of the gradients once, however its buckets cut them. Filled and
// checked in the steady step's layout.
void fill_gradients(const Part& part, int rank, std::byte* gradients) {
  each_gradient(part, [&](const Part::Collective& c) {
    if (!checkable(c.type)) return;
    double factor = factor_of(part, rank, c.type);
    for (std::int64_t i = 0; i < c.elements; ++i)
      store_element(gradients + c.offset, c.type, i, factor * pattern(i));
  });
}

std::string check_gradients(const Part& part, const std::byte* gradients) {
  std::string wrong;
  for (const Part::Step& k : part.kinds) {
    std::int64_t bytes = 0;
    for (const auto& c : k.collectives)
      if (c.gradients) bytes += c.elements * element_size(c.type);
    if (bytes != part.gradient_bytes)
      return {};  // a step that does not sum everything: nothing is known
  }
  each_gradient(part, [&](const Part::Collective& c) {
    if (!checkable(c.type) || !wrong.empty()) return;
    double factor = expected_factor(part, c.type);
    constexpr double kTolerance = 1e-4;
    // One element in 61 and both ends: every chunk is visited.
    for (std::int64_t i = 0; i < c.elements;
         i += i + 61 < c.elements || i + 1 == c.elements ? 61 : c.elements - 1 - i) {
      double expected = factor * pattern(i);
      double found = load_element(gradients + c.offset, c.type, i);
      if (std::abs(found - expected) <= kTolerance * expected) continue;
      wrong = fmt::format("element {} of the all-reduce of {} elements is {:g}, expected {:g}", i,
                          c.elements, found, expected);
      return;
    }
  });
  return wrong;
}

}  // namespace ddpsim::calib
