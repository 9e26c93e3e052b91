// ddpsim doctor: what can be measured on this host, and why not. Looks, changes nothing.
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include "calib/cuda/cuda.h"
#include "calib/testbed.h"
#include "sim/io/nsys.h"
#include "sim/report/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct Finding {
  std::string what;
  bool ok;
  std::string detail;
};

std::string on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string all = path ? path : "";
  all += ":/usr/sbin:/sbin";
  for (std::size_t from = 0; from <= all.size();) {
    auto colon = std::min(all.find(':', from), all.size());
    std::string candidate = all.substr(from, colon - from) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    from = colon + 1;
  }
  return {};
}

bool readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

std::string first_line(const std::string& path) {
  try {
    std::string text = io::read_file(path);
    return text.substr(0, text.find('\n'));
  } catch (const InputError&) {
    return {};
  }
}

// Debian's PyTorch calls the BLAS that its alternatives name: the file behind libblas.so.3; "" =
// there is none.
std::string blas_of_debian() {
  ::glob_t found{};
  std::string out;
  if (::glob("/usr/lib/*-linux-gnu/libblas.so.3", 0, nullptr, &found) == 0 && found.gl_pathc > 0) {
    char* real = ::realpath(found.gl_pathv[0], nullptr);
    if (real) out = real;
    std::free(real);
  }
  ::globfree(&found);
  return out;
}

std::vector<Finding> examine(const Terminal& t) {
  std::vector<Finding> out;
  io::Home home = home_of(t);
  out.push_back({"predict", !home.path().empty(),
                 home.path().empty()
                     ? "shipped workloads, clusters and profiles were not found: set DDPSIM_HOME "
                       "to ddpsim's folder"
                     : fmt::format("{} workloads, {} clusters, {} profiles shipped",
                                   home.list("workloads").size(), home.list("topologies").size(),
                                   home.list("calib/profiles").size())});
  unsigned cores = std::thread::hardware_concurrency();
  out.push_back(
      {"processors", cores >= 2,
       fmt::format("{} threads{}", cores, cores < 2 ? ": executed runs need at least two" : "")});
  bool gpu = readable("/dev/nvidia0") || readable("/proc/driver/nvidia/version");
  out.push_back({"nvidia gpu", gpu,
                 gpu ? first_line("/proc/driver/nvidia/version")
                     : "no NVIDIA device: GPU kernels and NCCL cannot be measured here"});
  out.push_back(
      {"cuda build", calib::cuda::built(),
       calib::cuda::built()
           ? "this binary measures NVIDIA GPUs (tools/gpu_calibrate), where their driver is"
           : "this binary was built without the CUDA toolkit, cuDNN's and NCCL's headers: it "
             "predicts GPUs, and cannot measure them"});
  if (calib::cuda::built())
    for (const auto& item : calib::cuda::probe().items)
      out.push_back({item.what, item.found, item.detail});
  std::string nvcc = on_path("nvcc");
  if (nvcc.empty() && ::access("/usr/local/cuda/bin/nvcc", X_OK) == 0)
    nvcc = "/usr/local/cuda/bin/nvcc";
  out.push_back({"cuda toolkit", !nvcc.empty(),
                 nvcc.empty()
                     ? "no nvcc: the GPU harness cannot be built here (predictions do not need it)"
                     : nvcc});
  std::string python = "/usr/bin/python3";
  bool torch = readable("/usr/lib/python3/dist-packages/torch/__init__.py");
  out.push_back(
      {"pytorch", torch,
       torch
           ? python + " has PyTorch: ddpsim describe describes any model, "
                      "tools/python/ddpsim_capture.py can capture a model's workload on this CPU, "
                      "and ddpsim run --backend torch can train it on shaped hosts"
           : "Debian's python3-torch is not installed: ddpsim describe and capture need an "
             "interpreter that has PyTorch (--python)"});
  std::string blas = torch ? blas_of_debian() : "";
  if (!blas.empty()) {
    bool reference = blas.find("/blas/libblas") != std::string::npos;
    out.push_back({"fast blas", !reference,
                   reference ? "PyTorch multiplies matrices with the reference BLAS (" + blas +
                                   "), many times slower than OpenBLAS: captures made here are of "
                                   "that (Debian: apt-get install libopenblas0-pthread)"
                             : blas});
  }
  out.push_back({"nsight exports", io::reads_nsys(),
                 io::reads_nsys()
                     ? "ddpsim import nsys and explain read Nsight Systems' SQLite exports"
                     : "this binary was built without libsqlite3: ddpsim import nsys reads nothing "
                       "(Debian: libsqlite3-dev, then build again)"});
  std::string why = calib::privilege_problem();
  out.push_back({"hosts", why.empty(),
                 why.empty()
                     ? std::string("network namespaces, veth and tbf work: ddpsim run and "
                                   "calibrate execute on shaped hosts") +
                           (::geteuid() == 0 ? "" : ", without root")
                     : why + "; ddpsim run falls back to plain loopback, which is not shaped"});
  double load = 0;
  if (::getloadavg(&load, 1) == 1) {
    auto most = static_cast<double>(std::thread::hardware_concurrency());
    bool quiet = load < 0.25 * most;
    out.push_back(
        {"quiet", quiet,
         fmt::format(
             "{:.1f} of {:.0f} cores were busy in the last minute{}", load, most,
             quiet ? "" : ": Runs made now will be called noisy, and count in no accuracy")});
  }
  return out;
}

}  // namespace

void add_doctor(Command& app, Terminal& t) {
  auto flags = std::make_shared<OutputFlags>();
  Command* c = app.add_subcommand("doctor", "Say what can be measured on this host, and why not");
  add_output_flags(*c, *flags, {"table", "csv", "json"});
  c->callback([&t, flags] {
    auto findings = examine(t);
    std::string text;
    if (flags->format == "json") {
      io::OrderedJson j = io::OrderedJson::array();
      for (const Finding& f : findings)
        j.push_back({{"what", f.what}, {"ok", f.ok}, {"detail", f.detail}});
      text = j.dump(1) + "\n";
    } else if (flags->format == "csv") {
      text = "what,ok,detail\n";
      for (const Finding& f : findings)
        text += fmt::format("{},{},{}\n", f.what, f.ok ? "yes" : "no", report::csv_field(f.detail));
    } else {
      for (const Finding& f : findings)
        text += report::wrapped(
            fmt::format("{:<4}{:<20}{}\n", f.ok ? "yes" : "no", f.what, f.detail), 24);
      text +=
          "\nddpsim run executes: its own executor over TCP (--backend tcp), the real PyTorch over "
          "Gloo (torch), its own executor on NVIDIA GPUs (nccl).\n"
          "tools/gpu_calibrate measures a GPU.\n";
    }
    write_answer(t, *flags, text);
  });
}

}  // namespace ddpsim::cli
