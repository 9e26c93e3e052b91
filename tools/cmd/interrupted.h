// Ctrl-C of a command that keeps what it knew.
#pragma once

namespace ddpsim::cli {

inline constexpr int kInterrupted = 130;  // exit code

// Thrown by a command that Ctrl-C ended after it had written what it knew, and said so.
struct Interrupted {};

}  // namespace ddpsim::cli
