#include "sim/door/parts.h"

namespace ddpsim::door {
namespace {

// Clusters that a sweep keeps, so that its memory does not grow with its points: by their links,
// about 150 bytes each with their communicators' loads, and their documents.
constexpr std::size_t kMostLinks = 3'000'000;
constexpr std::size_t kDocuments = 1'000;  // links' worth
std::size_t size_of(const HardwarePart& h) {
  return h.fabric->links().size() + kDocuments;
}

}  // namespace

std::string PartSources::name(const std::string& flag, const std::string& in_file) const {
  if (!flag.empty()) return flag;
  return io::names_file(in_file) && in_file.front() != '/' ? folder + in_file : in_file;
}

Named PartSources::open(const io::Home& home, const char* noun, const char* home_folder,
                        const std::string& flag, const std::string& in_file) const {
  std::string place = std::string("--") + noun;
  if (flag.empty()) {
    if (in_file.empty())
      throw InputError{place, std::string("no ") + noun + " given; name one (ddpsim list " + noun +
                                  "s) or give a scenario file"};
    place = file + "#/" + noun;
  }
  return open_document(home, home_folder, name(flag, in_file), noun, place);
}

std::pair<const Named&, bool> QuestionParts::open(const QuestionText& flags) {
  auto it = opened_.find(flags.workload);
  const bool fresh = it == opened_.end();
  if (fresh)
    it = opened_
             .emplace(flags.workload, flags.described
                                          ? Named{*flags.described, flags.workload}
                                          : open_document(home_, "workloads", flags.workload,
                                                          "workload", "--workload"))
             .first;
  return {it->second, fresh};
}

std::pair<const Named&, bool> QuestionParts::opened(const QuestionText& flags) {
  std::lock_guard guard(lock_);
  return open(flags);
}

std::shared_ptr<const WorkloadPart> QuestionParts::workload(const PartSources& from,
                                                            const std::string& in_file, bool own) {
  const Settings& settings = from.settings;
  const std::string flag = own ? from.flags.workload : "";
  std::string key = from.name(flag, in_file) + "\n" +
                    (own ? settings.of(io::Target::Workload) + from.flags.layers : "other job");
  std::lock_guard guard(lock_);
  if (auto it = workloads_.find(key); it != workloads_.end()) return it->second;
  auto out = std::make_shared<WorkloadPart>();
  Named w = flag.empty() ? from.open(home_, "workload", "workloads", flag, in_file)
                         : open(from.flags).first;
  out->name = flag.empty() ? in_file : flag;
  if (own) {
    bool captured = w.document.is_object() && w.document.value("basis", Json()) == "captured";
    for (const io::Setting& s : settings)
      if (s.target == io::Target::Workload && captured &&
          (s.path[0] == "batch" || s.path[0] == "precision"))
        throw InputError{"--set " + s.text,
                         "the workload's times were captured at one batch and precision; capture "
                         "it again, or use a described workload"};
    out->workload = settings.read(io::Target::Workload, w, io::read_workload);
    if (const std::string& layers = from.flags.layers; !layers.empty()) {
      Run run = io::read_run(io::parse_json(io::read_file(layers), layers), layers);
      if (!run.layers)
        throw InputError{layers, "holds no layer profile; Runs of ddpsim run --backend torch do"};
      if (auto why = layers_problem(out->workload, run); !why.empty())
        throw InputError{layers, why};
      out->workload = as_recorded(out->workload, run);
    }
  } else {
    out->workload = io::read_workload(w.document, w.file);
  }
  out->file = w.file;
  out->document = std::move(w.document);
  return workloads_[key] = std::move(out);
}

std::shared_ptr<const ProfilePart> QuestionParts::profile(const PartSources& from,
                                                          const Cluster& cluster,
                                                          const std::string& cluster_file) {
  using io::Target;
  const std::string flag = from.flags.profiles.empty() ? "" : from.flags.profiles[0];
  const bool named = !flag.empty() || !from.parsed.profile.empty();
  const std::string key =
      (named ? from.name(flag, from.parsed.profile) : "of clusters\n" + cluster.profile) + "\n" +
      from.settings.of(Target::Profile);
  std::lock_guard guard(lock_);
  if (auto it = profiles_.find(key); it != profiles_.end()) return it->second;
  Named p = named ? from.open(home_, "profile", "calib/profiles", flag, from.parsed.profile)
                  : open_document(home_, "calib/profiles", default_profile(home_, cluster.profile),
                                  "profile", cluster_file + "#/device/profile");
  auto out = std::make_shared<ProfilePart>();
  out->profile = from.settings.read(Target::Profile, p, io::read_profile);
  out->document = std::move(p.document);
  return profiles_[key] = std::move(out);
}

std::shared_ptr<const HardwarePart> QuestionParts::hardware(const PartSources& from) {
  using io::Target;
  const QuestionText& flags = from.flags;
  const Settings& settings = from.settings;
  bool inline_cluster = flags.cluster.empty() && from.parsed.cluster_document.is_object();
  std::string flag = flags.profiles.empty() ? "" : flags.profiles[0];
  std::string key = (inline_cluster ? from.parsed.cluster_document.dump()
                                    : from.name(flags.cluster, from.parsed.cluster)) +
                    "\n" + settings.of(Target::Cluster) + "\n" +
                    from.name(flag, from.parsed.profile) + "\n" + settings.of(Target::Profile);
  {
    std::lock_guard guard(lock_);
    if (auto it = hardware_.find(key); it != hardware_.end()) return it->second;
  }
  // Two threads may make the same one; the first to finish is kept.
  auto out = std::make_shared<HardwarePart>();
  out->searches = searches_;
  out->communicators.share(searches_->view());
  Named c = inline_cluster
                ? Named{from.parsed.cluster_document, from.file + "#/cluster"}
                : from.open(home_, "cluster", "topologies", flags.cluster, from.parsed.cluster);
  out->cluster = settings.read(Target::Cluster, c, io::read_cluster);
  out->cluster.description = settings.prose(Target::Cluster, out->cluster.description);
  out->device = profile(from, out->cluster, c.file);
  if (out->device->profile.kind != out->cluster.device) {
    bool cpu = out->cluster.device == DeviceKind::Cpu;
    throw InputError{c.file + "#/device/kind",
                     std::string("the cluster's devices are ") + (cpu ? "CPUs" : "GPUs") +
                         ", but profile \"" + out->device->profile.name + "\" is of a " +
                         (cpu ? "GPU" : "CPU") + "; choose another --profile or --cluster"};
  }
  out->fabric.emplace(out->cluster);
  out->file = c.file;
  out->document = std::move(c.document);
  std::lock_guard guard(lock_);
  auto [it, first] = hardware_.emplace(key, out);
  if (!first) return it->second;
  hardware_order_.push_back(key);
  links_ += size_of(*out);
  for (std::size_t oldest = 0; links_ > kMostLinks && oldest + 1 < hardware_order_.size();
       ++oldest) {
    auto gone = hardware_.find(hardware_order_[oldest]);
    links_ -= size_of(*gone->second);
    hardware_.erase(gone);
    hardware_order_.erase(hardware_order_.begin());
    --oldest;
  }
  return out;
}

std::shared_ptr<predict::KnownTimes> QuestionParts::times(
    const std::shared_ptr<const WorkloadPart>& workload,
    const std::shared_ptr<const ProfilePart>& device) {
  std::lock_guard guard(lock_);
  std::shared_ptr<predict::KnownTimes>& known = times_[{workload.get(), device.get()}];
  if (!known) known = std::make_shared<predict::KnownTimes>(workload->workload, device->profile);
  return known;
}

}  // namespace ddpsim::door
