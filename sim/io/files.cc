#include "sim/io/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "sim/io/json_reader.h"

namespace ddpsim::io {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kMaxBytes = 256u << 20;

bool is_home(const fs::path& p) {
  std::error_code e;
  return fs::is_directory(p / "workloads", e) && fs::is_directory(p / "topologies", e);
}

}  // namespace

bool exists(const std::string& path) {
  std::error_code e;
  return fs::is_regular_file(path, e);
}

std::string read_file(const std::string& path) {
  std::error_code e;
  fs::file_status status = fs::status(path, e);
  if (fs::is_directory(status)) throw InputError{path, "is a folder; expected a file"};
  if (status.type() == fs::file_type::not_found) throw InputError{path, "no such file"};
  // A pipe or a device may never end.
  if (fs::exists(status) && !fs::is_regular_file(status)) throw InputError{path, "is not a regular file; save it to a file first"};
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError{path, "cannot be read: " + std::string(std::strerror(errno))};
  if (auto size = fs::file_size(path, e); !e && size > kMaxBytes) throw InputError{path, "is larger than 256 MiB; no file of ddpsim is"};
  std::string text;
  std::vector<char> block(1 << 16);
  errno = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxBytes) throw InputError{path, "is larger than 256 MiB; no file of ddpsim is"};
  }
  if (in.bad()) throw InputError{path, "cannot be read: " + std::string(std::strerror(errno ? errno : EIO))};
  return text;
}

void write_file(const std::string& given, const std::string& text) {
  std::error_code ignored;
  fs::file_status status = fs::status(given, ignored);
  if (fs::is_directory(status)) throw InputError{given, "cannot be written: it is a folder; name a file in it"};
  // A device or a pipe (/dev/null, /dev/stdout) is written as it is: renaming over it would replace it.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    std::ofstream out(given, std::ios::binary);
    if (!(out << text << std::flush)) throw InputError{given, "cannot be written: " + std::string(std::strerror(errno))};
    return;
  }
  // Through a link, so that the link stays one.
  std::string path = fs::exists(status) ? fs::canonical(given, ignored).string() : given;
  if (path.empty()) path = given;
  std::string temporary = path + ".tmp" + std::to_string(::getpid());
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (!out) throw InputError{path, "cannot be written: " + std::string(std::strerror(errno))};
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.flush();
    if (!out) {
      std::string why = std::strerror(errno);
      std::error_code e;
      fs::remove(temporary, e);
      throw InputError{path, "cannot be written: " + why};
    }
  }
  std::error_code e;
  fs::rename(temporary, path, e);
  if (e) {
    std::string why = e.message();
    fs::remove(temporary, e);
    throw InputError{path, "cannot be written: " + why};
  }
}

Home::Home(const std::string& from_environment, const std::string& executable, const std::string& built_from) {
  std::vector<fs::path> places;
  if (!from_environment.empty() && !is_home(from_environment))
    throw InputError{"DDPSIM_HOME=" + from_environment, "is not ddpsim's folder: it holds no workloads/ and topologies/"};
  if (!from_environment.empty()) places.push_back(from_environment);
  fs::path folder = fs::path(executable).parent_path();
  places.push_back(folder / ".." / "share" / "ddpsim");
  places.push_back(folder / ".." / "..");
  if (!built_from.empty()) places.push_back(built_from);
  for (const fs::path& p : places) {
    if (!is_home(p)) continue;
    path_ = p.lexically_normal().string();
    return;
  }
}

std::vector<std::string> Home::list(const std::string& folder) const {
  std::vector<std::string> out;
  std::error_code e;
  for (const auto& entry : fs::directory_iterator(fs::path(path_) / folder, e))
    if (entry.path().extension() == ".json") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string Home::find(const std::string& folder, const std::string& name, const char* what) const {
  bool is_path = name.find('/') != std::string::npos || name.ends_with(".json");
  if (is_path) {
    std::error_code e;
    if (!fs::exists(name, e)) throw InputError{name, std::string("no such ") + what + " file"};
    return name;
  }
  if (path_.empty()) throw InputError{name, "the shipped files were not found; set DDPSIM_HOME to ddpsim's folder, or give a path"};
  std::string shipped = (fs::path(path_) / folder / (name + ".json")).string();
  if (exists(shipped)) return shipped;
  std::string hint = nearest(name, list(folder));
  throw InputError{name, std::string("no ") + what + " of that name is shipped" + (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)") + "; see ddpsim list"};
}

}  // namespace ddpsim::io
