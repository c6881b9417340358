// What plans know of an image's code without running it: each of these broke an image that a plan had let go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/planning.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::find;
using test::first_reason;
using test::kSite;
using test::Planning;
using test::used;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Two plans a day apart, the second of which archives what nothing holds.
Planning archiving(FakeImage image) {
  Planning planning(std::move(image));
  planning.thresholds.archive_after = 1;
  return planning;
}

std::string verdicts_of_second(Planning& planning) {
  planning.previous = std::nullopt;
  planning.previous = planning.make().plan;
  planning.next_day();
  return planning.verdicts();
}

TEST(StaticImports, WhatImportingALibraryLoadsIsAsHotAsTheLibrary) {
  Planning planning(
      FakeImage()
          .add({.name = "frames",
                .files = {{"frames/__init__.py", "from frames.core import api\n"},
                          {"frames/core/__init__.py", ""},
                          {"frames/core/api.py", "from . import fast\nfrom ..late import x as y\n"},
                          {"frames/core/fast.py",
                           "try:\n    import arrows\nexcept ImportError:\n    import slow\n    arrows = None\n"},
                          {"frames/late.py", "import always.sub\n"},
                          {"frames/never.py", "import deep\n"}}})
          .add({"arrows"})
          .add({"slow"})
          .add({.name = "always", .files = {{"always/__init__.py", ""}, {"always/sub.py", "import further\n"}}})
          .add({"further"})
          .add({"deep"}));
  used(planning.snapshot, "frames", 500, 200);
  EXPECT_EQ(planning.verdicts(), "always hot, arrows hot, deep cold, frames hot, further hot, slow cold");
  EXPECT_EQ(first_reason(planning, "arrows"), "imports|frames|imports it in " + kSite + "/frames/core/fast.py");
  // `import always` does not load always.sub; `import frames` does.
  EXPECT_EQ(first_reason(planning, "further"), "imports|frames|imports always.sub, which imports it");
  used(planning.snapshot, "frames", 0, 0);
  used(planning.snapshot, "always", 500, 200);
  EXPECT_EQ(planning.verdicts(), "always hot, arrows cold, deep cold, frames cold, further cold, slow cold");
}

TEST(StaticImports, WhatALibraryMayImportIsNotArchivedAndNoMore) {
  auto planning = archiving(
      FakeImage()
          .add({.name = "frames",
                .files = {{"frames/__init__.py",
                           "import importlib\n"
                           "def read_excel():\n    import sheets\n"
                           "async def later():\n    from waits import x\n"
                           "def __getattr__(name):\n    return importlib.import_module('lazy')\n"
                           "if frames_wants:\n    import wished\n"
                           "engine = import_optional_dependency('engines')\n"
                           "import ctypes\nlib = ctypes.CDLL('/usr/opt/libs/libone.so')\n"
                           "OTHER = '/usr/opt/libs/libtwo.so.2'\n"},
                          {"frames/unreached.py", "import deep\n"},
                          {"frames/tests/test_it.py", "import tester\n"}}})
          .add({"sheets"})
          .add({"waits"})
          .add({"lazy"})
          .add({"wished"})
          .add({"engines"})
          .add({"deep"})
          .add({"tester"})
          .add({.name = "one", .files = {{"one/__init__.py", ""}, {"../../../../opt/libs/libone.so", "ELF"}}})
          .add({.name = "two", .files = {{"two/__init__.py", ""}, {"../../../../opt/libs/libtwo.so.2", "ELF"}}}));
  used(planning.snapshot, "frames", 500, 200);
  EXPECT_EQ(verdicts_of_second(planning),
            "deep cold, engines cold, frames hot, lazy cold, one cold, sheets cold, tester archived, two cold, "
            "waits cold, wished cold");
  EXPECT_EQ(first_reason(planning, "sheets"), "imports|frames|may import it in " + kSite + "/frames/__init__.py");
  EXPECT_EQ(first_reason(planning, "one"),
            "elf|frames|may load usr/opt/libs/libone.so in " + kSite + "/frames/__init__.py");
}

TEST(StaticImports, OtherPythonsHoldNothingAndCirclesEnd) {
  Planning planning(FakeImage()
                        .add({.name = "one",
                              .files = {{"one/__init__.py", "import two\nimport other\nimport one.x\n"},
                                        {"one/x.py", "from ... import way_out\nfrom . import nothing\n"}}})
                        .add({.name = "two", .files = {{"two/__init__.py", "import one\nimport two\n"}}}));
  auto& files = planning.image.files;
  const std::string debian = "usr/lib/python3/dist-packages";
  files.add("usr/bin/python3.9", "ELF").add("usr/lib/python3.9/os.py", "#").add(debian + "/other.py", "x");
  files.add(debian + "/other-1.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: other\nVersion: 1\n")
      .add(debian + "/other-1.egg-info/installed-files.txt", "../other.py\n");
  planning.inventory = packages::read_inventory(files);
  planning.snapshot = test::snapshot_of(planning.inventory, 1000);
  used(planning.snapshot, "one", 500, 200);
  EXPECT_EQ(planning.verdicts(), "one hot, other cold, two hot");
  used(planning.snapshot, "one", 0, 0);
  used(planning.snapshot, "two", 500, 200);
  EXPECT_EQ(planning.verdicts(), "one hot, other cold, two hot");
}

TEST(StartNeeds, PathFilesHoldWhatTheyImportWhoeverOwnsThem) {
  Planning planning(
      FakeImage()
          .add({.name = "hooks", .files = {{"hooks/__init__.py", ""}, {"hooks.pth", "import traced; traced.x()\n"}}})
          .add({"traced"})
          .add({"loose"})
          .add({.name = "vendor", .files = {{"vendor/__init__.py", ""}, {"vendor/lib/inner.py", ""}}})
          .add({"started"})
          .add({"rare"}));
  planning.image.files.add(kSite + "/zz_site.pth", "# by hand\nimport sys, loose.sub\nvendor/lib\n");
  planning.image.files.add(kSite + "/zz.start", "# PEP 829\nstarted.hook:run\n\n");
  planning.inventory = packages::read_inventory(planning.image.files);
  EXPECT_EQ(planning.verdicts(), "hooks hot, loose hot, rare cold, started hot, traced hot, vendor hot");
  EXPECT_EQ(first_reason(planning, "loose"),
            "path-file|" + kSite + "/zz_site.pth|each start of Python imports loose.sub");
  EXPECT_EQ(first_reason(planning, "started"),
            "path-file|" + kSite + "/zz.start|each start of Python calls started.hook");
}

TEST(StartNeeds, AKernelHoldsWhatItIsStartedWith) {
  Planning planning(FakeImage()
                        .add({"own-kernel"})
                        .add({.name = "wrap", .files = {{"wrap/__init__.py", ""}, {"../../../bin/wrap-kernel", "#!"}}})
                        .add({"scripted"})
                        .add({"rare"}));
  auto& files = planning.image.files;
  files.add("usr/local/share/jupyter/kernels/own/kernel.json",
            R"({"argv": ["/usr/local/bin/python3", "-m", "own_kernel.launch", "-f", "{connection_file}"]})");
  files.add("root/.local/share/jupyter/kernels/two/kernel.json", R"({"argv": ["wrap-kernel", "/opt/kernel.py"]})");
  files.add("opt/kernel.py", "import scripted\n");
  files.add("opt/jupyter/kernels/bad/kernel.json", R"({"argv": "python"})");
  EXPECT_EQ(planning.verdicts(), "own-kernel hot, rare cold, scripted hot, wrap hot");
  EXPECT_EQ(first_reason(planning, "own-kernel"),
            "kernel|usr/local/share/jupyter/kernels/own/kernel.json|this kernel is started with own_kernel.launch");
  EXPECT_THAT(planning.make().plan.unsure,
              Contains(StartsWith("What opt/jupyter/kernels/bad/kernel.json starts is not known: ")));
}

TEST(StartNeeds, TheServersConfigurationHoldsWhatItNames) {
  Planning planning(
      FakeImage().add({"drive"}).add({"off"}).add({"contents"}).add({"magic-sql"}).add({"lab-git"}).add({"commented"}));
  auto& files = planning.image.files;
  files.add("usr/local/etc/jupyter/jupyter_server_config.d/drive.json",
            R"({"ServerApp": {"jpserver_extensions": {"drive": true, "off": false}, "port": 8888, "ip": "rare"}})");
  files.add("root/.jupyter/jupyter_server_config.py",
            "# c.ServerApp.x = 'commented.Y'\nc.ServerApp.contents_manager_class = \"contents.Manager\"\n"
            "c.ServerApp.jpserver_extensions = {'lab_git': True}\n");
  files.add("etc/ipython/ipython_config.json", R"({"InteractiveShellApp": {"extensions": ["magic_sql"]}})");
  files.add("etc/jupyter/broken.json", "{");
  EXPECT_EQ(planning.verdicts(), "commented cold, contents hot, drive hot, lab-git hot, magic-sql hot, off cold");
  EXPECT_THAT(first_reason(planning, "drive"), StartsWith("configured|usr/local/etc/jupyter/"));
  EXPECT_THAT(planning.make().plan.unsure, Contains(HasSubstr("etc/jupyter/broken.json")));
}

TEST(StartNeeds, ExtensionsOfThePageStayWithTheirOwners) {
  Planning planning(
      FakeImage()
          .add({.name = "git-panel",
                .files = {{"git_panel/__init__.py", ""},
                          {"../../../share/jupyter/labextensions/git/package.json", "{}"}}})
          .add({.name = "old-panel",
                .files = {{"old_panel/__init__.py", ""}, {"../../../share/jupyter/nbextensions/old/x.js", ""}}})
          .add({.name = "server-part",
                .files = {{"server_part/__init__.py", ""},
                          {"../../../etc/jupyter/jupyter_server_config.d/part.json", "{}"}}})
          .add({"rare"}));
  planning.built_in_rules = true;
  EXPECT_EQ(planning.verdicts(), "git-panel hot, old-panel hot, rare cold, server-part hot");
}

TEST(StartNeeds, WhatTheImageStartsIsFollowedThroughScripts) {
  Planning planning(
      FakeImage()
          .add({.name = "supervise", .files = {{"supervise/__init__.py", ""}, {"../../../bin/supervise", "#!"}}})
          .add({"served"})
          .add({"deeper"})
          .add({"by-python"})
          .add({"inline"})
          .add({"rare"}));
  auto& files = planning.image.files;
  planning.config.entrypoint = {"tini", "--", "start.sh"};
  planning.config.cmd = {"bash", "-c", "python3 -c 'import inline'"};
  files.add("usr/local/bin/start.sh", "#!/bin/bash -e\nsource /opt/env.sh\nexec supervise run second.sh\n");
  files.add("opt/env.sh", "python -m served.main &\n");
  files.add("usr/bin/second.sh", "#!/bin/sh\n/opt/tool --x\n");
  files.add("opt/tool", "#!/usr/bin/env python3\nimport by_python\ndef main():\n    import deeper\n");
  EXPECT_EQ(planning.verdicts(), "by-python hot, deeper hot, inline hot, rare cold, served hot, supervise hot");
  EXPECT_EQ(first_reason(planning, "served"), "started|opt/env.sh|this script, which is started, runs served.main");
}

TEST(StartNeeds, WhatBelongsToNobodyHoldsWhatItImports) {
  Planning planning(FakeImage().add({"styles"}).add({"magic"}).add({"rare"}).add({"sites"}));
  auto& files = planning.image.files;
  files.add("home/ann/.ipython/profile_default/startup/10-style.ipy", "%matplotlib inline\nimport styles\n");
  files.add("opt/app/main.py", "try:\n    import magic\nexcept ImportError:\n    pass\n");
  files.add(kSite + "/sitecustomize.py", "import sites\n");
  files.add("usr/local/lib/python3.11/json/tool.py", "import rare\n");
  EXPECT_EQ(planning.verdicts(), "magic hot, rare cold, sites hot, styles hot");
  EXPECT_EQ(first_reason(planning, "magic"),
            "unowned-file|opt/app/main.py|the file belongs to no package, so it stays, and imports magic");
  EXPECT_THAT(planning.make().plan.unsure, IsEmpty());
}

}  // namespace
}  // namespace varve::prune
