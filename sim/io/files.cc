#include "sim/io/files.h"

#include <signal.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "sim/io/json_reader.h"

namespace ddpsim::io {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kMaxBytes = 256u << 20;
constexpr int kGzip = 15 + 16;  // zlib's windowBits: 32 KiB window, gzip wrapper

// zlib writes no name and no time into the header.
std::string gzip(const std::string& text) {
  z_stream z{};
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  std::string out(deflateBound(&z, static_cast<uLong>(text.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

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
    if (state == Z_BUF_ERROR) problem = "is a gzip file that ends too early; fetch or write it again";
    else if (state != Z_OK && state != Z_STREAM_END) problem = std::string("is a damaged gzip file (") + (z.msg ? z.msg : "no details") + "); fetch or write it again";
    else if (text.size() > kMaxBytes) problem = "is larger than 256 MiB when decompressed; no file of ddpsim is";
  }
  inflateEnd(&z);
  if (!problem.empty()) throw InputError{name, problem};
  return text;
}

bool exists(const std::string& path) {
  std::error_code e;
  return fs::is_regular_file(path, e);
}

bool same_place(const std::string& a, const std::string& b) {
  std::error_code e;
  return fs::equivalent(a, b, e) && !e;
}

void check_place(const std::string& path) {
  std::error_code e;
  if (fs::is_directory(path, e)) throw InputError{path, "cannot be written: it is a folder; name a file in it"};
  fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, e)) throw InputError{path, "cannot be written: there is no folder " + folder.string()};
}

void make_folder(const std::string& path) {
  std::error_code e;
  fs::create_directories(path, e);
  if (e) throw InputError{path, "the folder cannot be made: " + e.message()};
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
  return text.starts_with("\x1f\x8b") ? gunzip(path, text) : text;
}

void write_file(const std::string& given, const std::string& plain) {
  std::string packed = given.ends_with(".gz") ? gzip(plain) : std::string();
  const std::string& text = given.ends_with(".gz") ? packed : plain;
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

std::vector<std::string> list_files(const std::string& folder, const std::vector<std::string>& suffixes) {
  std::error_code e;
  std::vector<std::string> out;
  fs::directory_iterator entries(folder, e);
  if (e) throw InputError{folder, e == std::errc::no_such_file_or_directory ? "no such folder" : "cannot be listed: " + e.message()};
  for (const auto& entry : entries) {
    std::string name = entry.path().filename().string();
    bool wanted = std::any_of(suffixes.begin(), suffixes.end(), [&](const std::string& s) { return name.ends_with(s); });
    if (wanted && entry.is_regular_file(e)) out.push_back((fs::path(folder) / name).string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

void remove_stale_temporaries(const std::string& folder) {
  std::error_code e;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder, e)) {
    std::string name = entry.path().filename().string();
    auto at = name.rfind(".tmp");
    if (at == std::string::npos || !entry.is_regular_file(e)) continue;
    const char* end = name.data() + name.size();
    pid_t pid = 0;
    auto [rest, error] = std::from_chars(name.data() + at + 4, end, pid);
    if (error != std::errc() || rest != end || pid <= 0) continue;
    if (::kill(pid, 0) != 0 && errno == ESRCH) stale.push_back(entry.path());
  }
  for (const fs::path& p : stale) fs::remove(p, e);
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
  const std::vector<std::string> shipped_names = list(folder);
  std::string hint = nearest(name, shipped_names);
  // "h100" is far from "h100-sxm.datasheet" letter by letter.
  if (auto longer = std::find_if(shipped_names.begin(), shipped_names.end(), [&](const std::string& s) { return !name.empty() && s.starts_with(name); }); hint.empty() && longer != shipped_names.end())
    hint = *longer;
  throw InputError{name, std::string("no ") + what + " of that name is shipped" + (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)") + "; see ddpsim list"};
}

}  // namespace ddpsim::io
