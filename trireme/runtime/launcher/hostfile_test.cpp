#include "trireme/runtime/launcher/hostfile.hpp"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string hostfile_error(const std::string& contents, int default_slots = 0) {
  return message_of<ConfigError>([&] { parse_hostfile("hosts", contents, default_slots); });
}

TEST(Hostfile, ReadsWhatDeepSpeedReads) {
  EXPECT_THAT(parse_hostfile("hosts", "# mine\nworker-1 slots=4\n\n  root@10.0.0.2\tslots=2  # the small one\r\n", 0),
              ElementsAre(Host{"worker-1", 4}, Host{"root@10.0.0.2", 2}));
}

TEST(Hostfile, AHostWithoutSlotsHasThoseOfTheCommandLine) {
  EXPECT_THAT(parse_hostfile("hosts", "a\nb slots=2", 8), ElementsAre(Host{"a", 8}, Host{"b", 2}));
  EXPECT_THAT(hostfile_error("a"), AllOf(HasSubstr("host \"a\": has no slots"), HasSubstr("--> hosts:1")));
}

TEST(Hostfile, TellsTheLine) {
  EXPECT_THAT(hostfile_error("a slots=1\n#\na slots=2"), AllOf(HasSubstr("is listed twice"), HasSubstr("--> hosts:3")));
  EXPECT_THAT(hostfile_error("a slots=x"), HasSubstr("hosts:1: slots = \"x\": must be a whole number"));
  EXPECT_THAT(hostfile_error("\na slots=0"), HasSubstr("hosts:2: slots = 0: must be from 1"));
  EXPECT_THAT(hostfile_error("a slots=-1"), HasSubstr("must be from 1"));
  EXPECT_THAT(hostfile_error("a slots="), HasSubstr("must be a whole number"));
  EXPECT_THAT(hostfile_error("a slots = 4"), HasSubstr("did not expect \"slots\""));
  EXPECT_THAT(hostfile_error("a max_slots=4"), HasSubstr("did not expect \"max_slots=4\""));
  EXPECT_THAT(hostfile_error("a slots=4 slots=5"), HasSubstr("slots= is given twice"));
  EXPECT_THAT(hostfile_error("# nobody\n"), HasSubstr("hosts: names no host"));
}

TEST(Hostfile, RefusesNamesThatSshWouldTakeForSomethingElse) {
  for (const char* name : {"-oProxyCommand=reboot", "a;reboot", "$(reboot)", "a'b", "`x`", "a/b"})
    EXPECT_THAT(hostfile_error(std::string(name) + " slots=1"), HasSubstr("not the name of a host")) << name;
}

TEST(Hostfile, ReadsAFile) {
  const TempFolder folder;
  std::ofstream(folder / "hosts") << "a slots=3\n";
  EXPECT_THAT(read_hostfile((folder / "hosts").string(), 0), ElementsAre(Host{"a", 3}));
  EXPECT_THAT(message_of<ConfigError>([&] { read_hostfile((folder / "none").string(), 0); }),
              HasSubstr("none: cannot be read"));
  EXPECT_THAT(message_of<ConfigError>([&] { read_hostfile(folder.path().string(), 0); }), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace trireme::launcher
