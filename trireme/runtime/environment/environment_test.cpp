#include "trireme/runtime/environment/environment.hpp"

#include <set>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Variables kTorchrunVariables = {{"RANK", "6"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "2"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"GROUP_RANK", "1"},
                                      {"GROUP_WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "h1"},
                                      {"MASTER_PORT", "29400"},
                                      {"TORCHELASTIC_RUN_ID", "job7"},
                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpiVariables = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"OMPI_MCA_ess_base_jobid", "1279000577"},
                                     {"PMIX_NAMESPACE", "1279000577"}};
const Variables kPmiVariables = {
    {"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSrunVariables = {{"SLURM_JOB_ID", "200505"},
                                  {"SLURM_STEP_ID", "3"},
                                  {"SLURM_PROCID", "9"},
                                  {"SLURM_LOCALID", "1"},
                                  {"SLURM_NODEID", "2"},
                                  {"SLURM_NTASKS", "11"},
                                  {"SLURM_NNODES", "3"},
                                  {"SLURM_TASKS_PER_NODE", "4(x2),3"},
                                  {"SLURM_STEP_NODELIST", "gnode[10,20-21]"},
                                  {"SLURM_JOB_NODELIST", "other[1-9]"}};
const Variables kPodsVariables = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
const Variables kPetVariables = {{"PET_NNODES", "2"},
                                 {"PET_NPROC_PER_NODE", "8"},
                                 {"PET_NODE_RANK", "1"},
                                 {"PET_MASTER_ADDR", "node-0"},
                                 {"PET_MASTER_PORT", "29500"}};

Variables changed_variables(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}
Environment detect_from(const Variables& variables, const EnvironmentFlags& flags = {}, int gpus = 0) {
  return detect_environment(variables, flags, gpus);
}
std::string environment_error(const Variables& variables, const EnvironmentFlags& flags = {}, int gpus = 0) {
  return message_of<ConfigError>([&] { detect_environment(variables, flags, gpus); });
}
/// rank, world size, local rank, local world size, node, nodes
auto rank_numbers(const Environment& env) {
  return std::tuple(env.rank, env.world_size, env.local_rank, env.local_world_size, env.node_rank, env.num_nodes);
}

TEST(Environment, AloneIsRankZeroOfOne) {
  const Environment env = detect_from({{"HOME", "/root"}});
  EXPECT_EQ(env.launcher, "alone");
  EXPECT_EQ(rank_numbers(env), std::tuple(0, 1, 0, 1, 0, 1));
  EXPECT_EQ(env.start_local_ranks, 0);
  EXPECT_EQ(env.how, "alone: rank 0 of 1, local rank 0 of 1, node 0 of 1");
  EXPECT_EQ(detect_from({}, {.local_ranks = 1}).start_local_ranks, 0);
}

TEST(Environment, AloneStartsTheRanksAskedFor) {
  const Environment env = detect_from({}, {.local_ranks = 4});
  EXPECT_EQ(env.start_local_ranks, 4);
  EXPECT_EQ(env.how, "alone: node 0 of 1, starts 4 ranks");
}

TEST(Environment, Torchrun) {
  const Environment env = detect_from(kTorchrunVariables);
  EXPECT_EQ(rank_numbers(env), std::tuple(6, 8, 2, 4, 1, 2));
  EXPECT_TRUE(env.store_is_hosted);
  EXPECT_EQ(env.job_id, "job7");
  EXPECT_EQ(env.how,
            "torchrun: rank 6 of 8, local rank 2 of 4, node 1 of 2, store tcp://h1:29400 (hosted by the agent)");
}

TEST(Environment, TorchrunWithoutItsAgentsStore) {
  Variables variables = kTorchrunVariables;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  variables["TORCHELASTIC_RUN_ID"] = "none";
  variables["GROUP_RANK"] = variables["GROUP_WORLD_SIZE"] = "";
  const Environment env = detect_from(variables);
  EXPECT_FALSE(env.store_is_hosted);
  EXPECT_EQ(env.job_id, "");
  EXPECT_EQ(rank_numbers(env), std::tuple(6, 8, 2, 4, 1, 2));
}

TEST(Environment, OurOwnLauncherHasItsName) {
  const Environment env =
      detect_from(changed_variables(kTorchrunVariables, {{"TRIREME_LAUNCH", "1"}, {"TRIREME_JOB_ID", "mine"}}));
  EXPECT_EQ(env.launcher, "trireme launch");
  EXPECT_EQ(env.job_id, "mine");
  EXPECT_THAT(env.how, HasSubstr("(hosted by the launcher)"));
}

TEST(Environment, TheAttemptIsThatOfTheLauncher) {
  EXPECT_EQ(detect_from({}).attempt, 0);
  const Variables restarted = changed_variables(kTorchrunVariables, {{"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(detect_from(restarted).attempt, 2);
  const Variables ours = changed_variables(restarted, {{"TRIREME_LAUNCH", "1"}, {"TRIREME_ATTEMPT", "5"}});
  EXPECT_EQ(detect_from(ours).attempt, 5);
  EXPECT_THAT(environment_error(changed_variables(ours, {{"TRIREME_ATTEMPT", "x"}})), HasSubstr("TRIREME_ATTEMPT"));
}

TEST(Environment, UnevenHostsOfOurOwnLauncher) {
  const Variables second = {
      {"RANK", "4"},          {"WORLD_SIZE", "7"},       {"LOCAL_RANK", "0"},  {"LOCAL_WORLD_SIZE", "3"},
      {"GROUP_RANK", "1"},    {"GROUP_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"},
      {"TRIREME_LAUNCH", "1"}};
  EXPECT_EQ(rank_numbers(detect_from(second)), std::tuple(4, 7, 0, 3, 1, 2));
}

TEST(Environment, RanksStartedByHandOnOneHost) {
  const Variables by_hand = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "localhost"}};
  const Environment env = detect_from(by_hand);
  EXPECT_EQ(rank_numbers(env), std::tuple(1, 2, 1, 2, 0, 1));
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_THAT(environment_error(changed_variables(by_hand, {{"LOCAL_RANK", "0"}})),
              HasSubstr("LOCAL_WORLD_SIZE must be set"));
  EXPECT_THAT(environment_error(changed_variables(by_hand, {{"MASTER_ADDR", ""}})),
              HasSubstr("MASTER_ADDR is not set"));
}

TEST(Environment, TheInnerLauncherWins) {
  Variables all = changed_variables(
      changed_variables(changed_variables(changed_variables(kSrunVariables, kPmiVariables), kOpenMpiVariables),
                        kPetVariables),
      kTorchrunVariables);
  EXPECT_EQ(detect_from(all).launcher, "torchrun");
  all["LOCAL_RANK"] = "";  // RANK and WORLD_SIZE are still set
  EXPECT_EQ(detect_from(all).launcher, "Open MPI");
  all["OMPI_COMM_WORLD_RANK"] = "";
  EXPECT_EQ(detect_from(all).launcher, "PMI");
  all["PMI_RANK"] = "";
  EXPECT_EQ(detect_from(all).launcher, "srun");
  all["SLURM_STEP_ID"] = "";
  EXPECT_EQ(detect_from(all).launcher, "PET");
  for (const char* name : {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"}) all[name] = "";
  EXPECT_EQ(detect_from(all).launcher, "Kubernetes");
  all["RANK"] = "";
  EXPECT_EQ(detect_from(all).launcher, "alone");
}

TEST(Environment, OpenMpiMeetsInAFileNamedByTheJob) {
  const Environment env = detect_from(kOpenMpiVariables, {.shared_folder = "/runs/a"});
  EXPECT_EQ(rank_numbers(env), std::tuple(1, 2, 1, 2, 0, 1)) << "OMPI_COMM_WORLD_NODE_RANK is no node's";
  EXPECT_EQ(env.job_id, "1279000577");
  EXPECT_EQ(env.how, "Open MPI: rank 1 of 2, local rank 1 of 2, node 0 of 1, store file /runs/a/store-1279000577");
  EXPECT_FALSE(env.store_folder_is_private);
  const Environment alone = detect_from(kOpenMpiVariables);
  EXPECT_EQ(alone.store_file, text("/tmp/trireme-", ::getuid(), "/store-1279000577"))
      << "one host needs no shared folder";
  EXPECT_TRUE(alone.store_folder_is_private);
  EXPECT_EQ(detect_from(changed_variables(kOpenMpiVariables, {{"TMPDIR", "/scratch"}})).store_file,
            text("/scratch/trireme-", ::getuid(), "/store-1279000577"));
  EXPECT_FALSE(detect_from(kOpenMpiVariables, {.store_file = "/nfs/s"}).store_folder_is_private);
}

TEST(Environment, TheSecretIsNotShown) {
  const Environment env = detect_from(changed_variables(kTorchrunVariables, {{"TRIREME_SECRET", "canary"}}));
  EXPECT_EQ(env.secret, "canary");
  EXPECT_EQ(env.how.find("canary"), std::string::npos);
}

TEST(Environment, OpenMpiJobsOfOneNumberDoNotMeet) {
  const auto file = [](const char* key) {
    return detect_from(changed_variables(kOpenMpiVariables, {{"OMPI_MCA_orte_precondition_transports", key}}))
        .store_file;
  };
  EXPECT_NE(file("4671c7a6f234ce05-0ebc21c239f5d265"), file("4671c7a6f234ce05-0ebc21c239f5d266"));
  EXPECT_EQ(file("4671c7a6f234ce05-0ebc21c239f5d265").find("4671c7a6"), std::string::npos) << "it is a key";
}

TEST(Environment, OpenMpiTakesAnAddressWhereItIsGiven) {
  const Variables with_master = changed_variables(kOpenMpiVariables, {{"MASTER_ADDR", "h3"}, {"MASTER_PORT", "1234"}});
  EXPECT_THAT(detect_from(with_master).how, HasSubstr("store tcp://h3:1234"));
  const Environment env = detect_from(with_master, {.master = "h4:4321", .shared_folder = "/runs/a"});
  EXPECT_EQ(env.master_addr, "h4");
  EXPECT_EQ(env.master_port, 4321);
  EXPECT_EQ(env.store_file, "");
  EXPECT_EQ(detect_from(kOpenMpiVariables, {.store_file = "/nfs/s"}).store_file, "/nfs/s");
}

TEST(Environment, OpenMpiOverHostsNeedsAPlaceToMeet) {
  const Variables wide =
      changed_variables(kOpenMpiVariables, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  EXPECT_EQ(rank_numbers(detect_from(wide, {.shared_folder = "/nfs"})), std::tuple(3, 4, 1, 2, 1, 2));
  EXPECT_THAT(environment_error(wide), AllOf(HasSubstr("no folder that all hosts share"), HasSubstr("--master")));
  const Variables nameless = changed_variables(wide, {{"OMPI_MCA_ess_base_jobid", ""}, {"PMIX_NAMESPACE", ""}});
  EXPECT_THAT(environment_error(nameless, {.shared_folder = "/nfs"}),
              AllOf(HasSubstr("sets no job id"), HasSubstr("--master")));
  EXPECT_EQ(
      detect_from(changed_variables(nameless, {{"TRIREME_JOB_ID", "a/b c"}}), {.shared_folder = "/nfs/"}).store_file,
      "/nfs/store-a_b_c");
  EXPECT_EQ(detect_from(nameless, {.master = "h:1"}).master_addr, "h");
}

TEST(Environment, OpenMpiRanksDealtOutInTurn) {
  const Variables dealt =
      changed_variables(kOpenMpiVariables, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}});
  EXPECT_EQ(rank_numbers(detect_from(dealt, {.shared_folder = "/nfs"})), std::tuple(2, 4, 1, 2, 0, 2));
}

TEST(Environment, OneMpiRankNeedsNoStore) {
  const Environment env = detect_from({{"OMPI_COMM_WORLD_RANK", "0"},
                                       {"OMPI_COMM_WORLD_SIZE", "1"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(env.how, "Open MPI: rank 0 of 1, local rank 0 of 1, node 0 of 1");
  EXPECT_EQ(detect_from({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).launcher, "PMI");
}

TEST(Environment, PmiAndPals) {
  EXPECT_EQ(rank_numbers(detect_from(kPmiVariables, {.master = "h:1"})), std::tuple(3, 8, 1, 2, 1, 4));
  EXPECT_THAT(environment_error(kPmiVariables, {.shared_folder = "/nfs"}), HasSubstr("sets no job id"));
  EXPECT_EQ(detect_from(changed_variables(kPmiVariables, {{"PMI_JOBID", "7"}}), {.shared_folder = "/nfs"}).store_file,
            "/nfs/store-7");
  const Variables pals = {{"PALS_RANKID", "5"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_LOCAL_SIZE", "4"},
                          {"PMI_RANK", "5"},    {"PMI_SIZE", "8"},          {"PALS_APID", "16ecc0a4"}};
  const Environment env = detect_from(pals, {.shared_folder = "/nfs"});
  EXPECT_EQ(env.launcher, "PALS");
  EXPECT_EQ(rank_numbers(env), std::tuple(5, 8, 1, 4, 1, 2));
  EXPECT_EQ(env.store_file, "/nfs/store-16ecc0a4");
  EXPECT_THAT(environment_error({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}), HasSubstr("PMI_RANK is set, but none of"));
  EXPECT_EQ(environment_error({{"PMI_RANK", "3"}}), "PMI_RANK is set, but not PMI_SIZE");
}

TEST(Environment, Srun) {
  const Environment env = detect_from(kSrunVariables);
  EXPECT_EQ(env.launcher, "srun");
  EXPECT_EQ(rank_numbers(env), std::tuple(9, 11, 1, 3, 2, 3));
  EXPECT_EQ(env.master_addr, "gnode10");
  EXPECT_GE(env.master_port, 20'000);
  EXPECT_LT(env.master_port, 30'000);
  EXPECT_EQ(env.job_id, "200505.3");
  EXPECT_FALSE(env.store_is_hosted);
}

TEST(Environment, SrunStepsHavePortsOfTheirOwn) {
  std::set<int> ports;
  for (int step = 0; step < 100; ++step)
    ports.insert(detect_from(changed_variables(kSrunVariables, {{"SLURM_STEP_ID", std::to_string(step)}})).master_port);
  EXPECT_EQ(ports.size(), 100u);
  EXPECT_EQ(
      detect_from(kSrunVariables).master_port,
      detect_from(changed_variables(kSrunVariables, {{"SLURM_PROCID", "8"}, {"SLURM_LOCALID", "0"}})).master_port);
  EXPECT_NE(detect_from(kSrunVariables).master_port,
            detect_from(changed_variables(kSrunVariables, {{"SLURM_JOB_ID", "200506"}})).master_port);
}

TEST(Environment, SrunFollowsMasterVariables) {
  EXPECT_EQ(detect_from(changed_variables(kSrunVariables, {{"MASTER_PORT", "777"}})).how,
            "srun: rank 9 of 11, local rank 1 of 3, node 2 of 3, store tcp://gnode10:777");
  const Environment env = detect_from(changed_variables(kSrunVariables, {{"MASTER_ADDR", "ib0.gnode10"}}));
  EXPECT_EQ(env.master_addr, "ib0.gnode10");
  EXPECT_EQ(env.master_port, detect_from(kSrunVariables).master_port);
}

TEST(Environment, SrunOnOneHost) {
  const Environment env = detect_from(changed_variables(kSrunVariables, {{"SLURM_NNODES", "1"},
                                                                         {"SLURM_NODEID", "0"},
                                                                         {"SLURM_NTASKS", "2"},
                                                                         {"SLURM_PROCID", "1"},
                                                                         {"SLURM_TASKS_PER_NODE", "2"}}));
  EXPECT_EQ(rank_numbers(env), std::tuple(1, 2, 1, 2, 0, 1));
  EXPECT_EQ(env.master_addr, "127.0.0.1");
}

TEST(Environment, AStepOfAJobUsesItsOwnNumbers) {
  const Variables part = {{"SLURM_JOB_ID", "1"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_NTASKS", "64"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_NNODES", "8"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                          {"SLURM_TASKS_PER_NODE", "8(x8)"},
                          {"SLURM_STEP_NODELIST", "n[3-4]"}};
  EXPECT_EQ(rank_numbers(detect_from(part)), std::tuple(1, 2, 0, 1, 1, 2));
  Variables old = changed_variables(part, {{"SLURM_STEP_TASKS_PER_NODE", ""}});
  EXPECT_THAT(environment_error(old), HasSubstr("SLURM_TASKS_PER_NODE = \"8(x8)\": does not give 2 tasks on 2 hosts"));
  old["SLURM_GTIDS"] = "1";
  EXPECT_EQ(rank_numbers(detect_from(old)), std::tuple(1, 2, 0, 1, 1, 2));
  EXPECT_THAT(
      environment_error(changed_variables(part, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}, {"SLURM_GTIDS", "1"}})),
      HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
}

TEST(Environment, ShellsInsideAnAllocationAreAlone) {
  Variables salloc = changed_variables(kSrunVariables, {{"SLURM_STEP_ID", ""}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(detect_from(salloc).launcher, "alone");
  EXPECT_EQ(detect_from(changed_variables(salloc, {{"SLURM_STEP_ID", "4294967290"}})).launcher, "alone")
      << "the step of salloc's shell";
  EXPECT_EQ(detect_from(changed_variables(kSrunVariables, {{"SLURM_NTASKS", "1"}})).launcher, "alone");
  EXPECT_EQ(detect_from(changed_variables(kSrunVariables, {{"SLURM_STEP_NUM_TASKS", "1"}})).launcher, "alone")
      << "srun --pty in a job of 11";
}

TEST(Environment, PmiVariablesOfSrunItself) {
  EXPECT_EQ(detect_from(changed_variables(kSrunVariables, {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}})).launcher, "srun");
  // Another MPI's mpirun inside Slurm: srun started its daemons, one per host.
  const Variables hydra = changed_variables(changed_variables(kSrunVariables, kPmiVariables),
                                            {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}});
  EXPECT_EQ(detect_from(hydra, {.master = "h:1"}).launcher, "PMI");
}

TEST(Environment, KubernetesNumbersPods) {
  const Environment env = detect_from(kPodsVariables, {}, 8);
  EXPECT_EQ(env.launcher, "Kubernetes");
  EXPECT_EQ(env.start_local_ranks, 8);
  EXPECT_EQ(env.node_rank, 1);
  EXPECT_EQ(env.num_nodes, 4);
  EXPECT_EQ(env.how, "Kubernetes: node 1 of 4, starts 8 ranks, store tcp://job-master-0:23456");
  EXPECT_EQ(detect_from(kPodsVariables, {.local_ranks = 2}, 8).start_local_ranks, 2);
}

TEST(Environment, APodWithOneRankIsThatRank) {
  for (const Environment& env : {detect_from(kPodsVariables), detect_from(kPodsVariables, {}, 1),
                                 detect_from(kPodsVariables, {.local_ranks = 1}, 8)}) {
    EXPECT_EQ(env.start_local_ranks, 0);
    EXPECT_EQ(rank_numbers(env), std::tuple(1, 4, 0, 1, 1, 4));
  }
  EXPECT_THAT(environment_error(changed_variables(kPodsVariables, {{"MASTER_ADDR", ""}})),
              HasSubstr("MASTER_ADDR is not set"));
}

TEST(Environment, Pet) {
  const Environment env = detect_from(kPetVariables);
  EXPECT_EQ(env.how, "PET: node 1 of 2, starts 8 ranks, store tcp://node-0:29500");
  EXPECT_EQ(detect_from(kPetVariables, {.local_ranks = 3}).start_local_ranks, 3);
  EXPECT_EQ(detect_from(changed_variables(kPetVariables, {{"PET_NPROC_PER_NODE", "gpu"}}), {}, 4).start_local_ranks, 4);
  EXPECT_EQ(detect_from(changed_variables(kPetVariables, {{"PET_NPROC_PER_NODE", "auto"}}), {}, 4).start_local_ranks,
            4);
  EXPECT_EQ(rank_numbers(detect_from(changed_variables(kPetVariables, {{"PET_NPROC_PER_NODE", "1"}}))),
            std::tuple(1, 2, 0, 1, 1, 2));
  EXPECT_THAT(environment_error(changed_variables(kPetVariables, {{"PET_NPROC_PER_NODE", "gpu"}})),
              HasSubstr("this host has no GPU"));
  EXPECT_THAT(environment_error(changed_variables(kPetVariables, {{"PET_NPROC_PER_NODE", "many"}})),
              HasSubstr("PET_NPROC_PER_NODE"));
}

TEST(Environment, PetWithAnEndpoint) {
  const Environment env = detect_from({{"PET_NNODES", "2:2"},
                                       {"PET_NPROC_PER_NODE", "2"},
                                       {"JOB_COMPLETION_INDEX", "1"},
                                       {"PET_RDZV_ID", "abc"},
                                       {"PET_RDZV_ENDPOINT", "[fd00::2]:29411"}});
  EXPECT_EQ(env.how, "PET: node 1 of 2, starts 2 ranks, store tcp://[fd00::2]:29411");
  EXPECT_EQ(env.job_id, "abc");
}

TEST(Environment, PetRefusesElasticJobs) {
  EXPECT_THAT(environment_error(changed_variables(kPetVariables, {{"PET_NNODES", "1:4"}})),
              AllOf(HasSubstr("PET_NNODES = \"1:4\""), HasSubstr("not supported"), HasSubstr("fix: ")));
  EXPECT_THAT(environment_error(changed_variables(kPetVariables, {{"PET_NODE_RANK", ""}})),
              HasSubstr("none of PET_NODE_RANK"));
  EXPECT_EQ(environment_error(changed_variables(kPetVariables, {{"PET_NODE_RANK", "2"}})),
            "PET_NODE_RANK = 2: must be below PET_NNODES = 2");
}

TEST(Environment, OneProcessAHostStartsItsRanks) {
  const Variables one_each = changed_variables(
      kSrunVariables,
      {{"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_TASKS_PER_NODE", "1(x3)"}});
  const Environment env = detect_from(one_each, {.local_ranks = 8});
  EXPECT_EQ(env.start_local_ranks, 8);
  EXPECT_EQ(env.node_rank, 2);
  EXPECT_EQ(env.num_nodes, 3);
  EXPECT_EQ(env.master_addr, "gnode10");
  EXPECT_THAT(environment_error(kTorchrunVariables, {.local_ranks = 4}),
              HasSubstr("-n 4: torchrun started 4 ranks on this host already\n  fix: leave out -n 4 after trireme"));
  const Variables ours = changed_variables(kTorchrunVariables, {{"TRIREME_LAUNCH", "1"}});
  EXPECT_EQ(detect_from(ours, {.local_ranks = 4}).start_local_ranks, 0) << "the ranks have the launcher's command line";
  EXPECT_THAT(environment_error(kTorchrunVariables, {.local_ranks = 8}), HasSubstr("-n 8: torchrun started 4 ranks"));
  EXPECT_THAT(environment_error(kSrunVariables, {.local_ranks = 8}), HasSubstr("-n 8: srun started 3 ranks"));
  EXPECT_THAT(environment_error({}, {.local_ranks = -1}), HasSubstr("-n -1"));
}

TEST(Environment, NumbersAreReadStrictly) {
  const auto error = [](const char* name, const char* value) {
    return environment_error(changed_variables(kTorchrunVariables, {{name, value}}));
  };
  EXPECT_EQ(error("RANK", "8"), "RANK = 8: must be below WORLD_SIZE = 8");
  EXPECT_THAT(error("RANK", "4x"), HasSubstr("RANK = \"4x\": must be a whole number"));
  EXPECT_THAT(error("RANK", " 4"), HasSubstr("RANK = \" 4\""));
  EXPECT_THAT(error("RANK", "-1"), HasSubstr("RANK = -1: must be from 0"));
  EXPECT_THAT(error("RANK", "99999999999999999999"), HasSubstr("must be from 0"));
  EXPECT_THAT(error("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE = 0: must be from 1"));
  EXPECT_THAT(error("LOCAL_RANK", "4"), HasSubstr("LOCAL_RANK = 4: must be below LOCAL_WORLD_SIZE = 4"));
  EXPECT_THAT(error("LOCAL_WORLD_SIZE", "9"), HasSubstr("must be at most WORLD_SIZE = 8"));
  EXPECT_THAT(error("GROUP_RANK", "2"), HasSubstr("GROUP_RANK = 2"));
  EXPECT_THAT(error("MASTER_PORT", "65536"), HasSubstr("MASTER_PORT = 65536: must be from 1 to 65535"));
  EXPECT_THAT(environment_error(changed_variables(kSrunVariables, {{"SLURM_PROCID", "11"}})),
              HasSubstr("SLURM_PROCID = 11"));
  EXPECT_THAT(environment_error(changed_variables(kSrunVariables, {{"SLURM_STEP_ID", "x"}})),
              HasSubstr("SLURM_STEP_ID = \"x\""));
  EXPECT_THAT(environment_error(changed_variables(kSrunVariables, {{"SLURM_NODEID", "3"}})),
              HasSubstr("SLURM_NODEID = 3"));
  EXPECT_THAT(environment_error(changed_variables(kSrunVariables, {{"SLURM_STEP_NODELIST", "n[1"}})),
              HasSubstr("nodelist \"n[1\""));
  EXPECT_THAT(environment_error(changed_variables(kOpenMpiVariables, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})),
              HasSubstr("_LOCAL_RANK = 2"));
  EXPECT_THAT(environment_error(changed_variables(kPodsVariables, {{"RANK", "4"}})),
              HasSubstr("RANK = 4: must be below WORLD_SIZE = 4"));
}

TEST(Environment, TheMasterFlagWins) {
  const Environment env = detect_from(kTorchrunVariables, {.master = "other:5"});
  EXPECT_EQ(env.master_addr, "other");
  EXPECT_FALSE(env.store_is_hosted) << "nobody listens there yet";
  EXPECT_TRUE(detect_from(kTorchrunVariables, {.master = "h1:29400"}).store_is_hosted);
  EXPECT_FALSE(detect_from(kTorchrunVariables, {.store_file = "/nfs/s"}).store_is_hosted);
  EXPECT_THAT(environment_error(kTorchrunVariables, {.master = "h:1", .store_file = "/s"}),
              HasSubstr("fix: give one of them"));
}

TEST(Environment, ReadsAddresses) {
  const auto read = [](const std::string& word) {
    const Environment env = detect_from(kTorchrunVariables, {.master = word});
    return store_url(env.master_addr, env.master_port);
  };
  EXPECT_EQ(read("h"), "tcp://h:29500");
  EXPECT_EQ(read("10.0.0.1:80"), "tcp://10.0.0.1:80");
  EXPECT_EQ(read("[::1]:80"), "tcp://[::1]:80");
  EXPECT_EQ(read("[::1]"), "tcp://[::1]:29500");
  for (const char* wrong : {":80", "::1", "fd00::1", "[::1", "[]:1", "[::1]80", "tcp://h:1", "a b:1"})
    EXPECT_THAT(environment_error(kTorchrunVariables, {.master = wrong}), HasSubstr("must be HOST:PORT")) << wrong;
  for (const char* wrong : {"h:", "h:0", "h:x", "h:70000", "h:8 "})
    EXPECT_THAT(environment_error(kTorchrunVariables, {.master = wrong}), HasSubstr("--master, port")) << wrong;
}

TEST(Environment, NamesTheVariablesSeenAndNoOthers) {
  EXPECT_THAT(
      launcher_variables({{"RANK", "0"}, {"PMI_SIZE", "secret"}, {"AWS_SECRET_ACCESS_KEY", "x"}, {"PMI_RANK", ""}}),
      ElementsAre("RANK", "PMI_SIZE"));
}

}  // namespace
}  // namespace trireme
