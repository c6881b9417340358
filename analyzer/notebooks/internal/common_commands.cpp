#include "analyzer/notebooks/internal/common_commands.h"

#include <algorithm>
#include <array>

namespace varve::notebooks {

namespace {

// Sorted by bytes.
constexpr std::array<std::string_view, 378> kCommonCommands = {
    "((", ".", "7z", "7za", "7zr", ":", "Xvfb", "[", "[[", "]]", "add-apt-repository", "adduser", "alias",
    "apachectl", "apt-cache", "apt-key", "ar", "arch", "aria2c", "as", "awk", "axel", "base64", "basename", "bazel",
    "bazelisk", "bc", "bg", "bibtex", "bq", "break", "bundle", "bunzip2", "bzip2", "cal", "cargo", "case", "cat",
    "cc", "cd", "chgrp", "chmod", "chown", "chromedriver", "chromium", "chsh", "cksum", "clear", "cmake", "cmp",
    "col", "column", "comm", "continue", "convert", "cp", "cpio", "crontab", "csplit", "curl", "cut", "date", "dd",
    "declare", "deluser", "df", "diff", "dig", "dir", "dirname", "dirs", "disown", "dmesg", "docker", "done",
    "dos2unix", "dot", "dpkg", "dpkg-deb", "dpkg-query", "dpkg-reconfigure", "du", "ebook-convert", "echo", "egrep",
    "emacs", "enable", "esac", "exit", "export", "expr", "false", "ffmpeg", "ffprobe", "fg", "fgrep", "fi", "file",
    "find", "fmt", "fold", "for", "free", "ftp", "function", "fuser", "fusermount", "g++", "gawk", "gcc", "gcloud",
    "gdb", "gem", "getconf", "getopt", "getopts", "git", "git-lfs", "go", "gofmt", "google-chrome", "gpg", "grep",
    "groups", "gsutil", "gunzip", "gzip", "hadoop", "hash", "hdfs", "head", "help", "heroku", "hexdump", "history",
    "hive", "host", "hostname", "hostnamectl", "htop", "iconv", "id", "identify", "ifconfig", "in", "inkscape",
    "insmod", "install", "ip", "jar", "java", "javac", "jobs", "join", "journalctl", "jq", "kill", "killall", "kinit",
    "klist", "kubectl", "lame", "last", "latex", "ldapsearch", "ldconfig", "ldconfig.real", "ldd", "less", "let",
    "link", "ln", "local", "locale", "locale-gen", "locate", "logger", "login", "logout", "ls", "lsb_release",
    "lsblk", "lscpu", "lshw", "lsmod", "lsof", "lspci", "lsusb", "ltrace", "lz4", "magick", "make", "man", "md5",
    "md5sum", "mediainfo", "mkdir", "mkfifo", "mkfs", "mknod", "mktemp", "modprobe", "mogrify", "mongo", "mongod",
    "more", "mount", "mv", "mvn", "mysql", "nano", "nasm", "nc", "netcat", "netstat", "nginx", "ninja", "nl", "nm",
    "node", "nproc", "npx", "nslookup", "nsys", "nvcc", "nvidia-smi", "nvprof", "nvtop", "objdump", "od", "ollama",
    "openssl", "p7zip", "pandoc", "passwd", "paste", "patch", "pdflatex", "perl", "pgrep", "php", "pigz", "ping",
    "pkill", "popd", "pr", "printenv", "printf", "protoc", "ps", "psql", "pstree", "pushd", "pwd", "rar", "read",
    "readarray", "readlink", "readonly", "realpath", "redis-cli", "redis-server", "rename", "reset", "return", "rev",
    "rm", "rmdir", "rocm-smi", "rsync", "ruby", "rustc", "rustup", "sbt", "scala", "scp", "screen", "script", "sdiff",
    "sed", "select", "seq", "service", "set", "sftp", "sha1sum", "sha256sum", "sha512sum", "shasum", "shift", "shopt",
    "shred", "shuf", "shutdown", "size", "sleep", "sort", "source", "sox", "split", "sqlite3", "ssh", "ssh-keygen",
    "sshd", "stat", "strace", "strings", "strip", "stty", "su", "sum", "swapoff", "swapon", "swig", "sync",
    "systemctl", "tac", "tail", "tar", "tee", "telnet", "terraform", "tesseract", "test", "timedatectl", "tmux",
    "top", "touch", "tput", "tr", "trap", "tree", "true", "truncate", "tty", "type", "typeset", "tzselect", "ulimit",
    "umask", "umount", "unalias", "uname", "unexpand", "uniq", "unlink", "unrar", "unset", "unxz", "unzip",
    "update-alternatives", "update-ca-certificates", "update-initramfs", "uptime", "useradd", "usermod", "users",
    "vi", "vim", "vmstat", "w", "wait", "watch", "wc", "wget", "which", "who", "whoami", "wine", "xelatex",
    "xvfb-run", "xz", "yacc", "yes", "zcat", "zip", "zless", "zstd",
};
static_assert(std::is_sorted(kCommonCommands.begin(), kCommonCommands.end()));

}  // namespace

bool is_common_command(std::string_view program) {
  return std::binary_search(kCommonCommands.begin(), kCommonCommands.end(), program);
}

}  // namespace varve::notebooks
