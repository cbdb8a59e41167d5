#pragma once
// How much of a training's time is left for steps when ranks fail and checkpoints are written.
namespace trireme::planner {

struct FailureFacts {
  int gpus = 1;
  /// Of one GPU with its part of the host and the network. Meta's Llama 3: 419 unplanned stops of 16,384 H100 in 54
  /// days.
  double hours_between_failures = 50'000;
  double restart_s = 180;  // to notice it, to start all ranks again and to load the checkpoint
  double blocked_s = 1;    // that the steps wait for a checkpoint; the rest of it is written in the background
  double longest_interval_s = 3600;
};

struct Goodput {
  double failure_every_s = 0;
  double interval_s = 0;  // between checkpoints: the one that costs least (Young's formula)
  double part = 1;        // of the time that goes into steps which count
};
Goodput goodput_of(const FailureFacts& facts);

}  // namespace trireme::planner
