#pragma once
// Where the output of the ranks goes that a program starts by itself: init() with -n N.
#include <filesystem>
#include <string>

namespace trireme {

class RankLogs {
 public:
  /// A folder for the logs of the ranks `first` to `last`, rNNNN.log each: `given`, or if that is empty a new one in
  /// `parent`: ranks, ranks-2, ... None if it cannot be made there; ConfigError if `given` cannot.
  RankLogs(const std::filesystem::path& given, int first, int last,
           const std::filesystem::path& parent = std::filesystem::current_path());

  /// "": there is none.
  const std::string& folder() const { return folder_; }
  /// A line for the user.
  const std::string& note() const { return note_; }
  /// After the end of all ranks: a folder that was made here is removed, if they have succeeded, and none has said
  /// anything but rank 0, whose output was printed.
  void finish(int code) const;

 private:
  std::string folder_, note_;
  bool is_made_here_ = false;
  int first_, last_;  // of the ranks whose output is nowhere else
};

}  // namespace trireme
