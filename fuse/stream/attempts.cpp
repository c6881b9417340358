#include "fuse/stream/attempts.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/random.h"

namespace varve::fuse {
namespace {

enum class Failure { kCorrupt, kPassing, kRefused, kCancelled };

Failure kind_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CorruptData&) {
    return Failure::kCorrupt;
  } catch (const TemporaryError&) {
    return Failure::kPassing;
  } catch (const Cancelled&) {
    return Failure::kCancelled;
  } catch (const Error&) {
    return Failure::kRefused;
  } catch (...) {  // a system call failed, or memory was short
    return Failure::kPassing;
  }
}

// Doubling from 100 ms to 5 s, less a random part, so that machines that fail together do not return together.
std::chrono::milliseconds back_off(unsigned failures) {
  constexpr std::chrono::milliseconds kBase{100}, kLongest{5'000};
  const auto longest = std::min(kLongest, kBase * (1u << std::min(failures, 16u)));
  return random_wait(longest / 2, longest);
}

}  // namespace

std::optional<std::chrono::milliseconds> Attempts::after(const std::exception_ptr& error, unsigned sources,
                                                         bool somebody_waits, unsigned copies) {
  constexpr auto kAtOnce = std::chrono::milliseconds(0);
  ++source_;
  switch (kind_of(error)) {
    case Failure::kCorrupt:
      if (++corrupt_ >= std::max({2u, sources, copies})) return std::nullopt;
      return kAtOnce;
    case Failure::kRefused:
      if (++refused_ >= sources) return std::nullopt;
      return kAtOnce;
    case Failure::kPassing:
      if (!somebody_waits) return std::nullopt;
      // The other sources are asked before the first is asked again.
      if (++passing_ % std::max(1u, sources) != 0) return kAtOnce;
      return back_off(passing_ / std::max(1u, sources) - 1);
    case Failure::kCancelled:
      break;
  }
  return std::nullopt;
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "unknown error";
  }
}

std::exception_ptr with_context(const std::string& context, const std::exception_ptr& error) {
  const auto message = context + ": " + message_of(error);
  try {
    std::rethrow_exception(error);
  } catch (const CorruptData&) {
    return std::make_exception_ptr(CorruptData(message));
  } catch (const TemporaryError&) {
    return std::make_exception_ptr(TemporaryError(message));
  } catch (const NotFound&) {
    return std::make_exception_ptr(NotFound(message));
  } catch (const Cancelled&) {
    return std::make_exception_ptr(Cancelled(message));
  } catch (const std::system_error& system) {
    return std::make_exception_ptr(std::system_error(system.code(), context + ": " + system.what()));
  } catch (...) {
    return std::make_exception_ptr(Error(message));
  }
}

}  // namespace varve::fuse
