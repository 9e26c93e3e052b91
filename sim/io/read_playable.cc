#include "sim/io/name_operations.h"
#include "sim/io/schema/program_fields.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kMostSteps = 64;

}  // namespace

ProgramFile read_playable(const Json& j, const std::string& file, DeviceKind device) {
  Reader r(j, file);
  r.schema(kProgramSchema);
  ProgramHead head = read_program_head(r, device);
  std::vector<Reader> listed = r.at("steps").items();
  if (listed.empty()) r.at("steps").fail("has no step");
  if (listed.size() > kMostSteps) r.at("steps").fail("has more than 64 steps; keep the last few");
  std::vector<ListedStep> steps;
  for (std::size_t k = 0; k < listed.size(); ++k)
    steps.push_back(read_listed_step(listed[k], k, k + 1 == listed.size(), head));
  name_operations(steps, head);
  Program& program = head.file.program;
  for (ListedStep& l : steps) program.warmup.push_back(std::move(l.step));
  program.steady = std::move(program.warmup.back());
  program.warmup.pop_back();
  return std::move(head.file);
}

}  // namespace ddpsim::io
