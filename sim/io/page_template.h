// The page that reports are written into, as the build made it of reports/page.
#pragma once

#include <cstddef>

namespace ddpsim::io {

struct PageTemplate {
  const char* gzip = nullptr;  // page.html; null = this build has none
  std::size_t size = 0;
  const char* why_not = "";  // of a build without one
};
PageTemplate page_template();

}  // namespace ddpsim::io
