// Files: the only place that opens one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddpsim::io {

// Gzip is decompressed, whatever the file is called. Never waits for a file that has no end: a
// pipe, a device or a log of the kernel is refused. Throws InputError if the file cannot be read or
// is (decompressed) larger than 64 MiB.
std::string read_file(const std::string& path);
// Writes beside the file under a name that nobody can guess (PATH.ddpsim-MACHINE-PID-RANDOM), and
// renames: the file is the old one or the new one, whole. It keeps its mode and, where this process
// may, its owner; a link stays a link. Compresses if the path ends in ".gz": the same text gives
// the same bytes. A device or a pipe is written as it is. Throws InputError if it cannot.
void write_file(const std::string& path, const std::string& text);
// Files that belong together, such as a workload and a Run of one trace: all are written beside
// their places, as by write_file, before the first of them gets its name.
class FileSet {
 public:
  FileSet();
  ~FileSet();  // what has no name yet is removed
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;
  // A device or a pipe is written now. Throws InputError if it cannot be written; the others then
  // are as they were.
  void add(const std::string& path, const std::string& text);
  // All get their names. Throws InputError.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};
// Every member of gzip data. `name`: of what it is, for errors. Throws InputError.
std::string gunzip(const std::string& name, const std::string& packed);
bool exists(const std::string& path);
// Of a regular file; 0 if there is none.
std::int64_t file_bytes(const std::string& path);
// Whether both paths lead to one file or folder that exists.
bool same_place(const std::string& a, const std::string& b);
// Throws InputError if no file could be made at this path: its folder is missing, or it is a folder
// itself.
void check_place(const std::string& path);
// With all folders above it. Throws InputError if it cannot be made.
void make_folder(const std::string& path);
// FOLDER/NAME of the files in a folder (not below it) whose names end in one of these, sorted.
// Throws InputError if the folder cannot be listed, or such a name is not UTF-8.
std::vector<std::string> list_files(const std::string& folder,
                                    const std::vector<std::string>& suffixes);
// Removes what a killed write_file left: files of its naming, written on this machine by a process
// that is gone. A folder that does not exist holds none.
void remove_stale_temporaries(const std::string& folder);
// Removes what write_file of this process is writing. For a signal's handler that ends the process:
// calls only what a handler may call.
void abandon_temporaries() noexcept;

// Files that read_file has read since the last forget_inputs(), so that no answer is written over
// what it was made from. One list of the process, which threads may share.
bool was_read(const std::string& path);
void forget_inputs();
// Two names of one place, where a file is or would be written. False for devices and pipes.
bool same_file(const std::string& a, const std::string& b);

// Whether a name is a file's: it has a / or ends in .json. captured/GPU/NAME is a shipped one's.
bool names_file(const std::string& name);

// Where ddpsim's shipped workloads, topologies and profiles lie: $DDPSIM_HOME, beside the
// executable, or the source tree it was built from.
class Home {
 public:
  // `executable`: argv[0] or /proc/self/exe; `built_from`: may be empty.
  Home(const std::string& from_environment, const std::string& executable,
       const std::string& built_from);
  const std::string& path() const { return path_; }
  // A path as it is, or the shipped file of that name. Throws InputError with the nearest name.
  std::string find(const std::string& folder, const std::string& name, const char* what) const;
  // Stems of *.json in a folder, sorted.
  std::vector<std::string> list(const std::string& folder) const;
  // captured/GPU/NAME of each workload that was captured on a GPU, sorted.
  std::vector<std::string> captured() const;

 private:
  std::string path_;
};

}  // namespace ddpsim::io
