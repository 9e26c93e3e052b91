// Keys of what others published (ddpsim.steps/1, ddpsim.kernels/1), and of the limits that hold
// predictions to it (ddpsim.budget/1).
#pragma once

#include <algorithm>
#include <cmath>

#include "sim/io/schema/fields.h"
#include "sim/units/convert.h"
#include "sim/validation/kernels.h"
#include "sim/validation/steps.h"

namespace ddpsim::io {

inline constexpr const char* kStepsSchema = "ddpsim.steps/1";
inline constexpr const char* kKernelsSchema = "ddpsim.kernels/1";
inline constexpr const char* kBudgetSchema = "ddpsim.budget/1";

// ---- published steps

// A value that other files of ddpsim declare: it goes into one of them.
struct Elsewhere {};
template <>
struct Codec<Elsewhere> {
  static void list(FieldRecord& f) { f.kind = FieldKind::Any; }
};
using OfElsewhere = std::map<std::string, Elsewhere>;

// One number, by its unit. REQUIRES: the row's ranks are read.
struct AsPrinted {
  validation::PublishedStep& row;
};
template <>
struct Codec<AsPrinted> {
  static constexpr const auto& kUnits = validation::kStepUnits;
  static void read(const Reader& r, AsPrinted into) {
    using validation::StepUnit;
    r.only({kUnits.begin(), kUnits.end()});
    if (r.members().size() != 1) r.fail("one number was printed: give one unit");
    const auto [unit, number] = r.members().front();
    into.row.unit =
        static_cast<StepUnit>(std::find(kUnits.begin(), kUnits.end(), unit) - kUnits.begin());
    const double x = into.row.measured = number.number();
    constexpr double kMostMeasured = 1e9;
    if (!(x > 1 / kMostMeasured && x < kMostMeasured))
      number.fail("a step takes between a nanosecond and many years");
    if (into.row.unit == StepUnit::MsForwardBackward && into.row.ranks > 1)
      number.fail("is of one GPU by itself, and this row has several");
  }
  static OrderedJson write(AsPrinted v) {
    OrderedJson j;
    j[kUnits[static_cast<std::size_t>(v.row.unit)]] = v.row.measured;
    return j;
  }
  static void list(FieldRecord& f) {
    constexpr std::array<const char*, kUnits.size()> kHelp{"all ranks together", "the whole step",
                                                           "one rank, without optimizer"};
    f.kind = FieldKind::Section;
    for (std::size_t k = 0; k < kUnits.size(); ++k) {
      FieldRecord& one = f.fields.emplace_back();
      one.key = kUnits[k];
      one.kind = FieldKind::Number;
      one.help = kHelp[k];
    }
  }
};

template <class V>
void fields(V& v, validation::PublishedStep& s) {
  std::string system, notes;
  std::map<std::string, std::string> software;
  v.required("id", s.id, "its name, of no other row in the folder");
  v.required("workload", s.workload, "a shipped one, or a path from this file's folder");
  v.required("batch", s.batch, "samples of a rank and micro-step").range(1, INT32_MAX);
  v.required("precision", s.precision, "precision of the workload");
  v.template elsewhere<OfElsewhere>("settings", "keys of the workload, as --set takes them");
  v.required("gpu", s.gpu, "as the source says");
  v.required("ranks", s.ranks, "GPUs").range(1, INT32_MAX);
  v.required("hosts", s.hosts, "hosts of the job").range(1, INT32_MAX);
  v.required("cluster", s.cluster, "a shipped one, or a path from this file's folder");
  v.required("profile", s.profile, "a shipped one; a row of another is kept, and not predicted");
  v.required("system", system, "as the source says");
  v.field("software", software, "versions, as the source says");
  v.template elsewhere<OfElsewhere>("plan", "as in a scenario").required();
  v.required("measured", AsPrinted{s}, "one number, as it was printed");
  v.field("one_gpu", s.one_gpu, "the row of one GPU that it is relative to");
  v.field("fitted", s.fitted, "the constant of the tree that was taken from this row");
  v.field("notes", notes, "for people; also, in which way the plan is not the source's");
  v.template elsewhere<OfElsewhere>("host", "keys of the profile's host, as --set takes them");
  v.field("set_aside", s.set_aside, "why the row's own step is not judged; what GPUs add to it is");
  v.section(
      "off", false, "why its prediction is off; it is judged all the same",
      [&](auto& o) {
        o.required("cause", s.off, "as far as found");
        o.required("settles", s.settles, "which measurement would settle it");
      },
      !s.off.empty());
  v.template elsewhere<OfElsewhere>("input", "as in a scenario");
}

struct StepsFile {
  std::string evidence, name, url, commit, place, step;
  std::map<std::string, std::string> software;
  std::vector<validation::PublishedStep> rows;
};
inline constexpr std::array<const char*, 1> kPublished{"published"};
template <class V>
void fields(V& v, StepsFile& f) {
  v.schema(kStepsSchema);
  v.required("evidence", AsWord<kPublished>{f.evidence}, "others measured it");
  v.required("name", f.name, "the source's, in answers");
  v.required("url", f.url, "where it was published");
  v.field("commit", f.commit, "revision of the repository");
  v.required("place", f.place, "in the repository");
  v.field("software", f.software, "versions, as the source says");
  v.required("step", f.step, "a measured step's contents: input, optimizer, synchronisation");
  v.required("rows", f.rows, "facts as printed");
}

// ---- published kernels

// Rows of [rows, inputs, outputs, microseconds].
struct AsLinear {
  std::vector<validation::PublishedKernel>& value;
};
template <>
struct Codec<AsLinear> {
  static constexpr std::int64_t kMost = std::int64_t{1} << 30;
  static void read(const Reader& r, AsLinear into) {
    for (const Reader& row : r.items()) {
      const std::vector<Reader> cells = row.items();
      if (cells.size() != 4) row.fail("expected [rows, inputs, outputs, microseconds]");
      validation::PublishedKernel& k = into.value.emplace_back();
      k.rows = cells[0].small(1, kMost);
      k.inputs = cells[1].small(1, kMost);
      k.outputs = cells[2].small(1, kMost);
      const double us = cells[3].number();
      if (!(us > 0 && us < 1e9)) cells[3].fail("expected microseconds, more than 0");
      k.measured = {std::llround(us * kPsPerUs)};
    }
  }
  static OrderedJson write(AsLinear v) {
    OrderedJson j = OrderedJson::array();
    for (const validation::PublishedKernel& k : v.value)
      j.push_back({k.rows, k.inputs, k.outputs, static_cast<double>(k.measured.ps) / kPsPerUs});
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    FieldRecord& row = f.fields.emplace_back();
    row.kind = FieldKind::List;
    FieldRecord& cell = row.fields.emplace_back();
    cell.kind = FieldKind::Number;
    cell.least = 0;
    cell.above = true;
  }
};
struct KernelsOfGpu {
  std::string profile, gpu;
  Precision precision = Precision::Fp32;
  std::vector<validation::PublishedKernel> linear;
};
template <class V>
void fields(V& v, KernelsOfGpu& g) {
  v.required("profile", g.profile, "the shipped profile that is judged");
  v.required("gpu", g.gpu, "as printed");
  v.required("precision", g.precision, "precision of the operands");
  v.required("linear", AsLinear{g.linear},
             "[rows, inputs, outputs, microseconds]: a linear layer's product, forward");
}
struct PublishedKernelsFile {
  std::string source;
  std::vector<KernelsOfGpu> gpus;
};
template <class V>
void fields(V& v, PublishedKernelsFile& f) {
  v.schema(kKernelsSchema);
  v.required("source", f.source, "its name, in answers");
  v.other("url", FieldKind::Any, "where it was published");
  v.other("license", FieldKind::Any, "license of the tables");
  v.other("commit", FieldKind::Any, "revision of the repository");
  v.other("notes", FieldKind::Any, "how it was measured");
  v.required("gpus", f.gpus, "each GPU's kernels");
}

// ---- budget

template <class V>
void fields(V& v, validation::Limit& l) {
  v.required("what", l.what, "a value of a validation; one that no clean Run tells is broken");
  v.field("min", l.min, "least value that keeps it; one of min and max is given");
  v.field("max", l.max, "most value that keeps it");
}
struct BudgetFile {
  std::vector<validation::Limit> limits;
};
template <class V>
void fields(V& v, BudgetFile& f) {
  v.schema(kBudgetSchema);
  v.other("description", FieldKind::Any, "for people");
  v.required("limits", f.limits, "bounds that predictions must keep");
}

}  // namespace ddpsim::io
