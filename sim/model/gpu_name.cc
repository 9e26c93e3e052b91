// Words are what lies between spaces, hyphens and commas.
#include "sim/model/gpu_name.h"

#include <algorithm>
#include <string_view>

namespace ddpsim {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_capital(char c) {
  return c >= 'A' && c <= 'Z';
}

// Capitals, two digits or more, and capitals again: "H100", "GB200", "A10G". Neither "SXM5" nor
// "HBM3".
bool is_product(std::string_view word) {
  std::size_t i = 0;
  while (i < word.size() && is_capital(word[i])) ++i;
  std::size_t digits = i;
  while (digits < word.size() && is_digit(word[digits])) ++digits;
  if (i == 0 || digits < i + 2) return false;
  return std::all_of(word.begin() + digits, word.end(), is_capital);
}

bool is_number(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), is_digit);
}

// "80GB" is 80; anything else 0.
int gigabytes(std::string_view word) {
  if (!word.ends_with("GB") || word.size() < 3 || word.size() > 6) return 0;
  int out = 0;
  for (char c : word.substr(0, word.size() - 2)) {
    if (!is_digit(c)) return 0;
    out = 10 * out + (c - '0');
  }
  return out;
}

}  // namespace

GpuName gpu_name(const std::string& text) {
  GpuName out;
  std::string_view before;
  for (std::size_t from = 0; from < text.size();) {
    std::size_t end = std::min(text.find_first_of(" -,", from), text.size());
    std::string_view word = std::string_view(text).substr(from, end - from);
    const bool numbered = (before == "RTX" || before == "GTX") && is_number(word);
    if (out.product.empty() && (numbered || is_product(word))) out.product = word;
    if (word == "PCIe" || word == "PCIE") out.pcie = true;
    if (word.starts_with("SXM")) out.sxm = true;
    if (int gb = gigabytes(word); gb > 0 && out.memory_gb == 0) out.memory_gb = gb;
    from = end + 1;
    before = word;
  }
  return out;
}

bool names_differ(const std::string& a, const std::string& b) {
  GpuName x = gpu_name(a);
  GpuName y = gpu_name(b);
  if (x.product.empty() || y.product.empty()) return false;
  if (x.product != y.product) return true;
  if ((x.pcie && y.sxm) || (x.sxm && y.pcie)) return true;
  bool sizes = x.product == "A100" && x.memory_gb > 0 && y.memory_gb > 0;
  return sizes && x.memory_gb != y.memory_gb;
}

}  // namespace ddpsim
