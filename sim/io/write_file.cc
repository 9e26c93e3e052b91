// The one writer. A regular file is written beside its place and renamed; what is left of a killed
// writer carries ddpsim's mark, this machine's and the process's, and nothing else is ever removed.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "sim/io/descriptors.h"
#include "sim/io/files.h"
#include "sim/model/error.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace fs = std::filesystem;
namespace {

constexpr int kGzip = 15 + 16;  // zlib's windowBits: 32 KiB window, gzip wrapper

// zlib writes no name and no time into the header.
std::string gzip(const std::string& text) {
  z_stream z{};
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
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

[[noreturn]] void fail(const std::string& path, int error) {
  throw InputError{path, "cannot be written: " + std::string(std::strerror(error))};
}

std::string hex(std::uint64_t v, std::size_t digits) {
  std::string out(digits, '0');
  for (std::size_t i = digits; i-- > 0; v >>= 4) out[i] = "0123456789abcdef"[v & 15];
  return out;
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Processes are numbered within a namespace of a machine: a number says nothing elsewhere. FNV-1a.
std::string machine_mark() {
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  std::error_code e;
  std::string text = std::string(host) + "\n" + first_line("/etc/machine-id") + "\n" +
                     fs::read_symlink("/proc/self/ns/pid", e).string();
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return hex(h ^ h >> 32, 8);
}

constexpr std::string_view kMark = ".ddpsim-";
constexpr std::size_t kRandomDigits = 16;

std::string temporary_name(const fs::path& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) fail(path.string(), errno);
  constexpr std::size_t kMostOfName = 200;  // of 255 that a file system takes
  std::string name = path.filename().string().substr(0, kMostOfName);
  name += std::string(kMark) + machine_mark() + "-" + std::to_string(::getpid()) + "-" +
          hex(random, kRandomDigits);
  return (path.parent_path() / name).string();
}

// The process that wrote a temporary of this machine; nullopt: the name is not one.
std::optional<pid_t> writer_of(const std::string& name, const std::string& machine) {
  auto at = name.rfind(kMark);
  if (at == std::string::npos) return std::nullopt;
  std::string rest = name.substr(at + kMark.size());
  if (!rest.starts_with(machine + "-")) return std::nullopt;
  rest.erase(0, machine.size() + 1);
  auto dash = rest.find('-');
  if (dash == std::string::npos || rest.size() != dash + 1 + kRandomDigits) return std::nullopt;
  if (rest.find_first_not_of("0123456789abcdef", dash + 1) != std::string::npos)
    return std::nullopt;
  auto pid = parse_integer(rest.substr(0, dash));
  if (!pid || *pid <= 0 || *pid > INT32_MAX) return std::nullopt;
  return static_cast<pid_t>(*pid);
}

}  // namespace

// Named, since FileSet holds what is in it.
namespace writing {

// What is being written, where a signal's handler finds it: a list that only grows, of slots that
// are used again.
struct Slot {
  enum : int { Free, Taken, Armed };
  std::atomic<int> state{Taken};
  pid_t owner = 0;
  std::string path;
  Slot* next = nullptr;
};
std::atomic<Slot*> slots{nullptr};

Slot* taken_slot() {
  for (Slot* s = slots; s; s = s->next) {
    int free = Slot::Free;
    if (s->state.compare_exchange_strong(free, Slot::Taken)) return s;
  }
  Slot* fresh = new Slot;
  fresh->next = slots;
  while (!slots.compare_exchange_weak(fresh->next, fresh)) {
  }
  return fresh;
}

Slot* arm(const std::string& path) {
  Slot* s = taken_slot();
  s->owner = ::getpid();
  s->path = path;
  s->state = Slot::Armed;
  return s;
}

// A file that is being written; removed unless it gets its name.
class Temporary {
 public:
  explicit Temporary(const std::string& target)
      : target_(target), path_(temporary_name(target)), slot_(arm(path_)) {}
  ~Temporary() {
    if (!named_) ::unlink(path_.c_str());
    slot_->state = Slot::Free;
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(const std::string& text) {
    struct stat old {};
    bool replaces = ::stat(target_.c_str(), &old) == 0;
    if (replaces && ::access(target_.c_str(), W_OK) != 0) fail(target_, errno);
    // Through no link, and only if there is nothing of that name.
    Descriptor out(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                          replaces ? 0600 : 0666));
    if (out.number() < 0) fail(target_, errno);
    if (replaces) {
      // Whose it was, where this process may say so; and no special bits.
      [[maybe_unused]] int ignored = ::fchown(out.number(), old.st_uid, old.st_gid);
      ignored = ::fchmod(out.number(), old.st_mode & 0777);
    }
    write_all(out.number(), target_, text);
    if (!out.close()) fail(target_, errno);
  }
  const std::string& target() const { return target_; }
  void give_name() {
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, errno);
    named_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  Slot* slot_;
  bool named_ = false;
};

}  // namespace writing

struct FileSet::State {
  std::vector<std::unique_ptr<writing::Temporary>> files;
};

FileSet::FileSet() : state_(std::make_unique<State>()) {}
FileSet::~FileSet() = default;

void FileSet::add(const std::string& given, const std::string& plain) {
  std::string packed = given.ends_with(".gz") ? gzip(plain) : std::string();
  const std::string& text = given.ends_with(".gz") ? packed : plain;
  std::error_code ignored;
  fs::file_status status = fs::status(given, ignored);
  if (fs::is_directory(status))
    throw InputError{given, "cannot be written: it is a folder; name a file in it"};
  // A device or a pipe (/dev/null, /dev/stdout) is written as it is: renaming over it would replace
  // it.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Descriptor out(open_special(given));
    write_all(out.number(), given, text);
    if (!out.close()) fail(given, errno);
    return;
  }
  // Through a link, so that the link stays one.
  std::string path = fs::exists(status) ? fs::canonical(given, ignored).string() : given;
  if (path.empty()) path = given;
  for (const auto& other : state_->files)
    if (other->target() == path)
      throw InputError{given, "would hold two of this command's files; name another"};
  state_->files.push_back(std::make_unique<writing::Temporary>(path));
  state_->files.back()->write(text);
}

void FileSet::commit() {
  for (const auto& file : state_->files) file->give_name();
  state_->files.clear();
}

void write_file(const std::string& path, const std::string& text) {
  FileSet one;
  one.add(path, text);
  one.commit();
}

void abandon_temporaries() noexcept {
  for (const writing::Slot* s = writing::slots; s; s = s->next)
    if (s->state == writing::Slot::Armed && s->owner == ::getpid()) ::unlink(s->path.c_str());
}

void remove_stale_temporaries(const std::string& folder) {
  const std::string machine = machine_mark();
  std::error_code e;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder, e)) {
    auto pid = writer_of(entry.path().filename().string(), machine);
    if (!pid || fs::symlink_status(entry.path(), e).type() != fs::file_type::regular) continue;
    if (::kill(*pid, 0) != 0 && errno == ESRCH) stale.push_back(entry.path());
  }
  for (const fs::path& p : stale) fs::remove(p, e);
}

}  // namespace ddpsim::io
