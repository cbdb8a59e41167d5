#pragma once
// How Slurm abbreviates the hosts of a job and the tasks on them. Expanded here: containers have no `scontrol`.
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr int kMaxHosts = 65'536;

/// "gnode[10,20-22],login" is gnode10 gnode20 gnode21 gnode22 login; "n[08-10]" keeps its zeros; "r[1-2]n[1-2]-ib"
/// counts the last bracket fastest. ConfigError with the position, also for more than kMaxHosts hosts.
std::vector<std::string> expand_nodelist(std::string_view list);

/// "4(x2),3" is 4 4 3: tasks of each host, in the order of the nodelist.
std::vector<int> expand_tasks_per_node(std::string_view list);

}  // namespace trireme
