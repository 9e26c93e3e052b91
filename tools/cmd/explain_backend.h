// ddpsim explain --op over backends that are not NCCL: tcp, Gloo, Open MPI. Which algorithm runs
// and why, what each rank does for it, and its time by part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/collective/parts.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

// What --backend, --algorithm and the plan's words among --set lines (backend, algorithm,
// gloo_algorithm, open_mpi, environment) say.
struct BackendFlags {
  std::string backend;
  std::string algorithm;
};

// The backend that a question about one collective is about: of --backend, of a --set line, or of
// the cluster's devices, as a plan has it. Throws InputError.
Backend backend_asked(const Terminal& t, const BackendFlags& flags, const QuestionFlags& question);

// One way to run the operation.
struct Way {
  std::string algorithm;
  collective::Price price;
  collective::Parts parts;
  collective::Work work;
  bool chosen = false;
};

struct BackendAnswer {
  Operation operation = Operation::AllReduce;
  Bytes bytes;
  Backend backend = Backend::Tcp;
  Hardware hardware;
  int ranks = 0;
  std::string library;  // "Gloo", "Open MPI 4.1"
  std::vector<Way> ways;
  // Of an all-reduce over links with a saved burst: what the chosen way takes after a pause in
  // which it fills. The ways' own times are of one collective after another.
  std::optional<Duration> rested;
  std::string chooser;                        // "plan", "gloo", "caller", "open_mpi", "environment"
  std::string why;                            // a sentence: who chose
  std::optional<collective::MpiTable> table;  // of Open MPI's rules, for so many ranks
  std::vector<std::string> notes;
};

// REQUIRES: not NCCL. Throws InputError.
BackendAnswer ask_backend(const Terminal& t, Backend backend, const BackendFlags& flags,
                          const QuestionFlags& question, Operation op, Bytes bytes);

// explain_backend_text.cc
std::string backend_table(const BackendAnswer& a);
std::string backend_csv(const BackendAnswer& a);
io::OrderedJson backend_json(const BackendAnswer& a);

}  // namespace ddpsim::cli
