// The page of text and the CSV that `ddpsim predict` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/explain/diagnosis.h"

namespace ddpsim::report {

struct Heading {
  std::string workload;  // "resnet50, batch 32 per rank, fp32"
  std::string cluster;
  std::string plan;
  std::string profile;
  std::string basis;                            // of the profile: basis_text()
  std::optional<predict::Diagnosis> diagnosis;  // what decides the step; none = was not asked
  bool captured = false;
  std::string device;                     // that a captured workload was captured on; "" = not said
  std::string interval;                   // interval_sentence()
  std::string system = "DDP";             // what one rank goes without
  std::vector<std::string> known_errors;  // what was measured of how far such a prediction is off
  std::string times;     // where a program's times are from; "" = captured or described
  std::string schedule;  // what shows that the framework issues this schedule
};

// "503 us is what the slowest of 8 ranks computes longer than a typical one: ...".
std::string power_sentence(double clock);
// Of workers that go at their own pace.
std::string paces_sentence(const predict::Paces& p);
std::string stragglers_sentence(const predict::Stragglers& s);
// How long, how sure, where the time goes, which resource limits, what to try next. `bars`: draw
// them (terminal); plain ASCII either way.
std::string prediction_page(const Heading& h, const predict::Prediction& p,
                            const std::vector<predict::Lever>& levers, bool colour);
// The same as GitHub-flavoured Markdown, every bucket and lever; and a cell of its tables.
std::string prediction_markdown(const Heading& h, const predict::Prediction& p,
                                const std::vector<predict::Lever>& levers);
std::string markdown_cell(const std::string& s);
// Its sentences, for who lays them out differently: what limits the step, what the interval is,
// what the profile's numbers are.
std::string limit_sentence(const Heading& h, const predict::Prediction& p);
// What the step beside other jobs is; "" = there are none.
std::string beside_sentence(const predict::Prediction& p);
std::string basis_sentence(const Heading& h, const predict::Prediction& p);
// What the interval of a step is that this profile predicts of this workload: the same words
// wherever one is shown.
std::string interval_sentence(const predict::Question& q);
// Where a profile's numbers are from, section by section: "measured", "datasheet", "measured (tcp,
// reduction), the rest datasheet".
std::string basis_text(const Profile& p);
// What the profile's numbers are, in a sentence: "datasheet, never measured on this hardware"; and
// what of them a measured step takes the place of.
std::string basis_sentence(const Profile& p, const Workload& w);
// "91.8 %", with its range where it has one: "91.8 % (88.0 % to 95.1 %)"; a workload that computes
// nothing has none.
std::string efficiency_text(double mid, double low, double high);
std::string prediction_csv(const Heading& h, const predict::Prediction& p);

// Four digits or more, no exponent.
std::string count_text(double v);

inline constexpr std::size_t kWidth = 160;  // of what is not written to a terminal
// Lines of more than `width` columns are broken at spaces; what follows stands two columns further
// in than its line, or at column `hang`. A line without a space to break at stays long, and with
// `whole_rows` a row of a table (three gaps of spaces) up to kWidth.
std::string wrapped(const std::string& text, std::size_t hang = 0, std::size_t width = kWidth,
                    bool whole_rows = false);

// Quotes a CSV field if it needs it. Control characters become spaces, and text that a spreadsheet
// would take for a formula begins with an apostrophe.
std::string csv_field(const std::string& s);

}  // namespace ddpsim::report
