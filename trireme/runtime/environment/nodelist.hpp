#pragma once
// Expands Slurm's compressed nodelists and tasks per node. Done here because containers have no `scontrol`.
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr int kMaxHosts = 65'536;

/// "gnode[10,20-22],login" is gnode10 gnode20 gnode21 gnode22 login; "n[08-10]" keeps leading zeros; in
/// "r[1-2]n[1-2]-ib" the last bracket varies fastest. ConfigError with the position, also for more than kMaxHosts
/// hosts.
std::vector<std::string> expand_nodelist(std::string_view list);

/// "4(x2),3" is 4 4 3: tasks per host, in the order of the nodelist.
std::vector<int> expand_tasks_per_node(std::string_view list);

}  // namespace trireme
