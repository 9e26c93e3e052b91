// Bus bandwidth = algorithm bandwidth x factor; factors of nccl-tests (src/*.cu, getBw): all-reduce
// 2(n-1)/n; all-gather, reduce-scatter, all-to-all, gather, scatter and hypercube (n-1)/n;
// broadcast, reduce, send-receive 1.
#include "sim/io/nccl_tests.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/io/json_reader.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::io {
namespace {

enum class Factor { Twice, Once, One };
struct Op {
  const char* name;
  Factor factor;
};
constexpr std::array<Op, 10> kOps{{{"all_reduce", Factor::Twice},
                                   {"all_gather", Factor::Once},
                                   {"reduce_scatter", Factor::Once},
                                   {"broadcast", Factor::One},
                                   {"reduce", Factor::One},
                                   {"all_to_all", Factor::Once},
                                   {"send_receive", Factor::One},
                                   {"gather", Factor::Once},
                                   {"scatter", Factor::Once},
                                   {"hypercube", Factor::Once}}};

struct Type {
  const char* name;
  int bytes;
};
constexpr std::array<Type, 17> kTypes{{{"int8", 1},
                                       {"uint8", 1},
                                       {"char", 1},
                                       {"int32", 4},
                                       {"int", 4},
                                       {"uint32", 4},
                                       {"int64", 8},
                                       {"uint64", 8},
                                       {"half", 2},
                                       {"float16", 2},
                                       {"float", 4},
                                       {"double", 8},
                                       {"bfloat16", 2},
                                       {"f8e4m3", 1},
                                       {"f8e5m2", 1},
                                       {"fp8_e4m3", 1},
                                       {"fp8_e5m2", 1}}};

}  // namespace

std::optional<Printed> parse_printed(std::string_view text) {
  Printed p;
  auto value = text.size() > 40 ? std::nullopt : parse_number(text);
  if (!value) return {};
  p.value = *value;
  // Half a unit of the last digit.
  auto e = text.find_first_of("eE");
  auto dot = text.substr(0, e).find('.');
  int exponent = 0;
  if (e != std::string_view::npos) {
    auto digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    exponent =
        static_cast<int>(std::clamp<std::int64_t>(parse_integer(digits).value_or(0), -1000, 1000));
  }
  if (dot != std::string_view::npos)
    exponent -= static_cast<int>(std::min(text.size(), e) - dot - 1);
  if (exponent > 300 || exponent < -300) return {};
  p.half = 0.5;
  for (; exponent > 0; --exponent) p.half *= 10;
  for (; exponent < 0; ++exponent) p.half /= 10;
  return p;
}

std::string nccl_tests_op(std::string_view name) {
  std::string plain;
  for (char c : name.substr(
           name.find_last_of('/') == std::string_view::npos ? 0 : name.find_last_of('/') + 1)) {
    if (c >= 'A' && c <= 'Z')
      plain.push_back(static_cast<char>(c - 'A' + 'a'));
    else if ((c >= 'a' && c <= 'z'))
      plain.push_back(c);
  }
  for (std::string_view tail : {"mpi", "perf"})
    if (plain.ends_with(tail)) plain.erase(plain.size() - tail.size());
  if (plain == "sendrecv") return "send_receive";
  for (const Op& op : kOps) {
    std::string known;
    for (char c : std::string_view(op.name))
      if (c != '_') known.push_back(c);
    if (known == plain) return op.name;
  }
  return {};
}

std::vector<std::string> nccl_tests_ops() {
  std::vector<std::string> out;
  for (const Op& op : kOps) out.emplace_back(op.name);
  return out;
}

int nccl_tests_element_bytes(std::string_view type) {
  for (const Type& t : kTypes)
    if (type == t.name) return t.bytes;
  return 0;
}

double nccl_tests_bus_factor(std::string_view op, int n) {
  for (const Op& o : kOps)
    if (op == o.name)
      return o.factor == Factor::One ? 1 : (o.factor == Factor::Twice ? 2.0 : 1.0) * (n - 1) / n;
  return 1;
}

namespace {

// What a Run can hold: logs have any bytes. Colours the reader of text cuts out itself, and data
// that is binary the reader of CSV refuses.
std::string readable(const std::string& text) {
  std::string out = valid_utf8(text);
  for (char& c : out)
    if ((static_cast<unsigned char>(c) < 0x20 &&
         std::string_view("\n\r\t\x1b\0", 5).find(c) == std::string_view::npos) ||
        c == 0x7f)
      c = ' ';
  return out;
}

}  // namespace

NcclTests read_nccl_tests(const std::string& given, const std::string& file) {
  auto first = given.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    throw InputError{file, "the file is empty; expected the output of nccl-tests"};
  if (given[first] == '{') return read_nccl_tests_json(given, file);
  std::string text = readable(given);
  std::string_view line = std::string_view(text).substr(first, text.find('\n', first) - first);
  if (line.find("size_bytes") != std::string_view::npos &&
      line.find(',') != std::string_view::npos) {
    std::replace(text.begin(), text.end(), '\x1b', ' ');
    return read_nccl_tests_csv(text, file);
  }
  return read_nccl_tests_text(text, file);
}

}  // namespace ddpsim::io
