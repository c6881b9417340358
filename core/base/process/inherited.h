#pragma once
// What a process has open besides its standard streams. System calls only, so these may be called between fork(2) and
// exec(2).
#include <span>

namespace varve {

// The next exec(2) closes what is open from 3 on, whoever opened it, but for `keep`.
void close_at_exec_but(std::span<const int> keep) noexcept;
// Closes what is open from 3 on, but for `keep`.
void close_all_but(std::span<const int> keep) noexcept;

}  // namespace varve
