// What NCCL itself finds and chooses on a host that a file in NCCL_TOPO_FILE's form describes: a
// program around NCCL's own search (src/graph/*.cc), cost model (src/graph/tuning.cc) and channels
// (src/graph/connect.cc), without a GPU. The choice and its channels (src/enqueue.cc,
// topoGetAlgoInfo) are written anew, as is what decides whether NVLS may run
// (src/transport/nvls.cc). Not a part of ddpsim's build: NCCL's source is not in this tree. Of a
// tag of NVIDIA/nccl, in its folder:
//   sed of ${nccl:*} in src/nccl.h.in to inc/nccl.h;
//   g++ -std=c++17 -fpermissive -w -DNCCL_OS_LINUX -include climits -include cstring
//     -include cstdint -include algorithm -Iinc -Isrc/include -Isrc/include/plugin -Isrc/graph
//     -ICUDA/include nccl_search.cc src/graph/{topo,paths,search,xml,tuning,connect,rings,trees}.cc
//     -no-pie -Wl,--unresolved-symbols=ignore-all -ldl -o nccl_search
// Up to 2.26 CUDA 13 lacks the names that src/include/cudawrap.h declares: there
// DECLARE_CUDA_PFN_EXTERN(symbol) becomes `extern CUresult (*pfn_##symbol)(...)`.
// Input: lines FILE NODES MULTICAST [NAME=VALUE ...]; a host with its GPUs' ranks, how many alike.
// nccl_choice.py asks it.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "comm.h"
#include "graph.h"
#include "topo.h"
#include "transport.h"
#include "xml.h"
#if NCCL_VERSION_CODE < 22200
#include "info.h"
#endif
#define V NCCL_VERSION_CODE
static bool noisy = false;
static std::map<std::string, std::string> envs;
const char* ncclGetEnv(const char* n) {
  auto it = envs.find(n);
  return it == envs.end() ? nullptr : it->second.c_str();
}
static int64_t param(const char* env, int64_t d) {
  std::string k = std::string("NCCL_") + env;
  auto it = envs.find(k);
  return it == envs.end() ? d : atoll(it->second.c_str());
}
#if V >= 22900
#define RET int64_t
#else
#define RET void
#endif
static int64_t load(char const* env, int64_t d) {
  return param(std::string(env).rfind("NCCL_", 0) == 0 ? env + 5 : env, d);
}
#if V < 22900
void ncclLoadParam(char const* env, int64_t d, int64_t u, int64_t* cache) {
  *cache = load(env, d);
}
#else
int64_t ncclLoadParam(char const* env, int64_t d, int64_t u, int64_t* cache, int8_t* s) {
  *s = 0;
  return *cache = load(env, d);
}
#endif
thread_local int ncclDebugNoWarn = 0;
#define LOG                   \
  va_list a;                  \
  va_start(a, fmt);           \
  if (noisy) {                \
    vfprintf(stderr, fmt, a); \
    fputc('\n', stderr);      \
  }                           \
  va_end(a)
void ncclDebugLog(ncclDebugLogLevel l, unsigned long f, const char* fn, int line, const char* fmt,
                  ...) {
  LOG;
}
void ncclDebugLogInternal(ncclDebugLogLevel l, unsigned long f, const char* file, const char* fn,
                          int line, const char* fmt, ...) {
  LOG;
}
int ncclDebugLevel = 0;
uint64_t ncclDebugMask = 0;
uint64_t getHostHash() {
  return 4711;
}
ncclResult_t int64ToBusId(int64_t id, char* b) {
  sprintf(b, "%04lx:%02lx:%02lx.%01lx", (id) >> 20, (id & 0xff000) >> 12, (id & 0xff0) >> 4,
          (id & 0xf));
  return ncclSuccess;
}
ncclResult_t busIdToInt64(const char* busId, int64_t* id) {
  char hex[17];
  int o = 0;
  for (int i = 0; o < 16 && busId[i]; i++) {
    char c = busId[i];
    if (c == '.' || c == ':') continue;
    if (isxdigit(c))
      hex[o++] = c;
    else
      break;
  }
  hex[o] = 0;
  *id = strtol(hex, NULL, 16);
  return ncclSuccess;
}
ncclResult_t initChannel(struct ncclComm* comm, int c) {
  comm->channels[c].id = c;
  if (!comm->channels[c].ring.userRanks)
    comm->channels[c].ring.userRanks = (int*)calloc(comm->nRanks + 64, sizeof(int));
  return ncclSuccess;
}
ncclResult_t ncclNvmlEnsureInitialized() {
  return ncclSuccess;
}
int ncclNetVersion(struct ncclComm*) {
  return 10;
}
extern "C" const char* cudaGetErrorString(cudaError_t) {
  return "cuda";
}
extern "C" cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
#if V >= 22200
int64_t ncclParamWorkArgsBytes() {
  return INT64_MAX;
}
#endif
#if V >= 22900
void ncclOsCpuZero(cpu_set_t& s) {
  CPU_ZERO(&s);
}
void ncclOsCpuSet(cpu_set_t& s, int i) {
  CPU_SET(i, &s);
}
int ncclOsCpuCount(const cpu_set_t& s) {
  return CPU_COUNT(&s);
}
bool ncclOsCpuIsSet(const cpu_set_t& s, int i) {
  return CPU_ISSET(i, &s);
}
#endif
static ncclResult_t yes(int* r) {
  *r = 1;
  return ncclSuccess;
}
#if V >= 22300
static ncclResult_t can(int* r, struct ncclComm*, struct ncclTopoGraph*, struct ncclPeerInfo*,
                        struct ncclPeerInfo*) {
  return yes(r);
}
#else
static ncclResult_t can(int* r, struct ncclTopoSystem*, struct ncclTopoGraph*, struct ncclPeerInfo*,
                        struct ncclPeerInfo*) {
  return yes(r);
}
#endif
static struct ncclTransport p2p = {"P2P", (decltype(ncclTransport::canConnect))can},
                            shm = {"SHM", (decltype(ncclTransport::canConnect))can};
struct ncclTransport* ncclTransports[NTRANSPORTS] = {&p2p, &shm};
const char* ncclFuncStr[NCCL_NUM_FUNCTIONS] = {"f", "f", "f", "f", "f"};
const char* ncclAlgoStr[NCCL_NUM_ALGORITHMS] = {"a", "a", "a", "a", "a", "a"};
const char* ncclProtoStr[NCCL_NUM_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char* fn[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char* an[] = {"tree", "ring",     "collnetdirect", "collnetchain",
                           "nvls", "nvlstree", "pat",           "?"};
static const char* pn[] = {"ll", "ll128", "simple"};
#define OK(x)                             \
  do {                                    \
    ncclResult_t r_ = (x);                \
    if (r_ != ncclSuccess) {              \
      printf("error %d at %s\n", r_, #x); \
      return;                             \
    }                                     \
  } while (0)

static std::vector<std::pair<int, size_t>> points;

#if V >= 22100
#define POSTSET \
  ncclTopoPostset(comm, first.data(), pattern.data(), all.data(), rings, graphs, nullptr)
#else
#define POSTSET ncclTopoPostset(comm, first.data(), pattern.data(), all.data(), rings, graphs)
#endif
static void run(const char* file, int nodes, bool multicast) {
  ncclComm* comm = (ncclComm*)calloc(1, sizeof(ncclComm) + 4096);
  struct ncclXml* xml;
#if V >= 22100
  OK(xmlAlloc(&xml, NCCL_TOPO_XML_MAX_NODES));
#else
  xml = (ncclXml*)calloc(1, sizeof(ncclXml));
#endif
  OK(ncclTopoGetXmlFromFile(file, xml, 1));
  struct ncclXmlNode* node;
  OK(xmlFindTag(xml, "cpu", &node));
#if V >= 22100
  while (node) {
    xmlSetAttrLong(node, "host_hash", getHostHash());
    OK(xmlFindNextTag(xml, "cpu", node, &node));
  }
#endif
#if V >= 22100
  OK(ncclTopoGetSystemFromXml(xml, &comm->topo, getHostHash()));
#else
  OK(ncclTopoGetSystemFromXml(xml, &comm->topo));
#endif
  ncclTopoSystem* sys = comm->topo;
  int L = sys->nodes[GPU].count, n = L * nodes;
  comm->nRanks = n;
  comm->rank = 0;
#if V >= 22200
  static ncclSharedResources shared;
#endif
  comm->sharedRes = (ncclSharedResources*)calloc(1, sizeof(ncclSharedResources));
  comm->sharedRes->owner = comm;
  comm->peerInfo = (ncclPeerInfo*)calloc(n + 1, sizeof(ncclPeerInfo));
  int cc = 1000, ccmax = 0;
  for (int g = 0; g < L; ++g) {
    int c = sys->nodes[GPU].nodes[g].gpu.cudaCompCap;
    cc = std::min(cc, c);
    ccmax = std::max(ccmax, c);
  }
  for (int r = 0; r < n; ++r) {
    ncclPeerInfo& p = comm->peerInfo[r];
    p.rank = r;
    p.hostHash = 4711 + r / L;
    p.pidHash = r;
    p.gdrSupport = 1;
    p.cudaCompCap = cc;
#if V >= 21900
    p.comm = comm;
#endif
    for (int g = 0; g < L; ++g)
      if (sys->nodes[GPU].nodes[g].gpu.rank == r % L) p.busId = sys->nodes[GPU].nodes[g].id;
  }
  comm->minCompCap = cc;
  comm->maxCompCap = ccmax;
  comm->compCap = cc;
  comm->config.minCTAs = 1;
  comm->config.maxCTAs = MAXCHANNELS;
#if V >= 22700
  comm->config.nvlsCTAs = NCCL_CONFIG_UNDEF_INT;
#endif
  static ncclNet_t net;
  memset(&net, 0, sizeof net);
  net.name = "IB";
  comm->ncclNet = &net;
  OK(ncclTopoComputePaths(sys, comm));
  OK(ncclTopoTrimSystem(sys, comm));
  OK(ncclTopoComputePaths(sys, comm));
  OK(ncclTopoSearchInit(sys));
#if V >= 22200
  OK(ncclTopoComputeCommCPU(comm));
#endif
  comm->nvlsSupport = multicast && cc >= 90 && sys->nodes[NVS].count > 0;
  int gpus = sys->nodes[GPU].count;
#if V >= 22800
  if (gpus < 2) comm->nvlsSupport = 0;
#else
  if (gpus <= 2) comm->nvlsSupport = 0;
#endif
  int nvls = 16;
#if V >= 22700
  if (cc >= 100) nvls = nodes > 1 ? 32 : 24;
#elif V >= 22500
  if (cc >= 100) nvls = 32;
#endif
  comm->nvlsChannels = comm->nvlsSupport ? nvls : 0;
  ncclTopoGraph* gs = (ncclTopoGraph*)calloc(8, sizeof(ncclTopoGraph));
  ncclTopoGraph *ring = gs, *tree = gs + 1, *cnc = gs + 2, *nv = gs + 3, *cnd = gs + 4, none;
  memset(&none, 0, sizeof none);
  ncclTopoGraph* graphs[8] = {tree, ring, cnd, cnc, nv, nv, ring, &none};
  ring->id = 0;
  ring->pattern = NCCL_TOPO_PATTERN_RING;
  ring->minChannels = 1;
  ring->maxChannels = MAXCHANNELS / 2;
  OK(ncclTopoCompute(sys, ring));
  tree->id = 1;
  tree->pattern = NCCL_TOPO_PATTERN_BALANCED_TREE;
  tree->minChannels = tree->maxChannels = ring->nChannels;
  OK(ncclTopoCompute(sys, tree));
  nv->id = 3;
  nv->pattern = NCCL_TOPO_PATTERN_NVLS;
  nv->minChannels = 1;
  nv->maxChannels = MAXCHANNELS;
  if (comm->nvlsSupport) OK(ncclTopoCompute(sys, nv));
  comm->nChannels = std::min(tree->nChannels, ring->nChannels);
  std::vector<ncclTopoRanks*> all(n);
  for (int r = 0; r < n; ++r) all[r] = (ncclTopoRanks*)calloc(1, sizeof(ncclTopoRanks));
  for (int l = L - 1; l >= 0; --l) {
    comm->rank = l;
    OK(ncclTopoPreset(comm, graphs, all[l]));
  }
  auto shift = [&](int& v, int by) {
    if (v >= 0) v += by;
  };
  for (int k = 1; k < nodes; ++k)
    for (int l = 0; l < L; ++l) {
      ncclTopoRanks* t = all[k * L + l];
      *t = *all[l];
      for (int c = 0; c < MAXCHANNELS; ++c) {
        int by = k * L;
        shift(t->ringRecv[c], by);
        shift(t->ringSend[c], by);
        shift(t->ringPrev[c], by);
        shift(t->ringNext[c], by);
        shift(t->treeToParent[c], by);
        shift(t->treeToChild0[c], by);
        shift(t->treeToChild1[c], by);
#if V >= 22000
        shift(t->nvlsHeads[c], by);
#endif
      }
    }
  comm->rank = 0;
  comm->node = 0;
  comm->nNodes = nodes;
  comm->localRanks = comm->maxLocalRanks = L;
#if V >= 22800
  comm->minLocalRanks = L;
#endif
  comm->rankToNode = (int*)calloc(n, 4);
  comm->rankToLocalRank = (int*)calloc(n, 4);
  comm->nodeRanks = (ncclNodeRanks*)calloc(nodes, sizeof(ncclNodeRanks));
  std::vector<int> first(n), pattern(n);
  for (int k = 0; k < nodes; ++k) {
    comm->nodeRanks[k].localRanks = L;
    comm->nodeRanks[k].localRankToRank = (int*)calloc(L, 4);
    first[k] = all[k * L]->ringRecv[0];
    pattern[k] = tree->pattern;
    for (int l = 0; l < L; ++l) {
      comm->nodeRanks[k].localRankToRank[l] = k * L + l;
      comm->rankToNode[k * L + l] = k;
      comm->rankToLocalRank[k * L + l] = l;
    }
  }
  comm->localRankToRank = comm->nodeRanks[0].localRankToRank;
#if V >= 22600
  comm->maxTreePattern = tree->pattern;
#endif
#if V >= 22100
  if (nv->nChannels == 0) comm->nvlsSupport = comm->nvlsChannels = 0;
#endif
  comm->nChannels = tree->nChannels = ring->nChannels = std::min(tree->nChannels, ring->nChannels);
  int* rings = (int*)calloc((size_t)n * MAXCHANNELS, sizeof(int));
  OK(POSTSET);
#if V >= 22400
  comm->isOneRPN = L == 1;
#endif
#if V >= 22800
  OK(ncclTopoInitTunerConstants(comm));
#endif
  OK(ncclTopoTuneModel(comm, cc, ccmax, graphs));
  const char* gn[] = {"ring", "tree", "nvls"};
  ncclTopoGraph* gl[] = {ring, tree, nv};
  for (int i = 0; i < 3; ++i)
    printf("graph %s %d %d %d %g %g %d %d %d\n", gn[i], gl[i]->pattern, gl[i]->crossNic,
           gl[i]->nChannels, gl[i]->bwIntra, gl[i]->bwInter, gl[i]->typeIntra, gl[i]->typeInter,
           gl[i]->sameChannels);
  printf("channels %d %d\n", comm->nChannels, comm->nvlsChannels);
  for (auto [f, bytes] : points) {
    float best = 3600000000.f;
    int ba = -1, bp = -1;
    for (int a = 0; a < NCCL_NUM_ALGORITHMS; ++a) {
      if (a == NCCL_ALGO_COLLNET_DIRECT || a == NCCL_ALGO_COLLNET_CHAIN) continue;
      bool nvlsA = a == NCCL_ALGO_NVLS || a == NCCL_ALGO_NVLS_TREE;
      if (nvlsA && !comm->nvlsSupport) continue;
#if V >= 22500
      if (nvlsA && f != ncclFuncAllReduce && comm->localRanks > NCCL_MAX_NVLS_ARITY) continue;
#endif
      if (a == NCCL_ALGO_NVLS && nodes > 1) continue;
      for (int p = 0; p < 3; ++p) {
        float t = -1;
#if V >= 22200
        if (ncclTopoGetAlgoTime(comm, f, a, p, bytes, 1, &t) != ncclSuccess) continue;
#else
        ncclInfo info;
        memset((void*)&info, 0, sizeof info);
        info.comm = comm;
        info.coll = (ncclFunc_t)f;
        info.nBytes = bytes;
        info.nChannels = 0;
        if (ncclTopoGetAlgoTime(&info, a, p, 1, &t) != ncclSuccess) continue;
#endif
        if (t >= 0 && t < best) best = t, ba = a, bp = p;
      }
    }
    if (ba < 0) {
      printf("point %s %zu none\n", fn[f], bytes);
      continue;
    }
    int nc = comm->nChannels, nt = comm->maxThreads[ba][bp];
    int th = comm->threadThresholds[ba][bp];
    if (ba == NCCL_ALGO_NVLS || ba == NCCL_ALGO_NVLS_TREE) {
      nc = comm->nvlsChannels;
#if V >= 22800
      if (nodes > 1 && ba == NCCL_ALGO_NVLS) nc = std::min(comm->nvlsChannels, comm->nChannels);
#endif
    } else {
      while (bytes < (size_t)nc * nt * th && nc >= 2) nc--;
    }
    printf("point %s %zu %s %s %d %.4g\n", fn[f], bytes, an[ba], pn[bp], nc, best);
  }
}

// Lines on stdin: FILE NODES MULTICAST [NAME=VALUE ...]
int main(int argc, char** argv) {
  noisy = getenv("NOISY") != nullptr;
  int fs[] = {ncclFuncBroadcast, ncclFuncReduce, ncclFuncAllGather, ncclFuncReduceScatter,
              ncclFuncAllReduce};
  for (int f : fs)
    for (int e : {10, 14, 16, 18, 20, 22, 24, 26, 28}) points.push_back({f, (size_t)1 << e});
  std::string line;
  int lines = 0;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string file, kv;
    int nodes, multicast;
    in >> file >> nodes >> multicast;
    envs.clear();
    envs["NCCL_IGNORE_DISABLED_P2P"] = "2";
    while (in >> kv) {
      auto e = kv.find('=');
      envs[kv.substr(0, e)] = kv.substr(e + 1);
    }
    printf("case %s %d %d\n", file.c_str(), nodes, multicast);
    run(file.c_str(), nodes, multicast);
    fflush(stdout);
  }
}
