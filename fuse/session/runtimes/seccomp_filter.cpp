#include <seccomp.h>

#include <algorithm>
#include <memory>
#include <string>

#include "core/base/errors.h"
#include "core/base/text/strings.h"
#include "fuse/session/runtimes/seccomp_profile.h"

namespace varve::fuse {
namespace {

struct ReleaseFilter {
  void operator()(void* filter) const noexcept { ::seccomp_release(filter); }
};

void check(int result, std::string_view what) {
  if (result >= 0) return;
  errno = -result;
  fail_errno("seccomp filter: {}", what);
}

scmp_arg_cmp comparison_of(const SeccompArgument& argument) {
  using Is = SeccompArgument::Is;
  if (argument.is == Is::kMaskedEqual) return {argument.index, SCMP_CMP_MASKED_EQ, argument.mask, argument.value};
  return {argument.index, argument.is == Is::kEqual ? SCMP_CMP_EQ : SCMP_CMP_NE, argument.value, 0};
}

void add_rule(scmp_filter_ctx filter, const SeccompRule& rule) {
  const auto action = rule.action == SeccompAction::kAllow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM);
  for (const auto name : rule.names) {
    const int number = ::seccomp_syscall_resolve_name(std::string(name).c_str());
    if (number == __NR_SCMP_ERROR) continue;  // newer than this library, which then answers ENOSYS
    const auto comparison = rule.argument ? comparison_of(*rule.argument) : scmp_arg_cmp{};
    check(::seccomp_rule_add_array(filter, action, number, rule.argument ? 1 : 0, &comparison), name);
  }
}

}  // namespace

void install_seccomp_filter() {
  const std::unique_ptr<void, ReleaseFilter> filter(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)));
  if (!filter) fail<Unsupported>("this machine's kernel has no seccomp filters");
  for (const auto name : seccomp_architectures()) {
    const auto lower_case = to_lower(name.substr(std::string_view("SCMP_ARCH_").size()));
    const int result = ::seccomp_arch_add(filter.get(), ::seccomp_arch_resolve_name(lower_case.c_str()));
    if (result != -EEXIST) check(result, name);
  }
  check(::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 0), "new privileges");
  for (const auto& rule : seccomp_rules()) add_rule(filter.get(), rule);
  check(::seccomp_load(filter.get()), "load");
}

}  // namespace varve::fuse
