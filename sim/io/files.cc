#include "sim/io/files.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <new>
#include <set>

#include <sys/stat.h>
#include <zlib.h>

#include "sim/io/descriptors.h"
#include "sim/io/json_reader.h"
#include "sim/units/text.h"

namespace ddpsim::io {
namespace fs = std::filesystem;
namespace {

// What a question needs is some megabytes; parsed, JSON takes about twenty times its length.
constexpr std::uintmax_t kMaxBytes = 64u << 20;
constexpr int kGzip = 15 + 16;  // zlib's windowBits: 32 KiB window, gzip wrapper
constexpr const char* kCaptured = "captured/";

bool is_home(const fs::path& p) {
  std::error_code e;
  return fs::is_directory(p / "workloads", e) && fs::is_directory(p / "topologies", e);
}

}  // namespace

// RFC 1952.
std::string gunzip(const std::string& name, const std::string& packed) {
  z_stream z{};
  if (inflateInit2(&z, kGzip) != Z_OK) throw std::bad_alloc();
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  std::vector<char> block(1 << 18);
  std::string problem;
  for (int state = Z_OK; problem.empty() && !(state == Z_STREAM_END && z.avail_in == 0);) {
    if (state == Z_STREAM_END) inflateReset(&z);
    z.next_out = reinterpret_cast<Bytef*>(block.data());
    z.avail_out = static_cast<uInt>(block.size());
    state = inflate(&z, Z_NO_FLUSH);
    text.append(block.data(), block.size() - z.avail_out);
    if (state == Z_BUF_ERROR)
      problem = "is a gzip file that ends too early; fetch or write it again";
    else if (state != Z_OK && state != Z_STREAM_END)
      problem = std::string("is a damaged gzip file (") + (z.msg ? z.msg : "no details") +
                "); fetch or write it again";
    else if (text.size() > kMaxBytes)
      problem = "is larger than 64 MiB when decompressed; no file of ddpsim is";
  }
  inflateEnd(&z);
  if (!problem.empty()) throw InputError{name, problem};
  return text;
}

bool exists(const std::string& path) {
  std::error_code e;
  return fs::is_regular_file(path, e);
}

std::int64_t file_bytes(const std::string& path) {
  std::error_code e;
  if (!fs::is_regular_file(path, e)) return 0;
  auto bytes = fs::file_size(path, e);
  return e ? 0 : static_cast<std::int64_t>(bytes);
}

bool same_place(const std::string& a, const std::string& b) {
  std::error_code e;
  return fs::equivalent(a, b, e) && !e;
}

void check_place(const std::string& path) {
  std::error_code e;
  if (fs::is_directory(path, e))
    throw InputError{path, "cannot be written: it is a folder; name a file in it"};
  fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, e))
    throw InputError{path, "cannot be written: there is no folder " + folder.string()};
}

void make_folder(const std::string& path) {
  std::error_code e;
  fs::create_directories(path, e);
  if (e) throw InputError{path, "the folder cannot be made: " + e.message()};
}

namespace {

using FileId = std::pair<dev_t, ino_t>;

class Inputs {
 public:
  void add(FileId id) {
    std::lock_guard guard(lock_);
    read_.insert(id);
  }
  bool has(FileId id) {
    std::lock_guard guard(lock_);
    return read_.contains(id);
  }
  void clear() {
    std::lock_guard guard(lock_);
    read_.clear();
  }

 private:
  std::mutex lock_;
  std::set<FileId> read_;
};

Inputs& inputs() {
  static Inputs of_this_process;
  return of_this_process;
}

}  // namespace

bool was_read(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && inputs().has({s.st_dev, s.st_ino});
}

void note_read(std::pair<dev_t, ino_t> file) {
  inputs().add(file);
}

void forget_inputs() {
  inputs().clear();
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code e;
  fs::file_status one = fs::status(a, e);
  fs::file_status other = fs::status(b, e);
  if (fs::exists(one) && fs::exists(other))
    return fs::is_regular_file(one) && fs::equivalent(a, b, e);
  if (fs::exists(one) || fs::exists(other)) return false;
  return fs::weakly_canonical(fs::absolute(a, e), e) == fs::weakly_canonical(fs::absolute(b, e), e);
}

std::string read_file(const std::string& path) {
  Input in = open_input(path);
  Descriptor guard(in.descriptor);
  const InputError too_large{path, "is larger than 64 MiB; no file of ddpsim is"};
  if (static_cast<std::uintmax_t>(in.bytes) > kMaxBytes) throw too_large;
  std::string text;
  std::vector<char> block(1 << 16);
  while (std::size_t n = read_some(in.descriptor, path, block.data(), block.size())) {
    text.append(block.data(), n);
    if (text.size() > kMaxBytes) throw too_large;
  }
  inputs().add(in.id);
  return text.starts_with("\x1f\x8b") ? gunzip(path, text) : text;
}

std::vector<std::string> list_files(const std::string& folder,
                                    const std::vector<std::string>& suffixes) {
  std::error_code e;
  std::vector<std::string> out;
  fs::directory_iterator entries(folder, e);
  if (e)
    throw InputError{folder, e == std::errc::no_such_file_or_directory
                                 ? "no such folder"
                                 : "cannot be listed: " + e.message()};
  for (const auto& entry : entries) {
    std::string name = entry.path().filename().string();
    bool wanted = std::any_of(suffixes.begin(), suffixes.end(),
                              [&](const std::string& s) { return name.ends_with(s); });
    if (wanted && !is_utf8(name))
      throw InputError{folder,
                       "holds a file whose name is not UTF-8 (" + printable(name) + "); rename it"};
    if (wanted && entry.is_regular_file(e)) out.push_back((fs::path(folder) / name).string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool names_file(const std::string& name) {
  if (name.ends_with(".json")) return true;
  const bool shipped = name.starts_with(kCaptured) && !name.ends_with(".gz");
  return name.find('/') != std::string::npos && !shipped;
}

Home::Home(const std::string& from_environment, const std::string& executable,
           const std::string& built_from) {
  std::vector<fs::path> places;
  if (!from_environment.empty() && !is_home(from_environment))
    throw InputError{"DDPSIM_HOME=" + from_environment,
                     "is not ddpsim's folder: it holds no workloads/ and topologies/"};
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

std::vector<std::string> Home::captured() const {
  const fs::path top = fs::path(path_) / "workloads";
  std::vector<fs::path> files;
  std::error_code e;
  for (const auto& entry : fs::recursive_directory_iterator(top / kCaptured, e))
    if (entry.path().string().ends_with(".json.gz")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // a folder after the other
  std::vector<std::string> out;
  for (const fs::path& f : files)
    out.push_back((f.parent_path() / f.stem().stem()).lexically_relative(top).string());
  return out;
}

std::string Home::find(const std::string& folder, const std::string& name, const char* what) const {
  if (names_file(name)) {
    std::error_code e;
    if (!fs::exists(name, e))
      throw InputError{name, std::string("no such ") + what + " file", "no_such_file"};
    return name;
  }
  if (path_.empty())
    throw InputError{
        name,
        "the shipped files were not found; set DDPSIM_HOME to ddpsim's folder, or give a path"};
  std::string shipped = (fs::path(path_) / folder / (name + ".json")).string();
  for (const char* packed : {"", ".gz"})
    if (exists(shipped + packed)) return shipped + packed;
  const std::vector<std::string> shipped_names = list(folder);
  // A bare name may be the last part of a captured one's.
  std::vector<std::string> captures;
  if (folder == "workloads") captures = captured();
  std::vector<std::string> known = shipped_names;
  for (const std::string& c : captures)
    known.push_back(name.starts_with(kCaptured) ? c : c.substr(c.rfind('/') + 1));
  std::string hint = nearest(name, known);
  const auto at = std::find(known.begin(), known.end(), hint) - known.begin();
  if (const auto k = at - std::ssize(shipped_names); k >= 0 && k < std::ssize(captures))
    hint = captures[k];
  // "h100" is far from "h100-sxm.datasheet" letter by letter.
  if (auto longer =
          std::find_if(shipped_names.begin(), shipped_names.end(),
                       [&](const std::string& s) { return !name.empty() && s.starts_with(name); });
      hint.empty() && longer != shipped_names.end())
    hint = *longer;
  // "h100" is in "hgx-h100" and "dgx-h100".
  std::string inside;
  std::string part = name;  // of "8xH100" what is a name
  if (const auto x = part.find_first_not_of("0123456789");
      x > 0 && x < part.size() && part[x] == 'x')
    part.erase(0, x + 1);
  for (char& c : part)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const std::string& s : shipped_names)
    if (part.size() > 2 && s.find(part) != std::string::npos)
      inside += (inside.empty() ? "\"" : ", \"") + s + "\"";
  if (hint.empty() && !inside.empty())
    throw InputError{name, std::string("no ") + what +
                               " of that name is shipped; with it in their names: " + inside};
  if (exists(name) || name.ends_with(".py"))
    throw InputError{name, std::string("no ") + what +
                               " of that name is shipped, and a file is named with a / or .json; a "
                               "training script is described first: ddpsim describe --script FILE "
                               "-o FILE.json"};
  throw InputError{name,
                   std::string("no ") + what + " of that name is shipped" +
                       (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)") +
                       "; see ddpsim list",
                   "no_such_file", hint};
}

}  // namespace ddpsim::io
