// The page of a report: one HTML file that holds its data. Source of the page: reports/page; what
// each kind's data is: docs/formats.md, page.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/compare.h"
#include "sim/io/codecs.h"
#include "sim/predict/link_use.h"
#include "sim/predict/predict.h"

namespace ddpsim::io {

// Throws InputError, if this build has no page: to be called before the work.
void require_page();
// The page with this data: {"kind": "predict", "title": ...}; "version" is added. Throws as
// require_page().
std::string write_page(OrderedJson data);

// Spans in columns, a track per actor and lane; an operation's name, bytes and tensors once. Of a
// measured Run: of the steps that were recorded.
OrderedJson page_run(const Run& run);

// Vertices and cables where the cluster has few hosts; groups of equal cables always, with the
// share of a step that they are busy.
OrderedJson page_topology(const topology::Fabric& f, const std::vector<predict::LinkBusy>& use);

// A document for people: lists of more than a few entries become a sentence of their length.
OrderedJson page_document(const Json& document);

// Allocated bytes over a step, at most some hundred points that keep every rise to a new peak.
OrderedJson page_memory(const predict::Memory& memory);

OrderedJson page_levers(const std::vector<predict::Lever>& levers);

}  // namespace ddpsim::io
