// Keys of a refusal in JSON (ddpsim.error/1), and the exit codes of commands.
#pragma once

#include "sim/io/schema/fields.h"

namespace ddpsim::io {

inline constexpr const char* kErrorSchema = "ddpsim.error/1";

struct ExitCode {
  int code;
  const char* means;
};
inline constexpr std::array<ExitCode, 5> kExitCodes{
    ExitCode{0, "the answer is written"},
    ExitCode{1, "the answer is written, and a check in it failed"},
    ExitCode{2, "the question is refused: one sentence says where and why"},
    ExitCode{3, "not enough memory, or an error of ddpsim"},
    ExitCode{130, "interrupted; what was known is written"}};

struct Refusal {
  InputError error;
  int exit_code = 2;
};
template <class V>
void fields(V& v, Refusal& r) {
  v.schema(kErrorSchema);
  v.required("code", AsWord<kErrorCodes>{r.error.code}, "the kind of refusal");
  v.required("place", r.error.where, "file and JSON pointer, or flag; empty: the command line");
  v.required("message", r.error.what, "the sentence that a person reads");
  v.required("remedy", r.error.remedy, "what to write instead; empty: the message says it");
  v.required("exit_code", r.exit_code, "of the command");
}

}  // namespace ddpsim::io
