#include "sim/sweep/resume.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/units/number.h"

namespace ddpsim::sweep {

Part part_of(const std::string& shard, std::int64_t points) {
  if (shard.empty()) return {0, points};
  std::int64_t k = -1;
  std::int64_t n = 0;
  auto slash = shard.find('/');
  auto before = parse_integer(shard.substr(0, slash));
  auto after = slash == std::string::npos ? std::nullopt : parse_integer(shard.substr(slash + 1));
  if (before && after) k = *before, n = *after;
  if (n < 1 || k < 0)
    throw InputError{
        "--shard " + shard,
        "expected K/N, for example --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"};
  if (k >= n)
    throw InputError{
        "--shard " + shard,
        fmt::format("shards are numbered 0 to {}; a Slurm array that fits: --array=0-{}", n - 1,
                    n - 1)};
  auto at = [&](std::int64_t i) {
    return static_cast<std::int64_t>(static_cast<__int128>(points) * i / n);
  };
  return {at(k), at(k + 1)};
}

RowReader::RowReader(std::string path, std::string blame)
    : path_(std::move(path)), blame_(std::move(blame)) {}

RowReader::RowReader(std::string path, std::string blame, const Sweep& sweep, Part part)
    : path_(std::move(path)),
      blame_(std::move(blame)),
      sweep_(&sweep),
      part_(part),
      first_(part.first),
      next_(part.first) {}

Found RowReader::found() const {
  return {std::max<std::int64_t>(lines_ - 1, 0), bytes_};
}

void RowReader::take(const std::string& line) {
  ++lines_;
  bytes_ += static_cast<std::int64_t>(line.size()) + 1;
  if (lines_ == 1) return take_header(line);
  RowText row = read_row(header_, line);
  if (!row.problem.empty()) fail("is no row of a sweep: " + row.problem);
  if (id_.empty()) id_ = sweep_ ? sweep_->id : row.id;
  if (row.id != id_)
    throw InputError{blame_, path_ +
                                 " is of another sweep (another question, other axes, or "
                                 "another version of ddpsim)"};
  if (first_ < 0) first_ = next_ = row.point;
  if (lines_ == 2 && row.point != first_)
    throw InputError{
        blame_, fmt::format("{} begins with point {}; this part of the sweep is {} to {}", path_,
                            row.point, part_.first, part_.last - 1)};
  if (row.point != next_)
    fail(fmt::format("is point {} where {} is expected: rows are missing or doubled", row.point,
                     next_));
  if (sweep_ && next_ >= part_.last)
    throw InputError{
        blame_, fmt::format("{} goes on after point {}, where this part of the sweep ends", path_,
                            part_.last - 1)};
  if (sweep_ && row.values != printed_values(values_at(sweep_->axes, row.point)))
    fail(fmt::format("has other values than point {} of this sweep", row.point));
  ++next_;
}

void RowReader::fail(const std::string& why) const {
  std::string remedy =
      blame_ == "--resume"
          ? fmt::format("; keep the {} lines before it (head -n {}), and --resume makes the others",
                        lines_ - 1, lines_ - 1)
          : "; sweep it again";
  throw InputError{fmt::format("{}:{}", path_, lines_), why + remedy};
}

void RowReader::take_header(const std::string& line) {
  header_ = line;
  if (sweep_ && line + "\n" != sweep_header(*sweep_))
    throw InputError{blame_, path_ + " has other columns; it is not of this sweep"};
  if (!is_sweep_header(line)) throw InputError{path_, "is not what ddpsim sweep writes"};
}

Found RowReader::end(const std::string& left) const {
  Found f = found();
  // What a kill left of a line that was being written is the beginning of that line.
  std::int64_t next = part_.first + f.rows;
  std::string begun = f.bytes == 0 ? sweep_header(*sweep_) : std::to_string(next) + ",";
  bool ours =
      (f.bytes == 0 || next < part_.last) && (left.starts_with(begun) || begun.starts_with(left));
  if (!left.empty() && !ours)
    throw InputError{
        "--resume",
        fmt::format("{} {}", path_,
                    f.bytes == 0 ? "is not a file of a sweep"
                                 : "ends with what is not the beginning of a row; remove that")};
  return f;
}

void join(std::vector<RowReader>& shards) {
  std::sort(shards.begin(), shards.end(),
            [](const RowReader& a, const RowReader& b) { return a.first() < b.first(); });
  const std::string id = shards[0].id();
  std::int64_t next = 0;
  for (const RowReader& s : shards) {
    if (s.header() != shards[0].header() || s.id() != id)
      throw InputError{s.path(), "is of another sweep than " + shards[0].path()};
    if (s.first() < next)
      throw InputError{s.path(),
                       fmt::format("begins at point {}, which another file has", s.first())};
    if (s.first() > next)
      throw InputError{s.path(), fmt::format("begins at point {}; points {} to {} are in no file",
                                             s.first(), next, s.first() - 1)};
    next = s.next();
  }
  std::int64_t points = points_of_id(id);
  if (next != points)
    throw InputError{
        shards.back().path(),
        fmt::format(
            "ends at point {}; points {} to {} are in no file (is a shard unfinished? --resume)",
            next - 1, next, points - 1)};
}

}  // namespace ddpsim::sweep
