#pragma once
// For a program with modules of its own: everything that docs/library.md shows.
#include "trireme/comm/differentiable.hpp"
#include "trireme/module/amp.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/module/fit.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/module/pipeline.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/nn/embedding.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/linear.hpp"
#include "trireme/runtime/rank/init.hpp"
