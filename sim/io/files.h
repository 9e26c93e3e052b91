// Files: the only place that opens one.
#pragma once

#include <string>
#include <vector>

namespace ddpsim::io {

// Throws InputError if the file cannot be read or is larger than 256 MiB.
std::string read_file(const std::string& path);
// Writes to a temporary name in the same folder and renames. Throws InputError if it cannot.
void write_file(const std::string& path, const std::string& text);
bool exists(const std::string& path);

// Where ddpsim's shipped workloads, topologies and profiles lie: $DDPSIM_HOME, beside the executable, or the source tree it was built from.
class Home {
 public:
  // `executable`: argv[0] or /proc/self/exe; `built_from`: may be empty.
  Home(const std::string& from_environment, const std::string& executable, const std::string& built_from);
  const std::string& path() const { return path_; }
  // A path as it is, or the shipped file of that name. Throws InputError with the nearest name.
  std::string find(const std::string& folder, const std::string& name, const char* what) const;
  // Stems of *.json in a folder, sorted.
  std::vector<std::string> list(const std::string& folder) const;

 private:
  std::string path_;
};

}  // namespace ddpsim::io
