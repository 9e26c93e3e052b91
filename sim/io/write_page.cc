#include "sim/io/write_page.h"

#include "sim/io/files.h"
#include "sim/io/page_template.h"
#include "sim/model/version.h"

namespace ddpsim::io {
namespace {

constexpr const char* kPlace = "/*DATA*/";
constexpr std::size_t kShortList = 12;

std::string html_text(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

bool is_plain(const Json& j) {
  return !j.is_array() && !j.is_object();
}

}  // namespace

void require_page() {
  PageTemplate page = page_template();
  if (!page.gzip)
    throw InputError{"--html", std::string("this build of ddpsim has no page: ") + page.why_not};
}

std::string write_page(OrderedJson data) {
  require_page();
  PageTemplate page = page_template();
  std::string html = gunzip("the page", std::string(page.gzip, page.size));
  data["version"] = kVersion;
  std::string text = data.dump();
  // A script element ends at the first "</script", and "<!--" opens a comment in it; neither is
  // left.
  std::string safe;
  safe.reserve(text.size() + text.size() / 64);
  for (char c : text)
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  auto at = html.find(kPlace);
  html.replace(at, std::string(kPlace).size(), safe);
  auto title = html.find("<title>");
  if (data.contains("title"))
    html.insert(title + 7, html_text(data["title"].get<std::string>()) + " - ");
  return html;
}

OrderedJson page_document(const Json& document) {
  if (document.is_object()) {
    OrderedJson out = OrderedJson::object();
    for (const auto& [key, value] : document.items()) out[key] = page_document(value);
    return out;
  }
  if (!document.is_array()) return document;
  bool plain = std::all_of(document.begin(), document.end(), is_plain);
  if (document.size() > kShortList) return std::to_string(document.size()) + " entries";
  OrderedJson out = OrderedJson::array();
  for (const Json& item : document) out.push_back(plain ? OrderedJson(item) : page_document(item));
  return out;
}

OrderedJson page_levers(const std::vector<predict::Lever>& levers) {
  OrderedJson out = OrderedJson::array();
  for (const predict::Lever& l : levers)
    out.push_back({{"change", l.change},
                   {"command", l.command},
                   {"step_ps", l.step.ps},
                   {"samples", l.samples}});
  return out;
}

}  // namespace ddpsim::io
