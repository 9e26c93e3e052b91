// The doors of all data-parallel systems, for tests that name them.
#pragma once

#include "sim/systems/apex/record.h"
#include "sim/systems/averaging/record.h"
#include "sim/systems/data_parallel/record.h"
#include "sim/systems/ddp/record.h"
#include "sim/systems/fsdp/record.h"
#include "sim/systems/fsdp2/record.h"
#include "sim/systems/horovod/record.h"
#include "sim/systems/local_sgd/record.h"
#include "sim/systems/megatron/record.h"
#include "sim/systems/mirrored/record.h"
#include "sim/systems/parameter_server/record.h"
#include "sim/systems/zero/record.h"
#include "sim/systems/zero_redundancy/record.h"
