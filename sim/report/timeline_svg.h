// timeline_svg draws one step of a Run as a picture (SVG) for a document or a slide.
#pragma once

#include <string>

#include "sim/model/run.h"

namespace ddpsim::report {

// One rank's lanes over one step: the rank that ends last. A lane without an operation that lasts
// has no row. Neighbours of one phase that nothing visible parts are one bar. The background is
// light, so that the picture is read on a light page and on a dark one. The same Run gives the same
// bytes. `title` stands above; lengths are milliseconds from the start of the step.
std::string timeline_svg(const Run& run, const std::string& title);

}  // namespace ddpsim::report
