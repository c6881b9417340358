#pragma once

namespace varve {

// The deleter of a std::unique_ptr that owns a C library's handle: std::unique_ptr<archive,
// FreeWith<archive_read_free>>.
template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    Free(handle);
  }
};

}  // namespace varve
