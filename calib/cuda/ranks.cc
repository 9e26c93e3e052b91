#include "calib/cuda/ranks.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calib/cuda/check.h"
#include "calib/cuda/cuda.h"
#include "calib/cuda/libraries.h"
#include "calib/cuda/stream.h"
#include "calib/memory_file.h"

namespace ddpsim::calib::cuda {
namespace {

void set(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 1);
}

// Runs nvidia-cuda-mps-control with `input` on its stdin, silently, for at most some seconds; its
// exit status, or -1.
int control(std::vector<std::string> arguments, const std::string& input,
            const std::string& folder) {
  MemoryFile in(input);
  pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    set("CUDA_MPS_PIPE_DIRECTORY", folder + "/pipe");
    set("CUDA_MPS_LOG_DIRECTORY", folder + "/log");
    int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::lseek(in.descriptor(), 0, SEEK_SET);
    ::dup2(in.descriptor(), 0);
    ::dup2(null, 1);
    ::dup2(null, 2);
    const char* program = "nvidia-cuda-mps-control";
    std::vector<char*> argv{const_cast<char*>(program)};
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    ::execvp(program, argv.data());
    ::_exit(127);
  }
  int status = 0;
  for (int waited = 0; ::waitpid(child, &status, WNOHANG) == 0; ++waited) {
    if (waited > 800) {  // it is known to wait for a client that ended badly
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return -1;
    }
    ::usleep(10'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void remove_tree(const std::string& folder) {
  ::nftw(
      folder.c_str(),
      [](const char* path, const struct stat*, int, FTW*) { return ::remove(path), 0; }, 8,
      FTW_DEPTH | FTW_PHYS);
}

}  // namespace

MpsDaemon::MpsDaemon() {
  const char* place = std::getenv("TMPDIR");
  std::string pattern = std::string(place && *place ? place : "/tmp") + "/ddpsim-mps-XXXXXX";
  if (!::mkdtemp(pattern.data())) throw std::runtime_error("no folder for an MPS daemon");
  folder_ = pattern;
  ::mkdir((folder_ + "/pipe").c_str(), 0700);
  ::mkdir((folder_ + "/log").c_str(), 0700);
  int status = control({"-d"}, "", folder_);
  if (status != 0) {
    remove_tree(folder_);
    throw std::runtime_error(status == 127 ? "nvidia-cuda-mps-control is not installed"
                                           : "nvidia-cuda-mps-control -d failed with status " +
                                                 std::to_string(status));
  }
  // A guard ends the daemon, which has a session of its own, however this process ends: it sees the
  // pipe close.
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  guard_ = ::fork();
  if (guard_ == 0) {
    ::setsid();
    ::close(ends[1]);
    char nothing = 0;
    while (::read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
    }
    control({}, "quit -t 1\n", folder_);
    remove_tree(folder_);
    ::_exit(0);
  }
  ::close(ends[0]);
  pipe_ = ends[1];
}

MpsDaemon::~MpsDaemon() {
  ::close(pipe_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
}

std::vector<std::pair<std::string, std::string>> one_gpu_environment(
    int rank, int ranks, const std::string& mps_folder) {
  return {{"CUDA_MPS_PIPE_DIRECTORY", mps_folder + "/pipe"},
          {"CUDA_MPS_LOG_DIRECTORY", mps_folder + "/log"},
          {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(100 / ranks)},
          {"NCCL_HOSTID", "ddpsim" + std::to_string(rank)},
          {"NCCL_NET", "Socket"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_SHM_DISABLE", "1"},
          {"NCCL_MNNVL_ENABLE", "0"},
          {"NCCL_NVLS_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_CUMEM_ENABLE", "0"},
          {"NCCL_CUMEM_HOST_ENABLE", "0"},
          {"NCCL_RUNTIME_CONNECT", "0"},
          {"NCCL_MIN_CTAS", std::to_string(kOneGpuChannels)},
          {"NCCL_MAX_CTAS", std::to_string(kOneGpuChannels)}};
}

std::vector<std::pair<std::string, std::string>> shared_gpu_environment(
    int ranks, const std::string& mps_folder) {
  return {{"CUDA_MPS_PIPE_DIRECTORY", mps_folder + "/pipe"},
          {"CUDA_MPS_LOG_DIRECTORY", mps_folder + "/log"},
          {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(100 / ranks)},
          {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
          {"NCCL_MNNVL_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_MIN_CTAS", std::to_string(kOneGpuChannels)},
          {"NCCL_MAX_CTAS", std::to_string(kOneGpuChannels)}};
}

void leave(RanksShared& shared, const RankPlace& place, const std::exception& why) {
  shared.rendezvous.fail("rank " + std::to_string(place.rank) + ": " + why.what());
  ::_exit(1);
}

void require_side_by_side(RanksShared& shared, const RankPlace& place, ncclComm_t comm) {
  constexpr int kCount = 20;
  constexpr std::int64_t kSlicedNs = 1'000'000;
  DeviceMemory memory(256);
  StreamOwner stream;
  EventOwner begin;
  EventOwner end;
  try {
    DDPSIM_CUDA(cudaMemset(memory.at(), 0, 256));
    DDPSIM_CUDA(cudaDeviceSynchronize());
    for (int pass = 0; pass < 2; ++pass) {
      DDPSIM_CUDA(cudaEventRecord(begin, stream));
      for (int i = 0; i < kCount; ++i)
        DDPSIM_CALL(nccl(),
                    ncclAllReduce(memory.at(), memory.at(), 2, ncclFloat, ncclSum, comm, stream));
      DDPSIM_CUDA(cudaEventRecord(end, stream));
      DDPSIM_CUDA(cudaEventSynchronize(end));
    }
    if (elapsed_ns(begin, end) / kCount > kSlicedNs)
      throw std::runtime_error(
          "an all-reduce of 8 bytes takes more than a millisecond: the ranks take turns on the "
          "GPU, MPS is not effective");
  } catch (const std::exception& e) {
    leave(shared, place, e);
  }
}

void run_ranks(const RanksOptions& options, RanksShared& shared,
               const std::function<void(const RankPlace&, ncclComm_t)>& body) {
  Cluster none;  // hosts are not made
  std::vector<int> hosts(static_cast<std::size_t>(options.ranks), 0);
  const StageResult stage = run_stage(
      none, hosts, options.ranks, true, options.timeout_s, shared.rendezvous, [&](int rank, bool) {
        RankPlace place{rank, options.ranks, options.one_gpu ? 0 : rank};
        if (options.one_gpu)
          for (const auto& [name, value] :
               options.as_one_host
                   ? shared_gpu_environment(options.ranks, options.one_gpu->folder())
                   : one_gpu_environment(rank, options.ranks, options.one_gpu->folder()))
            set(name, value);
        for (const auto& [name, value] : options.environment) set(name, value);
        if (rank == 0 && !options.log.empty()) {
          set("NCCL_DEBUG", "INFO");
          set("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH,TUNING");
          set("NCCL_DEBUG_FILE", options.log);
        }
        DDPSIM_CUDA(cudaSetDevice(place.device));
        const Nccl& l = nccl();
        if (rank == 0) DDPSIM_CALL(l, ncclGetUniqueId(&shared.id));
        shared.rendezvous.meet(0, options.ranks);
        ncclComm_t comm = nullptr;
        DDPSIM_CALL(l, ncclCommInitRank(&comm, options.ranks, shared.id, rank));
        shared.rendezvous.meet(1, options.ranks);
        body(place, comm);
        DDPSIM_CUDA(cudaDeviceSynchronize());
        shared.rendezvous.meet(7, options.ranks);
        DDPSIM_CALL(l, ncclCommDestroy(comm));
      });
  if (stage.interrupted) throw std::runtime_error("interrupted");
}

std::string in_child_so_far(
    const std::function<void(const std::function<void(const std::string&)>& say)>& body,
    double timeout_s, std::string& why) {
  // In one of two places in turn: the other is whole while this one is written.
  MemoryFile places[2];
  SharedMemory memory(sizeof(Rendezvous) + 64);
  auto* rendezvous = new (memory.data()) Rendezvous{};
  auto* last = new (memory.data() + sizeof(Rendezvous)) std::atomic<int>{-1};
  why.clear();
  try {
    const StageResult stage =
        run_stage(Cluster{}, {0}, 1, true, timeout_s, *rendezvous, [&](int, bool) {
          body([&](const std::string& text) {
            int next = *last == 0 ? 1 : 0;
            int fd = places[next].descriptor();
            if (::ftruncate(fd, 0) != 0) throw std::runtime_error("a child's answer was lost");
            for (std::size_t at = 0; at < text.size();) {
              ssize_t n = ::pwrite(fd, text.data() + at, text.size() - at, static_cast<off_t>(at));
              if (n <= 0) throw std::runtime_error("a child's answer was lost");
              at += static_cast<std::size_t>(n);
            }
            *last = next;
          });
        });
    if (stage.interrupted) why = "interrupted";
  } catch (const std::runtime_error& e) {
    why = e.what();
    if (const std::string only = "process 0: "; why.starts_with(only))
      why.erase(0, only.size());  // there is no other
  }
  int said = *last;
  return said < 0 ? std::string() : places[said].text();
}

std::string in_child(const std::function<std::string()>& body, double timeout_s) {
  std::string why;
  std::string said = in_child_so_far([&](const auto& say) { say(body()); }, timeout_s, why);
  if (!why.empty()) throw std::runtime_error(why);
  return said;
}

}  // namespace ddpsim::calib::cuda
