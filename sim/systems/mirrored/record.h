// TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kMirroredSystem{"mirrored"};
inline constexpr System kMultiWorkerMirroredSystem{"multi_worker_mirrored"};

SystemRecord mirrored_record();
SystemRecord multi_worker_mirrored_record();

}  // namespace ddpsim::systems
