// NCCLX: a rule's sizes are floor(bytes / ranks). A row [a, b] becomes [a', b'] of these: a' is
// where the row before ended, b' = floor((b + 1) / ranks) - 1, so that sizes less than `ranks`
// bytes above a border may still get the row before.
#include <fmt/format.h>

#include "sim/model/version.h"
#include "sim/report/nccl_tuner.h"
#include "sim/units/text.h"

namespace ddpsim::report {
namespace {

constexpr std::size_t kRcclMostLine = 255;  // longer lines are cut, and the rest is read as a line

std::string title(const char* what, std::string_view made_of) {
  std::string name = printable(made_of);
  return fmt::format("# {}, made by ddpsim {}{}{}\n", what, kVersion, name.empty() ? "" : " of ",
                     name);
}

// Comments are cut to what RCCL reads as one line.
std::string short_lines(const std::string& text) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    std::size_t end = text.find('\n', from);
    if (end == std::string::npos) end = text.size();
    out += text.substr(from, std::min(end - from, kRcclMostLine - 1)) + "\n";
    from = end + 1;
  }
  return out;
}

std::int64_t share_end(const TunerRow& r) {
  if (r.max_bytes == kTunerMostBytes) return kTunerMostBytes;
  return (r.max_bytes + 1) / r.ranks - 1;
}
std::int64_t share_begin(const TunerRow& r) {
  return r.min_bytes / r.ranks;
}

Problem ncclx_cannot_say(const TunerRow& r, const std::string& at) {
  if (r.nodes < 1 || r.ranks < 1)
    return {at,
            "NCCLX compares sizes per rank, and ranks of a node: it needs the numbers of nodes and "
            "ranks, not -1"};
  if (r.ranks % r.nodes != 0)
    return {at, fmt::format("{} ranks on {} nodes are not equally many a node, and NCCLX knows "
                            "ranks by node (nLocalRanks)",
                            r.ranks, r.nodes)};
  if (share_end(r) < share_begin(r))
    return {at, fmt::format("{} to {} bytes are less than a byte a rank of {}, and NCCLX compares "
                            "sizes per rank",
                            r.min_bytes, r.max_bytes, r.ranks)};
  return {};
}

Problem rccl_cannot_say(const TunerRow& r, const std::string& at) {
  for (const char* none : {"nvls", "nvls_tree"})
    if (r.algorithm == none)
      return {at,
              fmt::format("{} needs NVLink SHARP, and RCCL runs on AMD's GPUs, which have none: "
                          "the line would never be taken (--set NCCL_ALGO=ring,tree)",
                          none)};
  return {};
}

std::string ncclx_text(const TunerRow& r) {
  const std::string sizes = r.max_bytes == kTunerMostBytes
                                ? fmt::format("[{},)", share_begin(r))
                                : fmt::format("[{},{}]", share_begin(r), share_end(r));
  return fmt::format("{},{},{},{},{},{},{}\n", r.collective, sizes, r.algorithm, r.protocol,
                     r.channels, r.nodes, r.ranks / r.nodes);
}

std::string ncclx_csv(std::span<const TunerRow> rows, std::string_view made_of) {
  std::string out = title("NCCLX tuner configuration", made_of);
  out +=
      "# NCCLX_TUNER_CONFIG_FILE=<this file, as an absolute path>; NCCL_TUNER_PLUGIN is then not "
      "loaded\n"
      "# bytesPerRank is an operation's bytes over its ranks; the first line that matches and that "
      "NCCL could run wins,\n"
      "# what none matches is NCCL's own choice\n"
      "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks\n";
  for (const TunerRow& r : rows) out += ncclx_text(r);
  return out;
}

std::string rccl_csv(std::span<const TunerRow> rows, std::string_view made_of) {
  std::string out = title("RCCL tuner configuration", made_of);
  out +=
      "# NCCL_TUNER_CONFIG_FILE=<this file>, or share/rccl/tuner/rccl_tuner_<arch>.csv of the "
      "installation\n"
      "# Byte ranges are inclusive, the first line that matches and that RCCL could run wins, -1 "
      "is any;\n"
      "# what none matches is RCCL's own choice\n"
      "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n";
  out = short_lines(out);
  for (const TunerRow& r : rows)
    out += fmt::format("{},{},{},{},{},{},{},{}\n", r.collective, r.min_bytes, r.max_bytes,
                       r.algorithm, r.protocol, r.channels, r.nodes, r.ranks);
  return out;
}

}  // namespace

Problem cannot_say(std::span<const TunerRow> rows, TunerConsumer consumer) {
  if (consumer == TunerConsumer::Example) return {};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string at = fmt::format("/{}", i);
    Problem p = consumer == TunerConsumer::Ncclx ? ncclx_cannot_say(rows[i], at)
                                                 : rccl_cannot_say(rows[i], at);
    if (p) return p;
  }
  return {};
}

std::string tuner_csv(std::span<const TunerRow> rows, std::string_view made_of,
                      TunerConsumer consumer) {
  if (consumer == TunerConsumer::Ncclx) return ncclx_csv(rows, made_of);
  if (consumer == TunerConsumer::Rccl) return rccl_csv(rows, made_of);
  return tuner_csv(rows, made_of);
}

}  // namespace ddpsim::report
