#include "fuse/daemon/lease_table.h"

#include <algorithm>

namespace varve::fuse {

LeaseTable::Lease LeaseTable::add(const std::filesystem::path& mount, std::optional<LeaseHolder> holder) {
  const auto number = state_.with([&](State& state) {
    state.leases[++state.last_number] = {.mount = mount, .holder = holder};
    return state.last_number;
  });
  return Lease(*this, number, mount);
}

bool LeaseTable::hold(const std::string& name, const std::filesystem::path& mount) {
  return state_.with([&](State& state) { return state.holds.try_emplace(name, mount).second; });
}

bool LeaseTable::release(const std::string& name) {
  const auto released = state_.with([&](State& state) { return state.holds.extract(name); });
  if (released.empty()) return false;
  on_end_(released.mapped());
  return true;
}

bool LeaseTable::forget_hold(const std::string& name) {
  return state_.with([&](State& state) { return state.holds.erase(name) != 0; });
}

std::optional<std::filesystem::path> LeaseTable::held_at(const std::string& name) {
  return state_.with([&](State& state) -> std::optional<std::filesystem::path> {
    const auto found = state.holds.find(name);
    return found == state.holds.end() ? std::nullopt : std::optional(found->second);
  });
}

std::map<std::string, std::filesystem::path> LeaseTable::holds() {
  return state_.with([](State& state) { return state.holds; });
}

std::vector<std::string> LeaseTable::held_by(const std::filesystem::path& mount) {
  return state_.with([&](State& state) {
    std::vector<std::string> names;
    for (const auto& [name, held] : state.holds)
      if (held == mount) names.push_back(name);
    return names;
  });
}

void LeaseTable::take_over(const std::vector<HandoverLease>& leases) {
  std::vector<HolderWatch::Holder> holders;
  for (const auto& [mount, holder] : leases) {
    auto process = open_process(holder);
    if (!process) continue;
    auto lease = std::make_shared<std::optional<Lease>>(add(mount, holder));
    holders.push_back({.process = std::move(process), .on_end = [lease] { lease->reset(); }});
  }
  if (!holders.empty()) holders_ = std::make_unique<HolderWatch>(std::move(holders));
}

void LeaseTable::end(std::uint64_t number) {
  const auto ended = state_.with([&](State& state) { return state.leases.extract(number); });
  if (!ended.empty()) on_end_(ended.mapped().mount);
}

bool LeaseTable::any(const std::filesystem::path& mount) {
  return state_.with([&](State& state) {
    return std::ranges::any_of(state.leases, [&](const auto& lease) { return lease.second.mount == mount; }) ||
           std::ranges::any_of(state.holds, [&](const auto& hold) { return hold.second == mount; });
  });
}

std::size_t LeaseTable::size() {
  return state_.with([](const State& state) { return state.leases.size(); });
}

std::vector<std::optional<LeaseHolder>> LeaseTable::holders(const std::filesystem::path& mount) {
  return state_.with([&](State& state) {
    std::vector<std::optional<LeaseHolder>> holders;
    for (const auto& [number, lease] : state.leases)
      if (lease.mount == mount) holders.push_back(lease.holder);
    return holders;
  });
}

std::vector<LeaseHolder> LeaseTable::holders() {
  return state_.with([](State& state) {
    std::vector<LeaseHolder> holders;
    for (const auto& [number, lease] : state.leases)
      if (lease.holder) holders.push_back(*lease.holder);
    return holders;
  });
}

void LeaseTable::write_to(Handover& record) {
  state_.with([&](State& state) {
    for (const auto& [number, lease] : state.leases)
      if (lease.holder) record.leases.push_back({.mount = lease.mount, .holder = *lease.holder});
    for (const auto& [name, mount] : state.holds) record.holds.push_back({.name = name, .mount = mount});
  });
}

void LeaseTable::clear() {
  state_.with([](State& state) {
    state.leases.clear();
    state.holds.clear();
  });
  holders_.reset();
}

}  // namespace varve::fuse
