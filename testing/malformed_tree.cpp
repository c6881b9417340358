// The tree of horrors: one of everything that a layer may hold and that is hard to get right.
#include "testing/trees.h"

namespace varve::test {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
// Wire form of a POSIX ACL: version 2, then tag, permissions and id of each entry.
const std::string kAcl(
    "\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x05\0\xe8\x03\0\0\x04\0\x05\0\xff\xff\xff\xff\x10\0\x05\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff",
    44);
// cap_net_raw=ep, revision 2.
const std::string kCapability("\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);

std::shared_ptr<TreeInode> with(std::shared_ptr<TreeInode> inode, void (*change)(TreeInode&)) {
  change(*inode);
  return inode;
}

std::shared_ptr<TreeInode> small(std::uint64_t at, std::uint64_t size = 100) {
  return make_file(size, {{0, {0, at, size}}});
}

std::shared_ptr<TreeInode> device(FileType type, std::uint32_t major, std::uint32_t minor) {
  auto inode = std::make_shared<TreeInode>();
  inode->type = type;
  inode->mode = 0660;
  inode->device_major = major;
  inode->device_minor = minor;
  return inode;
}

void put_content(Tree& tree) {
  put(tree, "content/empty", make_file(0, {}));
  put(tree, "content/one-byte", small(512, 1));
  put(tree, "content/block", small(1024, 512));
  put(tree, "content/block-and-one", small(2048, 513));
  put(tree, "content/page", small(4096, 4096));
  put(tree, "content/odd-place", small(512 * 33, 70'001));
  put(tree, "content/other-layer", make_file(300'000, {{1, {0, 512 * 7, 300'000}}}));
  // The last block of the layer is not whole.
  constexpr std::uint64_t kLastPlace = 1'000'000 / 512 * 512 - 512;
  put(tree, "content/end-of-layer", make_file(1'000'000 - kLastPlace, {{1, {0, kLastPlace, 1'000'000 - kLastPlace}}}));
  put(tree, "content/large", make_file(5 * kGiB + 12'345, {{2, {0, 512 * 1000, 5 * kGiB + 12'345}}}));
  put(tree, "sparse/all-hole", make_file(3 * kGiB, {}));
  put(tree, "sparse/huge-hole", make_file(3000 * kGiB, {}));
  put(tree, "sparse/head", make_file(100'000, {{0, {0, 512 * 500, 5000}}}));
  put(tree, "sparse/tail", make_file(100'000, {{0, {95'001, 512 * 520, 4999}}}));
  put(tree, "sparse/unaligned-stream", make_file(10'000, {{0, {0, 512 * 600 + 7, 10'000}}}));
  put(tree, "sparse/two-layers", make_file(50'000, {{0, {0, 512 * 700, 20'000}}, {1, {20'000, 512 * 40, 30'000}}}));
  put(tree, "sparse/checkered", make_file(1'000'000, {}));
  for (std::uint64_t i = 0; i < 60; ++i)
    find(tree, "sparse/checkered")
        ->runs.push_back({0, {i * 16'384 + i * 13 % 5000, 512 * 800 + i * 8192, 1 + i * 137}});
  // As /var/log/lastlog of an image with large user numbers.
  put(tree, "sparse/terabyte",
      make_file(1200 * kGiB, {{0, {0, 512 * 2000, 292}},
                              {0, {700 * kGiB + 77, 512 * 2001, 3000}},
                              {0, {1200 * kGiB - 292, 512 * 2010, 292}}}));
}

void put_attributes(Tree& tree) {
  put(tree, "attributes/setuid", with(small(512), [](TreeInode& inode) { inode.mode = 04755; }));
  put(tree, "attributes/sticky", with(make_directory(), [](TreeInode& inode) { inode.mode = 01777; }));
  put(tree, "attributes/setgid", with(make_directory(), [](TreeInode& inode) { inode.mode = 02770; }));
  put(tree, "attributes/nobody-may", with(small(512), [](TreeInode& inode) { inode.mode = 0; }));
  put(tree, "attributes/before-1970", with(small(512), [](TreeInode& inode) {
        inode.mtime_seconds = -1;
        inode.mtime_nanoseconds = 500'000'000;
      }));
  put(tree, "attributes/1901", with(small(512), [](TreeInode& inode) { inode.mtime_seconds = -2'177'452'800; }));
  put(tree, "attributes/2500", with(small(512), [](TreeInode& inode) { inode.mtime_seconds = 16'725'225'600; }));
  put(tree, "attributes/nanoseconds", with(small(512), [](TreeInode& inode) {
        inode.mtime_seconds = 1'700'000'000;
        inode.mtime_nanoseconds = 123'456'789;
      }));
  put(tree, "attributes/large-owner", with(small(512), [](TreeInode& inode) {
        inode.uid = 4'000'000'000u;
        inode.gid = 65'536;
      }));
  put(tree, "attributes/largest-compact-owner", with(small(512), [](TreeInode& inode) {
        inode.uid = 65'535;
        inode.gid = 65'535;
      }));
  put(tree, "devices/null", device(FileType::kCharDevice, 1, 3));
  put(tree, "devices/large-minor", device(FileType::kBlockDevice, 259, 1'048'575));
  put(tree, "devices/large-major", device(FileType::kCharDevice, 4095, 256));
  put(tree, "devices/whiteout-like", device(FileType::kCharDevice, 0, 0));
  put(tree, "devices/fifo", device(FileType::kFifo, 0, 0));
}

void put_xattrs(Tree& tree) {
  put(tree, "xattrs/capability",
      with(small(512), [](TreeInode& inode) { inode.xattrs["security.capability"] = kCapability; }));
  put(tree, "xattrs/acl", with(small(512), [](TreeInode& inode) { inode.xattrs["system.posix_acl_access"] = kAcl; }));
  put(tree, "xattrs/default-acl", with(make_directory(), [](TreeInode& inode) {
        inode.xattrs["system.posix_acl_access"] = kAcl;
        inode.xattrs["system.posix_acl_default"] = kAcl;
      }));
  put(tree, "xattrs/empty-value", with(small(512), [](TreeInode& inode) { inode.xattrs["user.empty"] = ""; }));
  put(tree, "xattrs/binary",
      with(small(512), [](TreeInode& inode) { inode.xattrs["user.b\xff\xfe"] = std::string("\0\1\2\xff", 4); }));
  put(tree, "xattrs/long-name",
      with(small(512), [](TreeInode& inode) { inode.xattrs["user." + std::string(250, 'n')] = "v"; }));
  put(tree, "xattrs/long-value",
      with(small(512), [](TreeInode& inode) { inode.xattrs["user.long"] = std::string(20'000, 'v'); }));
  put(tree, "xattrs/longest-value",
      with(small(512), [](TreeInode& inode) { inode.xattrs["user.longest"] = std::string(65'535, 'w'); }));
  put(tree, "xattrs/many", with(small(512), [](TreeInode& inode) {
        for (int i = 0; i < 400; ++i)
          inode.xattrs["user.number" + std::to_string(i)] = "value " + std::to_string(i * i);
      }));
  put(tree, "xattrs/many-again", with(small(512), [](TreeInode& inode) {  // more shared ones than an inode can refer to
        for (int i = 0; i < 400; ++i)
          inode.xattrs["user.number" + std::to_string(i)] = "value " + std::to_string(i * i);
      }));
  put(tree, "xattrs/trusted", with(small(512), [](TreeInode& inode) { inode.xattrs["trusted.varve"] = "yes"; }));
  put(tree, "xattrs/symlink",
      with(make_symlink("somewhere"), [](TreeInode& inode) { inode.xattrs["trusted.link"] = "yes"; }));
  put(tree, "xattrs/directory",
      with(make_directory(), [](TreeInode& inode) { inode.xattrs["user.directory"] = std::string(600, 'd'); }));
  for (int i = 0; i < 50; ++i)
    put(tree, "xattrs/labelled/" + std::to_string(i), with(small(512), [](TreeInode& inode) {
          inode.xattrs["security.selinux"] = "system_u:object_r:container_file_t:s0";
        }));
}

void put_names(Tree& tree, std::size_t many) {
  put(tree, "names/" + std::string(255, 'l'), small(512));
  put(tree, "names/" + std::string(254, 'l'), make_directory());
  for (char letter = 'a'; letter <= 'z'; ++letter) put(tree, "long-names/" + std::string(255, letter), small(512));
  put(tree, "names/not-utf8-\xff\xfe\x80", small(512));
  put(tree, "names/\x01\x02", small(512));
  put(tree, "names/ ", small(512));
  put(tree, "names/!before the dots", small(512));
  put(tree, "names/-after", small(512));
  put(tree, "names/...", small(512));
  put(tree, "names/.wh.not-a-whiteout-any-more", small(512));
  put(tree, "names/prefix", small(512));
  put(tree, "names/prefix2", small(512));
  put(tree, "names/prefi", small(512));
  put(tree, "links/short", make_symlink("x"));
  put(tree, "links/dangling", make_symlink("/nowhere/at all"));
  for (const std::size_t length :
       {400u, 447u, 448u, 449u, 479u, 480u, 481u, 500u, 511u, 512u, 513u, 1023u, 1024u, 2000u, 4094u, 4095u})
    put(tree, "links/" + std::to_string(length), make_symlink(std::string(length, 't')));
  for (std::size_t i = 0; i < many; ++i)
    put(tree, "many/entry-" + std::to_string(i * 7919 % many), i % 100 == 0 ? make_directory() : small(512));
  // A path of 4096 bytes.
  std::string deep;
  while (4096 - deep.size() > 255) deep += std::string(200, char('a' + deep.size() % 26)) + "/";
  deep += std::string(4096 - deep.size(), 'z');
  put(tree, deep, small(512));
  std::string deeper;
  for (int i = 0; i < 2000; ++i) deeper += "d/";
  put(tree, deeper + "f", small(512));
  // Directories whose last block ends at every possible place.
  for (std::size_t i = 0; i < 520; ++i) {
    put(tree, "tails/" + std::to_string(i) + "/" + std::string(1 + i % 200, 'n'), make_symlink("a"));
    if (i >= 200) put(tree, "tails/" + std::to_string(i) + "/" + std::string(1 + i % 190, 'm'), make_symlink("b"));
    if (i >= 400) put(tree, "tails/" + std::to_string(i) + "/" + std::string(1 + i % 180, 'o'), make_symlink("c"));
  }
}

void put_hard_links(Tree& tree) {
  const auto shared = small(512 * 3, 1000);
  for (const char* path : {"hard/a", "hard/z", "hard/deep/er/link", "other/link", "zzz"}) put(tree, path, shared);
  const auto fifo = device(FileType::kFifo, 0, 0);
  put(tree, "hard/fifo1", fifo);
  put(tree, "hard/fifo2", fifo);
  const auto link = make_symlink("target");
  put(tree, "hard/symlink1", link);
  put(tree, "hard/symlink2", link);
  const auto popular = small(512 * 4);
  for (int i = 0; i < 70'000; ++i)
    put(tree, "hard/popular/" + std::to_string(i), popular);  // more than compact inodes count
}

}  // namespace

std::vector<std::uint64_t> sizes_of_horrors() { return {64ull << 20, 1'000'000, 6 * kGiB}; }

Tree malformed_tree(std::size_t many) {
  Tree tree;
  tree.layers = 3;
  tree.root->mode = 0711;
  tree.root->uid = 3;
  put_content(tree);
  put_attributes(tree);
  put_xattrs(tree);
  put_names(tree, many);
  put_hard_links(tree);
  return tree;
}

}  // namespace varve::test
