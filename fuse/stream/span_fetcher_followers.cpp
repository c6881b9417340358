// SpanFetcher's part for spans that follow others: each needs the end of the one before.
#include "core/base/errors.h"
#include "fuse/stream/span_fetcher.h"

namespace varve::fuse {

// Of a span that follows another: what it follows is in the store, or gets a task, queued in front of it. A map has no
// more than kMaxFollowers in a row.
void SpanFetcher::need_before(Tasks::iterator task) {
  auto& [key, state] = *task;
  const auto& map = *state.layer->map;
  if (!map.spans[key.second].follows || state.needs_before || !state.before.empty()) return;
  if (state.layer->store.is_readable(map.window_in_stream(key.second))) return;
  state.needs_before = true;
  find_or_begin_task(state.layer, key.second - 1, state.priority);
}

// Who waits for the end of this one; tasks_.end() if nobody does.
SpanFetcher::Tasks::iterator SpanFetcher::follower_of(Tasks::const_iterator task) {
  const auto next = tasks_.find({task->first.first, task->first.second + 1});
  return next != tasks_.end() && next->second.needs_before ? next : tasks_.end();
}

void SpanFetcher::give_to_follower(Tasks::iterator task, ByteView stream) {
  const auto next = follower_of(task);
  if (next == tasks_.end()) return;
  next->second.needs_before = false;
  next->second.before = to_bytes(stream.last(index::kFollowedBytes));
  decode_if_downloaded(next);
}

// What is in front of a span that follows another; empty of others. Absent if it is to be had first, which the task
// waits for then.
std::optional<Bytes> SpanFetcher::bytes_before(Tasks::iterator task) {
  auto& [key, state] = *task;
  const auto& map = *state.layer->map;
  if (!map.spans[key.second].follows) return Bytes();
  if (!state.before.empty()) return std::exchange(state.before, {});
  const auto range = map.window_in_stream(key.second);
  Bytes window(range.length);
  if (state.layer->store.read(range.offset, window).empty()) return window;
  // It went meanwhile.
  const std::lock_guard lock(mutex_);
  state.stage = Task::Stage::kFetching;
  need_before(task);
  decode_if_downloaded(task);
  return std::nullopt;
}

// For it, or for what follows it.
bool SpanFetcher::somebody_waits(Tasks::const_iterator task) {
  for (; task != tasks_.end(); task = follower_of(task))
    if (std::ranges::any_of(task->second.waiters, [](const auto& waiter) { return waiter->waits(); })) return true;
  return false;
}

void SpanFetcher::note_failure(Tasks::const_iterator task, const std::exception_ptr& error) {
  const auto& [key, state] = *task;
  const auto message = message_of(error);
  state.layer->last_failure = message;
  if (!somebody_waits(task)) return;
  for (auto one = task; one != tasks_.end(); one = follower_of(one))
    for (const auto& waiter : one->second.waiters) waiter->last_error = message;
  state.layer->counters.last_error.with(
      [&](std::string& last) { last = place_of(*state.layer, key.second) + ": " + message; });
}

}  // namespace varve::fuse
