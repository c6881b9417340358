// The rule, the table and the folders, without gRPC, containerd and root.
#include "snapshotter/snapshots.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <latch>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/fake_trees.h"
#include "testing/temp_dir.h"

namespace varve::snapshotter {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SnapshotsTest : public testing::Test {
 protected:
  SnapshotsTest() { open(); }

  void open() {
    snapshots_.reset();
    SnapshotsOptions options;
    options.now_ns = [this] { return now_ * 1'000'000'000; };
    options.lazy.now = [this] { return now_.load(); };
    options.lazy.wait = std::chrono::milliseconds(wait_ms_);
    snapshots_.emplace(dir_ / "snapshotter", trees_, options);
  }

  static Labels labels_of(const KnownImage& image, std::size_t layer) {
    return {{kSnapshotRefLabel, image.chain.at(layer)},
            {kImageRefLabel, image.reference.substr(0, image.reference.find('@')) + ":v1"},
            {kManifestDigestLabel, image.image.to_string()}};
  }
  // As containerd pulls: the names that it records for the chain IDs. "": the layer was answered with mounts.
  std::vector<std::string> pull(const KnownImage& image, std::string parent = "", std::size_t from = 0,
                                bool labels = true) {
    std::vector<std::string> names;
    for (std::size_t i = from; i < image.chain.size(); ++i) {
      auto given = labels_of(image, i);
      if (!labels) given = {{kSnapshotRefLabel, image.chain[i]}};
      try {
        snapshots_->prepare("extract-" + std::to_string(++keys_), parent, given);
        names.emplace_back();
        return names;
      } catch (const AlreadyExists&) {
        names.push_back(name_of(image.chain[i], parent));
        parent = names.back();
      }
    }
    return names;
  }
  // What containerd finds by its filter.
  std::string name_of(const std::string& chain, const std::string& parent) {
    for (const auto& one : snapshots_->list(0, 1000)) {
      const auto label = one.labels.find(kSnapshotRefLabel);
      if (one.kind == SnapshotKind::kCommitted && one.parent == parent && label != one.labels.end() &&
          label->second == chain)
        return one.name;
    }
    return "";
  }
  // A layer that containerd unpacks itself.
  std::string unpack(const std::string& name, const std::string& parent, const std::string& file) {
    const auto key = "extract-" + std::to_string(++keys_);
    const auto mounts = snapshots_->prepare(key, parent, {});
    const auto upper = mounts.front().type == "bind" ? mounts.front().source : option(mounts, "upperdir");
    std::ofstream(fs::path(upper) / file) << file;
    snapshots_->commit(name, key, {{kSnapshotRefLabel, name}}, "");
    return name;
  }
  static std::string option(const std::vector<Mount>& mounts, const std::string& name) {
    for (const auto& one : mounts.front().options)
      if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
    return "";
  }
  std::size_t folders() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one : fs::directory_iterator(dir_ / "snapshotter/snapshots")) ++count;
    return count;
  }

  // Writes a byte for each round of calls that was answered.
  [[noreturn]] void work_until_killed(int round, int answered) try {
    open();
    for (int i = 0;; ++i) {
      const auto key = fmt::format("{}-{}", round, i);
      const auto name = pull(app_).back();
      snapshots_->prepare("active-" + key, name, {});
      snapshots_->prepare("extract-" + key, "", {});
      snapshots_->commit("layer-" + key, "extract-" + key, {}, "");
      if (i % 2 == 1) snapshots_->remove(fmt::format("active-{}-{}", round, i - 1));
      if (::write(answered, "x", 1) != 1) ::_exit(1);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(1);
  }

  test::TempDir dir_;
  std::atomic<std::int64_t> now_ = 1'000'000;
  int wait_ms_ = 2000;
  int keys_ = 0;
  test::FakeTrees trees_{dir_ / "trees"};
  std::optional<Snapshots> snapshots_;
  const KnownImage app_ = test::made_image("app", {"one", "two", "three", "four"});
};

TEST_F(SnapshotsTest, ComputesChainIdsAsTheImageSpecificationDoes) {
  // sha256 of "sha256:a.. sha256:b.." as sha256sum(1) gives it.
  const auto chain =
      chain_ids({Digest::parse("sha256:" + std::string(64, 'a')), Digest::parse("sha256:" + std::string(64, 'b'))});
  EXPECT_EQ(chain[0], "sha256:" + std::string(64, 'a'));
  EXPECT_EQ(chain[1], digest_of("sha256:" + std::string(64, 'a') + " sha256:" + std::string(64, 'b')).to_string());
}

TEST_F(SnapshotsTest, StandsForTheLayersOfAnIndexedImageAndMountsItsTreeBeneathAContainer) {
  trees_.add(app_);
  const auto names = pull(app_);
  ASSERT_THAT(names, SizeIs(4));
  EXPECT_THAT(names, testing::Each(testing::Not(IsEmpty())));
  EXPECT_EQ(trees_.look_ups(), 1u);
  EXPECT_THAT(trees_.held(), IsEmpty()) << "nothing is mounted before somebody needs it";

  const auto mounts = snapshots_->prepare("container", names[3], {});
  ASSERT_THAT(mounts, SizeIs(1));
  EXPECT_EQ(mounts[0].type, "overlay");
  EXPECT_EQ(mounts[0].source, "overlay");
  EXPECT_EQ(option(mounts, "lowerdir"), trees_.dir_of({app_.image, 4}).string());
  EXPECT_TRUE(fs::is_directory(option(mounts, "upperdir")));
  EXPECT_TRUE(fs::is_directory(option(mounts, "workdir")));
  EXPECT_EQ(snapshots_->mounts("container"), mounts);

  const auto seen = snapshots_->view("view", names[3], {});
  EXPECT_EQ(seen,
            (std::vector<Mount>{
                {.type = "bind", .source = trees_.dir_of({app_.image, 4}).string(), .options = {"ro", "rbind"}}}));
}

TEST_F(SnapshotsTest, MountsThePrefixOfAnImageForAnotherWithItsLowerLayers) {
  trees_.add(app_);
  const auto names = pull(app_);
  // containerd asks nothing about an image whose chain it has: its container comes with the parent alone.
  EXPECT_EQ(option(snapshots_->prepare("base", names[1], {}), "lowerdir"), trees_.dir_of({app_.image, 2}).string());
}

TEST_F(SnapshotsTest, BehavesAsOverlayfsForAnImageWithoutAnIndex) {
  EXPECT_THAT(pull(app_), ElementsAre(""));
  EXPECT_THAT(
      snapshots_->prepare("extract-a", "", {}),
      ElementsAre(
          Mount{.type = "bind", .source = (dir_ / "snapshotter/snapshots/2/fs").string(), .options = {"rw", "rbind"}}));
  snapshots_->commit("k8s.io/1/c1", "extract-a", {}, "");
  unpack("k8s.io/2/c2", "k8s.io/1/c1", "two");
  unpack("k8s.io/3/c3", "k8s.io/2/c2", "three");
  const auto mounts = snapshots_->prepare("container", "k8s.io/3/c3", {});
  const auto fs_of = [&](int id) { return (dir_ / "snapshotter/snapshots" / std::to_string(id) / "fs").string(); };
  EXPECT_EQ(option(mounts, "lowerdir"), fs_of(4) + ":" + fs_of(3) + ":" + fs_of(2));
  EXPECT_EQ(snapshots_->view("one layer", "k8s.io/1/c1", {}).front().type, "bind");
  const auto several = snapshots_->view("several", "k8s.io/2/c2", {});
  EXPECT_EQ(several.front().type, "overlay");
  EXPECT_EQ(option(several, "lowerdir"), fs_of(3) + ":" + fs_of(2));
  EXPECT_EQ(option(several, "upperdir"), "");
}

TEST_F(SnapshotsTest, PutsUnpackedLayersAboveATreeAndTreesInPlaceOfUnpackedOnes) {
  trees_.add(app_);
  const auto names = pull(app_);
  // Plain above lazy: another image with the two lowest layers of app, and one of its own.
  const auto top = unpack("k8s.io/9/c5", names[1], "five");
  const auto mounts = snapshots_->prepare("container", top, {});
  EXPECT_THAT(option(mounts, "lowerdir"), testing::MatchesRegex(".*/fs:" + trees_.dir_of({app_.image, 2}).string()));
  // Lazy above plain: the lowest layers were unpacked for another image earlier.
  const auto plain = unpack("k8s.io/4/c2", unpack("k8s.io/4/c1", "", "one"), "two");
  const auto above = pull(app_, plain, 2);
  ASSERT_THAT(above, SizeIs(2));
  EXPECT_NE(above[0], names[2]) << "a name of its own for each parent";
  EXPECT_EQ(option(snapshots_->prepare("other", above[1], {}), "lowerdir"), trees_.dir_of({app_.image, 4}).string());
}

TEST_F(SnapshotsTest, KnowsImagesThatWereOpenedHereWithoutLabels) {
  trees_.add(app_);
  EXPECT_THAT(pull(app_, "", 0, false), ElementsAre(""));
  snapshots_->images().learn_opened();
  const auto names = pull(app_, "", 0, false);
  ASSERT_THAT(names, SizeIs(4));
  EXPECT_NE(names[3], "");
}

TEST_F(SnapshotsTest, DecidesOnceForAnImageAndAsksAgainLater) {
  EXPECT_THAT(pull(app_), ElementsAre(""));
  trees_.add(app_);
  EXPECT_THAT(pull(app_), ElementsAre("")) << "an image is not half lazy because its index comes meanwhile";
  EXPECT_EQ(trees_.look_ups(), 1u);
  now_ += 61;
  EXPECT_THAT(pull(app_), SizeIs(4));
  // What was found is asked for again, too: its index may be gone.
  now_ += 61;
  trees_.forget(app_.image);
  EXPECT_THAT(pull(app_, "", 0), ElementsAre(""));
}

TEST_F(SnapshotsTest, DoesNotWaitForARegistryThatDoesNotAnswer) {
  trees_.add(app_);
  wait_ms_ = 50;
  open();
  std::latch answered(1);
  trees_.before_look_up = [&] { answered.wait(); };
  EXPECT_THAT(pull(app_), ElementsAre(""));
  EXPECT_THAT(pull(app_), ElementsAre(""));
  EXPECT_EQ(trees_.look_ups(), 1u);
  answered.count_down();
  while (snapshots_->images().under_way() != 0) std::this_thread::yield();
  EXPECT_THAT(pull(app_), SizeIs(4)) << "what was found meanwhile counts";
}

TEST_F(SnapshotsTest, LooksAnImageUpByTheTagThatItWasPulledBy) {
  trees_.add(app_);
  trees_.by_tag_alone = true;
  EXPECT_THAT(pull(app_), SizeIs(4));
  EXPECT_EQ(trees_.look_ups(), 1u);
}

TEST_F(SnapshotsTest, LooksAnImageUpByItsDigestOnceItsTagHasMoved) {
  trees_.add(app_);
  trees_.tags_moved = true;
  EXPECT_THAT(pull(app_), SizeIs(4));
}

TEST_F(SnapshotsTest, DoesNotBelieveByATagThatNobodyHasNamed) {
  trees_.add(app_);
  trees_.by_tag_alone = true;
  auto labels = labels_of(app_, 0);
  labels[kImageRefLabel] = app_.reference;
  EXPECT_EQ(snapshots_->prepare("extract", "", labels).front().type, "bind");
  trees_.tags_moved = true;
  now_ += 61;
  EXPECT_THAT(pull(app_), ElementsAre(""));
}

TEST_F(SnapshotsTest, MapsNoOwnersOfWhatContainerdHasGivenToThemAlready) {
  const auto root = ::geteuid() == 0 ? 100'000 : ::geteuid();
  const auto layer = unpack("layer", "", "file");
  const auto copy = snapshots_->prepare("layer-remap", layer, {});
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(option(copy, "upperdir").c_str(), root, ::getegid()), 0);
  }
  snapshots_->commit("copied", "layer-remap", {}, "");
  const Labels owners{{kUidMappingLabel, fmt::format("0:{}:65536", root)},
                      {kGidMappingLabel, fmt::format("0:{}:65536", ::getegid())}};
  const auto mounts = snapshots_->prepare("container", "copied", owners);
  EXPECT_TRUE(option(mounts, "lowerdir").starts_with(option(copy, "upperdir") + ":")) << option(mounts, "lowerdir");
  struct stat status {};
  ASSERT_EQ(::stat(option(mounts, "upperdir").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, root);
  EXPECT_EQ(snapshots_->mounts("container"), mounts);
}

TEST_F(SnapshotsTest, KnowsAnImageAgainWhileItsRegistryIsAway) {
  trees_.add(app_);
  pull(app_);
  now_ += 61;
  trees_.before_look_up = [] { fail<TemporaryError>("the registry does not answer"); };
  EXPECT_THAT(pull(app_), SizeIs(4));
}

TEST_F(SnapshotsTest, KeepsAllItHasAnsweredOverARestart) {
  trees_.add(app_);
  const auto names = pull(app_);
  const auto before = snapshots_->prepare("container", names[3], {{"a", "b"}});
  open();
  EXPECT_EQ(snapshots_->mounts("container"), before);
  EXPECT_EQ(snapshots_->stat("container").labels.at("a"), "b");
  EXPECT_THAT(trees_.held(), ElementsAre(TreeId{app_.image, 4}));
  EXPECT_EQ(pull(app_), names) << "another namespace gets the same snapshots";
}

TEST_F(SnapshotsTest, ReleasesTreesAndFoldersWithTheNextCleanup) {
  trees_.add(app_);
  const auto names = pull(app_);
  snapshots_->prepare("one", names[3], {});
  snapshots_->prepare("two", names[3], {});
  EXPECT_EQ(folders(), 2u);
  snapshots_->remove("one");
  snapshots_->cleanup();
  EXPECT_EQ(folders(), 1u);
  EXPECT_THAT(trees_.held(), SizeIs(1));
  snapshots_->remove("two");
  EXPECT_THAT(trees_.held(), SizeIs(1));
  snapshots_->cleanup();
  EXPECT_EQ(folders(), 0u);
  EXPECT_THAT(trees_.held(), IsEmpty());
  for (const auto i : {3, 2, 1, 0}) snapshots_->remove(names[std::size_t(i)]);
  EXPECT_THAT(snapshots_->list(0, 100), IsEmpty());
}

TEST_F(SnapshotsTest, AnswersWhatCannotBeDoneWithTheErrorThatContainerdExpects) {
  trees_.add(app_);
  const auto names = pull(app_);
  EXPECT_THROW(snapshots_->prepare("x", "nothing", {}), NotFound);
  EXPECT_THROW(snapshots_->prepare("x", "nothing", labels_of(app_, 1)), NotFound);
  EXPECT_THROW(snapshots_->view("x", "nothing", {}), NotFound);
  snapshots_->prepare("active", names[0], {});
  EXPECT_THROW(snapshots_->prepare("x", "active", {}), UsageError);
  EXPECT_THROW(snapshots_->prepare("x", "active", labels_of(app_, 1)), UsageError);
  EXPECT_THROW(snapshots_->prepare("active", names[0], {}), FailedPrecondition)
      << "never ALREADY_EXISTS without a label";
  EXPECT_THROW(snapshots_->prepare("active", "", labels_of(app_, 0)), FailedPrecondition);
  EXPECT_THROW(snapshots_->mounts("nothing"), NotFound);
  EXPECT_THROW(snapshots_->mounts(names[0]), FailedPrecondition);
  EXPECT_THROW(snapshots_->commit("c", "nothing", {}, ""), NotFound);
  EXPECT_THROW(snapshots_->commit(names[0], "active", {}, ""), AlreadyExists);
  EXPECT_THROW(snapshots_->commit("c", "active", {}, "another"), FailedPrecondition);
  snapshots_->view("view", names[0], {});
  EXPECT_THROW(snapshots_->commit("c", "view", {}, ""), FailedPrecondition);
  EXPECT_THROW(snapshots_->remove("nothing"), NotFound);
  EXPECT_THROW(snapshots_->remove(names[0]), FailedPrecondition);
  EXPECT_THROW(snapshots_->stat("nothing"), NotFound);
  EXPECT_THROW(snapshots_->update("nothing", {}, {}), NotFound);
  EXPECT_THROW(snapshots_->update(names[0], {}, {"parent"}), UsageError);
  EXPECT_THROW(snapshots_->usage("nothing"), NotFound);
  EXPECT_EQ(folders(), 2u) << "what failed left no folder";
}

TEST_F(SnapshotsTest, RefusesArgumentsOfHostileCallersAndTouchesNoFileByTheirNames) {
  for (const auto& key :
       {std::string("../../../etc"), std::string("/etc/passwd"), std::string("a\0b", 3), std::string("\xff\n;--")}) {
    snapshots_->prepare(key, "", {});
    EXPECT_EQ(snapshots_->mounts(key).front().source.find((dir_ / "snapshotter/snapshots/").string()), 0u);
    snapshots_->remove(key);
  }
  EXPECT_THROW(snapshots_->prepare("", "", {}), UsageError);
  EXPECT_THROW(snapshots_->prepare(std::string(5000, 'k'), "", {}), UsageError);
  EXPECT_THROW(snapshots_->prepare("x", "", {{"a", std::string(4096, 'v')}}), UsageError);
  EXPECT_THROW(snapshots_->prepare("x", "", {{"", "v"}}), UsageError);
  Labels many;
  for (int i = 0; i < 2000; ++i) many["label-" + std::to_string(i)] = "v";
  EXPECT_THROW(snapshots_->prepare("x", "", many), UsageError);
  EXPECT_THROW(snapshots_->prepare("x", "", {{kUidMappingLabel, "0:1:2"}}), UsageError);
  for (const auto* wrong : {"", "0:1", "0:1:0", "-1:0:5", "0:0:99999999999", "0:1:2:3", "a:b:c", "0:1:2,"})
    EXPECT_THROW(snapshots_->prepare("x", "", {{kUidMappingLabel, wrong}, {kGidMappingLabel, "0:0:1"}}), UsageError)
        << wrong;
  snapshots_->cleanup();
  EXPECT_EQ(folders(), 0u);
}

TEST_F(SnapshotsTest, TakesNoTreeForAnImageThatIsNotWhatTheLabelsSay) {
  trees_.add(app_);
  auto labels = labels_of(app_, 0);
  labels[kSnapshotRefLabel] = digest_of("another layer").to_string();
  EXPECT_NO_THROW(snapshots_->prepare("other layer", "", labels));
  now_ += 61;
  labels = labels_of(app_, 0);
  labels[kImageRefLabel] = "oci:/etc";  // files of this machine are not for a puller to name
  EXPECT_NO_THROW(snapshots_->prepare("a folder", "", labels));
  now_ += 61;
  labels = labels_of(app_, 0);
  labels[kManifestDigestLabel] = "sha256:zz";
  EXPECT_NO_THROW(snapshots_->prepare("no digest", "", labels));
  now_ += 61;
  EXPECT_NO_THROW(snapshots_->prepare("second layer without the first", "", labels_of(app_, 1)));
  const auto names = pull(app_);
  EXPECT_NO_THROW(snapshots_->prepare("third layer above the first", names[0], labels_of(app_, 2)));
}

TEST_F(SnapshotsTest, ReleasesWhatWasRemovedThoughNoCleanupIsAskedFor) {
  trees_.add(app_);
  snapshots_->prepare("one", pull(app_)[3], {});
  snapshots_->cleanup_if_removed();
  EXPECT_EQ(folders(), 1u);
  snapshots_->remove("one");
  snapshots_->cleanup_if_removed();
  EXPECT_EQ(folders(), 0u);
  EXPECT_THAT(trees_.held(), IsEmpty());
}

TEST_F(SnapshotsTest, TakesTheTreeOfAnotherImageWithTheSameLayersWhereOneIsGone) {
  const auto twin = test::made_image("twin", {"one", "two", "three", "four", "five"});
  trees_.add(app_);
  trees_.add(twin);
  const auto names = pull(app_);
  snapshots_->images().learn_opened();
  trees_.forget(app_.image);
  EXPECT_EQ(option(snapshots_->prepare("container", names[3], {}), "lowerdir"),
            trees_.dir_of({twin.image, 4}).string());
  snapshots_->cleanup();
  EXPECT_THAT(trees_.held(), ElementsAre(TreeId{twin.image, 4}));
  trees_.forget(twin.image);
  // Never NOT_FOUND, by which containerd would take its own image for gone and unpack it anew.
  EXPECT_THROW(snapshots_->prepare("second", names[3], {}), FailedPrecondition);
  EXPECT_EQ(folders(), 1u);
  trees_.before_hold = [] { fail<TemporaryError>("the daemon is away"); };
  EXPECT_THROW(snapshots_->prepare("second", names[3], {}), TemporaryError);
}

TEST_F(SnapshotsTest, ChangesLabelsByMask) {
  snapshots_->prepare("a", "", {{"x", "1"}, {"y", "2"}});
  EXPECT_THAT(snapshots_->update("a", {{"x", "3"}, {"z", "4"}}, {"labels.x"}).labels,
              ElementsAre(std::pair("x", "3"), std::pair("y", "2")));
  EXPECT_THAT(snapshots_->update("a", {}, {"labels.y"}).labels, ElementsAre(std::pair("x", "3")));
  now_ += 5;
  const auto changed = snapshots_->update("a", {{"n", "5"}}, {});
  EXPECT_THAT(changed.labels, ElementsAre(std::pair("n", "5")));
  EXPECT_EQ(changed.updated_ns - changed.created_ns, 5'000'000'000);
  EXPECT_THAT(snapshots_->update("a", {{"l", "6"}}, {"labels"}).labels, ElementsAre(std::pair("l", "6")));
  EXPECT_EQ(snapshots_->stat("a").labels, (Labels{{"l", "6"}}));
}

TEST_F(SnapshotsTest, CountsWhatASnapshotAloneTakes) {
  trees_.add(app_);
  const auto names = pull(app_);
  EXPECT_EQ(snapshots_->usage(names[3]), SnapshotUsage());
  const auto mounts = snapshots_->prepare("c", names[3], {});
  const fs::path upper = option(mounts, "upperdir");
  const auto empty = snapshots_->usage("c");
  EXPECT_EQ(empty.inodes, 1);
  fs::create_directory(upper / "d");
  const std::string content(100'000, 'x');
  std::ofstream(upper / "d/file") << content;
  fs::create_hard_link(upper / "d/file", upper / "d/again");
  const auto usage = snapshots_->usage("c");
  EXPECT_EQ(usage.inodes, 3);
  EXPECT_GE(usage.bytes, 100'000);
  EXPECT_LT(usage.bytes, 150'000);
  snapshots_->commit("layer", "c", {}, "");
  EXPECT_EQ(snapshots_->usage("layer"), usage);
  EXPECT_EQ(snapshots_->usage("layer"), usage);
}

TEST_F(SnapshotsTest, GivesANewLayerOwnerAndModeOfTheRootBeneath) {
  trees_.add(app_);
  const auto names = pull(app_);
  trees_.hold({app_.image, 4}, app_.reference);
  fs::permissions(trees_.dir_of({app_.image, 4}), fs::perms(0710));
  struct stat status {};
  ASSERT_EQ(::stat(option(snapshots_->prepare("c", names[3], {}), "upperdir").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0710u);
}

TEST_F(SnapshotsTest, RemovesAtItsStartWhatAnEarlierProcessLeftHalfMade) {
  trees_.add(app_);
  fs::create_directories(dir_ / "snapshotter/snapshots/77/fs/deep/er");
  fs::create_directories(dir_ / "snapshotter/snapshots/lost+found");
  trees_.hold({app_.image, 3}, app_.reference);
  open();
  EXPECT_FALSE(fs::exists(dir_ / "snapshotter/snapshots/77"));
  EXPECT_TRUE(fs::exists(dir_ / "snapshotter/snapshots/lost+found")) << "what is not ours stays";
  EXPECT_THAT(trees_.held(), IsEmpty());
  snapshots_->prepare("c", "", {});
  EXPECT_GT(snapshots_->stat("c").id, 77);
}

TEST_F(SnapshotsTest, HasOnDiskWhatItAnsweredHoweverItsProcessEnds) {
  trees_.add(app_);
  for (int round = 0; round < 4; ++round) {
    snapshots_.reset();
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const auto child = ::fork();
    if (child == 0) work_until_killed(round, ends[1]);
    ::close(ends[1]);
    int answered = 0;
    char byte = 0;
    while (answered < 3 + 2 * round && ::read(ends[0], &byte, 1) == 1) ++answered;
    ::kill(child, SIGKILL);
    while (::read(ends[0], &byte, 1) == 1) ++answered;
    ::close(ends[0]);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    open();
    for (int i = 0; i < answered; ++i) {
      EXPECT_EQ(snapshots_->stat(fmt::format("layer-{}-{}", round, i)).kind, SnapshotKind::kCommitted);
      const auto active = fmt::format("active-{}-{}", round, i);
      if (i % 2 == 1 || i + 1 == answered)
        EXPECT_TRUE(i + 1 == answered || fs::is_directory(option(snapshots_->mounts(active), "upperdir")));
      else
        EXPECT_THROW(snapshots_->stat(active), NotFound);
    }
    std::size_t with_folders = 0;
    for (const auto& one : snapshots_->list(0, 100'000)) with_folders += one.is_placeholder() ? 0 : 1;
    EXPECT_EQ(folders(), with_folders);
  }
}

TEST_F(SnapshotsTest, ServesManyCallersAtOnceAndLeavesNothingBehind) {
  trees_.add(app_);
  const auto names = pull(app_);
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller)
      callers.emplace_back([&, caller] {
        for (int i = 0; i < 12; ++i) try {
            const auto key = fmt::format("{}-{}", caller, i);
            snapshots_->prepare(key, names[std::size_t(i % 4)], {});
            if (!fs::exists(fs::path(option(snapshots_->mounts(key), "lowerdir")))) ++failed;
            snapshots_->remove(key);
            snapshots_->cleanup();
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
          }
      });
  }
  EXPECT_EQ(failed, 0);
  snapshots_->cleanup();
  EXPECT_EQ(folders(), 0u);
  EXPECT_THAT(trees_.held(), IsEmpty());
}

TEST_F(SnapshotsTest, HasTheLayersOfKnownImagesAgainWhenItsTableWasLost) {
  trees_.add(app_);
  const auto names = pull(app_);
  const fs::path upper = option(snapshots_->prepare("running", names[3], {}), "upperdir");
  std::ofstream(upper / "file") << "of a container that runs";
  snapshots_.reset();
  const auto file = SnapshotTable::file_of(dir_ / "snapshotter");
  for (const auto* suffix : {"", "-wal", "-shm"}) fs::remove(file.string() + suffix);
  open();
  EXPECT_THROW(snapshots_->stat(names[3]), NotFound);
  snapshots_->images().learn_opened();
  EXPECT_EQ(snapshots_->stat(names[3]).parent, names[2]);
  EXPECT_EQ(snapshots_->stat(names[0]).parent, "");
  EXPECT_EQ(option(snapshots_->prepare("new", names[3], {}), "lowerdir"), trees_.dir_of({app_.image, 4}).string());
  EXPECT_THROW(snapshots_->stat("varve/sha256:nothing"), NotFound);
  bool kept = false;
  for (const auto& one : fs::recursive_directory_iterator(dir_ / "snapshotter"))
    kept = kept || (one.path().filename() == "file" && one.path() != upper / "file");
  EXPECT_TRUE(kept) << "nobody may take the files of a running container away";
}

TEST_F(SnapshotsTest, RefusesATableThatIsNotItsOwn) {
  snapshots_.reset();
  const auto file = SnapshotTable::file_of(dir_ / "snapshotter");
  for (const auto* suffix : {"", "-wal", "-shm"}) fs::remove(file.string() + suffix);
  std::ofstream(file) << std::string(8192, 'x');
  EXPECT_THROW(open(), CorruptData);
}

}  // namespace
}  // namespace varve::snapshotter
